"""The formulas of the named losses, in operations that every framework has.

They are torch's. The same functions compute the loss in the tensors of a framework, and, in float64, what a wrong loss would be.
Of each framework they need its ``Operations``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .losses import Loss
from .operations import Operations, Tensor

TINY = 1e-7  # what Keras clips probabilities to
COSINE_EPS = 1e-8  # torch's, of cosine_similarity
NORM_EPS = 1e-12  # torch's, of normalize


def value(ops: Operations, loss: Loss, x: Tensor, t: Tensor, axis: int, lengths: Tensor | None = None) -> Tensor:
    """The value of a loss, reduced to a scalar and without its weight.

    x, t: the output and the target. axis: of the classes in x. lengths: see Loss.lengths.
    """
    if loss.name == "ctc":
        return _reduced_ctc(ops, loss, x, t, lengths)
    values, divisor = unreduced(ops, loss, x, t, axis)
    return _reduced(ops, loss, values, divisor)


def unreduced(ops: Operations, loss: Loss, x: Tensor, t: Tensor, axis: int) -> tuple[Tensor, Tensor | None]:
    """The values before the reduction, and what their sum is divided by for a mean; None for their number."""
    if loss.name == "cross_entropy":
        return _cross_entropy(ops, loss, x, t, axis)
    t = ops.cast(t, x)
    if loss.name in ("cosine", "info_nce"):
        return {"cosine": _cosine, "info_nce": _info_nce}[loss.name](ops, loss, x, t, axis), None
    return FORMULAS[loss.name](ops, loss, x, t), None


def _bce(ops: Operations, loss: Loss, x: Tensor, t: Tensor) -> Tensor:
    if loss.variant == "not from logits":
        p = _clipped(ops, x)
        return -(t * ops.log(p) + (1 - t) * ops.log(1 - p))
    if loss.variant == "softmax twice":
        x = 1 / (1 + ops.exp(-x))
    return ops.where(x > 0, x, x * 0) - x * t + ops.log(1 + ops.exp(-ops.absolute(x)))


def _mse(ops: Operations, loss: Loss, x: Tensor, t: Tensor) -> Tensor:
    return (x - t) * (x - t)


def _l1(ops: Operations, loss: Loss, x: Tensor, t: Tensor) -> Tensor:
    return ops.absolute(x - t)


def _huber(ops: Operations, loss: Loss, x: Tensor, t: Tensor) -> Tensor:
    d = x - t
    size = ops.absolute(d)
    return ops.where(size < loss.delta, 0.5 * d * d, loss.delta * (size - 0.5 * loss.delta))


def _smooth_l1(ops: Operations, loss: Loss, x: Tensor, t: Tensor) -> Tensor:
    d = x - t
    size = ops.absolute(d)
    return ops.where(size < loss.beta, (0.5 / loss.beta) * d * d, size - 0.5 * loss.beta)


def _kl_div(ops: Operations, loss: Loss, x: Tensor, t: Tensor) -> Tensor:
    """x: logarithms of probabilities. t: probabilities; the term of 0 is 0."""
    return t * ops.log(ops.where(t > 0, t, t * 0 + 1)) - t * x


FORMULAS: dict[str, Callable[[Operations, Loss, Tensor, Tensor], Tensor]] = {
    "bce_with_logits": _bce,
    "mse": _mse,
    "l1": _l1,
    "huber": _huber,
    "smooth_l1": _smooth_l1,
    "kl_div": _kl_div,
}


def _cosine(ops: Operations, loss: Loss, x: Tensor, t: Tensor, axis: int) -> Tensor:
    norms = [_norm(ops, tensor, axis, COSINE_EPS) for tensor in (x, t)]
    return 1 - ops.sum((x / norms[0]) * (t / norms[1]), axis)


def _info_nce(ops: Operations, loss: Loss, x: Tensor, t: Tensor, axis: int) -> Tensor:
    """Each row of x against all rows of t, of which the one of the same number is right. x, t: (N, D)."""
    x, t = (tensor / _norm(ops, tensor, 1, NORM_EPS) for tensor in (x, t))
    similar = ops.product(x, t) / loss.temperature
    right = ops.constant(np.eye(x.shape[0]), x)
    return -ops.sum(_log_softmax(ops, similar, 1) * right, 1)


def _norm(ops: Operations, x: Tensor, axis: int, least: float) -> Tensor:
    size = ops.sqrt(ops.sum(x * x, axis, keep=True))
    return ops.where(size > least, size, size * 0 + least)


def _cross_entropy(ops: Operations, loss: Loss, x: Tensor, t: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    classes, smoothing = x.shape[axis], loss.label_smoothing
    kept = ops.cast(t == t, x)
    if loss.ignore_index is not None and loss.variant != "ignored is class 0":
        kept = ops.cast(t != loss.ignore_index, x)
    if loss.ignore_index is not None and loss.variant == "ignored is class 0":
        t = ops.where(t == loss.ignore_index, t * 0, t)
    along = [1] * len(x.shape)
    along[axis] = classes
    numbers = ops.constant(np.arange(classes).reshape(along), t)
    hot = ops.cast(ops.expanded(t, axis) == numbers, x)
    surprise = -_log_probabilities(ops, loss, x, axis)
    weights = hot
    if loss.class_weights:
        weight = ops.constant(np.array(loss.class_weights).reshape(along), x)
        surprise, weights = surprise * weight, hot * weight
    values = ops.sum(surprise * ((1 - smoothing) * hot + smoothing / classes), axis) * kept
    if loss.variant in ("plain mean", "ignored counted"):
        counted = kept if loss.variant == "plain mean" else kept * 0 + 1
        return values, ops.sum(counted)
    return values, ops.sum(ops.sum(weights, axis) * kept)


def _log_probabilities(ops: Operations, loss: Loss, x: Tensor, axis: int) -> Tensor:
    if loss.variant == "not from logits":
        return ops.log(_clipped(ops, x / ops.sum(x, axis, keep=True)))
    if loss.variant == "softmax twice":
        x = ops.exp(_log_softmax(ops, x, axis))
    return _log_softmax(ops, x, axis)


def _log_softmax(ops: Operations, x: Tensor, axis: int) -> Tensor:
    shifted = x - ops.largest(x, axis)
    return shifted - ops.log(ops.sum(ops.exp(shifted), axis, keep=True))


def _clipped(ops: Operations, p: Tensor) -> Tensor:
    p = ops.where(p > TINY, p, p * 0 + TINY)
    return ops.where(p < 1 - TINY, p, p * 0 + (1 - TINY))


def _reduced(ops: Operations, loss: Loss, values: Tensor, divisor: Tensor | None) -> Tensor:
    total, count = ops.sum(values), float(np.prod([int(size) for size in values.shape]))
    if loss.variant == "items summed":
        return total * (int(values.shape[0]) / count)
    if loss.reduction in ("sum", "none"):
        return total
    if loss.reduction == "batchmean":
        return total / float(int(values.shape[0]))
    mean = total / (count if divisor is None else divisor)
    return mean / count if loss.variant == "mean twice" else mean


def _reduced_ctc(ops: Operations, loss: Loss, x: Tensor, t: Tensor, lengths: Tensor | None) -> Tensor:
    """torch's mean divides the loss of every item by its number of labels first."""
    values = ops.ctc(x, t, lengths, loss.blank)
    if loss.reduction in ("sum", "none"):
        return ops.sum(values)
    items = float(int(values.shape[0]))
    if loss.reduction == "mean" and loss.variant != "plain mean":
        if lengths is None:
            values = values / float(int(t.shape[1]))
        else:
            real = ops.cast(lengths, values)
            values = values / ops.where(real > 1, real, real * 0 + 1)
    mean = ops.sum(values) / items
    return ops.sum(values) if loss.variant == "items summed" else mean / items if loss.variant == "mean twice" else mean
