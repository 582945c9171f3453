"""What each operator of TensorFlow Lite computes, in operators of ONNX.

A translation is a function of the writer of the graph and of the operator. It returns the names of the values of the outputs, or
raises Untranslated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from xverify.formats._tflite_graph import Untranslated, Writer
from xverify.formats._tflite_nodes import Operator

Translation = Callable[[Writer, Operator], "str | Sequence[str]"]
TABLE: dict[str, Translation] = {}
PADDING = {0: "SAME_UPPER", 1: "VALID"}
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # the orders of axes that put the channels of an image first, and last
VOLUME_FIRST, VOLUME_LAST = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)
# Number of a fused activation -> its operator, or the limits to which it clips.
ACTIVATIONS: dict[int, str | tuple[float, float]] = {1: "Relu", 2: (-1.0, 1.0), 3: (0.0, 6.0), 4: "Tanh"}
LEAST_NORM = 1e-6  # the least norm by which L2_NORMALIZATION divides


def translation(*kinds: str) -> Callable[[Translation], Translation]:
    """Register the translation of some operators."""

    def register(function: Translation) -> Translation:
        TABLE.update(dict.fromkeys(kinds, function))
        return function

    return register


def activated(w: Writer, op: Operator, value: str) -> str:
    """The value with the activation that is fused into an operator."""
    number = op.option("fusedActivationFunction")
    if number and number not in ACTIVATIONS:
        raise Untranslated
    kind = ACTIVATIONS.get(number)
    return value if kind is None else w.add(kind, value) if isinstance(kind, str) else clipped(w, value, *kind)


def clipped(w: Writer, value: str, low: float, high: float) -> str:
    """The value within limits."""
    return w.add("Clip", value, w.array(low, np.float32), w.array(high, np.float32))


def given(w: Writer, op: Operator, place: int) -> str:
    """The name of an input; "" for one that is left out."""
    return w.real(op.inputs[place]) if place < len(op.inputs) else ""


# -- operators of one node, with the inputs and settings of ONNX ------------------------------------------------------

SAME = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min", "POW": "Pow", "ADD_N": "Sum",
    "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "ELU": "Elu", "PRELU": "PRelu",
    "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "SIN": "Sin", "COS": "Cos", "ABS": "Abs", "NEG": "Neg", "FLOOR": "Floor",
    "CEIL": "Ceil", "ROUND": "Round", "SIGN": "Sign", "LESS": "Less", "GREATER": "Greater", "EQUAL": "Equal",
    "LESS_EQUAL": "LessOrEqual", "GREATER_EQUAL": "GreaterOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or",
    "LOGICAL_NOT": "Not", "SELECT": "Where", "SELECT_V2": "Where", "GATHER_ND": "GatherND",
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
    return _narrowed(w, op, w.add(kind, given(w, op, 0), axis=axis, keepdims=0))


def _narrowed(w: Writer, op: Operator, value: str, place: int = 0) -> str:
    """Whole numbers of ONNX, which are of 64 bits, in the type of an output."""
    to = np.dtype(w.details[op.outputs[place]]["dtype"])
    return value if to == np.int64 else w.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(to))


@translation("TOPK_V2")
def _top_k(w: Writer, op: Operator) -> list[str]:
    values = w.add("TopK", given(w, op, 0), w.array(w.whole(op.inputs[1])), outputs=2, axis=-1)
    return [values, _narrowed(w, op, w.nodes[-1].output[1], 1)]


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


# -- values that are moved, selected or made --------------------------------------------------------------------------


@translation("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(w: Writer, op: Operator) -> str:
    return w.shaped(given(w, op, 0), w.shape(op.outputs[0]))


@translation("TRANSPOSE")
def _transpose(w: Writer, op: Operator) -> str:
    return w.turned(given(w, op, 0), *w.whole(op.inputs[1]))


@translation("CONCATENATION")
def _concat(w: Writer, op: Operator) -> str:
    return w.add("Concat", *(w.real(index) for index in op.inputs), axis=op.option("axis"))


@translation("PACK")
def _pack(w: Writer, op: Operator) -> str:
    axis, shape = op.option("axis"), list(w.shape(op.outputs[0]))
    shape[axis] = 1
    return w.add("Concat", *(w.shaped(w.real(index), shape) for index in op.inputs), axis=axis)


@translation("UNPACK")
def _unpack(w: Writer, op: Operator) -> list[str]:
    parts = [w.array(place) for place in range(len(op.outputs))]
    return [w.add("Gather", given(w, op, 0), part, axis=op.option("axis")) for part in parts]


@translation("SPLIT", "SPLIT_V")
def _split(w: Writer, op: Operator) -> list[str]:
    value, axis = (0, 2) if op.kind == "SPLIT_V" else (1, 0)
    (along,) = w.whole(op.inputs[axis])
    sizes = [w.shape(index)[along] for index in op.outputs]
    w.add("Split", given(w, op, value), w.array(sizes), outputs=len(sizes), axis=along)
    return list(w.nodes[-1].output)


@translation("GATHER", "EMBEDDING_LOOKUP")
def _gather(w: Writer, op: Operator) -> str:
    table, indices = (1, 0) if op.kind == "EMBEDDING_LOOKUP" else (0, 1)
    if op.option("batchDims"):
        raise Untranslated
    return w.add("Gather", given(w, op, table), given(w, op, indices), axis=op.option("axis"))


@translation("SLICE")
def _slice(w: Writer, op: Operator) -> str:
    starts, shape = w.whole(op.inputs[1]), w.shape(op.outputs[0])
    ends = [start + size for start, size in zip(starts, shape)]
    return w.add("Slice", given(w, op, 0), w.array(starts), w.array(ends), w.array(range(len(starts))))


@translation("STRIDED_SLICE")
def _strided_slice(w: Writer, op: Operator) -> str:
    if op.option("ellipsisMask") or op.option("newAxisMask") or op.option("offset", False):
        raise Untranslated
    begins, ends, strides = (w.whole(index) for index in op.inputs[1:4])
    starts, stops = [], []
    for axis, (size, begin, end, stride) in enumerate(zip(w.shape(op.inputs[0]), begins, ends, strides)):
        if op.option("shrinkAxisMask") >> axis & 1:
            end, stride = begin % size + 1, 1
            begin %= size
        else:
            first, last = ((op.option(mask) >> axis & 1) for mask in ("beginMask", "endMask"))
            begin = (0 if stride > 0 else size - 1) if first else begin
            end = (size if stride > 0 else -size - 1) if last else end
        starts.append(begin)
        stops.append(end)
        strides[axis] = stride
    axes = w.array(range(len(starts)))
    value = w.add("Slice", given(w, op, 0), w.array(starts), w.array(stops), axes, w.array(strides))
    return w.shaped(value, w.shape(op.outputs[0])) if op.option("shrinkAxisMask") else value


@translation("PAD", "PADV2", "MIRROR_PAD")
def _pad(w: Writer, op: Operator) -> str:
    if op.kind == "MIRROR_PAD" and op.option("mode"):
        raise Untranslated  # ONNX has no symmetric padding
    pads = np.reshape(w.whole(op.inputs[1]), (-1, 2)).T.reshape(-1)
    value = [given(w, op, 2)] if op.kind == "PADV2" else []
    return w.add("Pad", given(w, op, 0), w.array(pads), *value, mode="reflect" if op.kind == "MIRROR_PAD" else None)


@translation("REVERSE_V2")
def _reverse(w: Writer, op: Operator) -> str:
    axes = w.whole(op.inputs[1])
    begins, ends, steps = ([each] * len(axes) for each in (-1, np.iinfo(np.int64).min, -1))
    return w.add("Slice", given(w, op, 0), w.array(begins), w.array(ends), w.array(axes), w.array(steps))


@translation("TILE")
def _tile(w: Writer, op: Operator) -> str:
    return w.add("Tile", given(w, op, 0), w.array(w.whole(op.inputs[1])))


@translation("BROADCAST_TO", "FILL")
def _expand(w: Writer, op: Operator) -> str:
    return w.add("Expand", given(w, op, 1 if op.kind == "FILL" else 0), w.array(w.shape(op.outputs[0])))


@translation("SHAPE")
def _shape(w: Writer, op: Operator) -> str:
    return _narrowed(w, op, w.add("Shape", given(w, op, 0)))


@translation("RANGE")
def _range(w: Writer, op: Operator) -> str:
    return w.add("Range", *(given(w, op, place) for place in range(3)))


@translation("CUMSUM")
def _cumsum(w: Writer, op: Operator) -> str:
    settings = {name: int(op.option(name, False)) for name in ("exclusive", "reverse")}
    return w.add("CumSum", given(w, op, 0), given(w, op, 1), **settings)
