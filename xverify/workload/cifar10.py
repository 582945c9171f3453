"""CIFAR-10 in its binary version: five files of records, each a label byte and an image as three planes (R, G, B)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from .datafiles import Images, check_labels, check_size, content

NAME = "CIFAR-10 binary files"
# For each file the names that it may have.
FILES = [[f"{folder}data_batch_{n}.bin" for folder in ("", "cifar-10-batches-bin/")] for n in range(1, 6)]
IMAGE = (3, 32, 32)
RECORD = 1 + math.prod(IMAGE)  # bytes


def read(paths: list[Path], classes: int) -> Images:
    """Read the images and labels. paths: in the order of FILES. Raises UsageError for damaged files and wrong labels."""
    contents = [content(path) for path in paths]
    # All five files have the same number of records, so a file that is cut at the end of a record is found, too.
    size = RECORD * math.ceil(max(map(len, contents)) / RECORD)
    for path, found in zip(paths, contents):
        check_size(path, size, found)
        check_labels(np.frombuffer(found, np.uint8)[::RECORD], classes, str(path))
    records = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, RECORD)
    return Images(records[:, 1:].reshape(-1, *IMAGE), records[:, 0].astype(np.int64))
