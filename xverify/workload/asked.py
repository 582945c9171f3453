"""What the user asked for, as words of the command line, which a result keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .declaration import declared

EMPTY: tuple[object, ...] = ((), [], {})  # values of options that were not given


@dataclass(frozen=True)
class Asked:
    """A command with all its options.

    command: ``run`` or ``check``; "" in the file of an earlier version.
    arguments: the model, or the files.
    options: name -> the values of an option as they are typed; without a value for a flag, with several for an option that is
        repeated. Options with their defaults are left out.
    """

    command: str = ""
    arguments: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, command: str, arguments: Sequence[str | Path], settings: object, **others: object) -> Asked:
        """What these settings ask for.

        settings: a dataclass that declares options. others: name -> value of further options, and of those that come first.
        """
        known = {option.name: option for option in declared(type(settings))}
        given = {name: getattr(settings, name) for name in known}
        changed = {name for name, each in known.items() if given[name] != each.default}
        given = others | {name: value for name, value in given.items() if name in changed - set(others)}
        options = {
            name: typed(value, known[name].between if name in known else "x")
            for name, value in given.items()
            if value is not None and value not in EMPTY
        }
        return cls(command, tuple(str(each) for each in arguments), options)

    def changed(self, **changes: object) -> Asked:
        """The same with other values of some options."""
        return replace(self, options=self.options | {name: typed(value) for name, value in changes.items()})

    def words(self) -> Iterator[str]:
        """The words of the command line after ``xverify``."""
        yield self.command
        yield from (f"./{each}" if each.startswith("-") else each for each in self.arguments)
        for name, values in self.options.items():
            flag = f"--{name.replace('_', '-')}"
            if not values:
                yield flag
            for value in values:  # a value that begins with a dash would be taken for an option
                yield from (f"{flag}={value}",) if value.startswith("-") else (flag, value)


def typed(value: object, between: str = "x") -> tuple[str, ...]:
    """The values of an option as they are typed, from its value in Python: the inverse of ``Option.read``.

    between: what separates the numbers of a value of a mapping.
    """
    if value is True:
        return ()
    if isinstance(value, Mapping):
        return tuple(f"{key}={_text(each, between)}" for key, each in value.items())
    return (_text(value, ","),)


def _text(value: object, separator: str) -> str:
    """A value as it is typed. separator: between the parts of a sequence."""
    if isinstance(value, (tuple, list)):
        return separator.join(_text(each, separator) for each in value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)
