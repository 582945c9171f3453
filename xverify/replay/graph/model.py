"""An ONNX model, read once into nodes with plain Python attributes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from ...errors import Unsupported

Functions = Mapping[tuple[str, str], FunctionProto]


class UnsupportedOperator(Unsupported):
    """There is no float64 implementation of an operator."""


@dataclass(frozen=True, eq=False)
class Node:
    """One node of a graph.

    name: its name in the file, or that of its first output when it has none.
    version: version of the operator set that the file imports for the operator's domain.
    inputs, outputs: names of values; "" where an optional one is left out.
    attributes: name -> number, string, array, list, or Body of a subgraph.
    proto: the node as ONNX writes it; None for a node of another format.
    function: the body, when the operator is a function of the file.
    uses: names of all values that the node takes, those of its subgraphs included.
    """

    name: str
    op: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any
    function: Body | None = None
    uses: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """The operator, with its domain when that is not ONNX's own."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default."""
        return self.attributes.get(name, default)

    def input(self, place: int | None) -> str:
        """The name of an input; "" when it is left out."""
        return self.inputs[place] if place is not None and place < len(self.inputs) else ""

    @property
    def subgraphs(self) -> list[Body]:
        """The bodies among the attributes."""
        return [value for value in self.attributes.values() if isinstance(value, Body)]

    def unsupported(self, why: str) -> UnsupportedOperator:
        """The error that this node cannot be computed."""
        domain = self.domain or "ai.onnx"
        return UnsupportedOperator(
            f"node {self.name!r}: the operator {self.op} (domain {domain}, operator set {self.version}) {why}."
        )


@dataclass(frozen=True)
class Context:
    """What the nodes of one scope share.

    opsets: domain -> version of the operator set. functions: the functions of the file. folder: where its external data is.
    """

    opsets: Mapping[str, int]
    functions: Functions = field(default_factory=dict)
    folder: str = ""


class Body:
    """A sequence of nodes with inputs, outputs and constants: a graph, a subgraph, or a function.

    inputs: names of the inputs that are no constants. outputs: names of the outputs.
    nodes: in the order of computation, without the nodes that only hold a constant.
    constants: name -> array in the type of the file.
    freed: for each node, the names of the values that no later node needs.
    """

    def __init__(
        self,
        proto: GraphProto | FunctionProto,
        context: Context,
        values: Mapping[str, np.ndarray[Any, Any]] = MappingProxyType({}),
    ) -> None:
        graph = isinstance(proto, GraphProto)
        self.name: str = proto.name
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        if graph:
            for tensor in proto.initializer:
                known = values.get(tensor.name)
                self.constants[tensor.name] = _array(tensor, context.folder) if known is None else known
            for sparse in proto.sparse_initializer:
                self.constants[sparse.values.name] = _dense(sparse, context.folder)
        names = [value.name for value in proto.input] if graph else list(proto.input)
        # A constant with the name of an input is the default of that input.
        self.defaulted = tuple(name for name in names if name in self.constants)
        self.inputs = tuple(name for name in names if name not in self.constants)
        self.outputs = tuple(value.name for value in proto.output) if graph else tuple(proto.output)
        self.nodes = _ordered(tuple(self._read(proto.node, context)))
        self.freed = self._last_uses()

    def _read(self, protos: Sequence[NodeProto], context: Context) -> Iterator[Node]:
        for proto in protos:
            if proto.op_type == "Constant" and _standard(proto.domain):
                self.constants[proto.output[0]] = _constant(proto, context)
            else:
                yield _node(proto, context)

    @cached_property
    def makers(self) -> dict[str, Node]:
        """Name of a value -> the node that makes it."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @cached_property
    def users(self) -> dict[str, list[Node]]:
        """Name of a value -> the nodes that take it, also in their subgraphs."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.uses:
                found.setdefault(name, []).append(node)
        return found

    def ancestors(self, name: str, known: Container[str] = ()) -> list[Node]:
        """The nodes that make a value of known ones, or else of the inputs, in no order."""
        found: dict[Node, None] = {}
        waiting = [name]
        while waiting:
            node = self.makers.get(waiting.pop())
            if node is not None and node not in found:
                found[node] = None
                waiting += [each for each in node.uses if each not in known]
        return list(found)

    def line(self, node: Node | None) -> Iterator[Node]:
        """A node, the node that makes its first input, the one that makes the first input of that, and so on."""
        while node is not None:
            yield node
            node = self.makers.get(node.inputs[0]) if node.inputs else None

    def walk(self) -> Iterator[tuple[Body, Node]]:
        """Every node with the body that holds it, those of subgraphs and functions included."""
        for node in self.nodes:
            yield self, node
            for inner in (*node.subgraphs, *([node.function] if node.function is not None else [])):
                yield from inner.walk()

    @property
    def outer(self) -> frozenset[str]:
        """Names of the values that the body takes from the scope around it."""
        own = {*self.inputs, *self.constants, *(name for node in self.nodes for name in node.outputs)}
        used = {name for node in self.nodes for name in node.uses} | set(self.outputs)
        return frozenset(used - own - {""})

    def _last_uses(self) -> tuple[tuple[str, ...], ...]:
        needed = set(self.outputs)
        freed = []
        for node in reversed(self.nodes):
            last = (node.uses | set(node.outputs)) - needed - {""}
            freed.append(tuple(last))
            needed |= node.uses
        return tuple(reversed(freed))


def _ordered(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes in an order of computation. ONNX demands one, and runtimes also take files without it, which some tools write."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    if all(makers.get(name, -1) < index for index, node in enumerate(nodes) for name in node.uses):
        return nodes
    found: dict[int, Node] = {}
    for index in range(len(nodes)):
        path, open_ones = [index], {index}
        while path:
            needed = {makers[name] for name in nodes[path[-1]].uses if name in makers} - found.keys() - open_ones
            if needed:
                path.append(min(needed))
                open_ones.add(path[-1])
            else:
                last = path.pop()
                found.setdefault(last, nodes[last])
    return tuple(found.values())


class Graph(Body):
    """A whole model.

    model: the model, with its external data loaded or in ``folder``.
    folder: the folder of the file; only needed for external data that is not loaded.
    values: of the initializers that have no data in the model, by name.
    declared: output -> the size of each dimension, its name, or None where it is open; only where the file says them.
    taken: the same of the inputs.
    """

    def __init__(
        self, model: ModelProto, folder: str = "", values: Mapping[str, np.ndarray[Any, Any]] = MappingProxyType({})
    ) -> None:
        opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
        functions = {(_domain(function.domain), function.name): function for function in model.functions}
        super().__init__(model.graph, Context(opsets, functions, folder), values)
        self.types = {value.name: value.type for value in model.graph.input}
        self.declared, self.taken = (
            {value.name: _sizes(value.type.tensor_type.shape) for value in values if _says(value)}
            for values in (model.graph.output, model.graph.input)
        )

    def optional(self, name: str) -> bool:
        """Whether the type of an input allows that it is missing."""
        return bool(self.types[name].HasField("optional_type"))


def _says(value: Any) -> bool:
    """Whether a value has a shape in the file."""
    return bool(value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"))


def _sizes(shape: Any) -> tuple[int | str | None, ...]:
    return tuple(each.dim_value if each.HasField("dim_value") else each.dim_param or None for each in shape.dim)


def schema_function(node: Node, types: Sequence[Any]) -> Body | None:
    """The definition of an operator by other operators, which ONNX gives for some; None where it gives none.

    types: the declared numpy type and the shape of each of the node's inputs; None where an input is left out.
    """
    try:
        schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None
    function = FunctionProto()
    if schema.has_function:
        function = schema.function_body
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
        written = [_tensor_type(given).SerializeToString() for given in types]
        function.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                versions[-1], node.proto.SerializeToString(), written
            )
        )
    if not function.node:
        return None
    defaults = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != AttributeProto.UNDEFINED
    }
    # A definition that does not say which version of ONNX's own operators it uses has that of its operator, or the newest one.
    version = onnx.defs.onnx_opset_version() if node.domain else node.version
    return _function(function, node.proto, Context({"": version}), defaults)


def _tensor_type(given: tuple[Any, Any] | None) -> onnx.TypeProto:
    if given is None or given[0] is None:
        return onnx.TypeProto()
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(given[0]))
    written: onnx.TypeProto = onnx.helper.make_tensor_type_proto(number, given[1])
    return written


def _node(proto: NodeProto, context: Context) -> Node:
    domain = _domain(proto.domain)
    attributes = {attribute.name: _attribute(attribute, context) for attribute in proto.attribute}
    definition = context.functions.get((domain, proto.op_type))
    body = _function(definition, proto, context) if definition is not None else None
    uses = {*proto.input}.union(*(value.outer for value in attributes.values() if isinstance(value, Body))) - {""}
    name = proto.name or next((output for output in proto.output if output), proto.op_type)
    version = context.opsets.get(domain, 1)
    inputs, outputs = tuple(proto.input), tuple(proto.output)
    return Node(name, proto.op_type, domain, version, inputs, outputs, attributes, proto, body, frozenset(uses))


def _function(
    function: FunctionProto,
    call: NodeProto,
    context: Context,
    defaults: Mapping[str, AttributeProto] | None = None,
) -> Body:
    """The body of a function with the attributes of one call in place."""
    given = dict(defaults or {})
    given.update({attribute.name: attribute for attribute in function.attribute_proto})
    given.update({attribute.name: attribute for attribute in call.attribute})
    filled = FunctionProto()
    filled.CopyFrom(function)
    _fill(filled.node, given)
    opsets = {**context.opsets, **{_domain(entry.domain): entry.version for entry in function.opset_import}}
    return Body(filled, Context(opsets, context.functions, context.folder))


def _fill(nodes: Any, given: Mapping[str, AttributeProto]) -> None:
    """Replace references to attributes of the function by their values; one that is not given is left out."""
    for node in nodes:
        kept = []
        for attribute in node.attribute:
            value = AttributeProto()
            value.CopyFrom(given.get(attribute.ref_attr_name, value) if attribute.ref_attr_name else attribute)
            value.name, value.ref_attr_name = attribute.name, ""
            if value.type == AttributeProto.GRAPH:
                _fill(value.g.node, given)
            if value.type != AttributeProto.UNDEFINED:
                kept.append(value)
        del node.attribute[:]
        node.attribute.extend(kept)


def _attribute(attribute: AttributeProto, context: Context) -> Any:
    if attribute.type == AttributeProto.GRAPH:
        return Body(attribute.g, context)
    if attribute.type == AttributeProto.TENSOR:
        return _array(attribute.t, context.folder)
    if attribute.type == AttributeProto.SPARSE_TENSOR:
        return _dense(attribute.sparse_tensor, context.folder)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.STRINGS:
        return [item.decode("utf-8", "replace") for item in value]
    return list(value) if isinstance(value, (list, tuple)) or hasattr(value, "extend") else value


def _constant(proto: NodeProto, context: Context) -> np.ndarray[Any, Any]:
    """The value of a Constant node."""
    attribute = proto.attribute[0]
    value = _attribute(attribute, context)
    if attribute.name in ("value", "sparse_value"):
        return np.asarray(value)
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.asarray(value, dtype=kinds.get(attribute.name, object))


def _array(tensor: TensorProto, folder: str) -> np.ndarray[Any, Any]:
    return np.asarray(numpy_helper.to_array(tensor, folder))


def _dense(sparse: Any, folder: str) -> np.ndarray[Any, Any]:
    """A sparse tensor with its zeros written out."""
    values, indices = _array(sparse.values, folder), _array(sparse.indices, folder)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _standard(domain: str) -> bool:
    return _domain(domain) == ""


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
