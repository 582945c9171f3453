"""The canonical file format: ``.safetensors``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SUFFIXES = (".safetensors",)


def load_file(path: Path, trust: bool = False) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def save_file(arrays: dict[str, np.ndarray], path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, path)
