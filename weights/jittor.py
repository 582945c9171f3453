"""Jittor: its ``.pkl`` files, which are read without Jittor and without running code from them, and its modules.

``jittor.save`` writes a pickle of {name: Var}, the SHA-1 of the pickle, and a mark of eight bytes. A Var is pickled as a call of
``jittor_core.Var`` with a numpy array.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays, Variables
from .pickles import MARK, Reader, arrays_of, unpickled
from .room import Room

SUFFIXES = (".pkl",)


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read a ``.pkl`` file. Raises WeightsError for a damaged or unsafe file.

    trust: also run code that the pickle calls. most: see ``room.Room``.
    """
    stored = unpickled(path, pickle.Unpickler if trust else Reader, "; if you trust its author, pass --trust")
    if not isinstance(stored, dict):
        raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a state_dict (name -> array)")
    nested = [name for name, value in stored.items() if isinstance(value, dict)]
    if nested:
        raise WeightsError(f"{path}: {nested[0]!r} is itself a dictionary; save that state_dict alone")
    return arrays_of(stored, path, Room(path, most))


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write a file that ``jittor.load`` reads and ``Module.load_parameters`` accepts."""
    body = pickle.dumps({name: np.array(array) for name, array in arrays.items()}, 4)
    path.write_bytes(body + hashlib.sha1(body).digest() + MARK)


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
