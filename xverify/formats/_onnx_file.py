"""Looks into ONNX files without any package: whether a file is one, whether it is whole, and where its external data lies.

The numbers are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xverify import reading
from xverify.errors import UsageError
from xverify.formats._protobuf import BYTES, DEEPEST, VARINT, Buffer, Damaged, Field, fields, mapped, text
from xverify.framework.modelfile import ModelFile

IR_VERSION, PRODUCER, GRAPH, OPSET, FUNCTION = 1, 2, 7, 8, 25
# The fields of ModelProto, with the kind of each.
_MODEL = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, 7: BYTES, 8: BYTES, 14: BYTES, 20: BYTES}
_MODEL |= {25: BYTES, 26: BYTES}
GRAPH_TAG = bytes([GRAPH << 3 | BYTES])
INPUT, OUTPUT = 11, 12  # numbers in GraphProto
EXTERNAL_DATA = 13
DAMAGED = "{}: this ONNX file is damaged or truncated: {}"
OLDEST_IR, NEWEST_IR = 3, 100  # version 3 is of 2017; present files have 13 at most
# Fields that lead to tensors: message -> field -> message in it.
_INSIDE = {
    "model": {GRAPH: "graph", FUNCTION: "function", 20: "training"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}


@dataclass(frozen=True)
class External:
    """Where the values of a tensor lie. length: in bytes; None: up to the end of the file."""

    tensor: str
    location: str
    offset: int
    length: int | None


def looks_like(path: Path) -> bool:
    """Whether a file begins as an ONNX model does; it may be truncated. ONNX has no magic number, so its fields decide."""
    if not path.is_file():
        return False
    data = mapped(path)
    version = 0
    seen: set[int] = set()
    try:
        for field in fields(data, 0, len(data)):
            if _MODEL.get(field.number) != field.kind:
                return False
            seen.add(field.number)
            version = field.value if field.number == IR_VERSION else version
            if field.number == GRAPH and not _looks_like_graph(data, field):
                return False
    except Damaged:
        # A truncated file ends within its graph, which follows the version and, mostly, the producer.
        return OLDEST_IR <= version <= NEWEST_IR and (bool(seen & {PRODUCER, OPSET}) or data[2:3] == GRAPH_TAG)
    return OLDEST_IR <= version <= NEWEST_IR and GRAPH in seen


def _looks_like_graph(data: Buffer, graph: Field) -> bool:
    """Whether a field has the fields of a GraphProto."""
    try:
        return all(field.kind == BYTES and field.number < 20 for field in fields(data, graph.start, graph.end))
    except Damaged:
        return True


class OnnxFile(ModelFile):
    """The base class of formats of ONNX files."""

    title = "ONNX file"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return looks_like(path)

    @classmethod
    def check(cls, path: Path) -> None:
        check(path)

    @classmethod
    def tensors(cls, path: Path) -> tuple[list[str], list[str]]:
        """The names of the inputs and of the outputs of a file. Raises UsageError for a truncated one."""
        return tensors(path)

    @classmethod
    def parts(cls, path: Path) -> tuple[Path, ...]:
        return tuple(path.parent / name for name in dict.fromkeys(each.location for each in externals(path)))


def tensors(path: Path) -> tuple[list[str], list[str]]:
    """The names of the inputs and of the outputs of a file's graph. Raises UsageError for a truncated file."""
    data, found = mapped(path), {INPUT: list[str](), OUTPUT: list[str]()}
    try:
        for graph in fields(data, 0, len(data)):
            for each in fields(data, graph.start, graph.end) if graph.number == GRAPH else ():
                if each.number in found:
                    found[each.number] += [
                        text(data, own) for own in fields(data, each.start, each.end) if own.number == 1
                    ]
    except Damaged as error:
        raise UsageError(DAMAGED.format(path.name, error)) from None
    return found[INPUT], found[OUTPUT]


def check(path: Path) -> None:
    """Raise UsageError for a truncated file, and for external data that is missing or lies outside of the file's folder."""
    for external in dict.fromkeys(externals(path)):
        _check_external(path, external)


def externals(path: Path) -> list[External]:
    """Where the values of tensors lie that are in other files. Raises UsageError for a truncated file."""
    data = mapped(path)
    try:
        return list(_externals(data, "model", 0, len(data), 0))
    except Damaged as error:
        raise UsageError(DAMAGED.format(path.name, error)) from None


def operators(path: Path) -> set[tuple[str, str]]:
    """(domain, operator) of every node."""
    data = mapped(path)
    found: set[tuple[str, str]] = set()
    for field in _messages(data, "model", 0, len(data), 0, "node"):
        strings = {part.number: text(data, part) for part in fields(data, *field) if part.number in (4, 7)}
        found.add((strings.get(7, ""), strings.get(4, "")))
    return found


def _messages(data: Buffer, message: str, start: int, end: int, depth: int, wanted: str) -> Iterator[tuple[int, int]]:
    """The place of every message of a kind, within a message."""
    if depth > DEEPEST:
        raise Damaged(f"its messages are nested more than {DEEPEST} deep")
    if message == wanted:
        yield start, end
    inside = _INSIDE.get(message, {})
    if not inside:
        return
    for field in fields(data, start, end):
        if field.kind == BYTES and field.number in inside:
            yield from _messages(data, inside[field.number], field.start, field.end, depth + 1, wanted)


def _externals(data: Buffer, message: str, start: int, end: int, depth: int) -> Iterator[External]:
    for place in _messages(data, message, start, end, depth, "tensor"):
        name, entries = "", {}
        for field in fields(data, *place):
            if field.number == 8 and field.kind == BYTES:
                name = text(data, field)
            elif field.number == EXTERNAL_DATA and field.kind == BYTES:
                strings = {part.number: text(data, part) for part in fields(data, field.start, field.end)}
                if strings.get(1, "") in entries:
                    raise Damaged(f"the external data of {name!r} has two entries {strings.get(1)!r}")
                entries[strings.get(1, "")] = strings.get(2, "")
        if entries:
            yield External(
                name, entries.get("location", ""), _number(entries, "offset") or 0, _number(entries, "length")
            )


def _number(entries: dict[str, str], key: str) -> int | None:
    if key not in entries:
        return None
    if not entries[key].strip().isdecimal():
        raise Damaged(f"the {key} of external data is {entries[key]!r}")
    return int(entries[key])


def _check_external(path: Path, external: External) -> None:
    where = f"{path.name}: the values of {external.tensor!r} lie in {external.location!r}"
    folder = path.parent.resolve()
    try:
        file = (folder / external.location).resolve()
        if not external.location or Path(external.location).is_absolute() or not file.is_relative_to(folder):
            raise UsageError(
                f"{where}, outside of the folder of the file; such a file is never opened. Copy the data there"
            )
        wrong = reading.problem(folder / external.location)
        if wrong:
            says = "there is no such file beside it" if wrong == reading.ABSENT else f"of that file beside it: {wrong}"
            raise UsageError(f"{where}, and {says}")
        size = file.stat().st_size
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{where}, which cannot be read: {error}") from None
    end = external.offset + (external.length or 0)
    if end > size:
        raise UsageError(f"{where} up to byte {end}, and that file has {size} bytes: it is truncated")
