"""The canonical file format: ``.safetensors``. Its arrays are read and written one at a time."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xverify import reading
from xverify.errors import WeightsError

from .canonical import Array, Streamed, dtype_of, pieces_of, shape_of
from .room import Room

SUFFIXES = (".safetensors",)
LENGTH = 8  # bytes at the beginning of a file with the size of its header
CAPTURE = "xverify_capture"  # the entry of the metadata of a file that xverify_recorder.py wrote
MOST_HEADER = 100_000_000  # bytes, which the library accepts, too
METADATA = "__metadata__"  # the entry of the header that is no array
BFLOAT16 = "BF16"
# Floats of eight bits. They are parts of quantised weights (packed_floats.py), and no weights without their scales.
FLOAT8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}
Json = dict[str, Any]  # an object of JSON, which may have any values
# Names of dtypes in the header that numpy has, little-endian as in the file.
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "C64": "<c8",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where an array is. path: the file. dtype: as its header names it. begin: the position of the first byte in the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int

    def read(self, name: str) -> Array:
        """The array; bfloat16, which numpy lacks, becomes float32, which holds all its values. name: for the message."""
        kind = "<u2" if self.dtype == BFLOAT16 else DTYPES.get(self.dtype)
        if kind is None:
            raise WeightsError(
                f"{self.path}: {name} has dtype {self.dtype}, which is not read; known: {', '.join((BFLOAT16, *DTYPES))}"
            )
        array = self._stored(name, kind)
        if self.dtype == BFLOAT16:
            wide = array.astype(np.uint32)
            wide <<= 16
            array = wide.view(np.float32)
        return array

    def bits(self, name: str) -> Array:
        """An array of bytes as they are stored, uint8. name: for the message."""
        return self._stored(name, "|u1")

    def _stored(self, name: str, kind: str) -> Array:
        count = math.prod(self.shape)
        array: Array = np.fromfile(self.path, kind, count, offset=self.begin)
        if array.size != count:
            raise WeightsError(f"{self.path}: {name} has {array.size} values, and its header says {count}")
        return array.reshape(self.shape)


class Tensors(Streamed):
    """The arrays of one or several files, as stored. places: name -> where it is. An array is read when it is looked up."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.names = self.places = places

    def __getitem__(self, name: str) -> Array:
        return self.places[name].read(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.places[name].shape

    def type(self, name: str) -> str:
        """The name of the type of an array, as numpy has it; that of a float of eight bits, which numpy lacks."""
        kind = self.places[name].dtype
        return FLOAT8.get(kind) or (str(np.dtype(DTYPES[kind])) if kind in DTYPES else kind)


def open_file(path: Path, trust: bool = False, most: float | None = None) -> Tensors:
    """All arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``."""
    Room(path, most).take(path.stat().st_size)
    found, capture = places(path), metadata(path).get(CAPTURE)
    return Tensors(found if capture is None else _recorded(path, json.loads(capture)["weights"], found))


def _recorded(path: Path, weights: Json, found: Mapping[str, Place]) -> dict[str, Place]:
    """The weights of a capture of a model's calls. Raises WeightsError where it has their digests alone."""
    if not weights or any("array" not in each for each in weights.values()):
        raise WeightsError(
            f"{path}: a capture that has the digests of its weights, and not the weights: record with keep_weights=True"
        )
    return {name: found[each["array"]] for name, each in weights.items()}


def places(path: Path) -> dict[str, Place]:
    """Name -> where the array is in the file. The library checks that the sizes in the header are those of the file."""
    from safetensors import safe_open

    size, header = _header(path)
    with safe_open(path, "numpy"):
        pass
    return {
        name: Place(path, entry["dtype"], tuple(entry["shape"]), LENGTH + size + entry["data_offsets"][0])
        for name, entry in header.items()
        if name != METADATA
    }


def metadata(path: Path) -> Mapping[str, str]:
    """The texts of a file beside its arrays: name -> text."""
    found: Mapping[str, str] = _header(path)[1].get(METADATA, {})
    return found


def _header(path: Path) -> tuple[int, Json]:
    """(bytes of the header, its entries).

    Raises WeightsError when two arrays have the same name, of which the library would drop one.
    """
    with reading.opened(path) as file:
        first = file.read(LENGTH)
        if len(first) < LENGTH:
            raise WeightsError(
                f"{path}: it has {len(first)} bytes, and no header: it is no .safetensors file, or was cut off"
            )
        (size,) = struct.unpack("<Q", first)
        if size > MOST_HEADER:
            raise WeightsError(f"{path}: it is no .safetensors file: it would have a header of {size:,} bytes")
        if size > path.stat().st_size:
            raise WeightsError(
                f"{path}: it declares a header of {size:,} bytes, and has {path.stat().st_size:,}: it is truncated"
            )
        header = file.read(size)
    hook = reading.unique(lambda name: WeightsError(f"{path}: two arrays have the name {name!r}"))
    return size, json.loads(header, object_pairs_hook=hook)


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write arrays of any dtype of DTYPES. The library's own function would need all of them in memory."""
    known = {np.dtype(code): name for name, code in DTYPES.items()}
    dtypes = {name: dtype_of(arrays, name).newbyteorder("<") for name in arrays}
    header, end = {}, 0
    for name in sorted(dtypes, key=lambda name: (-dtypes[name].itemsize, name)):  # so that every array is aligned
        if dtypes[name] not in known:
            raise WeightsError(
                f"{path}: {name} has dtype {dtypes[name]}, which is not written; known: {', '.join(DTYPES)}"
            )
        begin, shape = end, shape_of(arrays, name)
        end += math.prod(shape) * dtypes[name].itemsize
        header[name] = {"dtype": known[dtypes[name]], "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in header:
            for piece in pieces_of(arrays, name):
                file.write(np.ascontiguousarray(piece, dtypes[name]).data)
