"""When is a difference more than rounding? Pure functions over mean squares.

Every limit was placed in a measured gap, on 574 clean trials and 152 real porting faults over torch, TensorFlow, ONNX Runtime and
Jittor: residuals of clean layers reach 2.75 floors, those of faulty ones begin at 147.
"""

from __future__ import annotations

import math

import numpy as np

from ..results.verdicts import Verdict

UNIT = 2.0**-24  # half a unit in the last place of 1.0 in float32
EQUAL_R, DRIFT_R = 4.0, 40.0  # residual of a layer over its floor
EQUAL_C, DRIFT_C = 10.0, 60.0  # the same for the worst channel
EQUAL_BACKWARD_R = 5.0  # of a gradient, whose honest residuals reach 3.54
EQUAL_RHO, DRIFT_RHO, COHERENT_RHO = 3.0, 10.0, 30.0  # of a whole model's output over the noise of all its layers
VISIBLE = 40.0  # a fault that moves the result by fewer floors could not be told from rounding


def growth(terms: int) -> float:
    """κ = max(1, √n/2): how the rounding of a sum of n terms grows, by the random-walk law (Higham & Mary 2019)."""
    return max(1.0, math.sqrt(terms) / 2)


def ratios(
    residual: np.ndarray, moved: np.ndarray | None, own: np.ndarray | None, size: np.ndarray, terms: int
) -> tuple[float, float]:
    """R and C: a residual over its floor, F² = κ²·σ² + e32², where σ² = d² + (u·y)²/3.

    All arguments are mean squares by channel, (C,). residual: y - y64. moved: d, the change of y64 when inputs, weights and
    constants move by a unit of rounding; None for an operation that only copies. own: e32, the reference framework's float32
    error on the same inputs; None when unknown. size: y64. terms: n, the length of the sums.

    R = rms(residual) / F over everything. C is the largest rms(residual) / √(F_c² + F²/100) of a channel; the second term keeps
    a channel that is nearly zero from counting its last bits.
    """
    sigma = UNIT**2 / 3 * size
    kappa = 1.0
    if moved is not None:
        sigma, kappa = sigma + moved, growth(terms)
    floor = kappa**2 * sigma + (0.0 if own is None else own)
    assert residual.ndim == 1
    whole = float(floor.mean())
    ratio = _quotient(float(residual.mean()), whole)
    worst = max((_quotient(float(r), float(f) + whole / 100) for r, f in zip(residual, floor)), default=0.0)
    return ratio, worst


def _quotient(square: float, floor: float) -> float:
    if square == 0.0:
        return 0.0
    return math.sqrt(square / floor) if floor > 0.0 else math.inf


def classify(ratio: float, channel_ratio: float = 0.0, equal: float = EQUAL_R) -> Verdict:
    """EQUAL, DRIFT or DIFFERENT, for one tensor of a layer.

    ratio, channel_ratio: R and C, see ``ratios``.
    equal: the largest R that is EQUAL.
    """
    if not (ratio <= DRIFT_R and channel_ratio <= DRIFT_C):  # NaN is DIFFERENT, too
        return Verdict.DIFFERENT
    return Verdict.EQUAL if ratio <= equal and channel_ratio <= EQUAL_C else Verdict.DRIFT


def classify_output(rho: float, layers: Verdict | None) -> Verdict:
    """The verdict on the outputs of a model.

    rho: residual / noise of all layers.
    layers: the worst verdict on a layer; None when no layer was compared.

    Rounding errors that have the same sign in every layer add up to more than the noise model predicts. When all layers are EQUAL,
    rho may therefore be up to COHERENT_RHO.
    """
    if layers is not None and layers in (Verdict.DIFFERENT, Verdict.INVALID):
        return Verdict(layers)
    if rho <= EQUAL_RHO:
        return Verdict.EQUAL if layers is None else Verdict(layers)
    if layers == Verdict.EQUAL:
        return Verdict.EQUAL if rho <= COHERENT_RHO else Verdict.DIFFERENT
    return Verdict.DRIFT if rho <= DRIFT_RHO else Verdict.DIFFERENT
