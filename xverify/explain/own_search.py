"""Searches for the mistake of a user's own training step that explains what all steps of a port do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from ..float64.arithmetic import changed_operations
from ..float64.own_step import Steps, Taken
from ..float64.own_truth import rms
from ..verdict.limits import OWN_DRIFT, OWN_EQUAL
from ..weights.canonical import Array
from .deadline import Deadline, OutOfTime
from .own_mistake import Case, Mistake, Mistakes, Port, every, within
from .own_updates import all_of, with_inner
from .own_variants import with_variants

SECONDS = 60.0  # of computation that one search for an explanation may take
LONGER = 4.0  # times as long as without a mistake, and MORE seconds, may steps with one take: they may diverge, and never end
MORE = 0.2
NEAR = 1e-3  # share of a change by which an explanation may be off: the port's formulas may differ, too
NEAR_LOSS = 1e-5  # the same, of a loss
BETTER = 0.1  # an explanation must leave less than this share of the residual
RIVAL = 4.0  # an explanation that leaves less than this multiple of what the best one leaves is as good, if neither is EQUAL
SAME = 1e-4  # relative difference of the changes of two explanations that are one: a number that is fitted, and the same rounded
MOST = 2  # explanations that are named together


class Explained(NamedTuple):
    """What a search has found.

    says: a clause for the report; "" when no known mistake explains the port. difference: the name of a known difference of
    frameworks; "" for a mistake. ended: whether the search ended because its time was over.
    """

    says: str = ""
    difference: str = ""
    ended: bool = False


class _Fitting(NamedTuple):
    """A mistake that explains the port. left: what it leaves, in limits of EQUAL. changes: of the weights in all steps."""

    mistake: Mistake
    left: float
    changes: Array


def explain(steps: Steps, ports: Sequence[Port], mistakes: Sequence[Mistakes]) -> Explained:
    """The mistake that explains all weights after all steps, and the returned losses.

    All known mistakes are tried, and the best one is told. Where two fit equally, both are named; where more do, none is.

    ports: what the port did beside the exact steps with and without variants; the first one that is explained counts.
    mistakes: catalogues; a later one is tried only where none of those before explains the port.
    """
    deadline, fitting, ended = Deadline(SECONDS), list[_Fitting](), False
    steps = with_inner(steps)
    try:
        with deadline.limited():
            before, changed = deadline.clock(), changed_operations()
            for _ in steps.drive():
                pass
            steps = replace(steps, plain=changed_operations() == changed)
            most = LONGER * (deadline.clock() - before) + MORE
        for catalogue, port in product(mistakes, ports):
            with deadline.limited():
                model = steps.code.build(True)
                steps.code.load(model, steps.files[0])
                case = Case(steps, port, model, steps.code.start(model)[1])
            for mistake in _listed(catalogue, case, deadline):
                found = _tried(mistake, case, deadline, most)
                if found is not None and mistake.difference:
                    return Explained(mistake.says, mistake.difference)
                fitting += [] if found is None else [found]
            if fitting:
                break
    except OutOfTime:
        ended = True
    # What was not tried may fit as well, but a mistake that fits down to rounding is a finding nevertheless.
    return Explained(_told(fitting), "", ended)


def _listed(catalogue: Mistakes, case: Case, deadline: Deadline) -> Iterator[Mistake]:
    """The mistakes of a catalogue, which may compute to find them."""
    listed = every(catalogue)(case)
    while True:
        with deadline.limited():
            mistake = next(listed, None)
        if mistake is None:
            return
        yield mistake


def _tried(mistake: Mistake, case: Case, deadline: Deadline, most: float) -> _Fitting | None:
    """The mistake with what it leaves, where it explains the port. most: seconds that this may take."""
    port, worst, better, changes = case.port, 0.0, False, list[Array]()
    steps = within(case.steps, mistake.around, mistake.batch) if mistake.around or mistake.batch else case.steps
    if mistake.difference:  # a port that has one may also have a mistake, which a later step shows
        steps = replace(steps, files=steps.files[: port.first + 1])
    try:
        with deadline.limited(most):
            for number, taken in enumerate(
                steps.drive(change=all_of(partial(with_variants, port.variants), mistake.change, port.given))
            ):
                if mistake.difference and number < port.first:  # judged before, perhaps beside steps with variants
                    continue
                left = _left(mistake, taken, port, number)
                if not math.isfinite(left):
                    return None
                worst = max(worst, left)
                better = better or _better(taken, port, number)
                changes += [taken.changes[name].ravel() for name in port.floors[number]]
    except OutOfTime:
        if deadline.left <= 0:
            raise
        return None
    except Exception:  # the user's code may not run with this mistake in it
        return None
    return _Fitting(mistake, worst, np.concatenate([*changes, np.empty(0)])) if better else None


def _left(mistake: Mistake, taken: Taken, port: Port, number: int) -> float:
    """What a mistake leaves of one step, in limits of EQUAL; infinity where it does not explain the step."""
    found, exact, worst = port.found[number], port.exact[number], 0.0
    for name, floor in port.floors[number].items():
        left, size = rms(found[name] - taken.after[name]), rms(taken.changes[name])
        # A step that is so many times as large rounds as many times as much.
        noise = floor * max(1.0, size / (rms(exact[f"change/{name}"]) or math.inf))
        limit = OWN_EQUAL * noise if mistake.difference else max(OWN_DRIFT * noise, NEAR * size)
        if not left <= limit:
            return math.inf
        worst = max(worst, left / (OWN_EQUAL * noise) if noise else 0.0)
    for name, loss in port.losses[number].items() if not mistake.difference else ():
        if not abs(loss - taken.losses[name]) <= max(
            OWN_DRIFT * port.loss_floors[number][name], NEAR_LOSS * abs(taken.losses[name])
        ):
            return math.inf
    return worst


def _better(taken: Taken, port: Port, number: int) -> bool:
    """Whether a weight or a loss that differs is nearer by much with a mistake."""
    found, exact = port.found[number], port.exact[number]
    for name, floor in port.floors[number].items():
        before = rms(found[name] - exact[f"after/{name}"])
        if before > OWN_EQUAL * floor and rms(found[name] - taken.after[name]) <= BETTER * before:
            return True
    for name, loss in port.losses[number].items():
        before = abs(loss - port.exact_losses[number][name])
        if before > OWN_EQUAL * port.loss_floors[number][name] and abs(loss - taken.losses[name]) <= BETTER * before:
            return True
    return False


def _told(fitting: Sequence[_Fitting]) -> str:
    """What a report says of the mistakes that explain a port: the best, two that fit equally, or nothing."""
    if not fitting:
        return ""
    most = max(1.0, RIVAL * min(each.left for each in fitting))
    chosen: list[_Fitting] = []
    for each in fitting:
        kind, says = each.mistake.kind, each.mistake.says
        same = [
            other
            for other in chosen
            if other.mistake.says == says
            or (other.mistake.kind == kind and rms(each.changes - other.changes) <= SAME * rms(each.changes))
        ]
        if each.left <= most and not same:
            chosen.append(each)
    if len(chosen) > MOST:
        return ""
    says = ", or ".join(each.mistake.says for each in chosen)
    return says if len(chosen) == 1 else f"{says}: these steps cannot tell which"
