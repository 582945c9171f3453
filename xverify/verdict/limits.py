"""The limits of rounding: pure functions that tell a rounding error from another computation.

Every limit lies in a measured gap between 574 clean trials and 152 real porting faults in torch, TensorFlow, ONNX Runtime and
Jittor: the residual of a clean layer is at most 2.75 noise floors, and that of a faulty layer is at least 147.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..results.verdicts import Verdict
from ..weights.canonical import Array

UNIT = 2.0**-24  # unit roundoff of float32: half the distance from 1.0 to the next larger number
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # unit roundoff of the lower precisions
EQUAL_R, DRIFT_R = 4.0, 40.0  # of R: residual / noise floor of a layer
EQUAL_C, DRIFT_C = 15.0, 60.0  # of C: the same for its worst group of values
EQUAL_BACKWARD_R = 5.0  # of R of a gradient; clean gradients have up to 3.54
EQUAL_RHO, DRIFT_RHO, COHERENT_RHO = 3.0, 10.0, 30.0  # of rho: residual of a model's output / noise of all its layers
OWN_EQUAL, OWN_DRIFT = 10.0, 30.0  # where the noise floor is the error of one float32 run
OWN_GROUP = 30.0  # of a group of values there, whose floor is one sample of few values
NEAR = 10.0  # limits of a group of few values, whose noise may be measured too small by as much
MOST_UNDETERMINED = 0.5  # share of the values of an output that may have no significant digit
LEAST_JUDGED = 0.5  # share of outputs, layers and trained values that must be judged, or the row is UNTESTED
LIFT = 0.01  # share of the median squared noise of a decade that is added to the noise of each of its groups
TYPICAL = 0.1  # the same of the decade of the median value, for smaller values: an error of that absolute size is rounding, too
UNDETERMINED = 1 / 8  # noise / size of a value that has no significant digit
CAP = 1e-2  # relative error; where a comparison would not show a larger one, it shows nothing
NARROW_CAP = 1.0  # the same for the outputs of a file in a lower precision, whose own rounding is that large
CAP_UNITS = 128.0  # units roundoff; the same in a precision in which this is more than CAP
# Steps of a quantised value that count as rounding of arithmetic in whole numbers, as LiteRT has it.
INTEGER_STEP = 1 / 6
# The same of its mean: the kernel rounds the zero point to a whole number, which moves all means by up to half a step, and rounds
# the product with the scale twice, which moves them by up to a quarter. Means of right files were up to 0.69 beyond a tie.
MEAN_STEP = 0.3
VISIBLE = 40.0  # noise floors; a fault that changes the result by less cannot be told from rounding
# Precision -> share of its size; a gradient whose noise floor is larger is treated as rounding alone.
NULL = {"float32": 0.01, "float16": 0.1, "bfloat16": 0.1}


@dataclass(frozen=True)
class Rule:
    """The limits of one kind of ratio.

    equal, drift: the largest ratio of all values that is EQUAL, and that is DRIFT. worst_equal, worst_drift: the same for the worst
        group of values.
    """

    equal: float
    drift: float
    worst_equal: float = math.inf
    worst_drift: float = math.inf


LAYER = Rule(EQUAL_R, DRIFT_R, EQUAL_C, DRIFT_C)
GRADIENT = Rule(EQUAL_BACKWARD_R, DRIFT_R, EQUAL_C, DRIFT_C)  # of a layer, in a backward pass
OUTPUT = Rule(EQUAL_RHO, DRIFT_RHO, EQUAL_C, DRIFT_C)
# With the error of one float32 run as the floor.
OWN = Rule(OWN_EQUAL, OWN_DRIFT, OWN_GROUP, OWN_GROUP * OWN_DRIFT / OWN_EQUAL)
STEP = Rule(EQUAL_RHO, DRIFT_RHO)  # what a training step does: its update, its statistics, its schedule


def cap(unit: float = UNIT) -> float:
    """The largest detection limit of a comparison that shows anything. unit: unit roundoff of its precision."""
    return max(CAP, CAP_UNITS * unit) if unit > UNIT else CAP


def growth(terms: int, unit: float = UNIT) -> float:
    """κ = max(1, √n/2): how much the rounding error of a sum of n terms grows.

    terms: n. Source: the probabilistic bound of Higham & Mary, SIAM Journal on Scientific Computing 41 (2019).
    unit: of the precision. Processors compute the sums of products of lower precisions in float32, so that κ is then 1.
    """
    if unit > UNIT:
        return 1.0
    return max(1.0, math.sqrt(terms) / 2)


def mean_with_doubt(squares: Sequence[float]) -> float:
    """The mean square of noise that a few samples show: their mean and twice its standard error; 0.0 without a sample.

    Rounding changes the outputs of most models by nearly the same amount in every sample, and this is then their mean. Where a few
    activations are near a bend, such as the ends of a hard sigmoid, one sample may be ten times another.
    """
    if not squares:
        return 0.0
    error = statistics.stdev(squares) / math.sqrt(len(squares)) if len(squares) > 1 else 0.0
    return statistics.fmean(squares) + 2 * error


def ratio(
    residual: Array,
    perturbed: Array | None,
    own: Array | None,
    size: Array,
    terms: int,
    unit: float = UNIT,
) -> float:
    """R: residual / noise floor F of a whole tensor, where F² = κ²·σ² + e32² and σ² = d² + (u·y)²/3.

    All arrays are mean squares of each channel, (C,) float64.

    residual: of y - y64, the difference from the exact tensor.
    perturbed: of d, the change of y64 when inputs, weights and constants change by one unit roundoff u; None for an operation that
        only copies.
    own: of e32, the error of the reference framework's own float32 result; None when unknown.
    size: of y64.
    terms: n, the length of the sums; κ = growth(n).
    unit: u, of the precision in which the tensor is computed. Below float32, sums are computed in float32, so κ is 1.
    """
    sigma = unit**2 / 3 * size
    kappa = 1.0
    if perturbed is not None:
        sigma, kappa = sigma + perturbed, growth(terms, unit)
    floor = kappa**2 * sigma + (0.0 if own is None else own)
    assert residual.ndim == 1
    return _quotient(float(residual.mean()), float(floor.mean()))


def _quotient(square: float, floor: float) -> float:
    if square == 0.0:
        return 0.0
    return math.sqrt(square / floor) if floor > 0.0 else math.inf


def classify(ratio: float, rule: Rule, worst: float = 0.0) -> Verdict:
    """EQUAL, DRIFT or DIFFERENT. NaN is DIFFERENT.

    ratio: residual / noise floor of all values. worst: the same for the worst group of values, see ``local.Local.ratio``.
    """
    if ratio <= rule.equal and worst <= rule.worst_equal:
        return Verdict.EQUAL
    return Verdict.DRIFT if ratio <= rule.drift and worst <= rule.worst_drift else Verdict.DIFFERENT


def failing(ratio: float, rule: Rule) -> Verdict:
    """The verdict on a result that is known not to be EQUAL: DRIFT or DIFFERENT, by its ratio."""
    return max(Verdict.DRIFT, classify(ratio, rule))


def classify_rho(rho: float, coherent: bool = False, away: float = 0.0, local: float = 0.0) -> Verdict:
    """The verdict on one output of a model.

    rho: residual / noise of all layers.
    coherent: whether every layer of the reference was compared in the captured callable, and is EQUAL.
    away: distance from what the captured callable returned for the same input / noise of all layers; 0 for that very callable.
    local: residual / noise of the worst group of values, see ``local.Local.ratio``.

    Rounding errors that have the same sign in every layer add up to more than the noise model predicts. When all layers are EQUAL,
    rho may therefore be up to COHERENT_RHO. A callable that was not captured itself must then be near the one that was.
    """
    plain = classify(rho, OUTPUT, local)
    earned = coherent and rho <= COHERENT_RHO and local <= COHERENT_RHO / EQUAL_RHO * EQUAL_C
    return min(plain, classify(away, OUTPUT)) if earned else plain
