"""The command line. Each ``NAME.py`` here is the command NAME.

A command defines HELP (one line), GROUP (its heading in the list of commands), EXAMPLE (the end of its help),
add_arguments(parser), and main(args), which returns the exit code. A command whose exit codes have special meanings also defines
EXIT_CODES. The module of a command is imported only when the command is called.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

from .. import __version__
from ..errors import XverifyError
from ..results.verdicts import EXIT_CODES
from ._arguments import WIDTH, Parser

DESCRIPTION = "Load identical weights into several deep-learning frameworks, and report FPS beside output error."
EXAMPLE = "xverify run resnet50 --subjects torch:eager,jittor"
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
        sections += ["", "options:", _entry("-h, --help", "show this help; after a command, the help of the command")]
        sections += [_entry("--version", "print the version"), "", exit_codes(EXIT_CODES), "", f"example: {EXAMPLE}"]
        return "\n".join(sections) + "\n"

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
    given = sys.argv[1:] if argv is None else argv
    called = next((text for text in given if not text.startswith("-")), "")
    try:
        args = parser(load=[called]).parse_args(given)
        code: int = args.main(args)
    except XverifyError as error:
        _report(called, error)
        return error.exit_code
    except KeyboardInterrupt:
        print("xverify: interrupted", file=sys.stderr)
        return 3
    except BrokenPipeError:  # the program that reads the output has ended, e.g. head
        sys.stderr.close()
        return 0
    return code


def _report(command: str, error: XverifyError) -> None:
    """Print an error on standard error, in red when that is a terminal."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(f"[bold red]xverify {command}:[/] ", end="")
    print(error, file=sys.stderr)
