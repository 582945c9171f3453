"""The array files that xverify and its workers write for each other, in numpy's ``.npz`` format.

Object arrays, which would need pickle, are never read. ``numpy_file`` reads the files of users, with more checks.
"""

from __future__ import annotations

import contextlib
import math
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from xverify.errors import Crashed, first_line

from .canonical import PIECE, Array, Arrays, Streamed, pieces_of, shape_of

# What reading a damaged file raises.
ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, OSError, ValueError, KeyError, EOFError, NotImplementedError)
npy: Any = np.lib.format  # its functions have no types
MAPPED = 2**16  # bytes; larger arrays are mapped into memory, smaller ones are read
# Bytes; the values of every array that is written begin at a multiple of it, so that a mapped array is aligned.
ALIGNED = 64
LOCAL_HEADER = (
    30 + 20
)  # bytes of a zip member before its data, without its name: the header and the field of 64-bit sizes
HEADERS = (
    threading.Lock()
)  # numpy parses a header by ast.parse, which fails when two threads of Python 3.11 use it at once
PADDING = 0xD935  # the identifier of a field that only fills space


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise Crashed when a file that a worker should have written is missing or damaged."""
    try:
        yield
    except (*ERRORS, MemoryError) as error:
        raise Crashed(f"{path.name}, a file of arrays that it wrote, cannot be read: {first_line(error)}") from None


def load_file(path: Path) -> Arrays:
    """Read all arrays of a file into memory. Raises Crashed when a worker left the file damaged, or deleted it."""
    with _readable(path), np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@dataclass(frozen=True)
class Place:
    """Where the values of an array are in a file. offset: of the first one, bytes. fortran: whether they are in Fortran order."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False


class OnDisk(Streamed):
    """The arrays of several files written by ``save_file``, as one mapping.

    An array is mapped into memory when it is looked up: nothing is copied, and no checksum is computed.

    paths: the files; of two arrays with the same name, the one in the later file is used.
    A file that is missing or damaged raises Crashed.
    """

    def __init__(self, *paths: Path) -> None:
        self.names = self.members = dict[str, tuple[Path, int]]()
        self.places: dict[str, Place] = {}
        for path in paths:
            with _readable(path), zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    self.members[member.filename.removesuffix(".npy")] = path, member.header_offset

    def __getitem__(self, name: str) -> Array:
        with self._opened(name) as (file, place):
            order: Literal["C", "F"] = "F" if place.fortran else "C"
            if math.prod(place.shape) * place.dtype.itemsize < MAPPED:
                return np.fromfile(file, place.dtype, math.prod(place.shape)).reshape(place.shape, order=order)
            return np.asarray(np.memmap(file, place.dtype, "c", place.offset, place.shape, order))

    def together(self) -> Arrays:
        """All arrays at once. Each file is mapped as a whole: arrays that are mapped one by one would be an open file each."""
        found, mapped = Arrays(), dict[Path, Array]()
        for name in self:
            place = self.place(name)
            order: Literal["C", "F"] = "F" if place.fortran else "C"
            with _readable(place.path):
                if place.path not in mapped:
                    mapped[place.path] = np.memmap(place.path, np.uint8, "c")
                found[name] = np.ndarray(place.shape, place.dtype, mapped[place.path], place.offset, order=order)
        return found

    def place(self, name: str) -> Place:
        """Where the values of an array are. The header of the array is read once."""
        if name not in self.places:
            path, begin = self.members[name]
            with _readable(path), path.open("rb") as file:
                # The header of a zip member has 30 bytes. Its last four are the lengths of the name and of the extra field that
                # follow.
                file.seek(begin + 26)
                file.seek(begin + 30 + sum(struct.unpack("<HH", file.read(4))))
                readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                with HEADERS:
                    shape, fortran, dtype = readers[npy.read_magic(file)](file)
                self.places[name] = Place(path, file.tell(), shape, dtype, fortran)
        return self.places[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.place(name).shape

    def dtype(self, name: str) -> np.dtype[Any]:
        return self.place(name).dtype

    def pieces(self, name: str) -> Iterator[Array]:
        with self._opened(name) as (file, place):
            remaining = 0 if place.fortran else math.prod(place.shape)
            while remaining:
                # They are read, because the pages of a mapped file would count as memory of this process.
                piece = np.fromfile(file, place.dtype, min(PIECE, remaining))
                if not piece.size:
                    raise EOFError(f"{name} ends too early")
                remaining -= piece.size
                yield piece
        if place.fortran:
            yield from super().pieces(name)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[tuple[IO[bytes], Place]]:
        """The file of an array at its first value, and the place of it."""
        place = self.place(name)
        with _readable(place.path), place.path.open("rb") as file:
            file.seek(place.offset)
            yield file, place


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write arrays of any dtype without compression. Those of a Streamed mapping are written one by one, in pieces."""
    Path(path).unlink(missing_ok=True)  # the arrays of a file that is written again may be mapped, and stay as they are
    # Not with np.savez: it appends .npz to the path, and the name of a tensor could collide with its arguments.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name in arrays:
            member = zipfile.ZipInfo(f"{name}.npy")
            begins = archive.fp.tell() + LOCAL_HEADER + len(member.filename.encode()) + 4  # type: ignore[union-attr]
            fill = -begins % ALIGNED
            member.external_attr = 0o600 << 16  # as zipfile sets it for a new member
            member.extra = struct.pack("<HH", PADDING, fill) + bytes(fill)
            with archive.open(member, "w", force_zip64=True) as file:
                if not isinstance(arrays, Streamed):
                    npy.write_array(file, np.asarray(arrays[name]), allow_pickle=False)
                    continue
                dtype = npy.dtype_to_descr(arrays.dtype(name))
                header = {"shape": shape_of(arrays, name), "fortran_order": False, "descr": dtype}
                npy.write_array_header_1_0(file, header)
                for piece in pieces_of(arrays, name):
                    file.write(piece.data.cast("B") if piece.size else b"")
