"""Properties of operators that the noise of rounding depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...verdict.limits import growth
from .model import Node
from .operators.reduction import reduced_axes
from .operators.shape import cast_type
from .values import BFLOAT16, UNITS, Value, is_float

# Operators that copy or select values without arithmetic. Their outputs carry no rounding of their own.
COPIES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Gather", "GatherElements",
    "GatherND", "Expand", "Tile", "Pad", "Trilu", "Compress", "Unique", "ReverseSequence", "NonZero", "Shape", "Size", "OneHot",
    "EyeLike", "ConstantOfShape", "Dropout", "DepthToSpace", "SpaceToDepth", "CenterCropPad", "Cast", "CastLike", "Where",
    "Relu", "Clip", "Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Max", "Min", "MaxPool", "GlobalMaxPool", "MaxUnpool",
    "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "Hardmax", "IsNaN", "IsInf", "Equal", "Greater", "Less",
    "GreaterOrEqual", "LessOrEqual", "ThresholdedRelu", "NonMaxSuppression", "BitCast", "TensorScatter", "SequenceConstruct",
    "SequenceEmpty", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "SplitToSequence", "ConcatFromSequence",
    "Optional", "OptionalGetElement", "OptionalHasElement",
})  # fmt: skip
# Operators that add up values as they are, beside those that begin with "Reduce".
ADDS = frozenset({"CumSum", "Sum", "Mean", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"})
# Operators that add up their inputs, or products of them, and nothing else. Others have numbers of their own, such as the weights
# of an interpolation, which round.
SUMS = frozenset({
    "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "CumSum", "Sum", "FusedConv", "FusedMatMul", "FusedGemm",
})  # fmt: skip
# Operators whose rounding is that of their parts, which one of torch's operations shows.
SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "ReduceLogSumExp"})
SCATTERS = ("ScatterND", "ScatterElements", "Scatter")  # copies, unless they add or multiply
# Inputs, by index, that determine the size of the output or a decision, so that they are not rounded.
STRUCTURAL: dict[str, frozenset[int]] = {
    "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}),
    "Range": frozenset({0, 1, 2}),
    "MelWeightMatrix": frozenset({0, 1, 2, 3, 4}),
}
EXACT_ATTRIBUTES = (
    "momentum",
    "cubic_coeff_a",
    "extrapolation_value",
    "lambd",
    "scales",
    "value",
)  # that are not rounded
# Operators that round to steps. Their outputs are whole numbers that follow from each pass's own inputs.
QUANTISING = frozenset({
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QLinearAdd",
    "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool", "QGemm", "QLinearConcat",
})  # fmt: skip
# Operators whose channels are axis 1, whatever the number of axes.
SPATIAL = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "QLinearConv", "ConvInteger", "DeformConv", "BatchNormalization", "MaxPool",
    "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "InstanceNormalization", "GroupNormalization",
    "LRN", "Resize", "Upsample", "GridSample", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip


def copies(node: Node) -> bool:
    """Whether an operator copies or selects values without arithmetic."""
    if node.op in SCATTERS:
        return node.get("reduction", "none") in ("none", "max", "min")
    if node.op in ("Resize", "Upsample"):
        return node.get("mode", "nearest") == "nearest"
    return node.domain == "" and node.op in COPIES


def decides(node: Node, dtype: Any, floats: bool) -> bool:
    """Whether whole numbers that a node returns are decisions, which every pass takes from the exact one.

    Quantised values, and sums of them, are not: each pass has its own.

    dtype: the type of the output.
    floats: whether the node has floating-point inputs.
    """
    if node.op in QUANTISING:
        return False
    dtype = np.dtype(dtype)
    if dtype.kind in "bO" or dtype.itemsize > 4:
        return True
    return dtype.itemsize > 1 and floats


def declared(node: Node, inputs: Sequence[Value | None]) -> np.dtype[Any]:
    """The floating-point type that the file declares for the floating-point outputs of a node."""
    present = [value for value in inputs if value is not None]
    if node.op == "Cast":
        to = cast_type(node)
    elif node.op == "CastLike":
        to = present[-1].dtype
    elif node.op == "ConstantOfShape":
        to = node.get("value", np.zeros(1, np.float32)).dtype
    elif node.get("output_dtype") or node.get("output_datatype"):
        to = _element_type(node.get("output_dtype") or node.get("output_datatype"))
    elif node.op in ("EyeLike", "SequenceEmpty") and node.get("dtype"):
        to = _element_type(node.get("dtype"))
    else:
        to = next((value.dtype for value in present if value.is_float), None)
    return to if to in UNITS else np.dtype(np.float32)


def _element_type(number: int) -> Any:
    import onnx

    return BFLOAT16 if number == 16 else np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))


def channel_axis(node: Node, rank: int) -> int:
    """The axis of the channels of an output. A fault in one feature affects one position of this axis."""
    if rank < 2:
        return 0
    if node.op in SPATIAL or (rank >= 4 and node.op not in ("MatMul", "Softmax", "LayerNormalization", "Gemm")):
        return 1
    return rank - 1


# -- the length of sums -----------------------------------------------------------------------------------------------


def summed_terms(node: Node, inputs: Sequence[Any]) -> int:
    """The number of terms that one value of the output sums up.

    inputs: the arrays that the node is given; None where one is left out.
    """
    shapes = [np.shape(array) if isinstance(array, np.ndarray) else () for array in inputs]
    if not shapes or copies(node):
        return 1
    return max(1, int(_terms(node, shapes, inputs)))


def result_growth(node: Node, inputs: Sequence[Value | None]) -> float:
    """How many roundings of its result a node makes.

    Terms of one sign grow to a sum that is far larger than each of them, so that perturbing the terms changes it too little: the
    rounding of the partial sums counts. Products with weights have terms of both signs, and their perturbed terms are enough.
    """
    if not (node.op.startswith("Reduce") or node.op in ADDS):
        return 1.0
    return growth(summed_terms(node, [None if value is None else value.exact for value in inputs]))


def _terms(node: Node, shapes: list[tuple[int, ...]], inputs: Sequence[Any]) -> int:
    op, first = node.op, shapes[0]
    if op in ("Conv", "ConvInteger", "FusedConv", "DeformConv"):
        return math.prod(shapes[1][1:])
    if op == "QLinearConv":
        return math.prod(shapes[3][1:])
    if op == "ConvTranspose":
        return shapes[1][0] // node.get("group", 1) * math.prod(shapes[1][2:])
    if op in (
        "MatMul",
        "MatMulInteger",
        "QLinearMatMul",
        "FusedMatMul",
        "DynamicQuantizeMatMul",
        "MatMulIntegerToFloat",
    ):
        return first[-2] if node.get("transA", 0) and len(first) > 1 else first[-1]
    if op in ("Gemm", "FusedGemm", "QGemm"):
        return first[0] if node.get("transA", 0) else first[1]
    if op == "STFT":
        return int(np.reshape(inputs[3], ())) if len(inputs) > 3 and inputs[3] is not None else shapes[2][0]
    if op == "MatMulNBits":
        return node.get("K", 1)
    if op in ("LSTM", "GRU", "RNN"):
        return shapes[1][-1] + shapes[2][-1]
    if op in ("AveragePool", "LpPool"):
        return math.prod(node.get("kernel_shape") or [1])
    if op in ("GlobalAveragePool", "GlobalLpPool", "InstanceNormalization", "QLinearGlobalAveragePool"):
        return math.prod(first[2:])
    if op == "GroupNormalization":
        return math.prod(first[1:]) // node.get("num_groups", 1)
    if op in ("Einsum", "Attention", "MultiHeadAttention", "DFT", "LinearAttention"):
        return _summed_by_name(node, shapes)
    return _over_axes(node, shapes, inputs)


def _over_axes(node: Node, shapes: list[tuple[int, ...]], inputs: Sequence[Any]) -> int:
    op, first = node.op, shapes[0]
    rank = len(first)
    if op.startswith("Reduce"):
        axes = inputs[1] if len(inputs) > 1 else None
        return math.prod(first[axis] for axis in reduced_axes(node, rank, axes))
    if op in ("Softmax", "LogSoftmax"):
        if node.version < 13:
            return math.prod(first[node.get("axis", 1) :])
        return first[node.get("axis", -1)] if rank else 1
    if op in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        return math.prod(first[node.get("axis", -1) % max(1, rank) :])
    if op.startswith("Skip"):
        return first[-1]
    if op == "LpNormalization":
        return first[node.get("axis", -1)]
    if op == "LRN":
        return node.get("size", 1)
    if op == "MeanVarianceNormalization":
        return math.prod(first) // (first[1] if rank > 1 else 1)
    if op == "CumSum":
        return first[int(np.reshape(inputs[1], ()))] if rank else 1
    if op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        items = 1 if node.get("reduction", "mean") == "none" else math.prod(first) // max(1, first[1])
        return max(items, first[1] if op.startswith("Softmax") else 1)
    if op in ("Sum", "Mean"):
        return len(shapes)
    if op in ("Resize", "GridSample"):
        return (4 if node.get("mode") in ("cubic", "bicubic") else 2) ** 2
    return 1


def _summed_by_name(node: Node, shapes: list[tuple[int, ...]]) -> int:
    if node.op != "Einsum":
        return max(max(shape, default=1) for shape in shapes)
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


def has_float(values: Sequence[Value | None]) -> bool:
    """Whether any of these values is of a floating-point type."""
    return any(value is not None and (value.is_float or is_float(value.exact)) for value in values)
