"""The precision of files that PyTorch opens: TorchScript by its parameters and operators, torch.export by its graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from xverify.framework.modelfile import numpy_name
from xverify.results.precision import LayerPrecision, Precision, from_dtypes, from_layers

_PRODUCTS = re.compile(r"(conv\w*|convolution|linear|addmm|mm|bmm|matmul|baddbmm|addbmm)$")
# What a graph does with a stored tensor before it is used, without another meaning.
_PREPARES = re.compile(r"(_?to(_copy)?|t|permute|transpose|view|reshape|detach|alias|clone|float|half|type_as)$")
_CASTS = re.compile(r"aten::(to|float|half|type_as|_autocast\w*)\(")


def of_module(module: Any) -> Precision:
    """The precision of an eager module, by that of its parameters; its code may compute in another one only by casting."""
    sizes = _sizes(module)
    return from_dtypes(sizes, max(sizes, key=lambda name: sizes[name], default=""))


def of_script(module: Any) -> Precision:
    """The precision of a TorchScript module."""
    text = str(module.inlined_graph)
    kernels = re.findall(r"quantized::((?:conv|linear)\w*)\(", text)
    kernels = [name for name in kernels if "prepack" not in name and "unpack" not in name]
    if kernels:
        return from_layers(map(_kernel, kernels))
    sizes = _sizes(module)
    most = max(sizes, key=lambda name: sizes[name], default="")
    if not _CASTS.search(text):
        return from_dtypes(sizes, most)
    if most in ("", "float32"):
        return from_dtypes(sizes)
    return Precision(
        f"{most} weights; the file casts values, and in which precision it computes is unknown", MIXED, most
    )


MIXED = "mixed"


def _kernel(name: str) -> LayerPrecision:
    """The precision of a quantised operator of PyTorch: its weights are qint8, and its inputs quint8."""
    if name.endswith("fp16"):
        return LayerPrecision("float16", computed="float32")
    return LayerPrecision("int8", True, "", "uint8", "dynamic" if "dynamic" in name else "static")


def _sizes(module: Any) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            sizes[numpy_name(str(tensor.dtype))] += tensor.numel()
    return sizes


def of_program(program: Any) -> Precision:
    """The precision of a program of torch.export."""
    signature = program.graph_signature
    stored = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    stored |= set(getattr(signature, "inputs_to_lifted_tensor_constants", {}))
    layers = list(_layers(program.graph, stored))
    if layers:
        return from_layers(layers)
    sizes: Counter[str] = Counter()
    for tensor in (*program.state_dict.values(), *program.constants.values()):
        if hasattr(tensor, "is_floating_point") and tensor.is_floating_point():
            sizes[numpy_name(str(tensor.dtype))] += tensor.numel()
    return from_dtypes(sizes)


def _layers(graph: Any, stored: set[str]) -> Iterator[LayerPrecision]:
    for node in graph.nodes:
        if node.op != "call_function" or not _PRODUCTS.match(_operator(node)):
            continue
        arguments = [each for each in node.args if hasattr(each, "meta")]
        traced = [_origin(each) for each in arguments]
        weights = next(
            (each for each in traced if each[0].op == "placeholder" and each[0].name in stored and _rank(each[0]) > 1),
            None,
        )
        if weights is None:
            continue
        inputs = next((each for each in traced if each is not weights), None)
        origin, quantised, grain, _ = weights
        activations, scheme = ("", "")
        if inputs is not None and inputs[1]:
            activations, scheme = inputs[3]["dtype"], inputs[3]["scheme"]
        yield LayerPrecision(_dtype(origin), quantised, grain, activations, scheme, _dtype(node))


def _origin(node: Any) -> tuple[Any, bool, str, Mapping[str, str]]:
    """The stored or computed tensor behind casts and dequantisation: (node, whether it was quantised, granularity, how)."""
    quantised, grain, how = False, "", {"dtype": "", "scheme": ""}
    while node.op == "call_function" and node.args and hasattr(node.args[0], "meta"):
        name = _operator(node)
        if name.startswith("dequantize"):
            quantised = True
            grain = "per channel" if "channel" in name else "per tensor"
            how["dtype"] = _dtype(node.args[0])
            how["scheme"] = (
                "dynamic" if hasattr(node.args[1], "meta") and node.args[1].op == "call_function" else "static"
            )
        elif not _PREPARES.match(name):
            break
        node = node.args[0]
    return node, quantised, grain, how


def _operator(node: Any) -> str:
    """The name of an operator without its namespace and its overload."""
    parts = str(node.target).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _rank(node: Any) -> int:
    return len(getattr(node.meta.get("val"), "shape", ()))


def _dtype(node: Any) -> str:
    value = node.meta.get("val")
    return numpy_name(str(value.dtype)) if hasattr(value, "dtype") else ""
