"""How a setting is declared, checked and shown: the record ``Option``, and the functions that use a list of options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .. import reading, writing
from ..errors import UsageError, nearest


@dataclass(frozen=True)
class Option:
    """One setting that a user can give.

    name: as in Python; the command line has ``--max-seconds`` for ``max_seconds``.
    annotation: the type of the value, as in a signature.
    default: the value when the user gives none.
    help: what the setting does, without its default.
    group: the heading of the help that lists it.
    metavar: the name of the value in the help; None for a flag, which takes no value.
    unset: what a default of None means, in words.
    least: the smallest allowed number.
    above: the value must be greater than this number.
    most: the greatest allowed number; None for LARGEST, of whole numbers.
    unit: the unit of the number, in messages.
    choices: the allowed names; empty when every text is allowed.
    many: whether the value is a list of such names, separated by commas.
    task: the only task that has this setting; empty when all have it.
    path: "read" for a file that must exist, "folder" for a folder, "either" for one of both; "written", "new folder" or "replaced
        folder" for one that will be made; otherwise empty.
    instead: words that may stand in the place of such a file.
    parse: turns text of the command line into a value; int, float or str when it is omitted.
    repeatable: whether the option may be given several times; ``parse`` then returns the (key, value) of a mapping.
    words: whether several values may follow one flag. between: what separates the numbers of a value of such a mapping.
    """

    name: str
    annotation: Any  # a type, or a union of types: these have no common class
    default: Any  # any value of the annotated type
    help: str
    group: str = "options"
    metavar: str | None = None
    unset: str = ""
    least: float | None = None
    above: float | None = None
    most: int | None = None
    unit: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    task: str = ""
    path: str = ""
    instead: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = None
    repeatable: bool = False
    words: bool = False
    between: str = "x"

    @property
    def flag(self) -> str:
        """The name on the command line, for example ``--max-seconds``; a word of Python ends in an underscore in the name."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def kind(self) -> type:
        """The type of a single value: bool, int, float or str."""
        allowed = (self.annotation, *get_args(self.annotation))
        return next((kind for kind in (bool, int, float) if kind in allowed), str)

    @property
    def says(self) -> str:
        """The help with the default."""
        if self.unset:
            return f"{self.help} (default: {self.unset})"
        if self.kind is bool or self.default in (None, ()):
            return self.help
        shown = f"{self.default:g}" if self.kind is float else self.default
        return f"{self.help} (default: {shown})"

    def read(self, text: str) -> Any:
        """Convert a text of the command line to a value. Raises UsageError when the text is no such value."""
        if self.parse is not None:
            return self.parse(text)
        if self.kind in (int, float):
            try:
                return self.kind(text)
            except ValueError:
                raise UsageError(f"{self.flag} is {shown(text)}: it must be {_TYPES[self.kind]}") from None
        return text

    def check(self, value: Any) -> None:
        """Raise UsageError when the value is none that ``check_value`` allows, or names no usable file."""
        self.check_value(value)
        if value is None:
            return
        if self.path in ("read", "either") and value not in self.instead:
            wrong = "" if self.path == "either" and Path(value).is_dir() else reading.problem(value)
            if wrong:
                either = " or folder" if self.path == "either" and wrong == reading.ABSENT else ""
                raise UsageError(f"{self.flag} {value}: {wrong}{either}")
        if self.path == "folder" and not Path(value).is_dir():
            raise UsageError(f"{self.flag} {value}: no such folder ({self.help})")
        if self.path == "written":
            writing.check(self.flag, value)
        if self.path in ("new folder", "replaced folder"):
            writing.check_new_folder(self.flag, value, empty=self.path == "new folder")

    def check_value(self, value: Any) -> None:
        """Raise UsageError when the value has another type, is out of range, or is no known choice. No file is looked at."""
        if value is None:
            if self.default is not None:
                raise UsageError(f"{self.flag} is None: leave it out for its default, {self.default!r}")
            return
        self._check_type(value)
        if self.kind in (int, float):
            for number in value if isinstance(value, Sequence) else [value]:
                self._check_number(number)
        names = [name.strip() for name in str(value).split(",")] if self.many else [value]
        for name in names if self.choices else ():
            if name not in self.choices:
                known = f"{nearest(str(name), self.choices)} Known: {', '.join(self.choices)}"
                raise UsageError(f"{self.flag} is {name!r}{known}")

    def _check_type(self, value: Any) -> None:
        members = get_args(self.annotation) if get_origin(self.annotation) in (Union, UnionType) else (self.annotation,)
        kinds = {get_origin(each) or each for each in members}
        wanted = next((words for kind, words in _TYPES.items() if kind in kinds), "")
        right = tuple(_NUMBERS.get(kind, Sequence if kind is tuple else kind) for kind in kinds)
        is_text = isinstance(value, str)
        if (
            not isinstance(value, right)
            or (is_text and str not in kinds)
            or (isinstance(value, bool) and bool not in kinds)
        ):
            raise UsageError(f"{self.flag} is {shown(value)}: it must be {wanted}")
        for text in _texts(value):
            if "\0" in text or len(text) > LONGEST:
                raise UsageError(f"{self.flag} is {shown(text)}: it must have at most {LONGEST} characters, and no NUL")

    def _check_number(self, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, _NUMBERS[self.kind]):
            raise UsageError(f"{self.flag} is {shown(value)}: it must be {_TYPES[self.kind]}")
        says = f"{self.flag} is {f'{value:g}' if isinstance(value, float) else shown(value)}: it must be"
        most = self.most or (LARGEST if self.kind is int else sys.float_info.max)
        if self.least is not None and not value >= self.least:
            raise UsageError(f"{says} at least {self.least:g}")
        if self.above is not None and not value > self.above:
            raise UsageError(f"{says} above {self.above:g} {self.unit}".rstrip())
        if value > most:
            raise UsageError(f"{says} at most {most} {self.unit}".rstrip())


LARGEST = 2**53  # of a whole number: programs that read JSON as floats keep it exactly
LONGEST = 4096  # characters of a text: the longest path that a system takes
_NUMBERS: dict[object, Any] = {int: Integral, float: Real}
_TYPES: dict[object, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number"},
    **{Mapping: "a mapping", Sequence: "a list", tuple: "a list", str: "a text"},
}


def shown(value: object) -> str:
    """A value in a message of one line."""
    try:
        text = repr(value)
    except ValueError:  # a number with too many digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}…"


def _texts(value: object) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (*_texts(key), *_texts(item))
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


def option(default: Any, help: str, **others: Any) -> Any:
    """A dataclass field that is a setting. The field has the name and the type; ``others`` are further fields of ``Option``."""
    return field(default=default, metadata={"option": Option("", None, default, help, **others)})


Record = TypeVar("Record")


def declared(record: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in the order of its fields."""
    return _declared(record)


@cache  # a sweep asks for them in every cell
def _declared(record: type) -> tuple[Option, ...]:
    hints = get_type_hints(record)
    return tuple(
        replace(each.metadata["option"], name=each.name, annotation=hints[each.name])
        for each in fields(record)
        if "option" in each.metadata
    )


def check(options: Iterable[Option], values: Mapping[str, Any]) -> None:
    """Check every value by its option. Raises UsageError."""
    for each in options:
        each.check(values[each.name])


def check_task(options: Iterable[Option], values: Mapping[str, Any], task: str) -> None:
    """Raise UsageError when the user gave a setting that belongs to another task."""
    for each in options:
        if each.task and each.task != task and values[each.name] != each.default:
            raise UsageError(f"{each.flag} belongs to --task {each.task}; the task is {task}")


def build(
    record: Callable[..., Record],
    options: Sequence[Option],
    values: Mapping[str, Any],  # each of the type that its option declares
    caller: str,
    others: Sequence[str] = (),
) -> Record:
    """A record of these keyword values. Raises TypeError for an unknown name, with the nearest known one.

    caller: the function that was given the values, for the message.
    others: names of further arguments of this function, which the message may suggest.
    """
    known = [each.name for each in options]
    for name in values:
        if name not in known:
            meant = nearest(name, [*known, *others])
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}{meant}")
    return record(**values)


def parameters(options: Iterable[Option]) -> list[inspect.Parameter]:
    """The keyword parameters of a function that takes these options."""
    return [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.annotation)
        for each in options
    ]


def described(options: Iterable[Option]) -> str:
    """One line of a docstring for each option."""
    return "\n".join(f"{each.name}: {each.says}." for each in options)
