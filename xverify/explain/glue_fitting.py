"""Finds the value of a number in glue code with which the reference computes what a port passes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from ..replay.operation import Operation
from .faults.glue.catalogue import UNEXPECTED, Choose, choices
from .faults.glue.operation import Rewrite
from .faults.glue.settings import Setting

STARTS = (1.0, 4.0, 0.25, 20.0, 0.05)  # times the reference's number: where the search begins
STEPS = 10  # of each search; most end after four
NUDGE = 1e-4  # relative change by which a slope is measured
SETTLED = 1e-9  # relative change at which a search ends
DIGITS = 4  # of a number that a port may have; more are kept where these do not fit

Value = Callable[[Rewrite], Tensor | None]
Numbers = Callable[[Operation], Iterator[Setting]]  # of an operation


@dataclass(frozen=True)
class Fit:
    """A number that was fitted. change: relative change of the number. digits: how many significant ones it has."""

    change: float
    digits: int


def fitted(
    operations: Sequence[Operation], numbers: Numbers, captured: Tensor, value: Value, choose: Choose = choices
) -> Iterator[tuple[Rewrite, Tensor, Fit]]:
    """For each number of these operations the value that comes nearest to a captured tensor.

    Yields the operations with it, the tensor with it, and what is known about the number.

    numbers: those of an operation. value: the tensor with some operations changed; None where the change does not fit.
    choose: the sets of operations that get the same number.
    """
    sites: dict[tuple[str, str, float], dict[Operation, Setting]] = {}
    for operation in operations:
        with suppress(*UNEXPECTED):
            for setting in numbers(operation):
                sites.setdefault((setting.kind, setting.name, setting.value), {})[operation] = setting
    for places in sites.values():
        for chosen in choose(places):
            known = {operation: setting for operation, setting in places.items() if operation in chosen}
            yield from _nearest(known, captured, value)


def _nearest(places: dict[Operation, Setting], captured: Tensor, value: Value) -> Iterator[tuple[Rewrite, Tensor, Fit]]:
    first = next(iter(places.values()))

    def rewrite(number: float) -> Rewrite:
        return Rewrite(
            first.kind, first.says(number), {operation: each.compute(number) for operation, each in places.items()}
        )

    for start in STARTS:
        number = solved(lambda number: value(rewrite(number)), first.value * start, captured)
        if number is None:
            continue
        for rounded in (float(f"{number:.{DIGITS}g}"), number):
            found = value(rewrite(rounded))
            if found is not None:
                change = abs(rounded / first.value - 1) if first.value else math.inf
                digits = len(f"{rounded:.12e}".partition("e")[0].replace(".", "").rstrip("0"))
                yield rewrite(rounded), found, Fit(change, digits)
        return


def solved(compute: Callable[[float], Tensor | None], start: float, captured: Tensor) -> float | None:
    """The number at which a function comes nearest to a captured tensor (Gauss-Newton); None where the search fails."""
    number, target = start, captured.double()
    for _ in range(STEPS):
        nudge = NUDGE * number
        here, beside = compute(number), compute(number + nudge)
        if here is None or beside is None or here.shape != target.shape:
            return None
        slope = (beside - here) / nudge
        size = float(slope.square().sum())
        step = float((slope * (target - here)).sum()) / size if size else math.nan
        if not math.isfinite(step) or abs(step) > 1e6 * abs(start):
            return None
        number += step
        if not number:
            return None
        if abs(step) <= SETTLED * abs(number):
            near = compute(number)
            close = near is not None and float(torch.dist(near, target)) <= 1e-4 * float(
                torch.linalg.vector_norm(target)
            )
            return number if close else None
    return None
