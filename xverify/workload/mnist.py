"""MNIST and data sets in the same format (Fashion-MNIST): two IDX files of images and labels."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .datafiles import Images, check_labels, check_size, content

NAME = "MNIST-format IDX files"
# For each file the names that it may have.
FILES = [
    [f"train-images{dot}idx3-ubyte{packed}" for packed in ("", ".gz") for dot in "-."],
    [f"train-labels{dot}idx1-ubyte{packed}" for packed in ("", ".gz") for dot in "-."],
]
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049  # magic numbers: bytes with three axes, bytes with one


def read(paths: list[Path], classes: int) -> Images:
    """Read the images and labels. paths: in the order of FILES. Raises UsageError for damaged files and wrong labels."""
    pixels = _idx(paths[0], IMAGES_MAGIC, axes=3)
    labels = _idx(paths[1], LABELS_MAGIC, axes=1).astype(np.int64)
    if len(pixels) != len(labels):
        counts = f"{paths[0]} holds {len(pixels)} images, {paths[1]} {len(labels)} labels"
        raise UsageError(f"{counts}: download both from the same place")
    check_labels(labels, classes, str(paths[1]))
    return Images(pixels[:, None], labels)


def _idx(path: Path, magic: int, axes: int) -> NDArray[np.uint8]:
    """The array of an IDX file: the magic number and the size of each axis as big-endian 32-bit numbers, then the bytes."""
    data = content(path)
    header, found_magic = 4 * (1 + axes), int.from_bytes(data[:4], "big")
    if len(data) >= 4 and found_magic != magic:
        raise UsageError(
            f"{path}: its magic number is {found_magic}, this file's is {magic}: download it again, or rename it"
        )
    if len(data) < header:
        check_size(path, header, data)
    shape = np.frombuffer(data[4:header], ">u4").tolist()
    check_size(path, header + math.prod(shape), data)
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
