"""What each operator of OpenVINO computes, in operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from xverify.formats._graph_writer import Untranslated
from xverify.formats._openvino_graph import STEPS, Grid, Writer, dtype_of, held
from xverify.framework.adapter import Array

Translation = Callable[[Writer, Any], "str | list[str]"]
TABLE: dict[str, Translation] = {}
SAME = {
    "Add": "Add", "Subtract": "Sub", "Divide": "Div", "Maximum": "Max", "Minimum": "Min", "Power": "Pow", "Relu": "Relu",
    "Sigmoid": "Sigmoid", "HSwish": "HardSwish", "Tanh": "Tanh", "Exp": "Exp", "Log": "Log", "Sqrt": "Sqrt", "Abs": "Abs",
    "Negative": "Neg", "Erf": "Erf", "Floor": "Floor", "Ceiling": "Ceil", "SoftPlus": "Softplus", "PRelu": "PRelu",
    "ShapeOf": "Shape",
}  # fmt: skip
REDUCED = {"ReduceMean": "ReduceMean", "ReduceSum": "ReduceSum", "ReduceMax": "ReduceMax", "ReduceMin": "ReduceMin"}
PADDING = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def translation(*kinds: str) -> Callable[[Translation], Translation]:
    """Register the translation of some operators."""

    def register(function: Translation) -> Translation:
        TABLE.update(dict.fromkeys(kinds, function))
        return function

    return register


def _all(w: Writer, node: Any) -> list[str]:
    return [w.value(port) for port in node.input_values()]


@translation(*SAME)
def _same(w: Writer, node: Any) -> str:
    return w.add(SAME[node.get_type_name()], *_all(w, node))


# -- quantised values -------------------------------------------------------------------------------------------------


@translation("FakeQuantize")
def _fake_quantize(w: Writer, node: Any) -> str:
    grid, rank = Grid.of(node), len(w.shape(node.output(0)))
    value, port = w.given(node, 0), node.input_value(0)
    if port.get_node().get_type_name() == "Constant":  # a weight, which stays a constant that is quantised
        value = w.array(np.clip(held(port), grid.low, grid.high), dtype_of(port), f"{value}/within")
    elif grid.most < np.iinfo(np.uint8).max:
        value = w.add("Max", value, w.array(grid.low, np.float32))
        value = w.add("Min", value, w.array(grid.high, np.float32))
    whole = w.steps("QuantizeLinear", value, grid.scale, grid.zero, rank)
    w.rename(whole, node.get_friendly_name() + STEPS)
    return w.steps("DequantizeLinear", node.get_friendly_name() + STEPS, grid.scale, grid.zero, rank)


@translation("Multiply")
def _multiply(w: Writer, node: Any) -> str:
    found = _stored(node)
    return w.add("Mul", *_all(w, node)) if found is None else _dequantised(w, *found)


def _stored(node: Any) -> tuple[Array, Array, Array] | None:
    """Stored whole numbers, their scale and their zero point, where a Multiply makes real numbers of these; else None."""
    try:
        scale, inner = held(node.input_value(1)), node.input_value(0).get_node()
        zero: Any = 0
        if inner.get_type_name() == "Subtract":
            zero = held(_unconverted(inner.input_value(1)))
            inner = inner.input_value(0).get_node()
        if inner.get_type_name() != "Convert":
            return None
        numbers = held(inner.input_value(0))
    except Untranslated:
        return None
    zero = np.asarray(zero)
    if numbers.dtype not in (np.int8, np.uint8) or np.any(zero != np.round(zero)):
        return None
    return numbers, scale, np.broadcast_to(zero, scale.shape).astype(numbers.dtype)


def _unconverted(port: Any) -> Any:
    node = port.get_node()
    return node.input_value(0) if node.get_type_name() == "Convert" else port


def _dequantised(w: Writer, numbers: Array, scale: Array, zero: Array) -> str:
    """The real numbers of a constant. Axes that have scales together become one first."""
    missing = [1] * (numbers.ndim - scale.ndim)
    scale, zero = (each.reshape(*missing, *each.shape) for each in (scale, zero))
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    if len(axes) < 2:
        return w.steps("DequantizeLinear", w.array(numbers, None), scale, zero, numbers.ndim)
    if axes != list(range(len(axes))) or scale.shape[: len(axes)] != numbers.shape[: len(axes)]:
        raise Untranslated
    flat = w.array(numbers.reshape(scale.size, *numbers.shape[len(axes) :]), None)
    value = w.steps("DequantizeLinear", flat, scale.reshape(-1), zero.reshape(-1), 1)
    return w.shaped(value, numbers.shape)


# -- sums of products -------------------------------------------------------------------------------------------------


def _window(attributes: Any) -> dict[str, Any]:
    """Strides, dilations and padding in the words of ONNX."""
    padding = PADDING.get(attributes["auto_pad"])
    return {
        "strides": list(attributes["strides"]),
        "dilations": list(attributes["dilations"]) if "dilations" in attributes else None,
        "auto_pad": padding,
        "pads": None if padding else [*attributes["pads_begin"], *attributes["pads_end"]],
    }


@translation("Convolution")
def _convolution(w: Writer, node: Any) -> str:
    return w.add("Conv", *_all(w, node), **_window(node.get_attributes()))


@translation("GroupConvolution")
def _group_convolution(w: Writer, node: Any) -> str:
    """The groups of the weights are an axis of their own."""
    groups, out, *rest = w.shape(node.input_value(1))
    weights = w.shaped(w.given(node, 1), (groups * out, *rest))
    return w.add("Conv", w.given(node, 0), weights, group=groups, **_window(node.get_attributes()))


@translation("MatMul")
def _matmul(w: Writer, node: Any) -> str:
    sides = []
    for place, side in enumerate("ab"):
        value, rank = w.given(node, place), len(w.shape(node.input_value(place)))
        if node.get_attributes()[f"transpose_{side}"] and rank > 1:
            value = w.turned(value, *range(rank - 2), rank - 1, rank - 2)
        sides.append(value)
    return w.add("MatMul", *sides)


@translation("MaxPool", "AvgPool")
def _pool(w: Writer, node: Any) -> str:
    """A pooling of one output. The indices of a maximum are not translated."""
    attributes, largest = node.get_attributes(), node.get_type_name() == "MaxPool"
    if any(port.get_target_inputs() for port in node.outputs()[1:]):
        raise Untranslated
    more: dict[str, Any] = {} if largest else {"count_include_pad": int(not attributes["exclude-pad"])}
    window = {"kernel_shape": list(attributes["kernel"]), **_window(attributes), **more}
    if attributes["rounding_type"] != "floor" and window["pads"] is not None:
        if more.get("count_include_pad"):
            raise Untranslated
        window["pads"] = _up_to_the_end(w, node, window)
    return w.add("MaxPool" if largest else "AveragePool", w.given(node, 0), **window)


def _up_to_the_end(w: Writer, node: Any, window: dict[str, Any]) -> list[int]:
    """The padding with which the last window of each axis lies within, as where the size of the result is rounded up."""
    sizes, made = (w.shape(port)[2:] for port in (node.input_value(0), node.output(0)))
    begin, dilations = window["pads"][: len(sizes)], window["dilations"] or [1] * len(sizes)
    spans = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(window["kernel_shape"], dilations)]
    ends = [
        (count - 1) * stride + span - size - before
        for count, stride, span, size, before in zip(made, window["strides"], spans, sizes, begin)
    ]
    return [*begin, *(max(0, end) for end in ends)]


@translation(*REDUCED)
def _reduced(w: Writer, node: Any) -> str:
    axes = w.array(held(node.input_value(1)).reshape(-1))
    keep = int(node.get_attributes()["keep_dims"])
    return w.add(REDUCED[node.get_type_name()], w.given(node, 0), axes, keepdims=keep)


@translation("Softmax")
def _softmax(w: Writer, node: Any) -> str:
    return w.add("Softmax", w.given(node, 0), axis=int(node.get_attributes()["axis"]))


@translation("MVN")
def _normalized(w: Writer, node: Any) -> str:
    """Mean and variance of the last axes, which ONNX normalises in one operator."""
    attributes, shape = node.get_attributes(), w.shape(node.output(0))
    axes = sorted(int(axis) % len(shape) for axis in held(node.input_value(1)).reshape(-1))
    last = axes == list(range(len(shape) - len(axes), len(shape)))
    if not last or not attributes["normalize_variance"] or str(attributes["eps_mode"]).lower() != "inside_sqrt":
        raise Untranslated
    scale = w.array(np.ones([shape[axis] for axis in axes]), dtype_of(node.output(0)))
    return w.add("LayerNormalization", w.given(node, 0), scale, axis=axes[0], epsilon=float(attributes["eps"]))


@translation("ScaledDotProductAttention")
def _attention(w: Writer, node: Any) -> str:
    """Attention without a mask, or with one that is added."""
    query, keys, _, *more = (w.shape(port) for port in node.input_values())
    if node.get_attributes()["causal"] or (more and dtype_of(node.input_value(3)) == np.bool_):
        raise Untranslated
    scale = w.given(node, 4) if len(more) > 1 else w.array(query[-1] ** -0.5, dtype_of(node.output(0)))
    turned = w.turned(w.given(node, 1), *range(len(keys) - 2), len(keys) - 1, len(keys) - 2)
    scores = w.add("Mul", w.add("MatMul", w.given(node, 0), turned), scale)
    if more:
        scores = w.add("Add", scores, w.given(node, 3))
    return w.add("MatMul", w.add("Softmax", scores, axis=-1), w.given(node, 2))


# -- activations ------------------------------------------------------------------------------------------------------


@translation("Clamp")
def _clamp(w: Writer, node: Any) -> str:
    low, high = (w.array(node.get_attributes()[end], dtype_of(node.output(0))) for end in ("min", "max"))
    return w.add("Clip", w.given(node, 0), low, high)


@translation("Swish")
def _swish(w: Writer, node: Any) -> str:
    value, *beta = _all(w, node)
    return w.add("Mul", value, w.add("Sigmoid", w.add("Mul", value, *beta) if beta else value))


@translation("HSigmoid")
def _hsigmoid(w: Writer, node: Any) -> str:
    return w.add("HardSigmoid", w.given(node, 0), alpha=1 / 6, beta=0.5)


@translation("HardSigmoid")
def _hard_sigmoid(w: Writer, node: Any) -> str:
    alpha, beta = (float(held(node.input_value(place)).reshape(())) for place in (1, 2))
    return w.add("HardSigmoid", w.given(node, 0), alpha=alpha, beta=beta)


@translation("Elu")
def _elu(w: Writer, node: Any) -> str:
    return w.add("Elu", w.given(node, 0), alpha=float(node.get_attributes()["alpha"]))


@translation("Gelu")
def _gelu(w: Writer, node: Any) -> str:
    tanh = str(node.get_attributes()["approximation_mode"]).lower() == "tanh"
    return w.add("Gelu", w.given(node, 0), approximate="tanh" if tanh else "none")


# -- what moves values ------------------------------------------------------------------------------------------------


@translation("Reshape", "Squeeze", "Unsqueeze")
def _shaped(w: Writer, node: Any) -> str:
    return w.shaped(w.given(node, 0), w.shape(node.output(0)))


@translation("Transpose")
def _transpose(w: Writer, node: Any) -> str:
    order = held(node.input_value(1)).reshape(-1)
    return w.turned(w.given(node, 0), *map(int, order)) if order.size else w.add("Transpose", w.given(node, 0))


@translation("Concat")
def _concat(w: Writer, node: Any) -> str:
    return w.add("Concat", *_all(w, node), axis=int(node.get_attributes()["axis"]))


@translation("Split", "VariadicSplit")
def _split(w: Writer, node: Any) -> list[str]:
    axis = int(held(node.input_value(1)).reshape(()))
    sizes = [w.shape(port)[axis] for port in node.outputs()]
    first = w.add("Split", w.given(node, 0), w.array(sizes), outputs=len(sizes), axis=axis)
    return list(next(each for each in w.nodes if first in each.output).output)


@translation("Slice")
def _slice(w: Writer, node: Any) -> str:
    value, begin, end, step, *axes = _all(w, node)
    return w.add("Slice", value, begin, end, *(axes or [""]), step)


@translation("ShuffleChannels")
def _shuffled(w: Writer, node: Any) -> str:
    attributes, shape = node.get_attributes(), w.shape(node.output(0))
    axis, groups = int(attributes["axis"]) % len(shape), int(attributes["group"])
    parted = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(parted))]
    return w.shaped(w.turned(w.shaped(w.given(node, 0), parted), *order), shape)


@translation("Gather")
def _gather(w: Writer, node: Any) -> str:
    if node.get_attributes()["batch_dims"]:
        raise Untranslated
    return w.add("Gather", w.given(node, 0), w.given(node, 1), axis=int(held(node.input_value(2)).reshape(())))


@translation("Convert")
def _convert(w: Writer, node: Any) -> str:
    return w.add("Cast", w.given(node, 0), to=helper.np_dtype_to_tensor_dtype(dtype_of(node.output(0))))
