"""Quantised operators. Their exact result before the last rounding is a function of its own, by which ties are judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..model import Node
from ..values import element_type, tensor
from . import saturating
from .convolution import convolve
from .elementwise import FORMULAS
from .registry import MICROSOFT, OPERATORS, Call, Operator, operator
from .rest import compute
from .spatial import windows

# Operators whose first output is rounded to whole steps: the exact result in steps, zero point included, and its type.
UNROUNDED: dict[tuple[str, str], Callable[..., tuple[Any, Any]]] = {}


def quantised(*names: str, domain: str = "", plain: Operator = compute) -> Callable[[Any], Any]:
    """Register an operator by a function that gives its exact result in steps, and the type of its output.

    plain: the operator where that function gives no steps, because the result is not quantised or of another kind of type.
    """

    def register(function: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        def run(call: Call, *inputs: Any) -> Any:
            steps, dtype = function(call, *inputs)
            return plain(call, *inputs) if steps is None else rounded(steps, dtype)

        for name in names:
            OPERATORS[domain, name] = run
            UNROUNDED[domain, name] = function
        return function

    return register


def rounded(steps: Any, dtype: Any) -> Any:
    """The nearest whole numbers within the range of a type; ties to even."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(np.nan_to_num(steps)), limits.min, limits.max).astype(dtype)


def along(parameter: Any, rank: int, axis: int) -> Any:
    """A scale or zero point in float64, in the form in which it goes with an array: one value, or one for each channel."""
    parameter = np.asarray(parameter).astype(np.float64)
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if other == axis % rank else 1 for other in range(rank)])


def real_of(x: Any, scale: Any, zero: Any, axis: int) -> Any:
    """The real numbers that a quantised array stands for. axis: that of the channels."""
    offset = 0.0 if zero is None else along(zero, x.ndim, axis)
    return (x.astype(np.float64) - offset) * along(scale, x.ndim, axis)


def blocks(call: Call, parameter: Any, x: Any) -> Any:
    """A scale or zero point for every value of x: one, one for each channel, or one for each block."""
    axis, block = call.node.get("axis", 1), call.node.get("block_size", 0)
    if block and np.ndim(parameter) == x.ndim:
        spread = np.repeat(np.asarray(parameter).astype(np.float64), block, axis)
        return np.take(spread, range(x.shape[axis]), axis)
    return along(parameter, x.ndim, axis)


def _plain(dtype: Any) -> bool:
    """Whether this is a type of whole numbers that numpy itself has."""
    return np.dtype(dtype).kind in "iu"


@quantised("QuantizeLinear")
@quantised("QuantizeLinear", domain=MICROSOFT)
def quantize(call: Call, x: Any, scale: Any, zero: Any = None) -> tuple[Any, Any]:
    """x / scale + zero."""
    to = call.get("output_dtype", 0)
    dtype = element_type(to) if to else np.uint8
    dtype = dtype if zero is None else zero.dtype
    if not _plain(dtype):
        return None, dtype
    steps = x.astype(np.float64) / blocks(call, scale, x)
    # The quotient is rounded before the zero point is added; a tie stays a tie because zero points are whole.
    offset = 0 if zero is None else blocks(call, zero, x)
    return np.where(_is_tie(steps), np.rint(steps), steps) + offset, dtype


def _is_tie(steps: Any) -> Any:
    return np.abs(steps - np.trunc(steps)) == 0.5


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero) · scale."""
    values = x.astype(np.float64)
    if zero is not None:
        values = values - blocks(call, zero, x)
    return (values * blocks(call, scale, x)).astype(call.dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(call: Call, x: Any) -> Any:
    """x in 256 steps over its own range, with the scale and the zero point."""
    scale, place = dynamic_range(x)
    zero = rounded(place, np.uint8)
    return rounded(np.rint(x / scale) + zero, np.uint8), np.asarray(scale, call.dtype), zero


def dynamic_range(x: Any) -> tuple[float, Any]:
    """The scale by which an array has 256 steps over its own range, and its zero point before it is rounded."""
    low, high = min(0.0, float(np.min(x, initial=0.0))), max(0.0, float(np.max(x, initial=0.0)))
    scale = (high - low) / 255 if high != low else 1.0
    return scale, np.asarray(-low / scale)


def _centred(x: Any, zero: Any, axis: int) -> Tensor:
    """A quantised array without its zero point, in float64, where its products are exact."""
    wide = np.asarray(x).astype(np.float64)
    return tensor(wide if zero is None else wide - along(zero, np.ndim(x), axis))


def integer_product(call: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Tensor:
    """The product of two quantised matrices, in steps."""
    if saturating.saturates(a, b):
        zeros = ((a, a_zero, -2), (b, b_zero, -1))
        offsets = (along(0 if zero is None else zero, np.ndim(each), axis) for each, zero, axis in zeros)
        return saturating.product(a, b, *map(tensor, offsets))
    return torch.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))


def integer_conv(call: Call, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Tensor:
    """A convolution of a quantised image, in steps."""
    image, kernel = _centred(x, x_zero, 1), _centred(w, w_zero, 0)
    window, groups = windows(call, image.shape[2:], kernel.shape[2:]), call.get("group", 1)
    if saturating.saturates(x, w) and not np.any(w_zero):
        made = saturating.convolution(x, w, x_zero, window, groups)
        if made is not None:
            return made
    return convolve(image, kernel, window, groups)


operator("MatMulInteger")(lambda call, *inputs: integer_product(call, *inputs).to(torch.int32))
operator("ConvInteger")(lambda call, *inputs: integer_conv(call, *inputs).to(torch.int32))


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    call: Call, a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    """The product of two quantised matrices, in real numbers."""
    y = integer_product(call, a, b, a_zero, b_zero).numpy() * along(a_scale, 1, 0) * along(b_scale, 1, 0)
    return (y if bias is None else y + bias).astype(call.dtype)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(call: Call, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    """The product of a matrix, quantised over its own range, and a quantised one."""
    steps, scale, zero = dynamic_quantize(call, a)
    return matmul_integer_to_float(call, steps, b, scale, b_scale, zero, b_zero, bias)


@quantised("QLinearMatMul")
def qlinear_matmul(
    call: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> tuple[Any, Any]:
    """The product of two quantised matrices, quantised."""
    if not _plain(y_zero.dtype):
        return None, y_zero.dtype
    y = integer_product(call, a, b, a_zero, b_zero).numpy()
    factor = along(a_scale, y.ndim, -2) * along(b_scale, y.ndim, -1) / along(y_scale, y.ndim, -2)
    return y * factor + along(y_zero, y.ndim, -2), y_zero.dtype


@quantised("QLinearConv")
def qlinear_conv(call: Call, *inputs: Any) -> tuple[Any, Any]:
    """A convolution of a quantised image, quantised."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = (*inputs, None)[:9]
    y = integer_conv(call, x, w, x_zero, w_zero).numpy()
    y = y if b is None else y + along(b, y.ndim, 1)
    factor = along(x_scale, 1, 0) * along(w_scale, y.ndim, 1) / along(y_scale, 1, 0)
    return y * factor + along(y_zero, 1, 0), y_zero.dtype


def _gemm(
    call: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None, *_: Any
) -> Any:
    """The product of two quantised matrices and a bias in the steps of the product, in real numbers."""
    left, right = (each.T if call.get(turned, 0) else each for each, turned in ((a, "transA"), (b, "transB")))
    y = integer_product(call, left, right, a_zero, b_zero).numpy()
    factor = along(a_scale, 2, 1) * along(b_scale, 2, 1) * call.get("alpha", 1.0)
    return (y if c is None else y + np.asarray(c).astype(np.float64)) * factor


@quantised("QGemm", domain=MICROSOFT, plain=lambda call, *inputs: _gemm(call, *inputs).astype(call.dtype))
def qgemm(call: Call, *inputs: Any) -> tuple[Any, Any]:
    """The product of two quantised matrices and a bias in the steps of the product, quantised where it has a scale."""
    y_scale, y_zero = (*inputs[7:], None, None)[:2]
    if y_scale is None or y_zero is None:
        return None, np.float32
    return _gemm(call, *inputs) / along(y_scale, 2, 1) + along(y_zero, 2, 1), y_zero.dtype


@quantised("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(call: Call, y_scale: Any, y_zero: Any, *parts: Any) -> tuple[Any, Any]:
    """Quantised arrays of several scales, one behind the other, quantised."""
    real = [_real(*parts[place : place + 3]) for place in range(0, len(parts), 3)]
    return _in_steps(np.concatenate(real, call.get("axis", 0)), y_scale, y_zero, y_zero)


def _real(x: Any, scale: Any, zero: Any) -> Any:
    return (x.astype(np.float64) - (0.0 if zero is None else zero.astype(np.float64))) * np.asarray(scale, np.float64)


def _in_steps(y: Any, scale: Any, zero: Any, like: Any) -> tuple[Any, Any]:
    return y / np.asarray(scale, np.float64) + (0.0 if zero is None else zero.astype(np.float64)), like.dtype


def _mean(call: Call, x: Any) -> Any:
    axes = tuple(range(1, x.ndim - 1)) if call.get("channels_last", 0) else tuple(range(2, x.ndim))
    return x.mean(axes, keepdims=True)


def _leaky(call: Call, x: Any) -> Any:
    return FORMULAS["LeakyRelu"][0](tensor(x), call.get("alpha", 0.01)).numpy()


def _softmax(call: Call, x: Any) -> Any:
    axis = call.get("axis", -1) % x.ndim
    whole = x.reshape(*x.shape[:axis], -1) if call.get("opset", 13) < 13 else np.moveaxis(x, axis, -1)
    powers = np.exp(whole - whole.max(-1, keepdims=True))
    made = powers / powers.sum(-1, keepdims=True)
    return made.reshape(x.shape) if call.get("opset", 13) < 13 else np.moveaxis(made, -1, axis)


# Operators on quantised arrays: how many arrays they take, and their function of real numbers.
QLINEAR: dict[str, tuple[int, Callable[..., Any]]] = {
    "QLinearAdd": (2, lambda call, a, b: a + b),
    "QLinearMul": (2, lambda call, a, b: a * b),
    "QLinearSigmoid": (1, lambda call, x: torch.sigmoid(tensor(x)).numpy()),
    "QLinearLeakyRelu": (1, _leaky),
    "QLinearSoftmax": (1, _softmax),
    "QLinearGlobalAveragePool": (1, _mean),
}


def _qlinear(count: int, function: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    def run(call: Call, *inputs: Any) -> tuple[Any, Any]:
        real = [_real(*inputs[place : place + 3]) for place in range(0, 3 * count, 3)]
        scale, zero = (*inputs[3 * count :], None)[:2]
        return _in_steps(function(call, *real), scale, zero, inputs[0])

    return run


for _name, (_count, _function) in QLINEAR.items():
    quantised(_name, domain=MICROSOFT)(_qlinear(_count, _function))


# -- quantising operators on real numbers -------------------------------------------------------------------------------


def _real_dynamic(call: Call, x: Any) -> Any:
    scale, place = dynamic_range(x)
    zero = rounded(place, np.uint8)
    return x / scale + zero, np.asarray(scale, call.dtype), zero


def _real_dynamic_product(call: Call, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None) -> Any:
    steps, scale, zero = _real_dynamic(call, a)
    return matmul_integer_to_float(call, steps, b, scale, b_scale, zero, b_zero, bias)


REAL: dict[str, Operator] = {
    "DynamicQuantizeLinear": _real_dynamic,
    "MatMulInteger": integer_product,
    "ConvInteger": integer_conv,
    "DynamicQuantizeMatMul": _real_dynamic_product,
}


def returns_steps(node: Node) -> bool:
    """Whether the first output of a node is a quantised value."""
    if node.op == "QGemm":
        return len(node.inputs) > 8
    return real(node) is not None and node.op != "DynamicQuantizeMatMul"


def real(node: Node) -> Operator | None:
    """A quantising operator that returns a real number of steps; None for other operators."""
    unrounded = UNROUNDED.get((node.domain, node.op))
    if node.op in REAL or unrounded is None:
        return REAL.get(node.op)

    def run(call: Call, *inputs: Any) -> Any:
        steps, _ = unrounded(call, *inputs)
        return OPERATORS[node.domain, node.op](call, *inputs) if steps is None else steps

    return run
