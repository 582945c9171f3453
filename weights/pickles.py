"""Pickles of arrays, dictionaries, lists, numbers and texts: the files of Jittor and of Paddle. No code that they hold is run.

Such a pickle makes its arrays by calls of numpy, and its variables by a call with an array, so it is enough to know these calls.
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

from .canonical import Array, Arrays
from .numpy_file import array
from .room import Room

MARK = b"HCAJSLHD"
SHA1_BYTES = 20
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


def _listed(*args: Any) -> list[Any]:
    """A list in place of a tuple, so that ``load_stored`` puts arrays in the places of their stand-ins."""
    if len(args) != 1 or not isinstance(args[0], (list, tuple)):
        raise WeightsError("it holds a tuple that is made of something else than a list")
    return list(args[0])


# (module, name) in a pickle -> what is called instead. Nothing else is ever called.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Stub,
    ("numpy", "dtype"): _Dtype,
    ("collections", "OrderedDict"): _ordered,
    ("builtins", "tuple"): _listed,  # of a tensor of Paddle in a nested dictionary: its name and its array
    ("jittor", "jittor_core.Var"): _array_of,
    ("jittor_core", "Var"): _array_of,
    ("jittor.jittor_core", "Var"): _array_of,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
}


class Reader(pickle.Unpickler):
    """An unpickler for arrays and dictionaries only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise WeightsError(f"it calls {module}.{name}, which could run any code")


def load_stored(path: Path) -> Any:
    """What a pickle of lists, dictionaries, numbers, texts and arrays holds. An array in a tuple stays a stand-in.

    A tensor of Paddle in a nested dictionary is a list of its name and its array.

    Raises WeightsError for a damaged or unsafe file; no code of it is run.
    """
    stored = unpickled(path, Reader, "")
    # A pickle may use an object in many places, and even within itself: each is gone through once.
    waiting, seen = [stored], set()
    while waiting:
        place = waiting.pop()
        if id(place) in seen or not isinstance(place, (dict, list)):
            continue
        seen.add(id(place))
        for key, value in list(place.items() if isinstance(place, dict) else enumerate(place)):
            if isinstance(value, _Array):
                place[key] = value.value
            else:
                waiting.append(value)
    return stored


def unpickled(path: Path, reader: type[pickle.Unpickler], advice: str) -> Any:
    """What a pickle holds. advice: ends the message of a file that is refused because it calls something."""
    data = reading.content(path)
    if data.endswith(MARK):
        body, checksum = data[: -len(MARK) - SHA1_BYTES], data[-len(MARK) - SHA1_BYTES : -len(MARK)]
        if hashlib.sha1(body).digest() != checksum:
            raise WeightsError(f"{path}: its checksum does not match: the file is damaged")
        data = body
    stream = io.BytesIO(data)
    try:
        stored = reader(stream).load()
    except WeightsError as error:
        raise WeightsError(f"{path}: refused, {error}{advice}") from None
    if stream.read(1):
        raise WeightsError(
            f"{path}: there are more bytes after the end of the pickle: the file is damaged or truncated"
        )
    return stored


def arrays_of(stored: Mapping[Any, Any], path: Path, room: Room) -> Arrays:
    """Name -> array of a state_dict in a pickle. Raises WeightsError for anything else in it. path: for messages."""
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
