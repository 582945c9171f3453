"""The nodes of a TensorFlow Lite file, with the values that LiteRT's own kernels compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats.tflite import Adapter, LiteModel

KERNELS = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"  # a delegate has no values inside


def traced(framework: Adapter, model: LiteModel, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case, and return the nodes of the main graph with all values."""
    from xverify.formats.tflite import is_quantised

    if model.others:
        raise Unsupported("LiteRT shows the nodes of a file with one signature only")
    interpreter = framework.interpreter(model.path, KERNELS, experimental_preserve_all_tensors=True)
    places = {name: int(detail["index"]) for name, detail in model.inputs.items()}
    for name, place in places.items():
        interpreter.resize_tensor_input(place, np.shape(inputs[name]), strict=True)
    interpreter.allocate_tensors()
    for name, place in places.items():
        interpreter.set_tensor(place, model.given(name, inputs[name]))
    interpreter.invoke()
    details = {int(each["index"]): each for each in interpreter.get_tensor_details()}
    names = _names(details, {**places, **{name: int(each["index"]) for name, each in model.outputs.items()}})
    options = list(_settings(model))
    nodes = []
    for place, each in enumerate(interpreter._get_ops_details()):
        if each["op_name"] == "DELEGATE" or place >= len(options):
            break
        outputs = tuple(names[int(index)] for index in each["outputs"] if int(index) in names)
        given = tuple(names.get(int(index), "") for index in each["inputs"])
        name = str(details[int(each["outputs"][0])]["name"]).partition(";")[0] if outputs else f"operator {place}"
        nodes.append(FileNode(name, str(each["op_name"]), given, outputs, options[place]))
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    values = {names[index]: _value(interpreter, each) for index, each in details.items() if names[index] in used}
    known = {name: value for name, value in values.items() if value is not None}
    quantised = any(is_quantised(each) and names[index] in used for index, each in details.items())
    return Traced(FileGraph(tuple(nodes), tuple(model.inputs), tuple(model.outputs), quantised), known)


def _names(details: Mapping[int, Mapping[str, Any]], signature: Mapping[str, int]) -> dict[int, str]:
    """Number of a tensor -> its unique name: that of the signature for what the file is given and returns."""
    found: dict[int, str] = {}
    taken = set(signature)
    for index, each in details.items():
        name = str(each["name"])
        name = f"{name}#{index}" if name in taken or not name else name
        found[index] = name
        taken.add(name)
    return {**found, **{index: name for name, index in signature.items()}}


def _value(interpreter: Any, detail: Mapping[str, Any]) -> Array | None:
    """The value of a tensor; None for one that was not computed."""
    from xverify.formats.tflite import dequantised, is_quantised

    try:
        array = np.array(interpreter.get_tensor(detail["index"]))
    except ValueError:
        return None
    return dequantised(array, detail["quantization_parameters"]) if is_quantised(detail) else array


def _settings(model: LiteModel) -> Iterator[dict[str, str]]:
    """The attributes of every operator of the main graph."""
    from ai_edge_litert import schema_py_generated as schema

    found = schema.ModelT.InitFromPackedBuf(model.path.read_bytes(), 0)
    enums = {"padding": schema.Padding, "fusedActivationFunction": schema.ActivationFunctionType}
    words = {
        name: {value: key for key, value in vars(kind).items() if isinstance(value, int)}
        for name, kind in enums.items()
    }
    for each in found.subgraphs[0].operators:
        options = vars(each.builtinOptions) if each.builtinOptions is not None else {}
        yield settings((name, words.get(name, {}).get(value, value)) for name, value in options.items())
