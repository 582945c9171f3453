"""What each operator of TensorFlow Lite computes, in operators of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from xverify.formats._graph_writer import Untranslated
from xverify.formats._tflite_graph import Writer
from xverify.formats._tflite_nodes import Operator
from xverify.formats._tflite_translation import clipped, given, narrowed, translation

PADDING = {0: "SAME_UPPER", 1: "VALID"}
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # the orders of axes that put the channels of an image first, and last
VOLUME_FIRST, VOLUME_LAST = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)
LEAST_NORM = 1e-6  # the least norm by which L2_NORMALIZATION divides

# -- operators of one node, with the inputs and settings of ONNX ------------------------------------------------------

SAME = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min", "POW": "Pow", "ADD_N": "Sum",
    "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "ELU": "Elu", "PRELU": "PRelu",
    "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "SIN": "Sin", "COS": "Cos", "ABS": "Abs", "NEG": "Neg", "FLOOR": "Floor",
    "CEIL": "Ceil", "ROUND": "Round", "SIGN": "Sign", "LESS": "Less", "GREATER": "Greater", "EQUAL": "Equal",
    "LESS_EQUAL": "LessOrEqual", "GREATER_EQUAL": "GreaterOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or",
    "LOGICAL_NOT": "Not", "SELECT_V2": "Where", "GATHER_ND": "GatherND",
}  # fmt: skip


@translation(*SAME)
def _same(w: Writer, op: Operator) -> str:
    return w.add(SAME[op.kind], *(w.real(index) for index in op.inputs))


CLIPS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


@translation(*CLIPS)
def _clips(w: Writer, op: Operator) -> str:
    return clipped(w, given(w, op, 0), *CLIPS[op.kind])


@translation("LEAKY_RELU")
def _leaky(w: Writer, op: Operator) -> str:
    return w.add("LeakyRelu", given(w, op, 0), alpha=float(op.option("alpha")))


@translation("GELU")
def _gelu(w: Writer, op: Operator) -> str:
    return w.add("Gelu", given(w, op, 0), approximate="tanh" if op.option("approximate", False) else "none")


@translation("SOFTMAX")
def _softmax(w: Writer, op: Operator) -> str:
    value, beta = given(w, op, 0), float(op.option("beta", 1.0))
    return w.add("Softmax", value if beta == 1.0 else w.add("Mul", value, w.array(beta, np.float32)), axis=-1)


@translation("LOG_SOFTMAX")
def _log_softmax(w: Writer, op: Operator) -> str:
    return w.add("LogSoftmax", given(w, op, 0), axis=-1)


@translation("RSQRT")
def _rsqrt(w: Writer, op: Operator) -> str:
    return w.add("Reciprocal", w.add("Sqrt", given(w, op, 0)))


@translation("SQUARE")
def _square(w: Writer, op: Operator) -> str:
    return w.add("Mul", given(w, op, 0), given(w, op, 0))


@translation("SQUARED_DIFFERENCE")
def _squared_difference(w: Writer, op: Operator) -> str:
    away = w.add("Sub", given(w, op, 0), given(w, op, 1))
    return w.add("Mul", away, away)


@translation("FLOOR_DIV")
def _floor_div(w: Writer, op: Operator) -> str:
    if not w.is_float(op.inputs[0]):
        raise Untranslated
    return w.add("Floor", w.add("Div", given(w, op, 0), given(w, op, 1)))


@translation("FLOOR_MOD")
def _floor_mod(w: Writer, op: Operator) -> str:
    one, other = given(w, op, 0), given(w, op, 1)
    if not w.is_float(op.inputs[0]):
        return w.add("Mod", one, other)
    return w.add("Sub", one, w.add("Mul", w.add("Floor", w.add("Div", one, other)), other))


@translation("NOT_EQUAL")
def _not_equal(w: Writer, op: Operator) -> str:
    return w.add("Not", w.add("Equal", given(w, op, 0), given(w, op, 1)))


@translation("SELECT")
def _select(w: Writer, op: Operator) -> str:
    """A condition with one axis stands along the first axis of the values; in ONNX it would be the last."""
    condition, rank = given(w, op, 0), len(w.shape(op.outputs[0]))
    if len(w.shape(op.inputs[0])) == 1 < rank:
        condition = w.shaped(condition, (-1, *[1] * (rank - 1)))
    return w.add("Where", condition, given(w, op, 1), given(w, op, 2))


@translation("CAST")
def _cast(w: Writer, op: Operator) -> str:
    to = np.dtype(w.details[op.outputs[0]]["dtype"])
    return w.add("Cast", given(w, op, 0), to=helper.np_dtype_to_tensor_dtype(to))


@translation("QUANTIZE", "DEQUANTIZE")
def _quantize(w: Writer, op: Operator) -> str | Sequence[str]:
    """The real numbers of the input; those of the output are made of them. A weight in float16 is cast."""
    whole = w.quantised(op.inputs[0]) or w.quantised(op.outputs[0])
    return given(w, op, 0) if whole else _cast(w, op)


@translation("L2_NORMALIZATION")
def _l2(w: Writer, op: Operator) -> str:
    norm = w.add("ReduceL2", given(w, op, 0), w.array([-1]))
    return w.add("Div", given(w, op, 0), w.add("Max", norm, w.array(LEAST_NORM, np.float32)))


# -- sums of products -------------------------------------------------------------------------------------------------


@translation("CONV_2D", "DEPTHWISE_CONV_2D")
def _conv(w: Writer, op: Operator) -> str:
    channels, weights = w.shape(op.inputs[0])[-1], w.shape(op.inputs[1])
    depthwise = op.kind == "DEPTHWISE_CONV_2D"
    value = w.add(
        "Conv",
        w.turned(given(w, op, 0), *FIRST),
        w.turned(given(w, op, 1), *((3, 0, 1, 2) if depthwise else FIRST)),
        *filter(None, [given(w, op, 2)]),
        group=channels if depthwise else channels // weights[3],
        strides=[op.option("strideH"), op.option("strideW")],
        dilations=[op.option("dilationHFactor", 1), op.option("dilationWFactor", 1)],
        auto_pad=PADDING[op.option("padding")],
    )
    return w.turned(value, *LAST)


@translation("CONV_3D")
def _conv3d(w: Writer, op: Operator) -> str:
    value = w.add(
        "Conv",
        w.turned(given(w, op, 0), *VOLUME_FIRST),
        w.turned(given(w, op, 1), 4, 3, 0, 1, 2),
        *filter(None, [given(w, op, 2)]),
        strides=[op.option(f"stride{axis}") for axis in "DHW"],
        dilations=[op.option(f"dilation{axis}Factor", 1) for axis in "DHW"],
        auto_pad=PADDING[op.option("padding")],
    )
    return w.turned(value, *VOLUME_LAST)


@translation("TRANSPOSE_CONV")
def _transpose_conv(w: Writer, op: Operator) -> str:
    """The image is input 2. The padding is that of the convolution that this one undoes."""
    kernel, image, made = (w.shape(index)[1:3] for index in (op.inputs[1], op.inputs[2], op.outputs[0]))
    strides = [op.option("strideH"), op.option("strideW")]
    whole = [(size - 1) * stride + span for size, stride, span in zip(image, strides, kernel)]
    total = [max(0, size - out) for size, out in zip(whole, made)]
    begin = [each // 2 for each in total]
    value = w.add(
        "ConvTranspose",
        w.turned(given(w, op, 2), *FIRST),
        w.turned(given(w, op, 1), 3, 0, 1, 2),
        *filter(None, [given(w, op, 3)]),
        strides=strides,
        pads=[*begin, *(each - first for each, first in zip(total, begin))],
        output_padding=[max(0, out - size) for size, out in zip(whole, made)],
    )
    return w.turned(value, *LAST)


@translation("FULLY_CONNECTED")
def _fully_connected(w: Writer, op: Operator) -> str:
    if op.option("weightsFormat"):
        raise Untranslated  # the weights are in an order of their own
    features = w.shape(op.inputs[1])[-1]
    rows = w.shaped(given(w, op, 0), (-1, features))
    value = w.add("Gemm", rows, given(w, op, 1), *filter(None, [given(w, op, 2)]), transB=1)
    shape = w.shape(op.outputs[0])
    return value if len(shape) == 2 else w.shaped(value, shape)


@translation("BATCH_MATMUL")
def _batch_matmul(w: Writer, op: Operator) -> str:
    sides = []
    for place, setting in enumerate(("adjX", "adjY")):
        rank = len(w.shape(op.inputs[place]))
        order = [*range(rank - 2), rank - 1, rank - 2]
        value = given(w, op, place)
        sides.append(w.turned(value, *order) if op.option(setting, False) else value)
    return w.add("MatMul", *sides)


# -- pooling, reductions and images -----------------------------------------------------------------------------------


@translation("AVERAGE_POOL_2D", "MAX_POOL_2D")
def _pool(w: Writer, op: Operator) -> str:
    value = w.add(
        "MaxPool" if op.kind == "MAX_POOL_2D" else "AveragePool",
        w.turned(given(w, op, 0), *FIRST),
        kernel_shape=[op.option("filterHeight"), op.option("filterWidth")],
        strides=[op.option("strideH"), op.option("strideW")],
        auto_pad=PADDING[op.option("padding")],
    )
    return w.turned(value, *LAST)


REDUCTIONS = {
    "MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd",
}  # fmt: skip


@translation(*REDUCTIONS)
def _reduction(w: Writer, op: Operator) -> str:
    axes = w.array(w.whole(op.inputs[1]))
    return w.add(REDUCTIONS[op.kind], given(w, op, 0), axes, keepdims=int(op.option("keepDims", False)))


@translation("ARG_MAX", "ARG_MIN")
def _arg(w: Writer, op: Operator) -> str:
    kind = "ArgMax" if op.kind == "ARG_MAX" else "ArgMin"
    (axis,) = w.whole(op.inputs[1])
    return narrowed(w, op, w.add(kind, given(w, op, 0), axis=axis, keepdims=0))


@translation("TOPK_V2")
def _top_k(w: Writer, op: Operator) -> list[str]:
    values = w.add("TopK", given(w, op, 0), w.array(w.whole(op.inputs[1])), outputs=2, axis=-1)
    return [values, narrowed(w, op, w.nodes[-1].output[1], 1)]


@translation("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def _resize(w: Writer, op: Operator) -> str:
    nearest, aligned = op.kind == "RESIZE_NEAREST_NEIGHBOR", op.option("alignCorners", False)
    half = "tf_half_pixel_for_nn" if nearest else "half_pixel"
    mode = "align_corners" if aligned else half if op.option("halfPixelCenters", False) else "asymmetric"
    batch, height, width, channels = w.shape(op.outputs[0])
    value = w.add(
        "Resize",
        w.turned(given(w, op, 0), *FIRST),
        "",
        "",
        w.array([batch, channels, height, width]),
        coordinate_transformation_mode=mode,
        mode="nearest" if nearest else "linear",
        nearest_mode=("round_prefer_ceil" if aligned else "floor") if nearest else None,
    )
    return w.turned(value, *LAST)


@translation("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def _blocks(w: Writer, op: Operator) -> str:
    kind = "DepthToSpace" if op.kind == "DEPTH_TO_SPACE" else "SpaceToDepth"
    return w.turned(w.add(kind, w.turned(given(w, op, 0), *FIRST), blocksize=op.option("blockSize")), *LAST)
