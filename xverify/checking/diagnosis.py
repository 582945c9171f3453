"""What went wrong in a conversion, where the outputs tell: a known change of the reference's outputs gives the file's outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..verdict.sizes import norm
from ..weights.canonical import Array

FITS, BETTER = 1e-4, 100.0  # relative error that a change must reach, and by how much it must be better than no change
LEAST = 1e-6  # relative error below which outputs differ by little more than rounding, which has no such cause
Pairs = Sequence[tuple[Array, Array]]


def diagnose(pairs: Pairs) -> str:
    """A sentence on how the outputs of a file follow from those of the reference; "" when no known change fits.

    pairs: (the reference's array, the file's array) of one output in every case, of one shape and in floating point.
    """
    exact = [(right.astype(np.float64), own.astype(np.float64)) for right, own in pairs]
    if not exact or any(
        not (right.size and np.isfinite(right).all() and np.isfinite(own).all()) for right, own in exact
    ):
        return ""
    plain = _error(exact)
    fitting = sorted((_error(changed), says) for says, changed in _changes(exact))
    if plain < LEAST or not fitting or not (fitting[0][0] <= FITS and fitting[0][0] * BETTER <= plain):
        return ""
    rivals = [says for error, says in fitting if error <= max(FITS, BETTER * fitting[0][0])]
    return fitting[0][1] if len(rivals) == 1 else " or ".join(rivals[:2])


def _error(pairs: Pairs) -> float:
    signal = math.hypot(*(norm(right) for right, _ in pairs))
    noise = math.hypot(*(norm(own, right) for right, own in pairs))
    return noise / signal if signal else math.inf


def _changes(pairs: Pairs) -> Iterator[tuple[str, Pairs]]:
    """Each known change: a sentence, and the pairs when the change is made to one side."""
    for name, function in FUNCTIONS.items():
        if all(right.ndim for right, _ in pairs):
            yield (
                f"{name} is missing at the end: that of the file's output is the reference's",
                [(right, function(own)) for right, own in pairs],
            )
            yield f"{name} is applied once more than in the reference", [(function(right), own) for right, own in pairs]
    if all(right.ndim >= 2 and right.shape[-1] == right.shape[-2] for right, _ in pairs):
        yield "the last two axes are swapped", [(right.swapaxes(-1, -2), own) for right, own in pairs]
    low, high = min(float(own.min()) for _, own in pairs), max(float(own.max()) for _, own in pairs)
    if low < high and any(float(right.min()) < low or float(right.max()) > high for right, _ in pairs):
        yield f"values are clipped to [{low:.4g}, {high:.4g}]", [(right.clip(low, high), own) for right, own in pairs]
    items = np.concatenate(
        [np.atleast_2d(own - right) for right, own in pairs if right.ndim == 2] or [np.zeros((0, 0))]
    )
    if len(items) > 1:
        shift = items.mean(axis=0)
        yield (
            "a constant is added to every item, as when a bias is missing or another one",
            [(right + shift, own) for right, own in pairs],
        )
    products = (
        sum(float((right * own).sum()) for right, own in pairs),
        sum(float((right**2).sum()) for right, _ in pairs),
    )
    if products[1]:
        factor = products[0] / products[1]
        yield f"every value is multiplied by {factor:.6g}", [(factor * right, own) for right, own in pairs]


def _softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    found: Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


def _log_softmax(values: Array) -> Array:
    shifted = values - values.max(axis=-1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def _sigmoid(values: Array) -> Array:
    found: Array = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found


def _relu(values: Array) -> Array:
    return np.maximum(values, 0.0)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "a softmax": _softmax,
    "a log-softmax": _log_softmax,
    "a sigmoid": _sigmoid,
    "a tanh": np.tanh,
    "a ReLU": _relu,
}
