"""The operations of a module of torch, from a symbolic trace of its code."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.fx.passes.shape_prop import ShapeProp

from xverify.errors import first_line
from xverify.framework.outline import Outlined, Step

NO_TENSOR = "the model returns something else than tensors in a flat tuple"


def outline(model: Any, inputs: tuple[Any, ...]) -> Outlined:
    """The operations of a module. inputs: an example. Where its code cannot be traced, only the calls of its layers are told."""
    try:
        graph = torch.fx.Tracer().trace(model)
        for node in graph.nodes:
            node.type = None  # the code of the graph cannot hold every annotation
        ShapeProp(torch.fx.GraphModule(model, graph)).propagate(*inputs)
        return _of_graph(model, graph, len(inputs))
    except Exception as error:  # each kind of code that cannot be traced fails with an error of its own
        return Outlined(_called(model, inputs), problem=first_line(error))


def _of_graph(model: Any, graph: Any, count: int) -> Outlined:
    """The steps of a traced graph. count: of the inputs. Raises ValueError for arguments and outputs that are no tensors."""
    places: dict[Any, int] = {}
    steps: list[Step] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            places[node] = -1 - sum(place < 0 for place in places.values())
            if places[node] < -count and node.users:
                raise ValueError(f"it uses its argument {node.target}, which is no input")
            continue
        if node.op == "output":
            returned = node.args[0]
            outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            if not all(each in places for each in outputs):
                raise ValueError(NO_TENSOR)
            return Outlined(tuple(steps), tuple(places[each] for each in outputs))
        places[node] = len(steps)
        steps.append(_step(model, node, places))
    raise ValueError(NO_TENSOR)


def _step(model: Any, node: Any, places: dict[Any, int]) -> Step:
    given = tuple(places[each] for each in node.all_input_nodes) if len(node.args) < 2 else _by_position(node, places)
    shape = tuple(getattr(node.meta.get("tensor_meta"), "shape", ()))
    if node.op == "call_module":
        module = model.get_submodule(node.target)
        return Step(node.target, type(module).__name__, settings_of(module), given, shape)
    if node.op == "get_attr":
        return Step(node.target, "parameter", {}, (), shape)
    name = node.target if isinstance(node.target, str) else node.target.__name__
    others = [each for each in node.args if not isinstance(each, torch.fx.Node)]
    named = {key: value for key, value in node.kwargs.items() if not isinstance(value, torch.fx.Node)}
    return Step("", name, _plain({**({"args": others} if others else {}), **named}), given, shape)


def _by_position(node: Any, places: dict[Any, int]) -> tuple[int, ...]:
    """The inputs of an operation in their order; one that takes a tensor twice has it twice."""
    direct = [each for each in (*node.args, *node.kwargs.values()) if isinstance(each, torch.fx.Node)]
    return tuple(places[each] for each in (direct or node.all_input_nodes))


def settings_of(module: Any) -> dict[str, Any]:
    """The attributes of a module that are plain values, and whether it has a bias."""
    found = {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"}
    if "bias" in module._parameters:
        found["bias"] = module.bias is not None
    return _plain(found)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values that JSON can hold."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            found[name] = str(value)
    return found


def _called(model: Any, inputs: tuple[Any, ...]) -> tuple[Step, ...]:
    """The calls of modules that contain no others, in order."""
    steps: list[Step] = []
    handles = []
    for name, module in model.named_modules():
        if not name or any(module.children()):
            continue

        def note(module: Any, given: Any, result: Any, name: str = name) -> None:
            shape = tuple(result.shape) if isinstance(result, torch.Tensor) else ()
            steps.append(Step(name, type(module).__name__, settings_of(module), (), shape))

        handles.append(module.register_forward_hook(note))
    try:
        model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return tuple(steps)
