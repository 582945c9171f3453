"""The precision of a model that OpenVINO has read, from its constants and operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xverify.results.precision import LayerPrecision, Precision, from_dtypes, from_layers

_PRODUCTS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul")
# Through these the weights of a layer come to it.
_PREPARES = ("Convert", "Multiply", "Subtract", "Reshape", "Transpose", "FakeQuantize", "Unsqueeze", "Squeeze")
_COPIES = ("Reshape", "Transpose", "MaxPool", "Relu", "Clamp", "Unsqueeze", "Squeeze", "Pad")
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8", "i4": "int4",
    "u4": "uint4",
}  # fmt: skip


def precision(model: Any) -> Precision:
    """The precision of the layers of a model, and that of its results when it has no layer with weights."""
    layers = list(_layers(model))
    if layers:
        return from_layers(layers)
    kinds = {_dtype(port) for port in model.outputs}
    return from_dtypes({}, kinds.pop() if len(kinds) == 1 and "float" in next(iter(kinds)) else "")


def _layers(model: Any) -> Iterator[LayerPrecision]:
    for node in model.get_ops():
        if node.get_type_name() not in _PRODUCTS:
            continue
        for place in (1, 0):
            found = _weights(node.input_value(place))
            if found is not None:
                stored, quantised, grain = found
                activations = _activations(node.input_value(1 - place))
                computed = _dtype(node.output(0))
                scheme = "static" if activations else ""
                yield LayerPrecision(stored, quantised, grain, activations, scheme, computed)
                break


def _weights(port: Any) -> tuple[str, bool, str] | None:
    """(dtype, whether quantised, granularity) of weights; None for a computed value."""
    scale = 1
    stored = ""
    while True:
        node = port.get_node()
        kind = node.get_type_name()
        if kind == "Constant":
            stored = stored or _dtype(port)
            break
        if kind not in _PREPARES:
            return None
        if kind == "Multiply":
            scale = _size(node.input_value(1))
        if kind == "FakeQuantize":
            stored, scale = _steps(node), _size(node.input_value(1))
        port = node.input_value(0)
    quantised = "int" in stored
    return stored, quantised, ("per channel" if scale > 1 else "per tensor") if quantised else ""


def _activations(port: Any) -> str:
    """The dtype to which the values are quantised; "" when they are not."""
    node = port.get_node()
    while node.get_type_name() in _COPIES:
        node = node.input_value(0).get_node()
    return _steps(node) if node.get_type_name() == "FakeQuantize" else ""


def _steps(node: Any) -> str:
    """The dtype that a FakeQuantize stands for: by the number of its steps, and whether its range begins below zero."""
    levels = int(node.get_attributes().get("levels", 256))
    bits = max(1, (levels - 1).bit_length())
    low = node.input_value(1).get_node()
    signed = low.get_type_name() != "Constant" or bool((low.get_data() < 0).any())
    return f"{'' if signed else 'u'}int{bits}"


def _size(port: Any) -> int:
    shape = port.get_partial_shape()
    size = 1
    for dimension in shape:
        size *= dimension.get_length() if dimension.is_static else 1
    return size


def _dtype(port: Any) -> str:
    name = str(port.get_element_type().get_type_name())
    return _DTYPES.get(name, name)
