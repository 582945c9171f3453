"""The nodes of a torch.export file and of a TorchScript file, with the values that torch computes at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from xverify.errors import Unsupported
from xverify.formats._torch_file import named
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats import pt2, torchscript

MISSING = "not given"  # in the place of an argument that is None

# -- torch.export -----------------------------------------------------------------------------------------------------


class _Recording(torch.fx.Interpreter):
    """Computes a graph node by node, and keeps what each returns. values: name of a node -> its value."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: Any) -> Any:
        value = super().run_node(n)
        # A later operation may write into the tensor.
        self.values[n.name] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def of_program(framework: pt2.Adapter, model: pt2.Exported, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case of a torch.export file, and return its operators with all values."""
    recording = _Recording(model.module)
    recording.run(*inputs.values())
    nodes, constants, end = [], {}, None
    for node in model.module.graph.nodes:
        value = recording.values.get(node.name)
        if node.op == "get_attr" and isinstance(value, torch.Tensor):
            constants[node.name] = node.target
        elif node.op == "call_function":
            nodes.append(_fx_node(node))
        elif node.op == "output":
            end = node
    places = [node.name for node in model.module.graph.nodes if node.op == "placeholder"]
    results = _outputs(model, end, recording)
    renamed = {**dict(zip(places, inputs)), **constants, **{own: name for name, own in results.items()}}
    values = {
        renamed.get(name, name): framework.to_numpy(value, None)
        for name, value in recording.values.items()
        if isinstance(value, torch.Tensor)
    }
    return Traced(FileGraph(tuple(_renamed(nodes, renamed)), tuple(inputs), tuple(results)), values)


def _outputs(model: pt2.Exported, end: Any, recording: _Recording) -> dict[str, str]:
    """Name of an output -> the node that computes it."""
    from torch.utils import _pytree

    flat = [each.name if isinstance(each, torch.fx.Node) else "" for each in _pytree.tree_leaves(end.args[0])]
    results = _pytree.tree_unflatten(flat, model.program.call_spec.out_spec)
    return {name: own for name, own in named(results) if own}


def _fx_node(node: Any) -> FileNode:
    schema = getattr(node.target, "_schema", None)
    arguments = [each.name for each in schema.arguments] if schema is not None else []
    given = [*zip([*arguments, *map(str, range(len(arguments), len(node.args)))], node.args), *node.kwargs.items()]
    known = {name for name, _ in given}
    defaults = [] if schema is None else [(each.name, each.default_value) for each in schema.arguments]
    given += [(name, value) for name, value in defaults if name not in known and value is not None]
    plain = settings((name, value) for name, value in given if not _holds_node(value))
    kind = str(node.target).removesuffix(".default")
    inputs = tuple(each.name for each in node.all_input_nodes)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module = str(stack[-1][0]).removeprefix("L__self___") if stack else ""
    name = f"/{'/'.join(filter(None, [module, node.name]))}" if module else node.name
    return FileNode(name, kind, inputs, (node.name,), plain)


def _holds_node(value: Any) -> bool:
    found: list[Any] = []
    torch.fx.node.map_arg(value, found.append)
    return bool(found)


def _renamed(nodes: Sequence[FileNode], names: Mapping[str, str]) -> Iterator[FileNode]:
    for node in nodes:
        inputs, outputs = (tuple(names.get(each, each) for each in part) for part in (node.inputs, node.outputs))
        yield FileNode(node.name, node.kind, inputs, outputs, node.settings)


# -- TorchScript ------------------------------------------------------------------------------------------------------


def of_script(framework: torchscript.Adapter, model: torchscript.Script, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case of a TorchScript file, and return the operators of its main block with all values."""
    frozen = torch.jit.freeze(model.module.eval(), optimize_numerics=False)
    graph = frozen.graph.copy()
    torch._C._jit_pass_inline(graph)
    torch._C._jit_pass_remove_mutation(graph)  # a later operation may write into a value
    makers = [node for node in graph.nodes() if node.kind() not in ("prim::Constant", "prim::GetAttr")]
    names = {value.debugName(): name for name, value in zip(inputs, list(graph.inputs())[1:])}
    results = _script_outputs(graph)
    for value in results.values():
        names[value.debugName()] = ""
    names.update({value.debugName(): name for name, value in results.items()})
    shown = [value for node in makers for value in node.outputs() if str(value.type()) == "Tensor"]
    computed = _shown(graph, shown, list(inputs.values()))
    values = {
        names.get(value.debugName(), value.debugName()): framework.to_numpy(found, None)
        for value, found in zip(shown, computed)
    }
    values.update({name: framework.to_numpy(inputs[name], None) for name in inputs if _is_tensor(inputs[name])})
    nodes = []
    for node in makers:
        given, plain = [], []
        for place, value in enumerate(node.inputs()):
            constant = _constant(value)
            if constant is MISSING:
                continue
            if constant is None:
                given.append(names.get(value.debugName(), value.debugName()))
            elif isinstance(constant, torch.Tensor):
                given.append(value.debugName())
                values[value.debugName()] = framework.to_numpy(constant, None)
            else:
                plain.append((_argument(node, place), constant))
        outputs = tuple(names.get(value.debugName(), value.debugName()) for value in node.outputs())
        scope = ".".join(part.rpartition("::")[2] for part in node.scopeName().split("/") if "::" in part)
        name = f"/{scope.strip('.')}/{outputs[0]}" if scope.strip(".") and outputs else "".join(outputs[:1])
        nodes.append(FileNode(name or node.kind(), node.kind(), tuple(given), outputs, settings(plain)))
    return Traced(FileGraph(tuple(nodes), tuple(inputs), tuple(results)), values)


def _shown(graph: Any, shown: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """These values of a graph, computed. Every value is made an output; the module itself is no input any more."""
    for _ in list(graph.outputs()):
        graph.eraseOutput(0)
    together = graph.create("prim::TupleConstruct", list(shown))
    graph.appendNode(together)
    together.output().setType(torch._C.TupleType([value.type() for value in shown]))
    graph.registerOutput(together.output())
    own = next(iter(graph.inputs()))
    if not own.uses():
        graph.eraseInput(0)
    else:
        raise Unsupported("the file uses its own module in a way that freezing does not remove")
    function = torch._C._create_function_from_graph("shown", graph)
    found = function(*given)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _script_outputs(graph: Any) -> dict[str, Any]:
    """Name of an output -> its value in the graph, for a tensor, a tuple and a list or mapping of tensors."""

    def nested(value: Any) -> Any:
        node = value.node()
        if node.kind() in ("prim::TupleConstruct", "prim::ListConstruct"):
            return tuple(nested(each) for each in node.inputs())
        if node.kind() == "prim::DictConstruct":
            parts = list(node.inputs())
            return {str(_constant(key)): nested(each) for key, each in zip(parts[::2], parts[1::2])}
        return value

    (end,) = graph.outputs()
    values = nested(end)
    fields = getattr(end.type(), "__str__", str)() if isinstance(values, tuple) else ""
    if "NamedTuple" in fields:
        import re

        values = dict(zip(re.findall(r"(\w+) : ", fields), values))
    return {name: value for name, value in named(values) if hasattr(value, "debugName")}


def _argument(node: Any, place: int) -> str:
    schema = node.schema()
    if "no schema" in schema:
        return str(place)
    arguments = torch._C.parse_schema(schema).arguments
    return str(arguments[place].name) if place < len(arguments) else str(place)


def _constant(value: Any) -> Any:
    """The value of a constant of a graph, also of a list of constants; None for a value that is computed, MISSING for None."""
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        items = [_constant(each) for each in node.inputs()]
        return None if any(each is None or isinstance(each, torch.Tensor) for each in items) else items
    if node.kind() != "prim::Constant":
        return None
    found = value.toIValue()
    return MISSING if found is None else found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
