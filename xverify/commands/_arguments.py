"""Argument parsers for commands: help of 80 columns, mistakes answered with the nearest known name, options from declarations."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..errors import UsageError, nearest
from ..workload.declaration import Option, check

WIDTH = 79  # of all help, whatever the terminal is
COMMENT = re.compile(r"(\s+xverify .*?\S)\s{2,}(\S.*)")  # an example, and after two spaces what it shows


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """The layout of help."""

    def __init__(self, prog: str, **settings: Any) -> None:  # what argparse of this Python passes
        super().__init__(prog, **{**settings, "width": WIDTH, "max_help_position": 26})


class Parser(argparse.ArgumentParser):
    """A parser whose messages name the nearest known option or action, and the place to look.

    example: the lines that end the help.
    """

    def __init__(self, *, example: str = "", **settings: Any) -> None:  # settings: those of argparse.ArgumentParser
        super().__init__(**{"formatter_class": HelpFormatter, **settings})
        self.groups: dict[str, argparse._ArgumentGroup] = {}
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
        return super().format_help()

    def _usage_line(self) -> str:
        """``xverify run MODEL|FOLDER [OPTION ...]``: the groups list the options."""
        places = []
        for action in self._get_positional_actions():
            name = str(action.metavar or action.dest.upper())
            more = {"+": f"{name} [{name} ...]", "?": f"[{name}]", argparse.PARSER: f"{name} ..."}
            places.append(more.get(str(action.nargs), name))
        return " ".join([self.prog, *places, "[OPTION ...]"])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # argparse declares overloads
        """As argparse's. An unknown option is told before an argument that it leaves missing."""
        given = sys.argv[1:] if args is None else list(args)
        if not self._has_actions():
            self._check_options(given)
        return super().parse_known_args(given, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # argparse declares overloads
        """As argparse's, with messages that name the nearest option."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self._check_options(rest)
            self.error(f"unexpected argument {rest[0]!r}")
        return found

    def error(self, message: str) -> NoReturn:
        """Print the message and where to look, and exit with code 2."""
        self.exit(2, f"{self.prog}: {message}\nSee: {self.prog} --help\n")

    def _has_actions(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _check_options(self, given: Sequence[str]) -> None:
        """Answer the first option that is unknown. An unambiguous beginning of an option is known, as in argparse."""
        known = [flag for action in self._actions for flag in action.option_strings]
        for text in given:
            if text == "--":
                return
            name = text.partition("=")[0]
            is_option = name.startswith("--") or re.fullmatch(r"-[A-Za-z]\w*", name)
            if is_option and not any(flag.startswith(name) for flag in known):
                self.error(f"unknown option {name!r}{nearest(name, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Called by argparse for an action with choices."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        what = action.option_strings[0] if action.option_strings else f"unknown {(action.metavar or action.dest).lower()}"  # type: ignore[union-attr]
        end = "?" if action.option_strings else ""
        verb = f"{what} is {value!r}" if end else f"{what} {value!r}"
        self.error(f"{verb}{nearest(str(value), known)} Known: {', '.join(known)}")


def fit(text: str) -> str:
    """The text with no line longer than the width: an example's comment goes to the next line, prose is wrapped."""
    lines = []
    for line in text.splitlines():
        found = COMMENT.fullmatch(line)
        parts = [line] if len(line) <= WIDTH or found is None else [found[1], f"{'':6}{found[2]}"]
        for part in parts:
            indent = part[: len(part) - len(part.lstrip())]
            hanging = indent + ("    " if part.lstrip().startswith("xverify ") else "")
            lines += textwrap.wrap(part, WIDTH, subsequent_indent=hanging, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def add(parser: Parser, options: Iterable[Option]) -> None:
    """Add each option to the group of its declaration."""
    for option in options:
        settings: dict[str, Any] = {"help": option.says.replace("%", "%%"), "default": option.default}  # argparse's
        if option.kind is bool:
            settings["action"] = "store_true"
        else:
            settings |= {"type": option.read, "metavar": option.metavar}
            if option.repeatable:
                settings |= {"action": "append", "default": []}
        action = parser.group(option.group).add_argument(option.flag, **settings)
        vars(action)["option"] = option  # the shell completion reads its choices


def values(args: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:
    """name -> value of each option, checked. Raises UsageError."""
    found = {option.name: getattr(args, option.name) for option in options}
    for option in options:
        if option.repeatable:
            found[option.name] = dict(found[option.name])
    check(options, found)
    return found


def check_choice(what: str, name: str, known: Iterable[str]) -> None:
    """Raise UsageError for a name that is not known."""
    names = list(known)
    if name not in names:
        raise UsageError(f"{what} {name}{nearest(name, names)} Known: {', '.join(names)}")
