"""Reads the weights of an ONNX graph: constants with the nodes that use them, batch norms, and the values of quantised weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .canonical import Array
from .stored import BatchNorm, Stored

LAYERS = {
    "Conv": 0,
    "ConvTranspose": 1,
    "Gemm": 0,
    "MatMul": 1,
}  # operator -> axis of the output channels of its weight
PASSES = (
    "Identity",
    "Transpose",
    "Reshape",
    "Cast",
    "Squeeze",
    "Unsqueeze",
    "DequantizeLinear",
)  # what a weight may go through
# Operators on whole numbers that have the output channels of their weight last; those of others are first.
LAST = ("QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
# How ONNX Runtime ends the name of a weight that it quantised, beside NAME_scale and NAME_zero_point.
QUANTISED = "_quantized"


def stored(model: Any) -> Stored:
    """The weights of a ModelProto whose external data is loaded."""
    return _Reading(model.graph).run()


class _Reading:
    def __init__(self, graph: Any) -> None:
        from onnx import numpy_helper

        self.nodes = list(graph.node)
        self.constants: dict[str, Array] = {
            tensor.name: np.asarray(numpy_helper.to_array(tensor)) for tensor in graph.initializer
        }
        for node in self.nodes:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self.constants[node.output[0]] = np.asarray(numpy_helper.to_array(node.attribute[0].t))
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.users: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.users.setdefault(name, []).append(node)
        self.quantised: dict[str, str] = {}

    def run(self) -> Stored:
        arrays = {}
        for name, array in self.constants.items():
            values = self._values(name, array)
            if values is not None:
                arrays[name] = values
        places = {name: place for name in arrays if (place := self._place(name))}
        norms = tuple(norm for norm in self._norms() if {*norm.arrays, *filter(None, [norm.weight])} <= set(arrays))
        return Stored(arrays, norms, self.quantised, places)

    def _values(self, name: str, array: Array) -> Array | None:
        """A constant in floating point; None for one that is no weight."""
        if array.dtype.kind == "f":
            return array
        if array.dtype.name == "bfloat16":
            return array.astype(np.float32)
        if array.dtype.itemsize != 1 or array.dtype.kind not in "iu":
            return None
        for node in self.users.get(name, ()):
            if node.op_type == "DequantizeLinear" and node.input[0] == name:
                axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
                zero = node.input[2] if len(node.input) > 2 else ""
                return self._dequantised(name, array, node.input[1], zero, axis)
            if node.op_type in ("QLinearConv", "QLinearMatMul") and node.input[3] == name:
                return self._dequantised(name, array, node.input[4], node.input[5], -1 if node.op_type in LAST else 0)
        if name.endswith(QUANTISED):
            begin = name.removesuffix(QUANTISED)
            axis = -1 if any(node.op_type in LAST for node in self.users.get(name, ())) else 0
            return self._dequantised(name, array, f"{begin}_scale", f"{begin}_zero_point", axis)
        return None

    def _dequantised(self, name: str, array: Array, scale: str, zero: str, axis: int) -> Array | None:
        factor, offset = self.constants.get(scale), self.constants.get(zero, np.zeros(1))
        if factor is None:
            return None
        if factor.size > 1:
            fitting = [each for each in (axis % array.ndim, 0, array.ndim - 1) if array.shape[each] == factor.size]
            if not fitting:
                return None
            shape = [-1 if each == fitting[0] else 1 for each in range(array.ndim)]
            factor, offset = factor.reshape(shape), offset.reshape(shape) if offset.size > 1 else offset.reshape(-1)[:1]
        else:
            factor, offset = factor.reshape(-1)[:1], offset.reshape(-1)[:1]
        self.quantised[name] = array.dtype.name
        values: Array = (array.astype(np.float32) - offset.astype(np.float32)) * factor.astype(np.float32)
        return values.reshape(array.shape)

    def _place(self, name: str) -> str:
        """The node that uses a constant, behind those that only pass it on."""
        for _ in range(len(PASSES)):
            users = self.users.get(name, [])
            if len(users) != 1:
                return ""
            if users[0].op_type not in PASSES:
                return users[0].name or users[0].output[0]
            name = users[0].output[0]
        return ""

    def _norms(self) -> Iterator[BatchNorm]:
        for node in self.nodes:
            if node.op_type != "BatchNormalization" or len(node.input) < 5:
                continue
            eps = next((each.f for each in node.attribute if each.name == "epsilon"), 1e-5)
            weight, bias, axis = self._layer(node.input[0])
            gamma, beta, mean, var = (self._source(name) for name in node.input[1:5])
            yield BatchNorm(node.name or node.output[0], gamma, beta, mean, var, float(eps), weight, bias, axis)

    def _layer(self, name: str) -> tuple[str, str, int]:
        """(weight, bias, axis of the output channels) of the layer that makes a value; two empty names when none does."""
        node = self.producers.get(name)
        if node is None or node.op_type not in LAYERS or len(self.users.get(name, ())) != 1:
            return "", "", 0
        axis = LAYERS[node.op_type]
        if node.op_type == "Gemm" and not next((each.i for each in node.attribute if each.name == "transB"), 0):
            axis = 1
        weight = self._source(node.input[1])
        bias = self._source(node.input[2]) if len(node.input) > 2 and node.input[2] else ""
        return (weight, bias if bias in self.constants else "", axis) if weight in self.constants else ("", "", 0)

    def _source(self, name: str) -> str:
        """The constant that a value is, behind nodes that only rename it."""
        while name not in self.constants and name in self.producers and self.producers[name].op_type == "Identity":
            name = self.producers[name].input[0]
        return name
