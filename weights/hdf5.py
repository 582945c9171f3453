"""HDF5 files with weights of Keras and no model (``.weights.h5``, ``.h5``), read without Keras.

The name of an array is its path in the file with points between the parts. The state of an optimizer is left out, and so are
whole numbers, such as the seeds of dropout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Streamed
from .room import Room

SUFFIXES = (".h5",)
MODEL = "model_config"  # the attribute of a file that holds a whole model
HOLDS_MODEL = "it holds a model, and not only weights"
STATE = ("optimizer", "optimizer_weights")


class Datasets(Streamed):
    """The arrays of a file. Each is read when it is looked up. most: see ``room.Room``."""

    def __init__(self, path: Path, most: float | None) -> None:
        import h5py

        self.path, self.room, self.h5 = path, Room(path, most), h5py
        self.file = h5py.File(path, "r")  # it is closed when nothing refers to it
        self.names = self.found = dict[str, Any]()
        if MODEL in self.file.attrs:
            raise WeightsError(f"{path}: {HOLDS_MODEL}")
        self._collect(self.file, ())

    def _collect(self, group: Any, at: tuple[str, ...]) -> None:
        for key in group:
            if not at and key in STATE:
                continue
            if not isinstance(group.get(key, getlink=True), self.h5.HardLink):
                raise WeightsError(f"{self.path}: {'/'.join((*at, key))} is a link, which is not followed")
            item = group[key]
            if isinstance(item, self.h5.Group):
                self._collect(item, (*at, key))
            elif item.dtype.kind == "f":
                self._add(".".join((*at, key)), item)

    def _add(self, name: str, item: Any) -> None:
        if item.external or item.is_virtual:
            raise WeightsError(f"{self.path}: {name} has its values in another file, which is not read")
        self.room.take(int(item.size) * item.dtype.itemsize)
        self.found[name] = item

    def __getitem__(self, name: str) -> Array:
        return np.asarray(self.found[name][()])

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.found[name].shape)


def open_file(path: Path, trust: bool = False, most: float | None = None) -> Datasets:
    """All arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``.

    Raises WeightsError for a file that holds a model, too.
    """
    return Datasets(path, most)
