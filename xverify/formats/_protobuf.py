"""Reads the fields of a serialised protobuf message without its schema: https://protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from xverify import reading

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}
DEEPEST = 100  # levels of nested messages; protobuf's own limit


class Damaged(ValueError):
    """The bytes are no protobuf message."""


class Field(NamedTuple):
    """One field.

    number: its number in the schema.
    kind: VARINT, FIXED64, BYTES or FIXED32.
    start, end: the place of its content.
    value: the value of a VARINT; 0 for other fields.
    """

    number: int
    kind: int
    start: int
    end: int
    value: int


Buffer = bytes | mmap.mmap | memoryview


def mapped(path: Path) -> mmap.mmap | bytes:
    """The content of a file, which is read only where it is looked at."""
    with reading.opened(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[start:end]``. Raises Damaged."""
    place = start
    while place < end:
        tag, place = _varint(data, place, end)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 2**29:  # of a larger one, protobuf keeps 29 bits
            raise Damaged(f"byte {place} has field number {number}")
        begin, value = place, 0
        if kind == VARINT:
            value, place = _varint(data, place, end)
        elif kind == BYTES:
            size, begin = _varint(data, place, end)
            place = begin + size
        elif kind in _SIZES:
            place += _SIZES[kind]
        else:
            raise Damaged(f"byte {place} has a field of kind {kind}, which is not used")
        if place > end:
            raise Damaged(f"a field ends at byte {place}, and what holds it ends at byte {end}")
        yield Field(number, kind, begin, place, value)


class Message:
    """A message that is given in parts, as protobuf puts them together. Its methods take the number of a field."""

    def __init__(self, data: Buffer, places: Iterable[Field]) -> None:
        self.data, self.found = data, defaultdict[int, list[Field]](list)
        for place in places:
            for each in fields(data, place.start, place.end):
                self.found[each.number].append(each)

    @classmethod
    def of(cls, data: Buffer) -> Message:
        """The message that the data are."""
        return cls(data, [Field(0, BYTES, 0, len(data), 0)])

    def each(self, number: int) -> list[Message]:
        """The messages of a repeated field."""
        return [Message(self.data, [each]) for each in self._bytes(number)]

    def one(self, number: int) -> Message:
        """The message of a field that is given once."""
        return Message(self.data, self._bytes(number))

    def texts(self, number: int) -> list[str]:
        return [text(self.data, each) for each in self._bytes(number)]

    def text(self, number: int) -> str:
        """The value of a text, of which the last one counts; "" without one."""
        return next(iter(self.texts(number)[-1:]), "")

    def numbers(self, number: int) -> list[int]:
        """The values of a whole number, or of repeated ones, which may be packed."""
        found = [each.value for each in self.found[number] if each.kind == VARINT]
        for each in self._bytes(number):
            place = each.start
            while place < each.end:
                value, place = _varint(self.data, place, each.end)
                found.append(value)
        return found

    def any_texts(self, depth: int = 0) -> Iterator[str]:
        """Everything in it that may be a text, whatever its fields mean."""
        for number in self.found if depth < DEEPEST else ():
            yield from self.texts(number)
            for each in self._bytes(number):
                with suppress(Damaged):
                    yield from Message(self.data, [each]).any_texts(depth + 1)

    def _bytes(self, number: int) -> list[Field]:
        return [each for each in self.found.get(number, ()) if each.kind == BYTES]


def text(data: Buffer, field: Field) -> str:
    """The content of a field that is a string."""
    return bytes(data[field.start : field.end]).decode(errors="replace")


def _varint(data: Buffer, place: int, end: int) -> tuple[int, int]:
    """(value, place behind it) of an integer of variable length."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= end:
            raise Damaged(f"it ends at byte {end}, within a field")
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise Damaged(f"byte {place} is within a number that is too long")
