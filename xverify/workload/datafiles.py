"""Functions that the readers of data files share: reading a file, checking its size, and checking labels."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import reading
from ..errors import UsageError


@dataclass(frozen=True)
class Images:
    """A set of labelled images.

    pixels: (items, channels, rows, columns) uint8. labels: (items,) int64, class numbers.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed when its name ends in .gz.

    A compressed file that is cut short gives the bytes that it has. Raises UsageError when the file cannot be read.
    """
    try:
        stored = reading.given(path)
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(stored) if path.suffix == ".gz" else stored
    except zlib.error as error:
        raise UsageError(f"{path} is not a valid gzip file ({error}): download it again") from None


def check_size(path: Path, expected: int, found: bytes) -> None:
    """Raise UsageError unless the content of a file has the expected number of bytes."""
    if len(found) != expected:
        unpacked = " when decompressed" if path.suffix == ".gz" else ""
        raise UsageError(f"{path}: expected {expected} bytes{unpacked}, found {len(found)}: download it again")


def check_labels(labels: NDArray[Any], classes: int, where: str) -> None:
    """Raise UsageError unless every label is between 0 and classes - 1.

    labels: integers of any shape. where: the beginning of the message, which names the first wrong label.
    """
    wrong = np.argwhere((labels < 0) | (labels >= classes))
    if len(wrong):
        item = tuple(map(int, wrong[0]))
        raise UsageError(
            f"{where}: item {', '.join(map(str, item))} has the label {labels[item]}, and the model has the classes 0 to "
            f"{classes - 1}: give its output as many classes as the data, or name other data"
        )
