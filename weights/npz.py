"""numpy's ``.npz``, one array a name; object arrays, which would need pickle, are never read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SUFFIXES = (".npz",)


def load_file(path: Path, trust: bool = False) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def save_file(arrays: dict[str, np.ndarray], path: Path) -> None:
    # Through a file object: np.savez would append .npz, and a name of a tensor could collide with its own arguments.
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
