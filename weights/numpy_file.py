"""numpy's ``.npz`` files of users, which may be damaged or hostile: every size is checked before anything is read.

Their arrays are read and written one at a time.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from xverify.errors import WeightsError

from . import npz
from .canonical import Array, Streamed
from .room import Room

SUFFIXES = (".npz",)
MEMBER = ".npy"  # end of the names of an archive's members
KINDS = "fiubc"  # kinds of dtypes whose values are their bytes alone
HEADERS = {(1, 0): npz.npy.read_array_header_1_0, (2, 0): npz.npy.read_array_header_2_0}


class Members(Streamed):
    """The arrays of an archive. Each is unpacked when it is looked up. most: see ``room.Room``."""

    def __init__(self, path: Path, most: float | None) -> None:
        self.path, room = path, Room(path, most)
        self.archive = zipfile.ZipFile(path)  # its directory is read once; it is closed when nothing refers to it
        self.names = self.members = dict[str, zipfile.ZipInfo]()
        for info in self.archive.infolist():
            name = info.filename.removesuffix(MEMBER)
            if name == info.filename:
                raise WeightsError(f"{path}: its member {name!r} is no array")
            if name in self.members:
                raise WeightsError(f"{path}: two arrays have the name {name!r}")
            room.take(info.file_size)
            self.members[name] = info

    def __getitem__(self, name: str) -> Array:
        info, what = self.members[name], f"{self.path}: {name}"
        with self.archive.open(info) as file:
            shape, fortran, dtype = _header(file, what)
            return array(shape, dtype, file.read(info.file_size + 1), fortran, what)

    def shape(self, name: str) -> tuple[int, ...]:
        with self.archive.open(self.members[name]) as file:
            return _header(file, f"{self.path}: {name}")[0]


def open_file(path: Path, trust: bool = False, most: float | None = None) -> Members:
    """All arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``."""
    return Members(path, most)


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write arrays of any dtype without compression."""
    npz.save_file(arrays, path)


def _header(file: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, whether the values are in Fortran order, dtype) of an array. what: its file and name, for messages."""
    version = npz.npy.read_magic(file)
    if version not in HEADERS:
        raise WeightsError(f"{what} has version {version} of numpy's format, which is not read")
    shape, fortran, dtype = HEADERS[version](file)
    if dtype.kind not in KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise WeightsError(f"{what} has dtype {dtype}; weights are floating-point arrays")
    return shape, fortran, dtype


def array(shape: tuple[int, ...], dtype: np.dtype[Any], content: bytes, fortran: bool, what: str) -> Array:
    """An array from its shape, a dtype of plain numbers, and its bytes. Raises WeightsError when they do not fit each other."""
    if any(each < 0 for each in shape) or math.prod(shape) * dtype.itemsize != len(content):
        raise WeightsError(f"{what} has {len(content)} bytes, and its shape {shape} of {dtype} says otherwise")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
