"""Three small networks in float32, and their versions by ONNX Runtime's quantisers, for the suite of quantised files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization import matmul_nbits_quantizer, shape_inference

Array = np.ndarray
CALIBRATION = 16  # batches
BLOCK = 16  # values of a block of 4 bits
SPREAD = {"kernel": 1.4, "matrix": 1.0}  # sizes of weights by what they are, over the square root of the terms of a sum
node = helper.make_node


@dataclass(frozen=True)
class Network:
    """A float32 network. layer: the layer in which faults are planted. behind_relu: a layer whose input a ReLU makes."""

    nodes: tuple[onnx.NodeProto, ...]
    shape: tuple[int, ...]
    output: tuple[int, ...]
    weights: Mapping[str, Array]
    layer: str
    behind_relu: str

    def model(self) -> onnx.ModelProto:
        """The network as an ONNX model."""
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, self.output)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _drawn(seed: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Weights by name: those of more than one axis keep the size of what goes through them, and others are small."""
    random, found = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        terms = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        spread = SPREAD["kernel" if len(shape) == 4 else "matrix"] / np.sqrt(terms) if len(shape) > 1 else 0.3
        array = random.standard_normal(shape) * spread
        if len(shape) > 1:  # channels of several sizes, as trained networks have them
            axis = 0 if len(shape) == 4 else len(shape) - 1
            sizes = np.exp(random.uniform(-1, 0.5, shape[axis]))
            array = array * sizes.reshape([-1 if each == axis else 1 for each in range(len(shape))])
        found[name] = array.astype(np.float32)
    return found


def _norm(seed: int, name: str, size: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    low = {"scale": 0.5, "shift": -0.5, "mean": -0.3, "variance": 0.5}
    high = {"scale": 1.5, "shift": 0.5, "mean": 0.3, "variance": 2.0}
    return {f"{name}.{key}": random.uniform(low[key], high[key], size).astype(np.float32) for key in low}


def convolutions(seed: int = 0) -> Network:
    """Convolutions with batch norms behind them, and a matrix."""
    shapes = {
        "w1": (16, 3, 3, 3),
        "w2": (32, 16, 3, 3),
        "w3": (32, 1, 3, 3),
        "w4": (32, 32, 1, 1),
        "w5": (32, 16),
        "b5": (16,),
    }
    weights = _drawn(seed, shapes)
    nodes, last = [], "x"
    for place, settings in enumerate(({}, {"strides": [2, 2]}, {"group": 32}, {"pads": [0] * 4}), 1):
        weights |= _norm(10 + place + seed, f"n{place}", len(weights[f"w{place}"]))
        norm = [f"n{place}.{key}" for key in ("scale", "shift", "mean", "variance")]
        nodes += [
            node("Conv", [last, f"w{place}"], [f"c{place}"], f"conv{place}", **{"pads": [1] * 4, **settings}),
            node("BatchNormalization", [f"c{place}", *norm], [f"n{place}"], f"norm{place}"),
            node("Relu", [f"n{place}"], [f"r{place}"], f"relu{place}"),
        ]
        last = f"r{place}"
    nodes += [
        node("GlobalAveragePool", [last], ["p"], "pool"),
        node("Flatten", ["p"], ["f"], "flatten"),
        node("MatMul", ["f", "w5"], ["m5"], "head"),
        node("Add", ["m5", "b5"], ["y"], "bias5"),
    ]
    return Network(tuple(nodes), (2, 3, 16, 16), (2, 16), weights, "conv2", "conv2")


def perceptron(seed: int = 0) -> Network:
    """Three matrices with biases and ReLU."""
    weights = _drawn(seed, {"w1": (32, 48), "b1": (48,), "w2": (48, 48), "b2": (48,), "w3": (48, 16), "b3": (16,)})
    nodes = [
        node("MatMul", ["x", "w1"], ["m1"], "fc1"),
        node("Add", ["m1", "b1"], ["a1"], "bias1"),
        node("Relu", ["a1"], ["r1"], "relu1"),
        node("MatMul", ["r1", "w2"], ["m2"], "fc2"),
        node("Add", ["m2", "b2"], ["a2"], "bias2"),
        node("Relu", ["a2"], ["r2"], "relu2"),
        node("Gemm", ["r2", "w3", "b3"], ["y"], "fc3"),
    ]
    return Network(tuple(nodes), (4, 32), (4, 16), weights, "fc2", "fc2")


def transformer(seed: int = 0) -> Network:
    """A block of attention of one sequence, and two matrices, with layer norms before them."""
    size, wide = 32, 64
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("wq", "wk", "wv", "wo"), (size, size))
    shapes |= {name.replace("w", "b"): (size,) for name in tuple(shapes)}
    weights = _drawn(seed, {**shapes, "w1": (size, wide), "b1": (wide,), "w2": (wide, size), "b2": (size,)})
    weights |= {
        f"{name}{place}": np.full(size, value, np.float32) for place in "12" for name, value in (("g", 1), ("h", 0))
    }
    weights["root"] = np.float32(size**-0.5).reshape(1)

    def layer(name: str, given: str, place: str) -> list[onnx.NodeProto]:
        return [
            node("MatMul", [given, f"w{place}"], [f"m{place}"], name),
            node("Add", [f"m{place}", f"b{place}"], [f"a{place}"], f"bias_{name}"),
        ]

    nodes = [
        node("LayerNormalization", ["x", "g1", "h1"], ["n1"], "norm1"),
        *(each for place, name in zip("qkv", ("query", "key", "value")) for each in layer(name, "n1", place)),
        node("Transpose", ["ak"], ["kt"], "turn", perm=[1, 0]),
        node("MatMul", ["aq", "kt"], ["qk"], "scores"),
        node("Mul", ["qk", "root"], ["scaled"], "scale"),
        node("Softmax", ["scaled"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "av"], ["pv"], "context"),
        *layer("out", "pv", "o"),
        node("Add", ["x", "ao"], ["s1"], "add1"),
        node("LayerNormalization", ["s1", "g2", "h2"], ["n2"], "norm2"),
        *layer("up", "n2", "1"),
        node("Relu", ["a1"], ["r1"], "act"),
        *layer("down", "r1", "2"),
        node("Add", ["s1", "a2"], ["y"], "add2"),
    ]
    return Network(tuple(nodes), (9, size), (9, size), weights, "up", "down")


NETWORKS: dict[str, Callable[[int], Network]] = {
    "convolutions": convolutions,
    "perceptron": perceptron,
    "transformer": transformer,
}


class Calibration:
    """Normal inputs to calibrate on, as ONNX Runtime asks for them."""

    def __init__(self, model: onnx.ModelProto, seed: int = 5) -> None:
        random = np.random.default_rng(seed)
        (given,) = model.graph.input
        shape = [each.dim_value for each in given.type.tensor_type.shape.dim]
        self.left = [{given.name: random.standard_normal(shape).astype(np.float32)} for _ in range(CALIBRATION)]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


@dataclass(frozen=True)
class Scheme:
    """A way to quantise. format: "QDQ", "QOperator" or "dynamic". bits: 4 for blocks of 4 bits."""

    format: str
    per_channel: bool = False
    bits: int = 8
    options: Mapping[str, Any] | None = None
    weights: Any = quantization.QuantType.QInt8
    activations: Any = quantization.QuantType.QUInt8

    @property
    def static(self) -> bool:
        return self.bits == 8 and self.format != "dynamic"

    def quantise(self, model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
        """The model, quantised by ONNX Runtime after its own preparation, which folds batch norms."""
        logging.disable(logging.WARNING)
        plain, ready, made = (folder / f"{name}.onnx" for name in ("plain", "ready", "quantised"))
        if self.bits == 4:
            return self._blocks(model)
        onnx.save(model, plain)
        shape_inference.quant_pre_process(plain, ready, skip_symbolic_shape=True)
        options = {"extra_options": dict(self.options)} if self.options else {}
        if self.format == "dynamic":
            quantization.quantize_dynamic(
                ready, made, per_channel=self.per_channel, weight_type=self.weights, **options
            )
        else:
            quantization.quantize_static(
                ready,
                made,
                Calibration(model),
                quant_format=getattr(quantization.QuantFormat, self.format),
                per_channel=self.per_channel,
                weight_type=self.weights,
                activation_type=self.activations,
                **options,
            )
        return onnx.load(made)

    def _blocks(self, model: onnx.ModelProto) -> onnx.ModelProto:
        kind = getattr(quantization.QuantFormat, self.format)
        work = matmul_nbits_quantizer.MatMulNBitsQuantizer(
            model, block_size=BLOCK, is_symmetric=False, quant_format=kind
        )
        work.process()
        return work.model.model


SCHEMES = {
    "static": Scheme("QDQ"),
    "static operators": Scheme("QOperator"),
    "per channel": Scheme("QDQ", per_channel=True),
    "dynamic": Scheme("dynamic"),
    "dynamic per channel": Scheme("dynamic", per_channel=True),
    "blocks of 4 bits": Scheme("QOperator", bits=4),
    "blocks of 4 bits, QDQ": Scheme("QDQ", bits=4),
}


def layer_of(network: Network, scheme: Scheme) -> str:
    """The layer in which faults are planted: blocks are made of matrices alone."""
    return "head" if scheme.bits == 4 and network.layer == "conv2" else network.layer


def with_weights(network: Network, changed: Mapping[str, Array]) -> Network:
    """The network with other weights."""
    return replace(network, weights={**network.weights, **changed})
