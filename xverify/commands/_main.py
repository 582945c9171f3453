"""The command line. Each ``NAME.py`` here is the command NAME.

A command defines HELP (one line), GROUP (its heading in the list of commands), EXAMPLE (the end of its help),
add_arguments(parser), and main(args), which returns the exit code. A command whose exit codes have special meanings also defines
EXIT_CODES. The module of a command is imported only when the command is called.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import signal
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import ModuleType

from .. import interrupts, writing
from ..errors import UsageError, XverifyError, first_line, full_disk, shown
from ..results.verdicts import EXIT_CODES
from ..version import __version__
from . import _streams
from ._arguments import WIDTH, Parser

DESCRIPTION = "Load identical weights into several deep-learning frameworks, and report FPS beside output error."
EXAMPLE = "xverify run resnet50 --subjects torch:eager,jittor"
DEBUG = "XVERIFY_DEBUG"  # an environment variable
GROUPS = ("verify and time", "results", "models, weights, environments", "this installation")


@dataclass(frozen=True)
class Command:
    """A command and its file. The help is read from the source, so that listing the commands imports none of them."""

    path: Path

    @property
    def name(self) -> str:
        """What the user types."""
        return self.path.stem

    @property
    def help(self) -> str:
        """What the command does, in one line."""
        return self._texts["HELP"]

    @property
    def group(self) -> str:
        """The heading in the list of commands."""
        return self._texts.get("GROUP", GROUPS[0])

    def load(self) -> ModuleType:
        """The module of the command."""
        return import_module(f"{__package__}.{self.name}")

    @cached_property
    def _texts(self) -> dict[str, str]:
        """Name -> text of every constant text in the module."""
        statements = ast.parse(self.path.read_text(encoding="utf-8")).body
        return {
            target.id: statement.value.value
            for statement in statements
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            for target in statement.targets
            if isinstance(target, ast.Name) and isinstance(statement.value.value, str)
        }


def commands() -> dict[str, Command]:
    """All commands by name."""
    return {path.stem: Command(path) for path in sorted(Path(__file__).parent.glob("[!_]*.py"))}


class TopParser(Parser):
    """The parser of ``xverify``: its help lists the commands by group."""

    known: Mapping[str, Command] = {}

    def format_help(self) -> str:
        groups = dict.fromkeys((*GROUPS, *(command.group for command in self.known.values())))
        sections = [f"usage: {self._usage_line()}", "", *_wrapped(DESCRIPTION)]
        for group in groups:
            lines = [_entry(each.name, each.help) for each in self.known.values() if each.group == group]
            sections += ["", f"{group}:", *lines] if lines else []
        sections += [
            "",
            "options:",
            _entry("-h, --help", "show this help; after a command, the short and the whole help of it"),
        ]
        sections += [
            _entry("--debug", "before a command: print the traceback of an unexpected error; so does XVERIFY_DEBUG=1")
        ]
        sections += [_entry("--version", "print the version"), "", exit_codes(EXIT_CODES), "", f"example: {EXAMPLE}"]
        return "\n".join(sections) + "\n"

    def format_short(self) -> str:
        """The same without options and exit codes."""
        commands, _, rest = self.format_help().partition("\noptions:\n")
        return f"{commands}\nexample: {rest.rpartition('example: ')[2]}\nxverify help COMMAND explains a command."

    def _usage_line(self) -> str:
        return "xverify COMMAND [OPTION ...]"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _entry(name: str, text: str) -> str:
    first, *rest = _wrapped(text, " " * 16)
    return "\n".join([f"  {name:13} {first.lstrip()}", *rest])


def exit_codes(meanings: Mapping[int, str]) -> str:
    """The section on exit codes in a help text."""
    return "\n".join(["exit codes:", *(_entry(str(code), meaning) for code, meaning in meanings.items())])


def parser(load: Iterable[str] | None = None) -> TopParser:
    """The parser of the whole command line. load: the commands whose arguments are declared; None: all commands."""
    top = TopParser(prog="xverify")
    top.add_argument("--version", action="version", version=f"xverify {__version__}", help="print the version")
    top.add_argument("--debug", action="store_true", help="print the traceback of an unexpected error")
    top.known = commands()
    below = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser, required=True)
    for name, command in top.known.items():
        if load is not None and name not in load:
            below.add_parser(name)
            continue
        sub = below.add_parser(name, help=command.help, description=_sentence(command.help))
        module = command.load()
        module.add_arguments(sub)
        sub.set_defaults(main=module.main)
        _explain(sub, exit_codes(getattr(module, "EXIT_CODES", EXIT_CODES)), module.EXAMPLE)
    return top


def _explain(sub: Parser, meanings: str, example: str) -> None:
    """Put the exit codes and examples at the end of the help of a command and of each of its actions."""
    sub.example = f"{meanings}\n\n{example}"
    for name, text, action in sub.actions():
        blocks = re.findall(rf"^  xverify \w+ {name}.*(?:\n {{6}}.*)*", example, re.MULTILINE)
        action.description = _sentence(text)
        action.example = "\n".join([meanings, "", "examples:", *blocks])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def main(argv: list[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    if argv is not None:
        return _run(argv)
    _streams.protect()
    ours = signal.getsignal(signal.SIGINT) in interrupts.USUAL
    if ours:
        signal.signal(signal.SIGINT, interrupts.interrupt)
    try:
        code = _run(sys.argv[1:])
    except SystemExit as error:  # the help, or a wrong argument
        code = error.code if isinstance(error.code, int) else 0
    except KeyboardInterrupt:  # before the command had begun, or when it had ended
        print(interrupts.LINE, file=sys.stderr)
        code = interrupts.CODE
    if ours:
        signal.signal(signal.SIGINT, interrupts.end if code != interrupts.CODE else signal.SIG_IGN)
    problem = _streams.close()
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it has ended, and the interpreter would print a traceback
    if problem:
        print(f"xverify: standard output could not be written: {problem}", file=sys.stderr)
        return code or 3
    return code


def spelled(given: list[str]) -> list[str]:
    """The arguments of a command line, with ``--help`` for the word help: ``xverify help run`` is ``xverify run --help``."""
    return [*map(str.lower, given[1:]), "--help"] if given[:1] == ["help"] else given


def _run(given: list[str]) -> int:
    """Run one command. The exit code of whatever goes wrong is never 0 or 1: these are verdicts."""
    if not given:
        print(parser(load=[]).format_help(), end="")
        return 2
    given = spelled(given)
    called = next((text for text in given if not text.startswith("-")), "")
    debug = bool(os.environ.get(DEBUG)) or "--debug" in takewhile(lambda text: text.startswith("-"), given)
    try:
        _check_texts(given)
        args = parser(load=[called]).parse_args(given)  # SystemExit ends the command here: help, or a wrong argument
    except XverifyError as error:
        return _report(called, error)
    writing.WRITTEN.clear()
    try:
        code: int = args.main(args)
    except XverifyError as error:
        return _report(called, error)
    except KeyboardInterrupt:
        print(interrupts.LINE, file=sys.stderr)
        return interrupts.CODE
    except BaseException as error:  # also SystemExit: code of a user or of a framework may raise it, with 0, too
        return _report(called, unexpected(error, debug))
    finally:
        _say_written(args)
    return code


def _say_written(args: argparse.Namespace) -> None:
    """Say which of the files that the user named were written. The others, such as those of a cache, are not told."""
    named = [str(value) for value in vars(args).values() if isinstance(value, (str, Path))]
    files = [name for name in dict.fromkeys(named) if Path(name) in writing.WRITTEN]
    if files and not getattr(args, "quiet", False):
        print(shown(f"wrote {', '.join(files)}"), file=sys.stderr)


def _check_texts(given: list[str]) -> None:
    """Raise UsageError for an argument that is no UTF-8: no result file and no message of a worker could hold it."""
    strange = next((text for text in given if any("\ud800" <= letter <= "\udfff" for letter in text)), None)
    if strange is not None:
        raise UsageError(
            f"the argument {strange!a} is no UTF-8, as texts and the names of files must be: write it in UTF-8"
        )


def unexpected(error: BaseException, debug: bool) -> XverifyError:
    """The message about an error that nobody raised on purpose. The traceback goes to a new file, or is printed with --debug."""
    full = full_disk(error)
    if full and not debug:
        return XverifyError(full)
    if isinstance(error, MemoryError) and not debug:
        return XverifyError(f"there is not enough memory: {str(error) or 'none is left'}; take fewer or smaller items")
    says = f"unexpected {first_line(error)}"
    details = f"xverify {__version__}, Python {sys.version}\n{sys.argv}\n" + "".join(traceback.format_exception(error))
    if not debug:
        try:
            number, path = tempfile.mkstemp(prefix="xverify-", suffix=".log")
            with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(details)
            return XverifyError(f"{says}. The traceback is in {path}; `xverify --debug` or {DEBUG}=1 prints it instead")
        except OSError:
            pass  # no file can be written: print it
    print(details, file=sys.stderr)
    return XverifyError(f"{says}. The traceback is above")


def _report(command: str, error: XverifyError) -> int:
    """Print an error on standard error, in red when that is a terminal. Returns its exit code."""
    from rich.text import Text

    from ..report.terminal import Output

    name = shown(f"xverify {command}".strip())
    Output(stderr=True).print(Text.assemble((f"{name}: ", "bold red"), str(error)))
    return error.exit_code
