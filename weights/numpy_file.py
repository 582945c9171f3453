"""numpy's ``.npz`` files of users, which may be damaged or hostile: every size is checked before anything is read."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from xverify.errors import WeightsError

from . import npz
from .canonical import Array, Arrays
from .room import Room

SUFFIXES = (".npz",)
MEMBER = ".npy"  # end of the names of an archive's members
KINDS = "fiubc"  # kinds of dtypes whose values are their bytes alone
HEADERS = {(1, 0): npz.npy.read_array_header_1_0, (2, 0): npz.npy.read_array_header_2_0}


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read all arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``."""
    room, found = Room(path, most), Arrays()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(MEMBER)
            if name == info.filename:
                raise WeightsError(f"{path}: its member {name!r} is no array")
            if name in found:
                raise WeightsError(f"{path}: two arrays have the name {name!r}")
            room.take(info.file_size)
            with archive.open(info) as file:
                found[name] = _read(file, f"{path}: {name}", info.file_size)
    return found


def save_file(arrays: Arrays, path: Path) -> None:
    """Write arrays of any dtype without compression."""
    npz.save_file(arrays, path)


def _read(file: IO[bytes], what: str, size: int) -> Array:
    """One array. what: its file and name, for messages. size: bytes that the archive declares for it."""
    version = npz.npy.read_magic(file)
    if version not in HEADERS:
        raise WeightsError(f"{what} has version {version} of numpy's format, which is not read")
    shape, fortran, dtype = HEADERS[version](file)
    if dtype.kind not in KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise WeightsError(f"{what} has dtype {dtype}; weights are floating-point arrays")
    return array(shape, dtype, file.read(size + 1), fortran, what)


def array(shape: tuple[int, ...], dtype: np.dtype[Any], content: bytes, fortran: bool, what: str) -> Array:
    """An array from its shape, a dtype of plain numbers, and its bytes. Raises WeightsError when they do not fit each other."""
    if any(each < 0 for each in shape) or math.prod(shape) * dtype.itemsize != len(content):
        raise WeightsError(f"{what} has {len(content)} bytes, and its shape {shape} of {dtype} says otherwise")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
