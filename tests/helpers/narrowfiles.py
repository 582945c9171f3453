"""A small network in float32, and the same in lower precision: converted by hand, or by ONNX Runtime's quantiser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

SHAPE = (3, 12, 12)
FORMATS = ("dynamic", "QDQ", "QOperator")
RELUS = {
    "r1": "c1",
    "r2": "a2",
    "r3": "c3",
}  # value behind a ReLU -> the value before it, which has its scale when it is fused
CONVOLUTION, LAYER = "/block/block.0/conv2/Conv", "/fc/Gemm"


def network(dtype: type = np.float32, seed: int = 0) -> onnx.ModelProto:
    """Three convolutions, one of them beside a shortcut, and a matrix with a bias."""
    random = np.random.default_rng(seed)
    shapes = {
        "w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (16, 8, 3, 3), "b3": (16,),
        "w4": (10, 16), "b4": (10,),
    }  # fmt: skip
    weights = {
        name: (random.standard_normal(shape) * (1.5 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.2)).astype(
            dtype
        )
        for name, shape in shapes.items()
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "/conv1/Conv", **pads),
        helper.make_node("Relu", ["c1"], ["r1"], "/relu1/Relu"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], CONVOLUTION, **pads),
        helper.make_node("Add", ["r1", "c2"], ["a2"], "/block/block.0/Add"),
        helper.make_node("Relu", ["a2"], ["r2"], "/relu2/Relu"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], "/conv3/Conv", **pads, strides=[2, 2]),
        helper.make_node("Relu", ["c3"], ["r3"], "/relu3/Relu"),
        helper.make_node("GlobalAveragePool", ["r3"], ["p"], "/pool/GlobalAveragePool"),
        helper.make_node("Flatten", ["p"], ["f"], "/Flatten"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["scores"], LAYER, transB=1),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, ["batch", *SHAPE])],
        [helper.make_tensor_value_info("scores", kind, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model, and return its path."""
    onnx.save(model, path)
    return path


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Name -> array of every constant."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def with_constants(model: onnx.ModelProto, changed: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A copy with other values of some constants."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name in changed:
            tensor.CopyFrom(numpy_helper.from_array(changed[tensor.name], tensor.name))
    return copy


def half() -> onnx.ModelProto:
    """The network with its weights rounded to float16, and all values in float16."""
    model = network(np.float16)
    return with_constants(model, {name: array.astype(np.float16) for name, array in constants(network()).items()})


def half_weights() -> onnx.ModelProto:
    """The network with its weights stored as float16, and cast to float32 before they are used."""
    model = network()
    casts = []
    for tensor in model.graph.initializer:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), f"{name}_half"))
        casts.append(helper.make_node("Cast", [f"{name}_half"], [name], f"cast_{name}", to=TensorProto.FLOAT))
    for place, node in enumerate(casts):
        model.graph.node.insert(place, node)
    return model


class Images:
    """Normal images to calibrate on, as ONNX Runtime asks for them. size: their standard deviation."""

    def __init__(self, count: int = 8, size: float = 1.0) -> None:
        random = np.random.default_rng(5)
        self.left = [{"x": (size * random.standard_normal((2, *SHAPE))).astype(np.float32)} for _ in range(count)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def quantised(
    folder: Path,
    how: str,
    per_channel: bool = False,
    only: list[str] | None = None,
    *,
    seed: int = 0,
    model: onnx.ModelProto | None = None,
    symmetric: bool = True,
    unsigned: bool = False,
    size: float = 1.0,
) -> onnx.ModelProto:
    """The network, quantised by ONNX Runtime. how: one of FORMATS. only: names of the nodes to quantise.

    model: another network. symmetric, unsigned: of the weights. size: of the images that it is calibrated on.
    """
    pytest.importorskip("onnxruntime")
    from onnxruntime import quantization

    plain, path = save(model or network(seed=seed), folder / "plain.onnx"), folder / f"{how}.onnx"
    chosen: dict[str, Any] = {"nodes_to_quantize": only} if only else {}
    if not symmetric:
        chosen["extra_options"] = {"WeightSymmetric": False}
    kinds = quantization.QuantType
    chosen["weight_type"] = kinds.QUInt8 if unsigned else kinds.QInt8
    if how == "dynamic":
        quantization.quantize_dynamic(plain, path, per_channel=per_channel, **chosen)
    else:
        kind = getattr(quantization.QuantFormat, how)
        chosen["activation_type"] = kinds.QUInt8 if unsigned else kinds.QInt8
        quantization.quantize_static(
            plain, path, Images(size=size), quant_format=kind, per_channel=per_channel, **chosen
        )
    return onnx.load(path)


def coarse(model: onnx.ModelProto, weights: str, factor: float) -> onnx.ModelProto:
    """The quantised model with the scale of these weights so many times too large, and the weights in the steps of that scale."""
    known = constants(model)
    ends = ("_quantized", "_scale")
    steps, scale = (next(name for name in known if name.startswith(weights) and name.endswith(end)) for end in ends)
    fewer = np.rint(known[steps].astype(np.float64) / factor).astype(known[steps].dtype)
    changed = {steps: fewer, scale: (known[scale] * factor).astype(known[scale].dtype)}
    bias = f"b{weights[1:]}_quantized"
    if bias in known and f"{bias}_scale" not in known:  # QOperator: the bias has the scale of the products
        changed[bias] = np.rint(known[bias] / factor).astype(np.int32)
    return with_constants(model, changed)


def widened(model: onnx.ModelProto, value: str, factor: float) -> onnx.ModelProto:
    """The static model with so many times the range of a value, with biases that fit."""
    known = constants(model)
    scale = next(name for name in (f"{value}_scale", f"{RELUS.get(value)}_scale") if name in known)
    changed = {scale: known[scale] * np.float32(factor)}
    for node in model.graph.node:
        if node.op_type in ("QLinearConv", "QGemm") and node.input[1] == scale:
            bias = node.input[8 if node.op_type == "QLinearConv" else 6]
            changed[bias] = np.rint(known[bias] / factor).astype(np.int32)
        if node.op_type in ("Conv", "Gemm") and node.input[0].startswith(f"{value}_"):
            bias = node.input[2].removesuffix("_DequantizeLinear_Output").removesuffix("_quantized") + "_quantized"
            changed[bias] = np.rint(known[bias] / factor).astype(np.int32)
            changed[f"{bias}_scale"] = known[f"{bias}_scale"] * np.float32(factor)
    return with_constants(model, changed)
