"""numpy's ``.npz``, one array a name; object arrays, which would need pickle, are never read."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

SUFFIXES = (".npz",)
MAPPED = 2**16  # bytes, from which on an array is mapped


def load_file(path: Path, trust: bool = False) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


class OnDisk(Mapping[str, np.ndarray]):
    """The arrays of several files that ``save_file`` wrote as one mapping.

    Each is mapped when it is looked up: nothing is copied, no checksum computed, and the system keeps of it what it has room for.
    """

    def __init__(self, *paths: Path) -> None:
        self.places: dict[str, tuple[Path, int]] = {}
        for path in paths:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    self.places[member.filename.removesuffix(".npy")] = path, member.header_offset

    def __getitem__(self, name: str) -> np.ndarray:
        path, place = self.places[name]
        with path.open("rb") as file:
            # A member's own header has 30 bytes; the last four are the lengths of its name and of what else stands before it.
            file.seek(place + 26)
            file.seek(place + 30 + sum(struct.unpack("<HH", file.read(4))))
            known = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran, dtype = known[np.lib.format.read_magic(file)](file)
            order: Literal["C", "F"] = "F" if fortran else "C"
            if math.prod(shape) * dtype.itemsize < MAPPED:
                return np.fromfile(file, dtype, math.prod(shape)).reshape(shape, order=order)
            return np.asarray(np.memmap(file, dtype, "c", file.tell(), shape, order))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def save_file(arrays: dict[str, np.ndarray], path: Path) -> None:
    # Through a file object: np.savez would append .npz, and a name of a tensor could collide with its own arguments.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
