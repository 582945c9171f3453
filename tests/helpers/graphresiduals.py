"""How far an output of a graph is from the exact one, in units of its noise."""

import math

import numpy as np

from xverify.replay.graph.values import in_range, tensor
from xverify.verdict.sizes import rms


def floor(found):
    """rms of the noise of the values that have one."""
    return rms(found.noise)


def rho(found, output):
    """The residual of an output of the same shape / the noise floor. Whole numbers have 0 or infinity.

    An infinite or missing value that the exact output has, too, does not count.
    """
    output = np.asarray(output)
    if output.shape != np.shape(found.exact):
        return math.inf
    if np.asarray(found.exact).dtype != np.float64:
        return math.inf if np.any((found.exact != output) & (found.noise == 0)) else 0.0
    exact, given = in_range(tensor(found.exact), found.dtype), tensor(output).double()
    if bool((exact.isfinite() != given.isfinite()).any()) or not exact.nan_to_num(0.0).isfinite().any():
        return math.inf
    if not bool((exact.isfinite() | (exact == given) | (exact.isnan() & given.isnan())).all()):
        return math.inf
    residual = rms((given - exact).numpy())
    return 0.0 if residual == 0.0 else residual / floor(found) if floor(found) > 0.0 else math.inf


def in_own_types(found):
    """The output in the types of the file."""
    return found.value.by_pass[-1]
