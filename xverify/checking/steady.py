"""Finds randomness before noise is measured: what differs from call to call would be taken for the noise of rounding."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import NotInstalled, SubjectError, Unsupported
from ..messages.files import FindRandomOperators
from ..messages.graph import DescribeGraph
from ..processes.worker import Worker
from ..results.records import Error
from ..results.verdicts import Verdict
from ..verdict.limits import UNIT, growth
from ..verdict.sizes import rms
from ..weights.canonical import Array
from ..workload.keys import case_key
from .computing import Computed
from .judge import Judged
from .matching import turn_back
from .meaning import Outputs
from .subject import Opened, compute

LONG_SUM = 2**20  # terms; the order of the terms of such a sum may change from call to call
SHOWN = 3  # operators that a reason names
KEEPS = "keeps something from call to call"


def randomness(opened: Opened, inputs: Path, outputs: Outputs, graphs: Worker | None) -> str:
    """By how much two calls of a file on one input differ, and why; "" when they agree.

    Sums of several threads, whose order differs from call to call, change a value by its rounding. Two calls in float64 tell such a
    file from a random one, where the runtime computes in it, and the size of the change does elsewhere.

    inputs: its input cases. outputs: what the runtime computed from them. graphs: the worker that evaluates ONNX graphs.
    """
    place, share = _largest(outputs, compute(opened, inputs, "again", again=True))
    if not share:
        return ""
    operators = _operators(opened, graphs)
    if not operators:
        found = _largest_in_float64(opened, inputs)
        place, share = found or (place, share)
        if share <= (UNIT if found else growth(LONG_SUM) * UNIT):
            return ""
    by = "in which values are finite" if math.isinf(share) else f"by {share:.2g} of the result"
    known = ", ".join(operators[:SHOWN]) + (f" and {len(operators) - SHOWN} more" if len(operators) > SHOWN else "")
    why = f"random operators: {known}" if known else f"it draws random numbers, reads a clock, or {KEEPS}"
    return f"two calls of {opened.path.name} on one input differ {by} ({place}); {why}; save it in inference mode, without dropout"


def in_sequence(opened: Opened, computed: Computed, graphs: Worker | None) -> tuple[Opened, Computed]:
    """A file that keeps something by design, such as a state of its variables, and what it computes in one sequence of calls.

    It is such a file where it computes the same whenever it is opened anew, and draws no random numbers. Others are returned as
    they are.
    """
    anew, inputs = replace(opened, keeps=True, written=None, kinds={}), computed.inputs
    if opened.is_onnx or _operators(opened, graphs):
        return opened, computed
    own = compute(anew, inputs, "outputs-in-sequence")
    if _largest(own, compute(anew, inputs, "again-in-sequence"))[1] > growth(LONG_SUM) * UNIT:
        return opened, computed
    outputs = {}
    for key in computed.outputs:
        case, _, name = key.partition("/")
        outputs[key] = turn_back(own[case_key(int(case), computed.names[name])], computed.orders.get(name))
    says = f"{opened.path.name} {KEEPS}: its input cases are the steps of one sequence, which begins as the file does"
    return anew, replace(computed, own=own, outputs=outputs, notes=(*computed.notes, says))


def invalid(reason: str) -> Judged:
    """The answer about a file whose outputs, or whose reference's outputs, change from call to call."""
    return Judged(Error(Verdict.INVALID, reason=reason), {})


def _operators(opened: Opened, graphs: Worker | None) -> tuple[str, ...]:
    """The operators of a file that draw random numbers."""
    try:
        if opened.is_onnx:
            return graphs.ask(DescribeGraph(str(opened.path.resolve()))).random if graphs is not None else ()
        return opened.worker.ask(FindRandomOperators())
    except SubjectError:
        return ()


def _largest_in_float64(opened: Opened, inputs: Path) -> tuple[str, float] | None:
    """The largest change between two calls in float64; None where the runtime does not compute in it."""
    try:
        first = compute(opened, inputs, "exact", float64=True)
        return _largest(first, compute(opened, inputs, "exact-again", float64=True, again=True))
    except (Unsupported, NotInstalled):
        return None


def _largest(outputs: Outputs, again: Outputs) -> tuple[str, float]:
    """(output and case, share) of the output that differs most between two calls."""
    shares = {key: change(outputs[key], again[key]) if key in again else math.inf for key in outputs}
    worst = max(shares, key=lambda key: shares[key], default="")
    case, _, name = worst.partition("/")
    return f"{name}, case {case}", shares.get(worst, 0.0)


def change(one: Array, other: Array) -> float:
    """rms of the change of every value as a share of its size; 0.0 for equal bits.

    Values below the median count as large as it, so that cancellation is no change, and one large value does not hide the others.
    Of whole numbers, it is the share that differs.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
        return 0.0
    if one.dtype.kind != "f":
        return float(np.mean(one != other))
    first, second = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(first)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return math.inf
    sizes = np.abs(first[finite])
    usual = float(np.median(sizes[sizes > 0])) if sizes.any() else 0.0
    sizes = np.maximum(sizes, usual)
    away = np.abs(first[finite] - second[finite])
    return rms(np.divide(away, sizes, out=np.where(away > 0, math.inf, 0.0), where=sizes > 0)) if usual else math.inf
