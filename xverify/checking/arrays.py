"""Reads arrays that the user names. The files may be damaged, or made to harm, and the parent itself reads them."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from .. import host
from ..errors import UsageError, first_line
from ..weights.canonical import Array

GIB = 2**30
KINDS = "fiub"  # kinds of dtypes that a model takes: floats, whole numbers, truth values


def load(path: Path, option: str) -> dict[str, Array]:
    """All arrays of a ``.npz`` file. option: the option that names the file, for messages. Raises UsageError."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            names = Counter(info.filename.removesuffix(".npy") for info in archive.infolist())
        if size > host.available_memory():
            raise UsageError(
                f"{option} {path}: its arrays take {size / GIB:,.1f} GiB, and this machine has "
                f"{host.available_memory() / GIB:,.1f} GiB of memory free"
            )
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise UsageError(f"{option} {path}: it holds {twice!r} twice; keep one of the two")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UsageError:
        raise
    except Exception as error:  # numpy and zipfile raise errors of any type for a damaged file
        raise UsageError(f"{option} {path}: it cannot be read as a .npz file: {first_line(error)}") from None
    strange = next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None)
    if strange is not None:  # numpy returns the bytes of what is no array
        raise UsageError(f"{option} {path}: its member {strange!r} is no array")
    strange = next((name for name, array in arrays.items() if array.dtype.kind not in KINDS), None)
    if strange is not None:
        raise UsageError(
            f"{option} {path}: the array {strange!r} has the dtype {arrays[strange].dtype}, which is no number"
        )
    return arrays
