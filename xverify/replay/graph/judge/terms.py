"""How rounding enters a node: the length of its sums, what of it does not round, and the axis of its channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....float64.summed_gradients import SHORT, rounding_of_rows
from ....verdict.limits import growth
from ..kinds import copies
from ..model import Node
from ..operators.reduction import reduced_axes
from ..values import Value, exact_of, is_float, tensor

Shapes = Sequence[tuple[int, ...]]
Terms = Callable[[Node, Shapes, Sequence[Any]], int]

# Operators that add up values as they are, beside those that begin with "Reduce".
ADDS = frozenset({
    "CumSum", "Sum", "Mean", "AveragePool", "GlobalAveragePool", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
})  # fmt: skip
# Operators that add up their inputs, or products of them, and nothing else. Others have numbers of their own, such as the weights
# of an interpolation, which round.
SUMS = frozenset({
    "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "CumSum", "Sum", "FusedConv", "FusedMatMul", "FusedGemm",
})  # fmt: skip
# Inputs, by index, that determine the size of the output or a decision, so that they are not rounded.
STRUCTURAL: dict[str, frozenset[int]] = {
    "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}),
    "Range": frozenset({0, 1, 2}),
    "MelWeightMatrix": frozenset({0, 1, 2, 3, 4}),
}
# Attributes that are not rounded.
EXACT_ATTRIBUTES = frozenset({"momentum", "cubic_coeff_a", "extrapolation_value", "lambd", "scales", "value"})
# Operators whose channels are axis 1, whatever the number of axes.
SPATIAL = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "QLinearConv", "ConvInteger", "DeformConv", "BatchNormalization", "MaxPool",
    "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "InstanceNormalization", "GroupNormalization",
    "LRN", "Resize", "Upsample", "GridSample", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip


def channel_axis(node: Node, rank: int) -> int:
    """The axis of the channels of an output. A fault in one feature affects one position of this axis."""
    if rank < 2:
        return 0
    if node.op in SPATIAL or (rank >= 4 and node.op not in ("MatMul", "Softmax", "LayerNormalization", "Gemm")):
        return 1
    return rank - 1


def summed_terms(node: Node, inputs: Sequence[Any]) -> int:
    """The number of terms that one value of the output sums up.

    inputs: the arrays that the node is given; None where one is left out.
    """
    shapes = [np.shape(array) if isinstance(array, np.ndarray) else () for array in inputs]
    if not shapes or copies(node):
        return 1
    begins = next((terms for prefix, terms in BEGINNINGS.items() if node.op.startswith(prefix)), None)
    terms = TERMS.get(node.op, begins)
    return 1 if terms is None else max(1, int(terms(node, shapes, inputs)))


def result_growth(node: Node, inputs: Sequence[Value | None]) -> float:
    """How many roundings of its result a node makes.

    Terms of one sign grow to a sum that is far larger than each of them, so that perturbing the terms changes it too little: the
    rounding of the partial sums counts. Products with weights have terms of both signs, and their perturbed terms are enough.
    """
    return growth(summed_terms(node, exact_of(inputs))) if node.op.startswith("Reduce") or node.op in ADDS else 1.0


def rounding_of_equal_terms(node: Node, inputs: Sequence[Any], like: Any) -> Any:
    """The rms rounding in float32 of sums in which equal terms occur, in the shape of the output; None for another node.

    Adding equal terms rounds to the same side again and again, as in the mean over an image of one colour.

    inputs: the exact arrays that it is given. like: its exact output.
    """
    means = {"GlobalAveragePool": True, "ReduceMean": True, "ReduceSum": False}.get(node.op)
    if means is None or node.domain or not is_float(inputs[0]) or not np.size(like):
        return None
    x, given = inputs[0], inputs[1] if len(inputs) > 1 else None
    axes = tuple(range(2, x.ndim)) if node.op == "GlobalAveragePool" else reduced_axes(node, x.ndim, given)
    count = math.prod(x.shape[axis] for axis in axes)
    if count < SHORT:
        return None
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = np.ascontiguousarray(x.transpose([*kept, *axes])).reshape(-1, count)
    size: Any = rounding_of_rows(tensor(rows), apart=True).numpy().reshape(np.shape(like))
    return size / count if means else size


def _reduced(node: Node, shapes: Shapes, inputs: Sequence[Any]) -> int:
    axes = reduced_axes(node, len(shapes[0]), inputs[1] if len(inputs) > 1 else None)
    return math.prod(shapes[0][axis] for axis in axes)


def _row(node: Node, shapes: Shapes, inputs: Sequence[Any]) -> int:
    """The values that a softmax adds up."""
    if node.version < 13:
        return math.prod(shapes[0][node.get("axis", 1) :])
    return shapes[0][node.get("axis", -1)] if shapes[0] else 1


def _product(node: Node, shapes: Shapes, inputs: Sequence[Any]) -> int:
    first = shapes[0]
    return first[-2] if node.get("transA", 0) and len(first) > 1 else first[-1]


def _frame(node: Node, shapes: Shapes, inputs: Sequence[Any]) -> int:
    return int(np.reshape(inputs[3], ())) if len(inputs) > 3 and inputs[3] is not None else shapes[2][0]


def _loss(node: Node, shapes: Shapes, inputs: Sequence[Any]) -> int:
    first = shapes[0]
    items = 1 if node.get("reduction", "mean") == "none" else math.prod(first) // max(1, first[1])
    return max(items, first[1] if node.op.startswith("Softmax") else 1)


def _einsum(node: Node, shapes: Shapes, inputs: Sequence[Any]) -> int:
    left, arrow, right = node.get("equation").replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, shape in zip(left.split(","), shapes):
        before, _, after = term.partition("...")
        sizes.update(zip(before, shape))
        sizes.update(zip(reversed(after), reversed(shape)))
    if not arrow:
        letters = left.replace(",", "")
        right = "".join(letter for letter in sizes if letters.count(letter) == 1)
    return math.prod(size for letter, size in sizes.items() if letter not in right)


def _each(names: str, terms: Terms) -> dict[str, Terms]:
    return dict.fromkeys(names.split(), terms)


# Operator -> the length of its sums, from the node, the shapes of its inputs, and the inputs.
TERMS: dict[str, Terms] = {
    **_each("Conv ConvInteger FusedConv DeformConv", lambda node, shapes, _: math.prod(shapes[1][1:])),
    "QLinearConv": lambda node, shapes, _: math.prod(shapes[3][1:]),
    "ConvTranspose": lambda node, shapes, _: shapes[1][0] // node.get("group", 1) * math.prod(shapes[1][2:]),
    **_each("MatMul MatMulInteger QLinearMatMul FusedMatMul DynamicQuantizeMatMul MatMulIntegerToFloat", _product),
    **_each("Gemm FusedGemm QGemm", lambda node, shapes, _: shapes[0][0 if node.get("transA", 0) else 1]),
    **_each("MatMulNBits MatMulBnb4", lambda node, *_: node.get("K", 1)),
    **_each("MoE QMoE", lambda node, shapes, _: max(shapes[0][-1], shapes[4 if node.op == "MoE" else 5][1])),
    "STFT": _frame,
    **_each("LSTM GRU RNN", lambda node, shapes, _: shapes[1][-1] + shapes[2][-1]),
    **_each("AveragePool LpPool", lambda node, *_: math.prod(node.get("kernel_shape") or [1])),
    **_each(
        "GlobalAveragePool GlobalLpPool InstanceNormalization QLinearGlobalAveragePool",
        lambda node, shapes, _: math.prod(shapes[0][2:]),
    ),
    "GroupNormalization": lambda node, shapes, _: math.prod(shapes[0][1:]) // node.get("num_groups", 1),
    "Einsum": _einsum,
    **_each(
        "Attention DFT LinearAttention",
        lambda node, shapes, _: max(max(shape, default=1) for shape in shapes),
    ),
    **_each("Softmax LogSoftmax", _row),
    **_each(
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization",
        lambda node, shapes, _: math.prod(shapes[0][node.get("axis", -1) % max(1, len(shapes[0])) :]),
    ),
    "EmbedLayerNormalization": lambda node, shapes, _: shapes[2][-1],
    "LpNormalization": lambda node, shapes, _: shapes[0][node.get("axis", -1)],
    "LRN": lambda node, *_: node.get("size", 1),
    "MeanVarianceNormalization": lambda node, shapes, _: (
        math.prod(shapes[0]) // (shapes[0][1] if len(shapes[0]) > 1 else 1)
    ),
    "CumSum": lambda node, shapes, inputs: shapes[0][int(np.reshape(inputs[1], ()))] if shapes[0] else 1,
    **_each("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", _loss),
    **_each("Sum Mean", lambda node, shapes, _: len(shapes)),
    **_each("Resize GridSample", lambda node, *_: (4 if node.get("mode") in ("cubic", "bicubic") else 2) ** 2),
}
# The same by how an operator's name begins.
BEGINNINGS: dict[str, Terms] = {"Reduce": _reduced, "Skip": lambda node, shapes, _: shapes[0][-1]}
