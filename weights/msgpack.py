"""Files of flax.serialization (``.msgpack``), read without Flax: a tree of arrays, as models of Flax are stored.

The name of an array is its path with points between the parts; a part ``params`` at the beginning is left out. The state of
an optimizer is left out, and so are whole numbers, such as the number of steps and the keys of random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays
from .room import Room

SUFFIXES = (".msgpack",)
ROOTS = ("params", "batch_stats")  # trees whose names are no part of the name of an array
STATE = "opt_state"
# Keys of a large array that flax.serialization divides.
CHUNKED, SHAPE, CHUNKS = "__msgpack_chunked_array__", "shape", "chunks"
ARRAY, SCALAR = 1, 3  # codes of the extension types that hold (shape, dtype, bytes)


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """All arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``."""
    import msgspec

    room = Room(path, most)
    tree = msgspec.msgpack.decode(path.read_bytes(), ext_hook=lambda code, data: _extension(code, bytes(data), room))
    if not isinstance(tree, dict):
        raise WeightsError(f"{path}: it holds {type(tree).__name__}, and no tree of named arrays")
    return dict(_leaves(tree, ()))


def _leaves(tree: dict[Any, Any], at: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    for key, value in tree.items():
        place = (*at, str(key))
        if not at and key == STATE:
            continue
        if isinstance(value, dict) and value.get(CHUNKED):
            value = _joined(value, place)
        if isinstance(value, dict):
            yield from _leaves(value, place)
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
            yield ".".join(place[place[0] in ROOTS and len(place) > 1 :]), value


def _joined(parts: dict[str, Any], place: tuple[str, ...]) -> Array:
    """An array of several parts. Lists are stored as dictionaries whose keys are numbers."""
    shape, chunks = _list(parts[SHAPE]), _list(parts[CHUNKS])
    found: Array = np.concatenate(chunks)
    if found.size != math.prod(shape):
        raise WeightsError(f"{'.'.join(place)} has {found.size} values, and its shape is {tuple(shape)}")
    return found.reshape(tuple(shape))


def _list(items: Any) -> list[Any]:
    return [items[key] for key in sorted(items, key=int)] if isinstance(items, dict) else list(items)


def _extension(code: int, data: bytes, room: Room) -> Any:
    """An array; None for what is none."""
    import msgspec

    if code not in (ARRAY, SCALAR):
        return None
    shape, kind, content = msgspec.msgpack.decode(data)
    wide = kind == "bfloat16"
    dtype = np.dtype(np.uint16 if wide else kind)
    if dtype.kind not in "fiubc":
        raise WeightsError(f"it holds an array of dtype {kind!r}, which is no plain number")
    room.take(math.prod(shape) * (4 if wide else dtype.itemsize))
    found = np.frombuffer(content, dtype)
    if wide:  # the upper half of a float32
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return found.reshape(tuple(shape))
