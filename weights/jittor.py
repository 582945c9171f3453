"""Jittor: its ``.pkl`` files, which are read without Jittor and without running code from them, and its modules.

``jittor.save`` writes a pickle of {name: Var}, the SHA-1 of the pickle, and a mark of eight bytes. A Var is pickled as a call of
``jittor_core.Var`` with a numpy array, so it is enough to know this call and those of numpy.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays

SUFFIXES = (".pkl",)

_MARK = b"HCAJSLHD"
_SHA1_BYTES = 20


def _array_of(*args: Any) -> Array:
    return np.asarray(args[0])


def _numpy_calls() -> dict[tuple[str, str], Any]:
    """(module, name) -> the function that a pickle of numpy arrays calls."""
    rebuild = np.empty(0).__reduce__()[0]
    scalar = np.float32(0).__reduce__()[0]
    calls: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        calls[module, "_reconstruct"] = rebuild
        calls[module, "scalar"] = scalar
    return calls


# (module, name) in a pickle -> what is called instead. Nothing else is ever called.
_ALLOWED: dict[tuple[str, str], Any] = {
    **_numpy_calls(),
    ("collections", "OrderedDict"): OrderedDict,
    ("jittor", "jittor_core.Var"): _array_of,
    ("jittor_core", "Var"): _array_of,
    ("jittor.jittor_core", "Var"): _array_of,
}


class _Reader(pickle.Unpickler):
    """An unpickler for arrays and dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise WeightsError(f"it calls {module}.{name}, which could run any code")


def load_file(path: Path, trust: bool = False) -> Arrays:
    """Read a ``.pkl`` file. trust: also run code that the pickle calls. Raises WeightsError for a damaged or unsafe file."""
    data = path.read_bytes()
    if data.endswith(_MARK):
        body, checksum = data[: -len(_MARK) - _SHA1_BYTES], data[-len(_MARK) - _SHA1_BYTES : -len(_MARK)]
        if hashlib.sha1(body).digest() != checksum:
            raise WeightsError(f"{path}: its checksum does not match: the file is damaged")
        data = body
    stream = io.BytesIO(data)
    try:
        stored = (pickle.Unpickler if trust else _Reader)(stream).load()
    except WeightsError as error:
        raise WeightsError(f"{path}: refused, {error}; if you trust its author, pass --trust") from None
    if stream.read(1):
        raise WeightsError(
            f"{path}: there are more bytes after the end of the pickle: the file is damaged or truncated"
        )
    if not isinstance(stored, dict):
        raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a state_dict (name -> array)")
    nested = [name for name, value in stored.items() if isinstance(value, dict)]
    if nested:
        raise WeightsError(f"{path}: {nested[0]!r} is itself a dictionary; save that state_dict alone")
    return {str(name): np.asarray(value) for name, value in stored.items()}


def save_file(arrays: Arrays, path: Path) -> None:
    """Write a file that ``jittor.load`` reads and ``Module.load_parameters`` accepts."""
    body = pickle.dumps({name: np.array(array) for name, array in arrays.items()}, 4)
    path.write_bytes(body + hashlib.sha1(body).digest() + _MARK)


def named_variables(model: Any) -> dict[str, Any]:  # Any: jittor.Var has no type
    """Name -> variable of each parameter and running statistic. A tied parameter occurs once, under the first of its names."""
    once = {id(value): (name, value) for name, value in reversed(model.state_dict().items())}
    return dict(reversed(once.values()))


def from_model(model: Any) -> Arrays:
    """Name -> array of each parameter and running statistic of a module."""
    return {name: np.array(value.numpy()) for name, value in named_variables(model).items()}


def to_model(model: Any, arrays: Arrays) -> None:
    """Set every parameter. Names and shapes must have been checked, because Jittor only logs a parameter that does not fit."""
    double = any(str(value.dtype) == "float64" for value in model.state_dict().values())
    model.load_parameters({name: np.array(array) for name, array in arrays.items()})
    if double:  # load_parameters makes the model float32
        model.float64()
