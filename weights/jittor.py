"""Jittor: its ``.pkl`` files, read without Jittor and without running code from them, and its modules.

``jittor.save`` writes a pickle of {name: Var}, its SHA-1 and an eight-byte mark. A Var pickles as a call of
``jittor_core.Var`` on a numpy array, so a reader that knows that call and numpy's own needs nothing else.
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

SUFFIXES = (".pkl",)

_MARK = b"HCAJSLHD"
_SHA1_BYTES = 20


def _array_of(*args: Any) -> np.ndarray:
    return np.asarray(args[0])


def _numpy_calls() -> dict[tuple[str, str], Any]:
    rebuild = np.empty(0).__reduce__()[0]
    scalar = np.float32(0).__reduce__()[0]
    calls: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        calls[module, "_reconstruct"] = rebuild
        calls[module, "scalar"] = scalar
    return calls


_ALLOWED: dict[tuple[str, str], Any] = {
    **_numpy_calls(),
    ("collections", "OrderedDict"): OrderedDict,
    ("jittor", "jittor_core.Var"): _array_of,
    ("jittor_core", "Var"): _array_of,
    ("jittor.jittor_core", "Var"): _array_of,
}


class _Reader(pickle.Unpickler):
    """Unpickles arrays and dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise WeightsError(f"it calls {module}.{name}, which could run any code")


def load_file(path: Path, trust: bool = False) -> dict[str, np.ndarray]:
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
        raise WeightsError(f"{path}: goes on after its pickle has ended: the file is damaged or truncated")
    if not isinstance(stored, dict):
        raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a state_dict (name -> array)")
    nested = [name for name, value in stored.items() if isinstance(value, dict)]
    if nested:
        raise WeightsError(f"{path}: {nested[0]!r} is itself a dictionary; save that state_dict alone")
    return {str(name): np.asarray(value) for name, value in stored.items()}


def save_file(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Write what ``jittor.load`` reads and ``Module.load_parameters`` takes."""
    body = pickle.dumps({name: np.array(array) for name, array in arrays.items()}, 4)
    path.write_bytes(body + hashlib.sha1(body).digest() + _MARK)


def from_model(model: Any) -> dict[str, np.ndarray]:
    """The module's parameters and running statistics, by name; a tied one once, under the first of its names."""
    once = {id(value): (name, value) for name, value in reversed(model.state_dict().items())}
    return {name: np.array(value.numpy()) for name, value in reversed(once.values())}


def to_model(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Set every parameter. Names and shapes must have been checked: Jittor logs what does not fit, and goes on."""
    double = any(str(value.dtype) == "float64" for value in model.state_dict().values())
    model.load_parameters({name: np.array(array) for name, array in arrays.items()})
    if double:  # loading narrows
        model.float64()
