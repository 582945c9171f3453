"""Converts messages to lines and back. A line is one JSON object; arrays are in files; pickle is never used.

    {"id": 7, "ask": "Block", "case": 0, "calls": 12, "keep": null, "room": 0}
    {"id": 7, "reply": {"seconds": 0.061, "unfinished_seconds": null}}
    {"id": 7, "error": {"status": "failed", "reason": "..."}}

The first line of a worker is its hello: {"xverify": 3, "pid": 123, "python": "3.11.7"}. Then it answers every request with one
reply that has the same number, and the type that the request names. Decoding is strict: a missing field, an unknown field or a
value of another type raises ``MessageError``. NaN and infinities are written as Python's json writes them. This file needs only
the standard library.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, Union, cast

VERSION = 3
REQUESTS: dict[str, type[Request[Any]]] = {}

Message = dict[str, Any]  # a decoded line; its values may be any JSON values


ReplyType = TypeVar("ReplyType")


class Request(Generic[ReplyType]):
    """The base class of every request: ``class Build(Request[Built])`` is answered by a ``Built``.

    reply_type: a record, or a type of values that JSON can represent; NoneType for a request that is done and tells nothing.
    """

    reply_type: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]  # set by Generic
        (cls.reply_type,) = typing.get_args(base)
        REQUESTS[cls.__name__] = cls


@dataclass(frozen=True)
class Hello:
    """The first line of a worker.

    xverify: the version of the messages.
    pid: number of the worker's process.
    python: the version of its interpreter.
    """

    xverify: int
    pid: int
    python: str


@dataclass(frozen=True)
class Refusal:
    """The answer of a worker that cannot do what a request asks.

    status: the ``status`` of a subclass of errors.SubjectError, or of errors.NoModel.
    reason: one sentence.
    """

    status: str
    reason: str


class MessageError(ValueError):
    """A line that is not a message, or a message with a wrong field.

    number: number of the message; None when it has none.
    """

    def __init__(self, text: str, number: int | None = None) -> None:
        super().__init__(text)
        self.number = number


# -- to a line ----------------------------------------------------------------------------------------------------------


def encode_hello(hello: Hello) -> bytes:
    """The line of a hello."""
    return _line(_plain(hello))


def encode_request(number: int, request: Request[Any]) -> bytes:
    """The line of a request. Raises MessageError when JSON cannot represent a field."""
    return _line({"id": number, "ask": type(request).__name__, **_plain(request)})


def encode_reply(number: int, reply: object) -> bytes:
    """The line of a reply, or of a Refusal. Raises MessageError when JSON cannot represent a field."""
    return _line({"id": number, "error" if isinstance(reply, Refusal) else "reply": reply})


def _plain(record: Any) -> Message:
    """The fields of a record, which json converts further. Any: what json cannot convert itself."""
    if not is_dataclass(record):
        raise TypeError(f"a {type(record).__name__} is no JSON value")
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _line(message: Message) -> bytes:
    try:
        return json.dumps(message, default=_plain, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        name = message.get("ask") or type(message.get("reply")).__name__
        raise MessageError(f"{name} cannot be written as JSON: {error}", message.get("id")) from None


# -- from a line --------------------------------------------------------------------------------------------------------


def decode_hello(line: bytes) -> Hello | None:
    """The hello in a line; None when the line is something else, such as text that an interpreter prints while it starts."""
    try:
        return from_plain(Hello, _object(line), "hello")
    except MessageError:
        return None


def hello_version(line: bytes) -> object:
    """The version of the messages in a hello of any version; None when the line is no hello."""
    try:
        return _object(line).get("xverify")
    except MessageError:
        return None


def decode_request(line: bytes) -> tuple[int, Request[Any]]:
    """(number, request) of a line. Raises MessageError."""
    message, number = _numbered(line)
    name = message.pop("ask", None)
    kind = REQUESTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MessageError(f"a worker cannot be asked {name!r}", number)
    return number, _decoded(kind, message, number)


def decode_reply(line: bytes, kind: Any) -> tuple[int, Any]:
    """(number, reply or Refusal) of a line. kind: ``reply_type`` of the request. Raises MessageError."""
    message, number = _numbered(line)
    if set(message) == {"error"}:
        return number, _decoded(Refusal, message["error"], number)
    if set(message) != {"reply"}:
        raise MessageError("it has no reply or error, or something beside it", number)
    return number, _decoded(kind, message["reply"], number)


def _object(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise MessageError("it is not JSON") from None
    if not isinstance(message, dict):
        raise MessageError("it is not a JSON object")
    return message


def _numbered(line: bytes) -> tuple[Message, int]:
    message = _object(line)
    number = message.pop("id", None)
    if type(number) is not int:
        raise MessageError("it has no number")
    return message, number


Record = TypeVar("Record")


def _decoded(kind: Any, value: Any, number: int) -> Any:
    """A value of this type. Any: a type, and what JSON says."""
    try:
        return _value(kind, value, _name(kind))
    except MessageError as error:
        raise MessageError(str(error), number) from None


def from_plain(kind: type[Record], values: Any, where: str) -> Record:
    """A dataclass from a dict of its fields, whose names and types are checked. Raises MessageError.

    where: what error messages call the record.
    """
    if not isinstance(values, dict):
        raise MessageError(f"{where}: expected an object with named fields, got {_short(values)}")
    types_of, required = _described(cast(Any, kind))
    for what, names in (("unknown", values.keys() - types_of), ("missing", required - values.keys())):
        if names:
            raise MessageError(f"{where}: {what} {', '.join(map(repr, sorted(map(str, names))))}")
    return kind(**{name: _value(types_of[name], value, f"{where}.{name}") for name, value in values.items()})


@cache
def _described(kind: Any) -> tuple[dict[str, object], frozenset[str]]:
    """(field -> type, the fields without a default) of a dataclass."""
    hints = typing.get_type_hints(kind)
    own = fields(kind)
    required = (field.name for field in own if field.default is MISSING and field.default_factory is MISSING)
    return {field.name: hints[field.name] for field in own}, frozenset(required)


def _value(kind: Any, value: Any, where: str) -> Any:
    """Check that a value has this type, and convert nested records.

    An int is accepted as a float, as in Python's own type system. A bool is accepted as neither.
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(typing.get_args(kind), value, where)
    if origin in (tuple, list):
        return _sequence(origin, typing.get_args(kind), value, where)
    if origin in (dict, Mapping):
        _, of = typing.get_args(kind)
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: _value(of, item, f"{where}[{key!r}]") for key, item in value.items()}
    elif is_dataclass(kind) and isinstance(kind, type):
        return from_plain(kind, value, where)
    elif kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a whole number of more than 308 digits
            pass
    elif isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise MessageError(f"{where}: expected {_name(kind)}, got {_short(value)}")


def _one_of(kinds: Iterable[Any], value: Any, where: str) -> Any:
    for kind in kinds:
        try:
            return _value(kind, value, where)
        except MessageError as error:
            problem = error
            if is_dataclass(kind) and isinstance(value, dict):
                raise
    names = " or ".join(map(_name, kinds))
    raise MessageError(f"{where}: expected {names}, got {_short(value)}") from problem


def _sequence(origin: type, kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise MessageError(f"{where}: expected a list, got {_short(value)}")
    if origin is list or kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise MessageError(f"{where}: expected {len(kinds)} values, got {_short(value)}")
    return origin(_value(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value)))


def _name(kind: Any) -> str:
    if kind is type(None):
        return "null"
    return kind.__name__ if isinstance(kind, type) and typing.get_origin(kind) is None else str(kind)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
