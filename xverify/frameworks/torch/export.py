"""Exports models of torch as ONNX, with the names of their parameters and modules.

torch has two exporters. The older one traces TorchScript, and makes a graph that runtimes fuse well. The newer one, which needs
onnxscript, traces with torch.export. It knows more operators and more Python, and is tried where the older one fails.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from xverify.errors import Failed
from xverify.float64.linear import called_by_weights, owners_of
from xverify.framework.adapter import Names, OpenAxes
from xverify.frameworks.onnx.base import scope
from xverify.frameworks.torch.outputs import in_order

# Initializers with this prefix are constants, and no weights (weights.onnx).
CONSTANT = "onnx::"


def export(model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool, axes: OpenAxes) -> str:
    """Write a model as an ONNX file. Returns why the newer exporter made it; "" when the older one did.

    The weights of the model are changed. inputs: an example. names: (names of the inputs, names of the outputs).
    with_weights: False: the values of the weights are left out where that can be, and these weights are inputs of the graph.
    axes: those that the file leaves open.
    Raises Failed with the messages of both exporters.
    """
    # The older exporter, without constant folding, keeps every parameter as an initializer of the same name. It merges equal
    # tensors, so every tensor gets distinct values before the export; the true weights are set by name in the exported file.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    with in_order(model, inputs, names[1]):
        try:
            _older(model, inputs, names, path, with_weights, axes)
        except MemoryError:
            raise
        except Exception as error:  # each operator and each kind of Python code fails with an error of its own
            older = _said(error)
        else:
            return ""
        try:
            _newer(model, inputs, names, path, with_weights, axes)
        except MemoryError:
            raise
        except Exception as error:
            raise Failed(f"{older}; with torch's newer exporter: {_said(error)}") from error
    return older


def _said(error: BaseException) -> str:
    """The class and the first line of the error that an error was made from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _older(model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool, axes: OpenAxes) -> None:
    # A spectral norm is computed by vdot, which the exporter does not know; for real numbers it is a product.
    torch.onnx.register_custom_op_symbolic("aten::vdot", lambda graph, a, b: graph.op("MatMul", a, b), 9)
    with called_by_weights(
        owners_of(model), split=False
    ):  # the nodes of such a product then have the name of the layer
        torch.onnx.export(
            model,
            inputs,
            str(path),
            input_names=names[0],
            output_names=names[1],
            dynamic_axes={name: _open(own) for name, own in axes.items()},
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.EVAL,
            export_params=with_weights,
        )
    if not with_weights and not _add_constants(model, names[0], path):
        _older(model, inputs, names, path, True, axes)
        return
    if any(isinstance(module, torch.nn.ModuleDict) for module in model.modules()):
        import onnx

        graph = onnx.load(path, load_external_data=False)
        name_items(graph.graph, model)
        onnx.save(graph, path)


def _open(axes: Sequence[str | None]) -> dict[int, str]:
    """The open axes of an input or output: index -> name."""
    return {index: name for index, name in enumerate(axes) if name is not None}


def _add_constants(model: Any, inputs: list[str], path: Path) -> bool:
    """Give an export without weights the buffers of the model that are no weights, such as whole numbers.

    inputs: names of the inputs of the model.
    Returns whether all that is now without a value is a weight; the exporter may have made other tensors of weights.
    """
    import onnx

    graph, state = onnx.load(path), model.state_dict()
    given, others = list[Any](), list[Any]()
    for value in graph.graph.input:
        (given if value.name in inputs else others).append(value)
    if any(value.name not in state for value in others):
        return False
    constants = [value.name for value in others if not state[value.name].is_floating_point()]
    graph.graph.initializer.extend(onnx.numpy_helper.from_array(state[name].numpy(), name) for name in constants)
    del graph.graph.input[:]
    graph.graph.input.extend([*given, *(value for value in others if value.name not in constants)])
    onnx.save(graph, path)
    return True


def name_items(graph: Any, model: Any) -> None:
    """Rename the nodes of the older exporter whose module lies in an nn.ModuleDict, whose name the exporter leaves out.

    A name that could stand for several modules stays as it is; its layers are then judged with the code around them.
    """
    paths = [name for name, _ in model.named_modules() if name]
    traced: dict[str, list[str]] = {}
    for path in paths:
        traced.setdefault(_without_containers(model, path), []).append(path)
    for node in graph.node:
        *_, operator = node.name.split("/")
        for strip_calls in (False, True):
            found = traced.get(".".join(scope(node.name, strip_calls)), [])
            if len(found) == 1:
                last = scope(node.name, strip_calls=False)[-1]
                call = last.removeprefix(scope(node.name, strip_calls=True)[-1]) if strip_calls else ""
                node.name = f"/{found[0]}{call}/{operator}"
                break


def _without_containers(model: Any, path: str) -> str:
    """The path of a module without the dictionaries in it, and without lists of dictionaries: they are never called."""
    parts, kept, module = path.split("."), list[str](), model
    for index, part in enumerate(parts):
        module = module.get_submodule(part)
        inside = module.get_submodule(parts[index + 1]) if index + 1 < len(parts) else None
        never = isinstance(module, torch.nn.ModuleDict)
        if not never and not (isinstance(module, torch.nn.ModuleList) and isinstance(inside, torch.nn.ModuleDict)):
            kept.append(part)
    return ".".join(kept)


def _newer(model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool, axes: OpenAxes) -> None:
    """Export without optimisation, which would fold weights, and name nodes and constants as the older exporter does."""
    import onnx

    opened = tuple(dict.fromkeys(_open(axes.get(name, ())), torch.export.Dim.DYNAMIC) for name in names[0])
    with torch.no_grad():
        torch.onnx.export(
            model,
            inputs,
            str(path),
            input_names=names[0],
            output_names=names[1],
            dynamic_shapes=opened if any(opened) else None,
            dynamo=True,
            optimize=False,
            external_data=not with_weights,
            verbose=False,
        )
    graph = onnx.load(path, load_external_data=False)
    name_nodes(graph.graph)
    _mark_constants(graph.graph, set(model.state_dict()))
    onnx.save(graph, path)


def name_nodes(graph: Any) -> None:
    """Rename the nodes of a graph of the newer exporter to "/MODULE/OPERATOR", with "MODULE_1" for the second call.

    The metadata of a node names its module, not the call. The nodes of one call follow each other. A layer of torch calls its
    first function once, so where that function is called again, the next call begins. Two calls of a layer of the user's that
    follow each other directly remain one.
    """
    calls: Counter[str] = Counter()
    current, first, seen = "", "", ""
    for index, node in enumerate(graph.node):
        metadata = {entry.key: entry.value for entry in node.metadata_props}
        scopes, classes = (_names(metadata.get(f"pkg.torch.onnx.{key}")) for key in ("name_scopes", "class_hierarchy"))
        module = scopes[-2] if len(scopes) > 1 else ""
        function, target = (scopes[-1], classes[-1]) if scopes and classes else ("", "")
        own = len(classes) > 1 and classes[-2].startswith("torch.nn.")
        again = own and function != seen and target == first
        if module != current or again:
            calls[module] += 1
            current, first = module, target
        seen = function
        call = f"_{calls[module] - 1}" if calls[module] > 1 else ""
        node.name = f"/{module}{call}/{node.op_type}_{index}" if module else f"/{node.op_type}_{index}"


def _names(listed: str | None) -> list[str]:
    """The names in a list that the exporter writes as Python's repr."""
    found = ast.literal_eval(listed) if listed else []
    return [str(name) for name in found]


def _mark_constants(graph: Any, weights: set[str]) -> None:
    """Give every initializer that is no weight, such as a table that the model computes, a name that says so."""
    constants = {each.name: CONSTANT + each.name for each in graph.initializer if each.name not in weights}
    for each in graph.initializer:
        each.name = constants.get(each.name, each.name)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = constants.get(name, name)
