"""One small ONNX model with a batch norm, a resize, a table and three outputs; right ways to write it, and wrong conversions of it.

image -> conv1 -> bn1 -> relu1 -> resize -> conv2 -> relu2 -> mean -+-> fc -> softmax = scores
ids   -> table -> project = tokens -> mean --------------------------+-> tanh = features
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EPS = 1e-5
NORM = "/bn1/BatchNormalization"


def weights() -> dict[str, np.ndarray]:
    """The right weights."""
    random = np.random.default_rng(0)
    normal = random.standard_normal
    made = {
        "conv1.weight": normal((8, 3, 3, 3)) * 0.3,
        "conv1.bias": normal(8) * 0.2,
        "bn1.weight": random.uniform(0.5, 1.5, 8),
        "bn1.bias": normal(8) * 0.2,
        "bn1.running_mean": normal(8) * 0.3,
        "bn1.running_var": random.uniform(0.3, 2.0, 8),
        "conv2.weight": normal((8, 8, 3, 3)) * 0.2,
        "conv2.bias": normal(8) * 0.2,
        "table": normal((20, 6)),
        "project.weight": normal((6, 8)) * 0.5,
        "fc.weight": normal((8, 8)) * 0.5,
        "fc.bias": normal(8) * 0.2,
    }
    return {name: array.astype(np.float32) for name, array in made.items()}


def fold(w: dict[str, np.ndarray], times: int = 1, eps: float = EPS) -> dict[str, np.ndarray]:
    """The weights with the batch norm folded into the first convolution."""
    scale = w["bn1.weight"].astype(np.float64) / np.sqrt(w["bn1.running_var"].astype(np.float64) + eps)
    weight, bias = w["conv1.weight"].astype(np.float64), w["conv1.bias"].astype(np.float64)
    for _ in range(times):
        weight, bias = weight * scale[:, None, None, None], w["bn1.bias"] + (bias - w["bn1.running_mean"]) * scale
    kept = {name: array for name, array in w.items() if not name.startswith("bn1.")}
    return {**kept, "conv1.weight": weight.astype(np.float32), "conv1.bias": bias.astype(np.float32)}


def write(
    path: Path,
    w: dict[str, np.ndarray] | None = None,
    *,
    norm: bool = True,
    eps: float = EPS,
    resize: tuple[str, str] = ("linear", "half_pixel"),
    activation: float | None = None,
    bias2: bool = True,
    shift: int = 0,
    softmax: bool = True,
    swap: bool = False,
    transpose: bool = False,
    nhwc: bool = False,
    declared_nhwc: bool = False,
    narrow_range: float | None = None,
    scale: float | None = None,
    reverse: bool = False,
    rename: bool = False,
    plain_fc: bool = False,
) -> Path:
    """Write the model.

    w: weights. norm, eps: the batch norm as a node. activation: a Clip to [0, this] in the place of relu2. shift: subtracted from
    ids. nhwc: the numbers of the image are read as NHWC. declared_nhwc: the image is NHWC, and declared so. narrow_range: the
    largest value of a quantisation behind relu1. scale: fc.weight is stored in int8, with a scale that is so many times too large.
    reverse: the branch of the ids comes first. rename: other names of constants. plain_fc: fc as a product and a sum.
    """
    w = dict(weights() if w is None else w)
    c = {"scales": np.array([1, 1, 2, 2], np.float32), "axes": np.array([1], np.int64)}
    node = helper.make_node
    image, first = [], "image"
    if nhwc or declared_nhwc:
        c["nhwc"] = np.array([0, 8, 8, 3], np.int64)
        image += [node("Reshape", [first, "nhwc"], ["as_nhwc"], "/Reshape")] if nhwc else []
        image += [node("Transpose", ["as_nhwc" if nhwc else first], ["nchw"], "/Transpose", perm=[0, 3, 1, 2])]
        first = "nchw"
    image.append(node("Conv", [first, "conv1.weight", "conv1.bias"], ["c1"], "/conv1/Conv", pads=[1, 1, 1, 1]))
    if norm:
        names = [f"bn1.{end}" for end in ("weight", "bias", "running_mean", "running_var")]
        image.append(node("BatchNormalization", ["c1", *names], ["n1"], NORM, epsilon=eps))
    image.append(node("Relu", ["n1" if norm else "c1"], ["r1"], "/relu1/Relu"))
    last = "r1"
    if narrow_range:
        c |= {"q.scale": np.array(narrow_range / 255, np.float32), "q.zero": np.array(0, np.uint8)}
        image.append(node("QuantizeLinear", ["r1", "q.scale", "q.zero"], ["q1"], "/quantise/QuantizeLinear"))
        image.append(node("DequantizeLinear", ["q1", "q.scale", "q.zero"], ["d1"], "/quantise/DequantizeLinear"))
        last = "d1"
    mode, coordinates = resize
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    image.append(
        node("Resize", [last, "", "scales"], ["up"], "/resize/Resize", mode=mode,
             coordinate_transformation_mode=coordinates, **more)
    )  # fmt: skip
    two = ["up", "conv2.weight", *(["conv2.bias"] if bias2 else [])]
    image.append(node("Conv", two, ["c2"], "/conv2/Conv", pads=[1, 1, 1, 1], strides=[2, 2]))
    if not bias2:
        del w["conv2.bias"]
    if activation:
        c |= {"low": np.array(0, np.float32), "high": np.array(activation, np.float32)}
        image.append(node("Clip", ["c2", "low", "high"], ["r2"], "/relu2/Clip"))
    else:
        image.append(node("Relu", ["c2"], ["r2"], "/relu2/Relu"))
    image += [
        node("GlobalAveragePool", ["r2"], ["g"], "/mean/GlobalAveragePool"),
        node("Flatten", ["g"], ["f"], "/Flatten"),
    ]
    ids, tokens = [], "ids"
    if shift:
        c["shift"] = np.array(shift, np.int64)
        ids.append(node("Sub", ["ids", "shift"], ["shifted"], "/embed/Sub"))
        tokens = "shifted"
    ids += [
        node("Gather", ["table", tokens], ["e"], "/embed/Gather"),
        node("MatMul", ["e", "project.weight"], ["p"], "/project/MatMul"),
        node("Transpose", ["p"], ["tokens"], "/Transpose_1", perm=[0, 2, 1])
        if transpose
        else node("Identity", ["p"], ["tokens"], "/Identity"),
        node("ReduceMean", ["p"], ["m"], "/mean/ReduceMean", axes=[1], keepdims=0),
    ]
    end = [node("Add", ["f", "m"], ["h"], "/Add")]
    matrix, dtype = "fc.weight", np.int8
    if scale:
        step = float(np.abs(w["fc.weight"]).max()) / 127
        w["fc.weight"] = np.round(w["fc.weight"] / step).astype(dtype)
        c["fc.scale"] = np.array(step * scale, np.float32)
        end.append(node("DequantizeLinear", ["fc.weight", "fc.scale"], ["dequantised"], "/fc/DequantizeLinear"))
        matrix = "dequantised"
    if plain_fc:
        w["fc.weight"] = np.ascontiguousarray(w["fc.weight"].T)
        end += [
            node("MatMul", ["h", matrix], ["hm"], "/fc/MatMul"),
            node("Add", ["hm", "fc.bias"], ["logits"], "/fc/Add"),
        ]
    else:
        end.append(node("Gemm", ["h", matrix, "fc.bias"], ["logits"], "/fc/Gemm", transB=1))
    scores, features = ("features", "scores") if swap else ("scores", "features")
    end.append(
        node(
            "Softmax" if softmax else "Identity", ["logits"], [scores], "/softmax/Softmax" if softmax else "/Identity_1"
        )
    )
    end.append(node("Tanh", ["h"], [features], "/tanh/Tanh"))
    nodes = [*ids, *image, *end] if reverse else [*image, *ids, *end]
    arrays = {**w, **c}
    if rename:
        names = {name: f"onnx::{index}" for index, name in enumerate(sorted(arrays))}
        arrays = {names[name]: array for name, array in arrays.items()}
        for each in nodes:
            each.input[:] = [names.get(name, name) for name in each.input]
    value = helper.make_tensor_value_info
    shape = ["batch", 8, 8, 3] if declared_nhwc else ["batch", 3, 8, 8]
    outputs = [
        value("scores", TensorProto.FLOAT, ["batch", 8]),
        value("features", TensorProto.FLOAT, ["batch", 8]),
        value("tokens", TensorProto.FLOAT, ["batch", 8, 5] if transpose else ["batch", 5, 8]),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [value("image", TensorProto.FLOAT, shape), value("ids", TensorProto.INT64, ["batch", 5])],
        outputs,
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def square(path: Path, turned: bool = False) -> Path:
    """A convolution over images of 4 channels and 4 x 4 pixels, and the mean of its result. turned: the image is NHWC."""
    kernel = np.random.default_rng(3).standard_normal((4, 4, 3, 3)).astype(np.float32)
    nodes = [
        *([helper.make_node("Transpose", ["x"], ["nchw"], "/Transpose", perm=[0, 3, 1, 2])] if turned else []),
        helper.make_node("Conv", ["nchw" if turned else "x", "kernel"], ["c"], "/conv/Conv"),
        helper.make_node("Flatten", ["c"], ["y"], "/Flatten"),
    ]
    graph = helper.make_graph(
        nodes,
        "square",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16])],
        [numpy_helper.from_array(kernel, "kernel")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def changed(name: str, change) -> dict[str, np.ndarray]:
    """The right weights with one that is changed."""
    w = weights()
    return {**w, name: change(w[name]).astype(np.float32)}


def older(array: np.ndarray) -> np.ndarray:
    """The weight of an earlier checkpoint: 3% away."""
    noise = np.random.default_rng(1).standard_normal(array.shape)
    return array + 0.03 * noise * np.sqrt(np.mean(np.square(array)) / np.mean(np.square(noise)))


def half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


# Name -> the arguments of ``write`` for another right way to write the model.
RIGHT = {
    "same": {},
    "folded": {"w": fold(weights()), "norm": False},
    "renamed": {"rename": True},
    "folded-renamed": {"w": fold(weights()), "norm": False, "rename": True, "reverse": True},
    "reordered": {"reverse": True},
    "transposed-weight": {"plain_fc": True, "rename": True},
    "declared-nhwc": {"declared_nhwc": True},
}

# Name -> (the arguments of ``write``, what the reason must say, each the fault with its place).
WRONG = {
    "norm-dropped": (
        {"w": {k: v for k, v in weights().items() if not k.startswith("bn1.")}, "norm": False},
        [f"conv1.weight (of /conv1/Conv): batch norm {NORM} of the reference is neither folded into it nor in the file",
         f"leaves out the reference's BatchNormalization '{NORM}'"],
    ),
    "norm-folded-twice": (
        {"w": fold(weights(), times=2), "norm": False, "rename": True},
        [f"(of /conv1/Conv), the reference's conv1.weight, is conv1.weight with batch norm {NORM} folded in twice"],
    ),
    "norm-folded-and-kept": (
        {"w": {**weights(), **{k: v for k, v in fold(weights()).items() if k.startswith("conv1.")}}},
        [f"conv1.weight (of /conv1/Conv) is conv1.weight with batch norm {NORM} folded in, and {NORM} is still behind it"],
    ),
    "norm-folded-other-eps": (
        {"w": fold(weights(), eps=1e-3), "norm": False},
        [f"conv1.weight (of /conv1/Conv) is conv1.weight with batch norm {NORM} folded in with eps 0.001",
         "and the reference has 1e-05"],
    ),
    "norm-other-eps": (
        {"eps": 1e-3},
        [f"BatchNormalization '{NORM}' (module bn1): epsilon is 0.001, and the reference has 1e-05"],
    ),
    "float16-weights": ({"w": {k: half(v) for k, v in weights().items()}}, ["weights are rounded to float16: ", "conv1.weight"]),
    "bias-dropped": (
        {"bias2": False},
        ["conv2.bias (of /conv2/Conv) of the reference has no partner in the file",
         "Conv '/conv2/Conv' (module conv2): it lacks the bias, which is conv2.bias in the reference"],
    ),
    "output-transposed": ({"transpose": True}, ["tokens: its axes are transposed", "Transpose '/Transpose_1'"]),
    "softmax-missing": (
        {"softmax": False},
        ["scores: a softmax is missing at the end", "which the file leaves out: Softmax '/softmax/Softmax'"],
    ),
    "outputs-swapped": ({"swap": True}, ["the outputs are swapped: `scores` holds the reference's `features`"]),
    "weight-scale": ({"scale": 2.0}, ["fc.weight (of /fc/Gemm) is quantised to int8 with a scale 2 times the right one"]),
    "activation-scale": (
        {"narrow_range": 0.5},
        ["QuantizeLinear '/quantise/QuantizeLinear' (module quantise) clips", "to [0, 0.5]", "is too small"],
    ),
    "resize-nearest": (
        {"resize": ("nearest", "half_pixel")},
        ["Resize '/resize/Resize' (module resize): mode is nearest, and the reference has linear"],
    ),
    "resize-align-corners": (
        {"resize": ("linear", "align_corners")},
        ["Resize '/resize/Resize' (module resize): coordinate_transformation_mode is align_corners",
         "and the reference has half_pixel"],
    ),
    "relu6": (
        {"activation": 6.0},
        ["the file computes Clip with min 0, max 6 where the reference has Relu '/relu2/Relu'"],
    ),
    "saturated": ({"activation": 0.4}, ["the file computes Clip with min 0, max 0.4 where the reference has Relu '/relu2/Relu'"]),
    "stale-weight": (
        {"w": changed("conv2.weight", older)},
        ["stale: only conv2.weight (of /conv2/Conv) differs, by 3% (rms)",
         "the first value that differs is that of Conv '/conv2/Conv' (module conv2)"],
    ),
    "stale-weight-folded-renamed": (
        {"w": fold(changed("conv1.weight", older)), "norm": False, "rename": True},
        ["(of /conv1/Conv), the reference's conv1.weight, differs, by 3.2% (rms)"],
    ),
    "gather-off-by-one": ({"shift": 1}, ["Sub '/embed/Sub' (module embed)", "before its Gather '/embed/Gather'"]),
    "nhwc-as-nchw": (
        {"nhwc": True},
        ["the file gives the reference's outputs when its input image is given as NHWC", "Transpose '/Transpose'"],
    ),
}  # fmt: skip
