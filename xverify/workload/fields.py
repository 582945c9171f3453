"""Checks the fields of a spec and the tables of names.toml. Every function raises SpecError, in one line, for a wrong value."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ..errors import SpecError, WeightsError, nearest
from ..weights.arrangement import read_table
from .sizes import BATCH, names_in, said
from .sizes import value as computed

LARGEST = 2**31 - 1  # of a size of an axis, and of a batch: frameworks count with 32 bits
FLOATS = ("float32", "float16", "float64", "bfloat16")
INTEGERS = {
    "bool": (0, 1),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
DTYPES = (*FLOATS, *INTEGERS, "complex64", "complex128")
MOST = {
    "float64": 1.7976931348623157e308,
    "float16": 65504.0,
    "float32": 3.4028234663852886e38,
    "bfloat16": 3.3895313892515355e38,
}


def shape(given: Any, batch: str) -> tuple[int | str, ...]:
    """The shape of a tensor: a tuple or list of positive whole numbers, of the letter of the batch, and of names of axes.

    given, here and below: whatever a user wrote.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SpecError(f"shape is {_shown(given)}: write a tuple of sizes, e.g. ({batch!r}, 3, 224, 224)")
    for size in given:
        if not (_whole(size) and 0 < size <= LARGEST) and not (
            isinstance(size, str) and (size == batch or _named(size, batch))
        ):
            raise SpecError(
                f"shape {_shown(tuple(given))}: every size is a positive integer, {batch!r}, or the name of an axis, "
                f"not {_shown(size)}"
            )
    return tuple(size if isinstance(size, str) else int(size) for size in given)


def _named(size: str, batch: str) -> bool:
    """Whether a text is the name of an axis, or computes a size from such names. The batch has its letter and stands alone."""
    try:
        names = names_in(size)
    except ValueError:
        return False
    return bool(names) and not names & {batch, BATCH}


def sizes(given: Any, batch: str, taken: Collection[str]) -> None:
    """The sizes of named axes: name -> size. taken: the names in the shapes of the inputs. Any: whatever a user wrote."""
    if not isinstance(given, Mapping):
        raise SpecError(f"sizes is {_shown(given)}: write a mapping, e.g. sizes={{'seq': 16}}")
    for name, size in given.items():
        if not isinstance(name, str) or not name.isidentifier() or name in (batch, BATCH):
            raise SpecError(f"sizes has the name {_shown(name)}: the name of an axis is a word; {batch!r} is the batch")
        if not _whole(size) or not 0 < size <= LARGEST:
            raise SpecError(f"sizes[{name!r}] is {_shown(size)}: it must be a positive whole number")
        if name not in taken:
            raise SpecError(f"sizes names {name!r}, and no input has an axis of this name{nearest(name, list(taken))}")


def sized(place: str, shape: tuple[int | str, ...], sizes: Mapping[str, int], batch: str) -> tuple[int | str, ...]:
    """A shape with the sizes of its named axes. place: the tensor, for messages."""
    found: list[int | str] = []
    for size in shape:
        if isinstance(size, int) or size == batch:
            found.append(size)
            continue
        unknown = sorted(names_in(size) - set(sizes))
        if unknown:
            raise SpecError(
                f"{place}: the axis {size!r} has no size{nearest(unknown[0], [*sizes, batch])} Write {batch!r} for the batch, "
                f"and the size of another axis into ModelSpec(sizes={{{unknown[0]!r}: 16}})"
            )
        value = computed(size, sizes)
        if value is None or not 0 < value <= LARGEST:
            raise SpecError(f"{place}: the axis {size!r} has the size {value} at {said(sizes)}; it must be at least 1")
        found.append(value)
    return tuple(found)


def dtype(given: Any) -> None:
    """numpy's name of a dtype. Any: whatever a user wrote."""
    if not isinstance(given, str):
        raise SpecError(f'dtype is {_shown(given)}: write its name as a text, e.g. dtype="int64"')
    if given not in DTYPES:
        raise SpecError(f"dtype is {_shown(given)}{nearest(given, DTYPES)} Known: {', '.join(DTYPES)}")


def limits(low: Any, high: Any, name: str, where: str) -> None:
    """The range of random inputs, [low, high). Any: whatever a user wrote. name: the dtype. where: the beginning of the message."""
    if (low is None) != (high is None):
        raise SpecError(f"{where}: give both low and high, or neither")
    if low is None:
        return
    for side, value in (("low", low), ("high", high)):
        if isinstance(value, bool) or not isinstance(value, Real) or not _finite(value):
            raise SpecError(f"{where}: {side} is {_shown(value)}: it must be a finite number")
    if not low < high:
        raise SpecError(f"{where}: low {_shown(low)} is not below high {_shown(high)}")
    if name in INTEGERS:
        least, most = INTEGERS[name]
        for side, value in (("low", low), ("high", high)):
            if value != int(value):
                raise SpecError(f"{where}: {side} is {_shown(value)}: the range of {name} takes whole numbers")
            if not least <= value <= most + 1:
                raise SpecError(f"{where}: {side} is {_shown(value)}: {name} holds the values {least} to {most}")
    elif max(abs(low), abs(high)) > MOST.get(name, math.inf) or not math.isfinite(float(high) - float(low)):
        raise SpecError(f"{where}: the range {_shown(low)} to {_shown(high)} is larger than {name} can hold")


def layout(given: Any, sizes: tuple[int | str, ...]) -> None:
    """The names of the axes, one letter each. Any: whatever a user wrote."""
    if given is None:
        return
    if not isinstance(given, str):
        raise SpecError(f'layout is {_shown(given)}: write the letters of the axes, e.g. layout="NCHW"')
    if len(given) != len(sizes):
        raise SpecError(f"layout {given!r} names {len(given)} axes, shape {sizes} has {len(sizes)}")
    if len(set(given)) != len(given):
        raise SpecError(f"layout {given!r} has one letter for two axes")


def tensors(what: str, given: Any, kind: type) -> None:
    """The inputs or outputs: name -> record of this kind. what: the name of the field. Any: whatever a user wrote."""
    if not isinstance(given, Mapping):
        raise SpecError(f"{what} is {_shown(given)}: write a mapping, e.g. {what}={{'x': TensorSpec(...)}}")
    if not given:
        raise SpecError(f"ModelSpec({what}=...) is empty: name at least one tensor")
    for name, tensor in given.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise SpecError(f"{what} has the name {_shown(name)}: names are texts that can be printed")
        if not isinstance(tensor, kind):
            raise SpecError(f"{what}[{name!r}] is a {type(tensor).__name__}: write {kind.__name__}(shape, ...)")


def pairs(what: str, given: Any) -> None:
    """A mapping of names to names, each of which is a value once. what: the name of the field. Any: whatever a user wrote."""
    if not isinstance(given, Mapping):
        raise SpecError(f"{what} is {_shown(given)}: write a mapping, e.g. {what}={{'k0': 'k0_out'}}")
    for pair in given.items():
        for name in pair:
            if not isinstance(name, str) or not name:
                raise SpecError(f"{what} has the name {_shown(name)}: names are texts")
    values = list(given.values())
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise SpecError(f"{what} gives the output {twice!r} to two inputs: it can be one")


def drawn(name: str, given: str, low: float | None, high: float | None) -> None:
    """The dtype and range of an input or target, for which xverify draws values. name: such as ``inputs['x']``."""
    if given not in ("float32", "float16", "float64", *INTEGERS):
        raise SpecError(f"{name} is {given}: xverify draws floats and integers")
    if given in INTEGERS and low is None:
        raise SpecError(f"{name} is {given}: give low and high, the range of its values")
    if high is not None and given in INTEGERS and high > 2**63:
        raise SpecError(f"{name}: high is {_shown(high)}: values above 2**63 - 1 are not drawn")


def batch(given: Any) -> None:
    """The batch size. Any: whatever a user wrote."""
    if not _whole(given) or not 0 < given <= LARGEST:
        raise SpecError(f"batch is {_shown(given)}: it must be a positive whole number")


def text(name: str, given: Any) -> None:
    """A field that is a text. Any: whatever a user wrote."""
    if not isinstance(given, str):
        raise SpecError(f"{name} is {_shown(given)}: it must be a text")
    if "\0" in given:
        raise SpecError(f"{name} is {_shown(given)}: it holds the character 0")


def options(given: Any) -> None:
    """The keyword arguments of ``build``. They are sent to other processes, so they are JSON values. Any: whatever a user wrote."""
    if not isinstance(given, Mapping):
        raise SpecError(f"options is {_shown(given)}: write a mapping, e.g. options={{'depth': 18}}")
    for place, value in _parts(given, "options", 0):
        if isinstance(value, Mapping):
            wrong = [key for key in value if not isinstance(key, str)]
            if wrong:
                raise SpecError(f"{place} has the key {_shown(wrong[0])}: keys are texts")
        elif isinstance(value, Real) and not isinstance(value, (bool, int, float)):
            raise SpecError(f"{place} is {_shown(value)}, a {type(value).__name__}: write a number of Python")
        elif isinstance(value, float) and not math.isfinite(value):
            raise SpecError(f"{place} is {value!r}: numbers must be finite")
        elif isinstance(value, int) and abs(value) > 2**63 - 1:
            raise SpecError(f"{place} is {_shown(value)}: whole numbers may have 64 bits")
        elif value is not None and not isinstance(value, (str, bool, int, float, list, tuple)):
            raise SpecError(
                f"{place} is a {type(value).__name__}: options are numbers, texts, lists and mappings of these"
            )


def _parts(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """A value and all values in it, with their places. Any: whatever a user wrote."""
    if depth > 20:
        raise SpecError(f"{place[:60]}...: options are nested too deeply")
    yield place, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _parts(item, f"{place}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _parts(item, f"{place}[{index}]", depth + 1)


def tables(path: Path, given: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """The tables of names.toml by framework."""
    found: dict[str, Mapping[str, object]] = {}
    for name, table in given.items():
        if not isinstance(table, dict):
            raise SpecError(
                f"{path}: {name!r} stands in no table: write the line [FRAMEWORK] above it, e.g. [tensorflow]"
            )
        found[name] = table
    return found


def names(path: Path, framework: str, table: Mapping[str, object]) -> dict[str, str]:
    """One table of names.toml: canonical name -> name of the framework."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if not isinstance(value, str) or not value or not key:
            raise SpecError(f'{path}: [{framework}] takes lines of the form "canonical.name" = "its.name"')
        found[key] = value
    owner: dict[str, str] = {}
    for key, value in found.items():
        if value in owner:
            raise SpecError(f"{path}: [{framework}] {owner[value]!r} and {key!r} are both said to be {value!r}")
        owner[value] = key
    return found


def stored(path: Path, framework: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of names.toml of the weights that a framework's file stores otherwise. Any: whatever a user wrote."""
    try:
        read_table(table, f"{path}: [{framework}.stored]")
    except WeightsError as error:
        raise SpecError(str(error)) from None
    return dict(table)


def _finite(value: Any) -> bool:
    return isinstance(value, Integral) or math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value in a message, not longer than a line. Any: whatever a user wrote."""
    try:
        written = repr(value)
    except Exception:  # __repr__ is a user's code; Python refuses whole numbers of many digits
        written = f"a {type(value).__name__}"
    return written if len(written) <= 80 else written[:77] + "..."
