"""The canonical file format: ``.safetensors``."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from xverify.errors import WeightsError

from .canonical import Arrays
from .room import Room

SUFFIXES = (".safetensors",)
LENGTH = 8  # bytes at the beginning of a file with the size of its header


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read all arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``."""
    from safetensors.numpy import load_file

    _check_names(path)
    Room(path, most).take(path.stat().st_size)
    arrays: Arrays = load_file(path)
    return arrays


def _check_names(path: Path) -> None:
    """Raise WeightsError when two arrays have the same name, of which the library would drop one."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(LENGTH))
        if size > path.stat().st_size:
            raise WeightsError(
                f"{path}: it declares a header of {size:,} bytes, and has {path.stat().st_size:,}: it is truncated"
            )
        header = file.read(size)

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise WeightsError(f"{path}: two arrays have the name {next(n for n in names if names.count(n) > 1)!r}")
        return found

    json.loads(header, object_pairs_hook=unique)


def save_file(arrays: Arrays, path: Path) -> None:
    """Write arrays of any dtype."""
    from safetensors.numpy import save_file

    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, path)
