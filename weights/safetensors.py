"""The canonical file format: ``.safetensors``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .canonical import Arrays

SUFFIXES = (".safetensors",)


def load_file(path: Path, trust: bool = False) -> Arrays:
    """Read all arrays of a file. trust: without effect, since these files cannot run code."""
    from safetensors.numpy import load_file

    arrays: Arrays = load_file(path)
    return arrays


def save_file(arrays: Arrays, path: Path) -> None:
    """Write arrays of any dtype."""
    from safetensors.numpy import save_file

    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, path)
