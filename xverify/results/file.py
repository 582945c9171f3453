"""The result file: JSON that is written from the records of a run, and read back into them."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from .. import reading, writing
from ..errors import NotWritten, UsageError
from . import validation
from .records import EARLIER_NAMES, SCHEMA_VERSION, Result

LARGEST = 2**30  # bytes of a result file: one of many process runs has some MiB
NEEDED = {"schema_version", "rows", "reference", "model", "verdict"}  # names that every result file has


def read(path: Path) -> Result:
    """The result in a file of this version or of an earlier one.

    A field that the file lacks has its default, and an unknown field is ignored. A null where the record has a number stands for
    a number that JSON cannot write: infinity for a ratio, NaN for any other.
    Raises UsageError when the file cannot be read, is no result file, or has a field of a wrong type or with an impossible value.
    """
    return decoded(content(path, LARGEST, "result of xverify run"), path)


def decoded(values: Any, source: str | Path) -> Result:  # Any: JSON values
    """The result in JSON values. source: where they come from, for messages. Raises UsageError as ``read`` does."""
    if not isinstance(values, dict) or not set(values) >= NEEDED:
        raise UsageError(f"{source} is no result of xverify run: name a file that xverify run MODEL --json FILE wrote")
    version = values["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        raise UsageError(f"{source} has schema version {_short(version)}; this xverify reads {SCHEMA_VERSION}")
    try:
        result = msgspec.convert(_prepared(values, Result), Result)
    except (msgspec.ValidationError, RecursionError, UsageError) as error:  # a record checks some of its fields itself
        raise UsageError(f"{source} is no result that this xverify can read: {_short(error)}") from None
    wrong = next(validation.problems(result), None)
    if wrong is not None:
        raise UsageError(f"{source} is no result that this xverify can read: {wrong}")
    return result


def content(path: Path, largest: int, what: str) -> Any:  # Any: JSON values
    """The content of a JSON file. largest: bytes that it may have. what: it is, for messages. Raises UsageError."""
    try:
        with reading.opened(path) as file:
            text = file.read(largest + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > largest:
        raise UsageError(f"{path} is no {what}: it is larger than {largest >> 20} MiB")
    twice = reading.unique(lambda name: UsageError(f"{path}: an object in it has {name!r} twice: keep the right one"))
    try:
        values = msgspec.json.decode(text)
        json.loads(text, object_pairs_hook=twice)
        return values
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON file, or only a part of one: {_short(error)}") from None


def _short(value: object) -> str:
    """A value or an error of a file in a message of one line."""
    return " ".join(str(value).split())[:200]


def write(result: Result, path: str | Path) -> None:
    """Write a result file, whole or not at all. Raises NotWritten, which holds the result."""
    try:
        write_json(result.to_dict(), path)
    except NotWritten as error:
        error.result = result
        raise


def write_so_far(result: Result, path: str | Path) -> str:
    """Write a result that a later one will replace. Returns why that failed, or "": the measurement goes on.

    Nothing is written to a device or a pipe, which would keep both.
    """
    try:
        if writing.is_replaced(path):
            write(result, path)
    except NotWritten as error:
        return str(error)
    return ""


def write_json(values: object, path: str | Path) -> None:
    """Write JSON values to a file, whole or not at all. Raises NotWritten."""
    writing.write_text(json.dumps(values, indent=1) + "\n", path)


def _prepared(value: Any, kind: Any, name: str = "") -> Any:  # Any: JSON values, and type annotations
    """Convert a JSON value for the record of this type: replace earlier names and null numbers. Wrong types stay as they are.

    kind: the annotation of the field.
    name: the name of the field.
    """
    if value is None:
        return (math.inf if name.endswith("ratio") else math.nan) if kind is float else None
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
        origin = get_origin(kind)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        types = _field_types(kind)
        named = {new: value[old] for new, old in EARLIER_NAMES.items() if new in types and old in value}
        return {key: _prepared(item, types[key], key) for key, item in {**named, **value}.items() if key in types}
    if origin is tuple and isinstance(value, list):
        kinds = [each for each in get_args(kind) if each is not Ellipsis]
        kinds += kinds[-1:] * (len(value) - len(kinds))
        return [_prepared(item, each) for item, each in zip(value, kinds)] if len(kinds) == len(value) else value
    if origin is dict and isinstance(value, dict):
        return {key: _prepared(item, get_args(kind)[1], key) for key, item in value.items()}
    return value


@cache
def _field_types(record: type) -> dict[str, object]:
    """Name of each field of a record -> its type."""
    hints = get_type_hints(record)
    return {each.name: hints[each.name] for each in fields(record)}
