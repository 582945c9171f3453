"""The precision of a TensorFlow Lite file, from its operators and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xverify.results.precision import LayerPrecision, Precision, from_dtypes, from_layers

# Operators that sum products -> (the input that has the weights, the input that has the values).
_LAYERS = {
    "CONV_2D": (1, 0), "DEPTHWISE_CONV_2D": (1, 0), "FULLY_CONNECTED": (1, 0), "TRANSPOSE_CONV": (1, 2), "CONV_3D": (1, 0),
    "BATCH_MATMUL": (1, 0), "UNIDIRECTIONAL_SEQUENCE_LSTM": (1, 0),
}  # fmt: skip
_WHOLE = ("int8", "uint8", "int16", "int4")

Detail = Mapping[str, Any]  # what LiteRT tells about a tensor or an operator


def precision(tensors: list[Detail], operators: list[Detail]) -> Precision:
    """The precision of a graph.

    tensors: as ``get_tensor_details`` gives them. operators: the name, the inputs and the outputs of each.
    """
    known = {int(tensor["index"]): tensor for tensor in tensors}
    makers = {int(out): operator for operator in operators for out in operator["outputs"]}
    layers = list(_layers(known, makers, operators))
    if layers:
        return from_layers(layers)
    floats = [_dtype(known[int(out)]) for operator in operators for out in operator["outputs"] if int(out) in known]
    narrow = [name for name in floats if "float" in name]
    return from_dtypes({}, max(set(narrow), key=narrow.count) if narrow else "")


def _layers(
    known: Mapping[int, Detail], makers: Mapping[int, Detail], operators: list[Detail]
) -> Iterator[LayerPrecision]:
    for operator in operators:
        places = _LAYERS.get(str(operator["op_name"]))
        if places is None or max(places) >= len(operator["inputs"]):
            continue
        weights, values = (int(operator["inputs"][place]) for place in places)
        while weights in makers and str(makers[weights]["op_name"]) in ("DEQUANTIZE", "RESHAPE", "TRANSPOSE", "CAST"):
            weights = int(makers[weights]["inputs"][0])
        if weights in makers or weights not in known or values not in known:
            continue  # a product of two computed values
        yield _layer(known[weights], known[values], known[int(operator["outputs"][0])])


def _layer(weights: Detail, values: Detail, result: Detail) -> LayerPrecision:
    stored, given, computed = _dtype(weights), _dtype(values), _dtype(result)
    computed = computed if "float" in computed else ""
    scales = np.size(weights.get("quantization_parameters", {}).get("scales", ()))
    if stored not in _WHOLE or not scales:
        return LayerPrecision(stored, computed=computed)
    grain = "per channel" if scales > 1 else "per tensor"
    if given in _WHOLE:
        return LayerPrecision(stored, True, grain, given, "static", computed)
    # The kernels of LiteRT quantise the values themselves when the weights are of 8 bits and the values are not.
    return LayerPrecision(stored, True, grain, "int8", "dynamic", computed)


def _dtype(tensor: Detail) -> str:
    return "string" if tensor["dtype"] in (np.bytes_, np.object_, np.str_) else str(np.dtype(tensor["dtype"]).name)
