"""Operators that are layers: which inputs hold their weights, biases, scales and zero points, and what their results are."""

from __future__ import annotations

from dataclasses import dataclass

BIAS = 2  # place of the bias in the operators on real numbers


@dataclass(frozen=True)
class Steps:
    """An input that is a quantised array.

    place: which input it is. scale, zero: the inputs that are its scale and its zero point; a scale of None is a factor of a later
        node. real: its place in the operator on real numbers.
    """

    place: int
    scale: int | None
    zero: int
    real: int = 1


@dataclass(frozen=True)
class Kind:
    """What an operator is as a layer.

    family: the same for operators that compute the same of real numbers; "" for none.
    weights: the inputs that may be weights, of an operator that sums products with them.
    biased: whether the third input is a bias in real numbers.
    steps: the inputs that are quantised arrays.
    result: the inputs that are the scale and the zero point of a quantised result.
    bias: a bias in the steps of the products: its place, and the two scales whose product is its own.
    """

    family: str = ""
    weights: tuple[int, ...] = ()
    biased: bool = False
    steps: tuple[Steps, ...] = ()
    result: tuple[int, int] | None = None
    bias: tuple[int, int, int] | None = None


_FIRST = Steps(0, 1, 2, 0)
_SECOND = Steps(3, 4, 5)
_BINARY = Kind(steps=(_FIRST, _SECOND), result=(6, 7))
_UNARY = Kind(result=(3, 4))
KINDS: dict[str, Kind] = {
    "Conv": Kind("conv", (1,), biased=True),
    "FusedConv": Kind("conv", (1,), biased=True),
    "ConvTranspose": Kind("transposed", (1,), biased=True),
    "DeformConv": Kind(weights=(1,)),
    "Gemm": Kind("matmul", (1, 0), biased=True),
    "FusedGemm": Kind("matmul", (1, 0), biased=True),
    "MatMul": Kind("matmul", (1, 0)),
    "FusedMatMul": Kind("matmul", (1, 0)),
    "LSTM": Kind(weights=(1,)),
    "GRU": Kind(weights=(1,)),
    "RNN": Kind(weights=(1,)),
    "Attention": Kind(weights=(1,)),
    "QLinearConv": Kind("conv", (3,), steps=(_SECOND,), result=(6, 7), bias=(8, 1, 4)),
    "QGemm": Kind("matmul", (3,), steps=(_SECOND,), result=(7, 8), bias=(6, 1, 4)),
    "QLinearMatMul": Kind("matmul", (3, 0), steps=(_SECOND, _FIRST), result=(6, 7)),
    "ConvInteger": Kind("conv", (1,), steps=(Steps(1, None, 3),)),
    "MatMulInteger": Kind("matmul", (1, 0), steps=(Steps(1, None, 3),)),
    "MatMulIntegerToFloat": Kind("matmul", (1,), steps=(Steps(1, 3, 5),)),
    "DynamicQuantizeMatMul": Kind("matmul", (1,), steps=(Steps(1, 2, 3),)),
    "MatMulNBits": Kind("matmul", (1,)),
    "MatMulBnb4": Kind("matmul", (1,)),
    "QuantizeLinear": Kind(result=(1, 2)),
    "QLinearAdd": _BINARY,
    "QLinearMul": _BINARY,
    "QLinearSigmoid": _UNARY,
    "QLinearLeakyRelu": _UNARY,
    "QLinearSoftmax": _UNARY,
    "QLinearGlobalAveragePool": _UNARY,
    "QLinearConcat": Kind(result=(0, 1)),
}
# Operators that sum products -> the inputs that may be weights.
WEIGHTS = {op: kind.weights for op, kind in KINDS.items() if kind.weights}
# Operators that return whole numbers -> the inputs that are their scale and zero point.
PARAMETERS = {op: kind.result for op, kind in KINDS.items() if kind.result is not None}
# The same kind of layer under the names of its operator.
FAMILIES = {op: kind.family for op, kind in KINDS.items() if kind.family}
# Operators that take quantised weights, or make real numbers of them.
QUANTISED_WEIGHTS = {op: kind.steps[0] for op, kind in KINDS.items() if kind.steps and kind.weights}
QUANTISED_WEIGHTS |= {"DequantizeLinear": _FIRST, "GatherBlockQuantized": Steps(0, 2, 3)}
QUANTISED_WEIGHTS |= dict.fromkeys(("MatMulNBits", "MatMulBnb4"), Steps(1, 2, 3))
# Operators on whole numbers -> the inputs that are the scale of the weights; None where another node multiplies by it.
WHOLE = {op: kind.steps[0].scale for op, kind in KINDS.items() if kind.steps and kind.weights} | {
    "MatMulNBits": 2,
    "MatMulBnb4": 2,
}
# Operators that return whole sums of products, which a later node multiplies by a scale.
WHOLE_SUMS = ("ConvInteger", "MatMulInteger")
