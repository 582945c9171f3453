"""The nodes of a torch.export file and of a TorchScript file, with the values that torch computes at them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from xverify.errors import Unsupported
from xverify.formats._torch_file import named
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats import pt2, torchscript

# Operators of TorchScript that make lists and tuples, and that take their items.
PACKING = ("prim::ListConstruct", "prim::TupleConstruct", "prim::DictConstruct")
TAKING = ("prim::ListUnpack", "prim::TupleUnpack", "aten::__getitem__", "prim::TupleIndex")
LISTS = ("List[", "Tensor[]", "(", "Tuple[")  # beginnings of the types of lists and tuples
MISSING = "not given"  # in the place of an argument that is None

# -- torch.export -----------------------------------------------------------------------------------------------------


class _Recording(torch.fx.Interpreter):
    """Computes a graph node by node, and keeps what each returns. values: name of a node -> its value."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}  # Any: an operation may return any values

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
        elif node.op == "call_function" and not _is_item(node):
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


def _is_item(node: Any) -> bool:
    """Whether a node takes an item of a list or tuple, which is an output of the node that returns it."""
    return node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node)


def _fx_outputs(node: Any) -> tuple[str, ...]:
    """The names of the outputs of a node: its own, or those of the nodes that take items of what it returns."""
    items = tuple(name for user in node.users if _is_item(user) for name in _fx_outputs(user))
    return items or (node.name,)


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
    return FileNode(name, kind, inputs, _fx_outputs(node), plain)


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
    names = {value.debugName(): name for value, name in zip(list(graph.inputs())[1:], inputs)}
    results = _script_outputs(graph)
    names.update({value.debugName(): name for name, value in results.items()})
    every = [node for node in graph.nodes() if node.kind() not in ("prim::Constant", "prim::GetAttr")]
    shown = [value for node in every for value in node.outputs() if str(value.type()) == "Tensor"]
    called = [names.get(value.debugName(), value.debugName()) for value in shown]
    computed = _shown(graph, shown, list(inputs.values()))
    values = {name: framework.to_numpy(each, None) for name, each in zip(called, computed)}
    values.update({name: framework.to_numpy(each, None) for name, each in inputs.items() if _is_tensor(each)})
    nodes = []
    for node in every:
        if node.kind() not in PACKING and not _takes_items(node):
            found, constants = _script_node(node, names)
            nodes.append(found)
            values.update({name: framework.to_numpy(each, None) for name, each in constants.items()})
    return Traced(FileGraph(tuple(nodes), tuple(inputs), tuple(results)), values)


def _script_node(node: Any, names: Mapping[str, str]) -> tuple[FileNode, dict[str, torch.Tensor]]:
    """A node, and the tensors among its constants. names: name of a value in the graph -> its name in the signature."""
    given, plain, constants = [], [], dict[str, torch.Tensor]()
    for place, value in enumerate(node.inputs()):
        constant = _constant(value)
        if constant is None:
            for each in _items(value):
                name = names.get(each.debugName(), each.debugName())
                given.append(name)
                if _is_tensor(_constant(each)):
                    constants[name] = _constant(each)
        elif _is_tensor(constant):
            given.append(value.debugName())
            constants[value.debugName()] = constant
        elif constant is not MISSING:
            plain.append((_argument(node, place), constant))
    outputs = tuple(
        names.get(each.debugName(), each.debugName()) for value in node.outputs() for each in _unpacked(value)
    )
    scope = ".".join(part.rpartition("::")[2] for part in node.scopeName().split("/") if "::" in part).strip(".")
    name = f"/{scope}/{outputs[0]}" if scope and outputs else "".join(outputs[:1])
    return FileNode(name or node.kind(), node.kind(), tuple(given), outputs, settings(plain)), constants


def _items(value: Any) -> Iterator[Any]:
    """The tensors that a value holds: itself, or those of a list or tuple that the graph makes."""
    if value.node().kind() in ("prim::ListConstruct", "prim::TupleConstruct"):
        for each in value.node().inputs():
            yield from _items(each)
    else:
        yield value


def _takes_items(node: Any) -> bool:
    """Whether a node takes items of a list or tuple."""
    return node.kind() in TAKING and str(node.inputsAt(0).type()).startswith(LISTS)


def _unpacked(value: Any) -> Iterator[Any]:
    """The tensors that a node returns: a value, or those that the graph takes from a list or tuple."""
    users = [use.user for use in value.uses() if use.user.kind() in TAKING]
    if not users or not str(value.type()).startswith(LISTS):
        yield value
        return
    for user in users:
        for each in user.outputs():
            yield from _unpacked(each)


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


def _script_outputs(graph: Any) -> dict[str, torch._C.Value]:
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
