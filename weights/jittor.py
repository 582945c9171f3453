"""Jittor: its ``.pkl`` files, which are read without Jittor and without running code from them, and its modules.

``jittor.save`` writes a pickle of {name: Var}, the SHA-1 of the pickle, and a mark of eight bytes. A Var is pickled as a call of
``jittor_core.Var`` with a numpy array, so it is enough to know this call and those of numpy.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify import reading
from xverify.errors import WeightsError

from .canonical import Array, Arrays, Variables
from .numpy_file import array
from .room import Room

SUFFIXES = (".pkl",)

_MARK = b"HCAJSLHD"
_SHA1_BYTES = 20
MOST_AXES = 32  # of an array in a pickle


class _Stub:
    """A function or class of numpy in a pickle that is only an argument there, and never called."""


class _Dtype:
    """A dtype in a pickle: only the name of a plain kind of numbers, and the order of its bytes."""

    def __init__(self, code: Any, *rest: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>|=]?[fiubc]\d{1,2}|bool", code):
            raise WeightsError(f"it holds an array of dtype {str(code)[:40]!r}, which is no plain number")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|", "=") or any(each is not None for each in state[2:5]):
            raise WeightsError("it holds an array of a dtype with fields")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """An array in a pickle. It is made of its shape, its dtype and its bytes, and of nothing else that the pickle says."""

    value: Array | None = None

    def __init__(self, *args: Any) -> None:
        """Take the arguments with which numpy begins an array; all of them are replaced by the state."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise WeightsError("it holds an array without a shape, a dtype and values")
        _, shape, dtype, fortran, content = state
        plain = isinstance(shape, tuple) and all(type(each) is int for each in shape) and len(shape) <= MOST_AXES
        if not plain or not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise WeightsError("it holds an array without a shape, a dtype and values")
        self.value = array(shape, dtype.dtype, content, bool(fortran), "an array in it")


def _scalar(dtype: Any, content: Any) -> _Array:
    found = _Array()
    found.__setstate__((1, (), dtype, False, content))
    return found


def _array_of(*args: Any) -> Any:
    if not args:
        raise WeightsError("it holds a variable without values")
    return args[0]


def _ordered(*args: Any) -> dict[Any, Any]:
    if args and not (len(args) == 1 and isinstance(args[0], (list, tuple))):
        raise WeightsError("it holds a dictionary that is made of something else than pairs")
    return OrderedDict(*args)


# (module, name) in a pickle -> what is called instead. Nothing else is ever called.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Stub,
    ("numpy", "dtype"): _Dtype,
    ("collections", "OrderedDict"): _ordered,
    ("jittor", "jittor_core.Var"): _array_of,
    ("jittor_core", "Var"): _array_of,
    ("jittor.jittor_core", "Var"): _array_of,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
}


class _Reader(pickle.Unpickler):
    """An unpickler for arrays and dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise WeightsError(f"it calls {module}.{name}, which could run any code")


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read a ``.pkl`` file. Raises WeightsError for a damaged or unsafe file.

    trust: also run code that the pickle calls. most: see ``room.Room``.
    """
    data = reading.content(path)
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
    return _arrays(stored, path, Room(path, most))


def _arrays(stored: dict[Any, Any], path: Path, room: Room) -> Arrays:
    """Name -> array of what a pickle holds. Raises WeightsError for anything else."""
    found: Arrays = {}
    for name, value in stored.items():
        if not isinstance(name, str):
            raise WeightsError(f"{path}: the name {name!r} is a {type(name).__name__}, not a text")
        if isinstance(value, _Array):
            value = value.value
        elif isinstance(value, (int, float, np.generic)) or hasattr(
            value, "numpy"
        ):  # the last: a Var of a trusted file
            value = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        if not isinstance(value, np.ndarray):
            raise WeightsError(f"{path}: {name!r} is a {type(value).__name__}, not an array")
        room.take(value.nbytes)
        found[name] = value
    return found


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write a file that ``jittor.load`` reads and ``Module.load_parameters`` accepts."""
    body = pickle.dumps({name: np.array(array) for name, array in arrays.items()}, 4)
    path.write_bytes(body + hashlib.sha1(body).digest() + _MARK)


def named_variables(model: Any) -> Variables:
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
