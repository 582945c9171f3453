"""The array files that xverify and its workers write for each other, in numpy's ``.npz`` format.

Object arrays, which would need pickle, are never read. ``numpy_file`` reads the files of users, with more checks.
"""

from __future__ import annotations

import contextlib
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xverify.errors import Crashed, first_line

from .canonical import Array, Arrays

# What reading a damaged file raises.
ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, OSError, ValueError, KeyError, EOFError, NotImplementedError)
npy: Any = np.lib.format  # its functions have no types
MAPPED = 2**16  # bytes; larger arrays are mapped into memory, smaller ones are read
ALIGNED = (
    64  # bytes; the values of every array that is written begin at a multiple of it, so that a mapped array is aligned
)
LOCAL_HEADER = (
    30 + 20
)  # bytes of a zip member before its data, without its name: the header and the field of 64-bit sizes
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


class OnDisk(Mapping[str, Array]):
    """The arrays of several files written by ``save_file``, as one mapping.

    An array is mapped into memory when it is looked up: nothing is copied, and no checksum is computed.

    paths: the files; of two arrays with the same name, the one in the later file is used.
    A file that is missing or damaged raises Crashed.
    """

    def __init__(self, *paths: Path) -> None:
        self.places: dict[str, tuple[Path, int]] = {}
        for path in paths:
            with _readable(path), zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    self.places[member.filename.removesuffix(".npy")] = path, member.header_offset

    def __getitem__(self, name: str) -> Array:
        path, place = self.places[name]
        with _readable(path), path.open("rb") as file:
            # The header of a zip member has 30 bytes. Its last four are the lengths of the name and of the extra field that follow.
            file.seek(place + 26)
            file.seek(place + 30 + sum(struct.unpack("<HH", file.read(4))))
            readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            shape, fortran, dtype = readers[npy.read_magic(file)](file)
            order: Literal["C", "F"] = "F" if fortran else "C"
            if math.prod(shape) * dtype.itemsize < MAPPED:
                return np.fromfile(file, dtype, math.prod(shape)).reshape(shape, order=order)
            return np.asarray(np.memmap(file, dtype, "c", file.tell(), shape, order))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write arrays of any dtype without compression. Each is looked up when it is written, and not kept."""
    # Not with np.savez: it appends .npz to the path, and the name of a tensor could collide with its arguments.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name in arrays:
            member = zipfile.ZipInfo(f"{name}.npy")
            begins = archive.fp.tell() + LOCAL_HEADER + len(member.filename.encode()) + 4  # type: ignore[union-attr]
            fill = -begins % ALIGNED
            member.external_attr = 0o600 << 16  # as zipfile sets it for a new member
            member.extra = struct.pack("<HH", PADDING, fill) + bytes(fill)
            with archive.open(member, "w", force_zip64=True) as file:
                npy.write_array(file, np.asarray(arrays[name]), allow_pickle=False)
