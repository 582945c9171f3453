"""numpy's ``.npz``, one array a name; object arrays, which would need pickle, are never read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

SUFFIXES = (".npz",)


def load_file(path: Path, trust: bool = False) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


class OnDisk(Mapping[str, np.ndarray]):
    """The arrays of several files as one mapping. Each is read when it is looked up, and not kept.

    The files stay open as long as the mapping lives: reading the directory of one with 2,000 arrays takes 10 ms.
    """

    def __init__(self, *paths: Path) -> None:
        self.places: dict[str, np.lib.npyio.NpzFile] = {}
        for path in paths:
            archive = np.load(path, allow_pickle=False)
            self.places.update(dict.fromkeys(archive.files, archive))

    def __getitem__(self, name: str) -> np.ndarray:
        array: np.ndarray = self.places[name][name]
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def save_file(arrays: dict[str, np.ndarray], path: Path) -> None:
    # Through a file object: np.savez would append .npz, and a name of a tensor could collide with its own arguments.
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
