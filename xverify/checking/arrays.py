"""Reads arrays that the user names. The files may be damaged, or made to harm, and the parent itself reads them."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .. import host, reading
from ..errors import UsageError, first_line
from ..framework.modelfile import Tensor, misfit
from ..weights.canonical import Array
from ..workload.declaration import LONGEST

GIB = 2**30
KINDS = "fiub"  # kinds of dtypes that a model takes: floats, whole numbers, truth values
TEXTS = {"--inputs": "U"}  # option -> kinds of dtypes that it takes beside them: strings


def load(path: Path, option: str) -> dict[str, Array]:
    """All arrays of a ``.npz`` file. option: the option that names the file, for messages. Raises UsageError."""
    try:
        with reading.opened(path) as file, zipfile.ZipFile(file) as archive:
            size = sum(info.file_size for info in archive.infolist())
            names = Counter(info.filename.removesuffix(".npy") for info in archive.infolist())
        if size > host.available_memory():
            raise UsageError(
                f"{option} {path}: its arrays take {size / GIB:,.1f} GiB, and this machine has "
                f"{host.available_memory() / GIB:,.1f} GiB of memory free"
            )
        long = next((name for name in names if len(name) > LONGEST), None)
        if long is not None:
            raise UsageError(
                f"{option} {path}: the name of an array has {len(long):,} characters; it must have at most {LONGEST}"
            )
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise UsageError(f"{option} {path}: it holds {twice!r} twice; keep one of the two")
        with reading.opened(path) as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from None
    except Exception as error:  # numpy and zipfile raise errors of any type for a damaged file
        raise UsageError(f"{option} {path}: it cannot be read as a .npz file: {first_line(error)}") from None
    strange = next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None)
    if strange is not None:  # numpy returns the bytes of what is no array
        raise UsageError(f"{option} {path}: its member {strange!r} is no array")
    kinds = KINDS + TEXTS.get(option, "")
    strange = next((name for name, array in arrays.items() if array.dtype.kind not in kinds), None)
    if strange is not None:
        raise UsageError(
            f"{option} {path}: the array {strange!r} has the dtype {arrays[strange].dtype}, which is no number"
        )
    return {name: _plain(array, f"{option} {path}: the array {name!r}") for name, array in arrays.items()}


def check_fits(arrays: Mapping[str, Array], tensors: Sequence[Tensor], what: str) -> None:
    """Raise UsageError when an input of a file cannot take the values of an array that was given for it.

    arrays: "case/name" -> array. what: the option and its file, for the message.
    """
    dtypes = {tensor.name: tensor.dtype for tensor in tensors}
    for key, array in arrays.items():
        problem = misfit(array, dtypes.get(key.partition("/")[2], ""))
        if problem:
            raise UsageError(f"{what}: {key}: {problem}")


def unlike(arrays: Mapping[str, Array], tensors: Sequence[Tensor]) -> str:
    """Which array has another rank, size or kind of values than the input that it is for, as a clause; "" for none.

    arrays: "case/name" -> array. A runtime may take such an array all the same, so this explains why one did not.
    """
    by_name = {each.name: each for each in tensors}
    for key, array in arrays.items():
        tensor = by_name.get(key.partition("/")[2])
        if tensor is None:
            continue
        shape = tensor.shape if tensor.shape is not None else array.shape
        fixed = [(own, size) for own, size in zip(array.shape, shape) if isinstance(size, int)]
        if array.ndim != len(shape) or any(own != size for own, size in fixed):
            sizes = ", ".join("?" if size is None else str(size) for size in shape)
            return f"{key} has the shape {array.shape}, and the input takes ({sizes})"
        if array.dtype.kind not in _kinds(tensor.dtype):
            given = "text" if array.dtype.kind == "U" else array.dtype.name
            return f"{key} is {given}, and the input takes {tensor.dtype}"
    return ""


def _kinds(dtype: str) -> str:
    """The kinds of numpy's dtypes whose values an input of this dtype takes."""
    if dtype == "string":
        return "U"
    return "b" if dtype == "bool" else "iu" if "int" in dtype else "f"


def _plain(array: Array, what: str) -> Array:
    """The same values in the byte order of this machine, of a dtype that runtimes have. Raises UsageError where there is none."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind != "f" or array.dtype.itemsize <= 8:
        return array
    with np.errstate(all="ignore"):
        double: Array = array.astype(np.float64)
    changed = int(np.sum((double != array) & ~np.isnan(array)))
    if changed:
        raise UsageError(
            f"{what} is {array.dtype.name}, and {changed} of its {array.size} values are no float64: save it as float64"
        )
    return double
