"""How much memory the arrays of a weight file may take (``--max-weights``): a small file can declare arrays of any size."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from xverify.errors import WeightsError

GB = 10**9
LEAST = GB  # bytes that the arrays of every file may take


class Room:
    """Counts the bytes of the arrays of one file before they are read.

    path: the file. most: the greatest number of bytes, GB; None: 1 GB, or twice the size of the file when that is more.
    beside: files in which the file keeps some of its arrays.
    """

    def __init__(self, path: Path, most: float | None = None, beside: Iterable[Path] = ()) -> None:
        self.path, self.given, self.used = path, most, 0
        files = {
            Path(os.path.realpath(each)) for each in (path, *beside)
        }  # Path.resolve raises RuntimeError for a circle
        sizes = sum(each.stat().st_size for each in files if each.is_file())
        self.most = int(most * GB) if most is not None else max(LEAST, 2 * sizes)

    def take(self, count: int) -> None:
        """Count so many bytes. Raises WeightsError when there is no room for them."""
        self.used += count
        if self.used > self.most:
            raise WeightsError(
                f"{self.path}: its arrays take {_gb(self.used)} or more, and the limit is {_gb(self.most)}; if the file is "
                f"right, pass --max-weights {math.ceil(self.used / GB)} or a larger number of GB"
            )


def _gb(count: int) -> str:
    return f"{count / GB:,.1f} GB"
