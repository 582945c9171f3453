"""Adafactor (Shazeer & Stern 2018), by the formula of torch.optim.Adafactor, and where the formulas of other frameworks differ.

Of a weight with two axes or more, the optimizer keeps two small arrays in place of the second moment of every value: the mean
square of the gradient over one axis, called "row", and over another one, called "column". Their product, divided by the mean of
one of them, estimates the second moment. Of a vector it keeps the whole second moment, called "square".

Here, all three arrays have the shape of the weight: a mean is repeated along the axis over which it is taken, and an array that a
weight does not have is zero. So they are converted to another layout as weights are, and the formula computes with them so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from .operations import Operations, Tensor

if TYPE_CHECKING:
    from .optimizers import Optimizer

# The axes of "row" and of "column": each of these arrays changes along its own axis, and is the mean over the other one. () where
# the whole second moment is kept.
Factored = tuple[int, ...]

EPS = 2.0**-23  # torch's default for a weight in float32
OTHER_AXES = "other axes"


def last_two(count: int) -> Factored:
    """The axes that torch takes, for a weight with this number of axes."""
    return (count - 2, count - 1) if count > 1 else ()


def update(
    o: Optimizer,
    w: Tensor,
    g: Tensor,
    state: Sequence[Tensor],
    step: Any,  # a number, or a scalar tensor
    axes: Factored,
    ops: Operations,
) -> tuple[Tensor, list[Tensor]]:
    """Make one step: (the new weight, its new state). The arguments are those of ``optimizers.update``.

    axes: those of "row" and of "column".
    """
    added = "eps-added" in o.variants
    rate = o.lr if "unlimited rate" in o.variants else _least(o.lr, step**-0.5, ops)
    share = step**o.beta2_decay  # of this gradient in the means
    kept = w - (o.lr * o.weight_decay) * w if o.weight_decay else w
    size = _rms(kept if "decayed scale" in o.variants else w, ops)
    squares = g * g + o.eps**2 if added else g * g
    row, column, square = state
    if axes:
        row = (1 - share) * row + share * ops.mean(squares, axes[1])
        column = (1 - share) * column + share * ops.mean(squares, axes[0])
        average = ops.mean(row, axes[0])
        estimate = row * column / (average if added else ops.maximum(average, o.eps))
    else:
        square = (1 - share) * square + share * squares
        estimate = square
    change = g / ops.sqrt(estimate if added else ops.maximum(estimate, o.eps**2))
    divisor = ops.maximum(_rms(change, ops) / o.threshold, 1.0)
    return kept - (ops.maximum(size, o.eps2) * rate / divisor) * change, [row, column, square]


def _rms(x: Tensor, ops: Operations) -> Tensor:
    return ops.sqrt(ops.mean(x * x, None))


def _least(a: Any, b: Any, ops: Operations) -> Any:
    """The smaller one of two numbers or scalar tensors."""
    return min(a, b) if isinstance(a, float) and isinstance(b, float) else -ops.maximum(-b, -a)


def refactored(state: Sequence[Tensor], axes: Factored) -> list[Tensor]:
    """The state of torch's formula for an optimizer that takes other axes: means of the second moment that it estimates.

    state: arrays of numpy.
    """
    import numpy as np

    dtype = state[0].dtype
    row, column, estimate = (np.asarray(each, np.float64) for each in state)
    nothing = np.zeros(row.shape, dtype)
    if row.ndim > 1:
        average = row.mean(-2, keepdims=True)
        estimate = row * column / np.where(average > 0, average, 1)
    if not axes:
        return [nothing, nothing, estimate.astype(dtype)]
    means = [np.broadcast_to(estimate.mean(axis, keepdims=True), row.shape) for axis in (axes[1], axes[0])]
    return [*(each.astype(dtype) for each in means), nothing]


def order_of_axes(to_canonical: Callable[[Tensor], Tensor], shape: Sequence[int]) -> tuple[int, ...] | None:
    """Find the permutation of a variable's axes that gives the canonical weight. None when its axes are not the same.

    to_canonical: turns an array from the layout of the variable into the canonical layout.
    shape: the shape of the variable.
    """
    import numpy as np

    numbers = np.arange(math.prod(shape)).reshape(tuple(shape))
    wanted = to_canonical(numbers)
    for order in permutations(range(len(shape))):
        found = numbers.transpose(order)
        if found.shape == wanted.shape and (found == wanted).all():
            return order
    return None


def order_of_weight(
    name: str, shapes: Sequence[Sequence[int]], to_canonical: Callable[[Tensor], Tensor]
) -> tuple[int, ...]:
    """Return ``order_of_axes`` of a weight. Raise Unsupported when no variable has the same axes.

    shapes: of the variables that together are the weight.
    """
    order = order_of_axes(to_canonical, shapes[0]) if len(shapes) == 1 else None
    if order is None:
        raise Unsupported(
            f"{name} is stored in variables whose axes are not those of torch's weight, and Adafactor computes means over the axes "
            "of a variable; choose another optimizer"
        )
    return order


def with_other_axes(o: Optimizer, factored: Mapping[str, Factored]) -> Optimizer:
    """The settings of an optimizer that takes these axes of weights of which torch takes others."""
    return replace(o, variants=(*o.variants, OTHER_AXES)) if factored else o


def canonical_axes(order: Sequence[int], own: Factored) -> Factored:
    """The canonical axes of two axes of a variable, in canonical order. order: see ``order_of_axes``."""
    return tuple(sorted(order.index(axis) for axis in own))


def native_axes(order: Sequence[int], axes: Factored) -> Factored:
    """The axes of a variable that are these canonical ones, in the same order. order: see ``order_of_axes``."""
    return tuple(order[axis] for axis in axes)


def check_no_sums(fused: Mapping[str, Sequence[str]]) -> None:
    """Raise Unsupported where a weight is a sum of torch's. fused: see Framework.fused_parameters."""
    for name, parts in fused.items():
        raise Unsupported(
            f"{name} is the sum of {' and '.join(parts)}, and the steps of Adafactor depend on the size of each: "
            "choose another optimizer"
        )
