"""The smallest size at which a file or a port differs, and where it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..results.records import Error
from ..results.verdicts import Verdict
from ..workload.sizes import Size, said

DIVERGES = "the first value that differs"  # how the sentence on the node begins at which two files diverge


@dataclass(frozen=True)
class AtSize:
    """What was found at a size. worst: the worst verdict, or a status where there is none. where: see ``where``."""

    size: Size
    worst: Verdict | str
    where: str = ""


def first_size(label: str, sized: Sequence[AtSize]) -> Iterator[str]:
    """A sentence on the smallest size at which something differs; none where it differs at no size. sized: the smallest first."""
    wrong = [each for each in sized if each.worst in (Verdict.DIFFERENT, Verdict.INVALID)]
    if not wrong or len(sized) == 1:
        return
    first, count = wrong[0], f"{len(wrong)} of {len(sized)} sizes differ"
    if len(wrong) == len(sized):
        yield f"{label}: every size differs, from {said(first.size)} on{first.where}"
    else:
        yield f"{label}: the first size that differs is {said(first.size)} ({count}){first.where}"


def where(error: Error) -> str:
    """The place of the fault, after a colon; "" where there is none."""
    if error.verdict <= Verdict.EQUAL:
        return ""
    layers = error.layers
    if layers is not None and layers.first is not None and layers.first.verdict > Verdict.EQUAL:
        return f": {layers.describe(layers.first)}"
    causes = (error.reason or "").split("; ")
    return f": {next((each for each in causes if each.startswith(DIVERGES)), causes[0])}"
