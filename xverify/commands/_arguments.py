"""Argument parsers: help in 80 columns, messages that name the nearest known option, and arguments made from declarations."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import Any, NoReturn

from ..errors import UsageError, nearest, shown
from ..workload.declaration import Option, check

SHOWN = 4  # examples in a short help
WIDTH = 79  # characters in a line of help, for every width of the terminal
COMMENT = re.compile(r"(\s+xverify .*?\S)\s{2,}(\S.*)")  # an example, two spaces or more, and its comment


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """The layout of help."""

    def __init__(self, prog: str, **settings: Any) -> None:  # settings: those that argparse of this Python passes
        super().__init__(prog, **{**settings, "width": WIDTH, "max_help_position": 26})


class _Short(argparse.Action):
    """Prints the short help of its parser, and ends the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:  # those of argparse.Action
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:  # what argparse has parsed by then
        assert isinstance(parser, Parser)
        print(parser.format_short())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose messages name the nearest known option or action, and the help to read.

    example: the lines that end the help.
    """

    def __init__(self, *, example: str = "", **settings: Any) -> None:  # settings: those of argparse.ArgumentParser
        super().__init__(**{"formatter_class": HelpFormatter, "add_help": False, **settings})
        self.add_argument("-h", action=_Short, help="show a short help")
        self.add_argument("--help", action="help", help="show this help")
        self.groups = {"options": self._optionals, "arguments": self._positionals}
        self._positionals.title = "arguments"
        self.example = example

    def group(self, title: str) -> argparse._ArgumentGroup:
        """The group of arguments with this heading."""
        if title not in self.groups:
            self.groups[title] = self.add_argument_group(title)
        return self.groups[title]

    def format_usage(self) -> str:
        return f"usage: {self._usage_line()}\n"

    def format_help(self) -> str:
        self.usage = self._usage_line()
        self.description = fit(self.description or "")
        self.epilog = fit(self.example)
        self._action_groups.sort(key=lambda group: group is self._optionals)  # the group with --help comes last
        return super().format_help()

    def format_short(self) -> str:
        """The usage, what the command does, the names of its options, and its first examples."""
        lines = [self.format_usage(), fit(self.description or ""), ""]
        for group in self._action_groups:
            flags = [action.option_strings[-1] for action in group._group_actions if action.option_strings]
            if flags and group is not self._optionals:
                lines += textwrap.wrap(
                    f"{group.title}: {', '.join(flags)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
                )
        below = [_action(name, text) for name, text, _ in self.actions()]
        examples = re.findall(r"^(?:example: +| +)(xverify .*)", self.example, re.MULTILINE)[:SHOWN]
        lines += [*below, "", *(fit(f"  {each}") for each in examples)]
        return "\n".join([*lines, "", f"{self.prog} --help explains {'each of them' if below else 'every option'}."])

    def _usage_line(self) -> str:
        """``xverify run MODEL|FOLDER [OPTION ...]``: the groups list the options."""
        places = []
        for action in self._get_positional_actions():
            name = str(action.metavar or action.dest.upper())
            more = {"+": f"{name} [{name} ...]", "*": f"[{name} ...]", "?": f"[{name}]", argparse.PARSER: f"{name} ..."}
            places.append(more.get(str(action.nargs), name))
        return " ".join([self.prog, *places, "[OPTION ...]"])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # argparse declares overloads
        """Parse as argparse does, but report an unknown option before a missing argument."""
        given = sys.argv[1:] if args is None else list(args)
        if self._has_actions():  # the parser of the action parses the arguments after it
            given_here = list(takewhile(lambda text: text.startswith("-"), given))
            self._check_options(given_here)
            return super().parse_known_args(given, namespace)
        self._check_options(given)
        found, rest = super().parse_known_args(given, namespace)
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Print the message and the command that shows the help, and exit with code 2."""
        self.exit(2, f"{shown(f'{self.prog}: {message}')}\nSee: {self.prog} --help\n")

    def actions(self) -> Iterator[tuple[str, str, Parser]]:
        """(name, help, parser) of each action, as in ``xverify env create``."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for entry in action._get_subactions():
                    yield entry.dest, entry.help or "", action.choices[entry.dest]

    def _has_actions(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _check_options(self, given: Sequence[str]) -> None:
        """Report the first unknown option. Abbreviated options are accepted, as by argparse."""
        known = [flag for action in self._actions for flag in action.option_strings]
        for text in given:
            if text == "--":
                return
            name = text.partition("=")[0]
            is_option = name.startswith("--") or re.fullmatch(r"-[A-Za-z]\w*", name)
            if is_option and not any(flag.startswith(name) for flag in known):
                meant = nearest(name, known) if name.startswith("--") else "."
                self.error(f"unknown option {name!r}{meant}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Report a value that is not among the choices of an action. Called by argparse."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = f"unknown {str(action.metavar or action.dest).lower()}"
        self.error(f"{what} {value!r}{nearest(str(value), known)} Known: {', '.join(known)}")


def _action(name: str, text: str) -> str:
    return "\n".join(textwrap.wrap(f"  {name:13} {text}", WIDTH, subsequent_indent=" " * 16))


def fit(text: str) -> str:
    """Break a text into lines of at most WIDTH characters. The comment of a long example moves to the next line."""
    lines: list[str] = []
    for is_prose, group in groupby(text.splitlines(), key=_is_prose):
        if is_prose:
            lines += textwrap.wrap(" ".join(group), WIDTH, break_on_hyphens=False)
        else:
            lines += [part for line in group for part in _fit_line(line)]
    return "\n".join(lines)


def _is_prose(line: str) -> bool:
    """Whether a line belongs to a paragraph, because it is neither indented nor a heading."""
    return bool(line) and not line.startswith(" ") and not line.endswith(":")


def _fit_line(line: str) -> list[str]:
    match = COMMENT.fullmatch(line)
    parts = [line] if len(line) <= WIDTH or match is None else [match[1], f"{'':6}{match[2]}"]
    lines = []
    for part in parts:
        indent = part[: len(part) - len(part.lstrip())]
        hanging = indent + ("    " if part.lstrip().startswith("xverify ") else "")
        lines += textwrap.wrap(part, WIDTH, subsequent_indent=hanging, break_on_hyphens=False) or [""]
    return lines


def add(parser: Parser, options: Iterable[Option]) -> None:
    """Add each option to the group of its declaration."""
    for option in options:
        group, text = parser.group(option.group), option.says.replace("%", "%%")
        if option.kind is bool:
            action = group.add_argument(option.flag, action="store_true", help=text)
        else:
            action = group.add_argument(
                option.flag, dest=option.name, type=option.read, metavar=option.metavar, default=option.default, help=text,
                action="extend" if option.words else "append" if option.repeatable else "store",
                nargs="+" if option.words else None,
            )  # fmt: skip
        vars(action)["option"] = option  # the shell completion reads its choices


def values(args: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:  # Any: the type of its option
    """Return name -> value of each option, after checking the values. Raises UsageError."""
    given = {option.name: getattr(args, option.name) for option in options}
    for option in options:
        if option.repeatable and given[option.name] is not None:
            pairs = given[option.name]
            given[option.name] = dict(pairs)
            names = [name for name, _ in pairs]
            twice = [name for name, value in pairs if names.count(name) > 1 and given[option.name][name] != value]
            if twice:
                raise UsageError(f"{option.flag} is given for {twice[0]!r} with two values")
    check(options, given)
    return given
