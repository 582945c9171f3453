"""Properties of operators: which of them copy values, decide or quantise, and the declared type of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .model import Body, Node
from .operators.shape import cast_type
from .values import UNITS, Value, element_type, is_float

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
SCATTERS = ("ScatterND", "ScatterElements", "Scatter")  # copies, unless they add or multiply
# Operators that round to steps. Their outputs are whole numbers that follow from each pass's own inputs.
QUANTISING = frozenset({
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QLinearAdd",
    "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearGlobalAveragePool", "QGemm", "QLinearConcat",
})  # fmt: skip

QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
# Operators that may lie between a constant and what takes it, or behind a layer.
MOVES = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Cast"})
# Functions whose results lie between -1 and 1. Tools take these bounds for the range, whatever the values are.
BOUNDED = frozenset({"Softmax", "Sigmoid", "HardSigmoid", "Tanh", "QLinearSoftmax", "QLinearSigmoid"})
BOUND = 1.02


def is_range_of_function(graph: Body, name: str, low: float, high: float) -> bool:
    """Whether a value is the result of a function with bounds, perhaps behind nodes that move or quantise it, and has their range.

    low, high: the smallest and the largest number that its quantisation holds.
    """
    line = graph.line(graph.makers.get(name))
    function = next((node for node in line if node.op not in MOVES and node.op not in QUANTISERS), None)
    return function is not None and function.op in BOUNDED and max(-low, high) <= BOUND


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
        to = element_type(node.get("output_dtype") or node.get("output_datatype"))
    elif node.op in ("EyeLike", "SequenceEmpty") and node.get("dtype"):
        to = element_type(node.get("dtype"))
    else:
        to = next((value.dtype for value in present if value.is_float), None)
    return to if to in UNITS else np.dtype(np.float32)


def has_float(values: Sequence[Value | None]) -> bool:
    """Whether any of these values is of a floating-point type."""
    return any(value is not None and (value.is_float or is_float(value.exact)) for value in values)
