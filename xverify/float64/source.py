"""The lines of the reference's own code between two layers, found on the stack when each of them is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import torch

# Code that is no part of a model: torch's containers, and what intercepts the layers.
FOREIGN = (
    str(Path(torch.__file__).parent),
    *(str(Path(__file__).parents[1] / package) for package in ("replay", "explain", "float64", "frameworks")),
)


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


def spots() -> tuple[Spot, ...]:
    """The lines of the model's code that are being executed, the outermost first."""
    found = []
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(FOREIGN):
            found.append(Spot(id(frame), frame.f_code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]  # None after the outermost
    return tuple(reversed(found))


def innermost_line(recorder: str) -> tuple[str, int]:
    """The line of the model's code that is being executed, such as "torch.py:17", and the number of the instruction.

    Outside of the model's code, the line is "" and the number -1.

    recorder: the file that asks; its own lines are left out, and so are torch's.
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(FOREIGN):
            return f"{Spot(0, frame.f_code, frame.f_lineno).file}:{frame.f_lineno}", frame.f_lasti
        if file.startswith(FOREIGN[1:3]) and file not in (recorder, __file__):
            return "", -1
        frame = frame.f_back  # type: ignore[assignment]  # None after the outermost
    return "", -1


def lines_between(first: Sequence[Spot], second: Sequence[Spot]) -> str:
    """The lines between two calls, such as "torch.py:17-19"; "" where they are unknown.

    first, second: the spots of the two calls. Without a first one, the lines begin where the model's code begins; without a second
    one, they end where it ends. Where the calls are in different functions, these are the rest of the first function, the lines
    of their caller, and the beginning of the second function.
    """
    if not first and not second:
        return ""
    outer = (first or second)[0]
    first = first or (Spot(outer.frame, outer.code, _lines(outer.code)[0]),)
    second = second or (Spot(outer.frame, outer.code, _lines(outer.code)[-1]),)
    depth = 0
    for mine, theirs in zip(first, second):
        if (mine.frame, mine.code) != (theirs.frame, theirs.code):
            break
        depth += 1
        if mine.line != theirs.line:
            break
    parts = [(spot.file, spot.line, _lines(spot.code)[-1]) for spot in reversed(first[depth:])]
    if depth:
        low, high = sorted((first[depth - 1].line, second[depth - 1].line))
        parts.append((first[depth - 1].file, low, high))
    parts += [(spot.file, _lines(spot.code)[0], spot.line) for spot in second[depth:]]
    return ", ".join(f"{file}:{low}" if low == high else f"{file}:{low}-{high}" for file, low, high in parts)


def _lines(code: CodeType) -> list[int]:
    """The lines of a function's body, in order."""
    found = sorted({line for *_, line in code.co_lines() if line is not None})
    return [line for line in found if line > code.co_firstlineno] or found
