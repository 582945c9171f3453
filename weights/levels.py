"""The values of types whose values are not a step apart: floats of few bits, and those with a table.

They are given in steps of a block, that is, before they are multiplied by its scale.
"""

from __future__ import annotations

import numpy as np

from .canonical import Array


def _floats(exponent: int, mantissa: int, bias: int) -> Array:
    """The positive values of a float without a sign, in the order of its bits. exponent, mantissa: their bits."""
    bits = np.arange(2 ** (exponent + mantissa))
    power, part = bits >> mantissa, (bits & (2**mantissa - 1)) / 2**mantissa
    found: Array = np.where(power > 0, (1 + part) * 2.0 ** (power - bias), part * 2.0 ** (1 - bias))
    return found


E2M1 = _floats(2, 1, 1)  # the float of four bits, without its sign
E4M3 = _floats(4, 3, 7)
E4M3[-1] = np.nan
E5M2 = _floats(5, 2, 15)
E5M2[-4:] = np.inf, np.nan, np.nan, np.nan
# Type -> its values by their bits.
DECODED = {
    "float8_e4m3fn": np.concatenate([E4M3, -E4M3]),
    "float8_e5m2": np.concatenate([E5M2, -E5M2]),
    "float8_e8m0fnu": np.append(2.0 ** (np.arange(255) - 127.0), np.nan),
    "MXFP4": np.concatenate([E2M1, -E2M1]),
    "NVFP4": np.concatenate([E2M1, -E2M1]),
}
FLOATS = frozenset(DECODED)
# The table of IQ4_NL and IQ4_XS in llama.cpp; a step is a sixteenth of it.
NON_LINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _signed(*sizes: int) -> Array:
    return np.array([*(-size for size in reversed(sizes)), *sizes], np.float64)


# Type -> its values in ascending order.
LEVELS = {
    **{kind: np.unique(values[np.isfinite(values)]) for kind, values in DECODED.items()},
    **dict.fromkeys(("IQ4_NL", "IQ4_XS"), np.array(NON_LINEAR) / 16),
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ2_S"), _signed(8, 25, 43) / 16),
    "IQ3_XXS": _signed(4, 12, 20, 28, 36, 44, 52, 62) / 8,
}


def half_gaps(kind: str, values: Array, low: Array, high: Array) -> Array:
    """Half the distance of each value from its neighbours in its type; of two distances the larger one.

    low, high: the ends of the range of each value, which tell its scale. All have one shape, and so has the result.
    """
    levels = LEVELS[kind]
    first, last = levels[0], levels[-1]
    # A scale below zero exchanges the ends.
    scale = np.where(-low * last >= -first * high, low / first, low / last)
    place = values / np.where(scale != 0, scale, 1.0)
    gaps = np.diff(levels)
    wider = np.maximum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))
    index = np.searchsorted((levels[1:] + levels[:-1]) / 2, place)
    found: Array = wider[index] / 2 * np.abs(scale)
    return found
