"""The lines of the reference's own code between two layers, found on the stack when each of them is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import torch

# Code that is no part of a model: torch's containers, and what intercepts the layers.
FOREIGN = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


@dataclass(frozen=True)
class Spot:
    """A line of the model's code that is being executed.

    frame: identity of the stack frame; after the frame has ended, another one may have the same.
    """

    frame: int
    code: CodeType
    line: int

    @property
    def file(self) -> str:
        """The file's name, with its folder where it is not the folder of the model."""
        path = Path(self.code.co_filename)
        return f"{path.parent.name}/{path.name}" if "site-packages" in path.parts else path.name

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def spots() -> tuple[Spot, ...]:
    """The lines of the model's code that are being executed, the outermost first."""
    found = []
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(FOREIGN):
            found.append(Spot(id(frame), frame.f_code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]  # None after the outermost
    return tuple(reversed(found))


def lines_between(first: Sequence[Spot], second: Sequence[Spot]) -> str:
    """The lines between two calls, such as "torch.py:17-19"; "" where they are unknown.

    first, second: the spots of the two calls. Without a first one, the lines begin where the model's code begins; without a second
    one, they end where it ends.
    """
    if not first and not second:
        return ""
    if not first:
        start = Spot(second[0].frame, second[0].code, second[0].code.co_firstlineno)
        first = (start,)
    elif not second:
        last = max(line for *_, line in first[0].code.co_lines() if line is not None)
        second = (Spot(first[0].frame, first[0].code, last),)
    depth = 0
    for mine, theirs in zip(first, second):
        if (mine.frame, mine.code) != (theirs.frame, theirs.code):
            break
        depth += 1
        if mine.line != theirs.line:
            break
    a, b = first[-1], second[-1]
    if len(first) == len(second) == depth:
        low, high = sorted((a.line, b.line))
        return f"{a}" if low == high else f"{a.file}:{low}-{high}"
    return f"{a} to {b}"
