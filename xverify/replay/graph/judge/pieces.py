"""Cuts some nodes out of a graph, as a model by itself, and computes the exact answer of this model.

The values that the other nodes gave are inputs of the piece, and constants stay constants. Values that depend on constants alone
stay, too, with the nodes that make them, because a runtime treats constants otherwise than inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ....errors import Failed
from ....verdict.limits import DRIFT_R, UNIT
from ..evaluation import ERRORS, Evaluation, given
from ..kinds import QUANTISING
from ..model import Graph, Node
from ..operators.quantized import UNROUNDED, rounded
from ..operators.registry import Call, present
from ..values import Value, coarsest, exact_of
from .noise import SAMPLES, noise
from .quantisation import ROUNDINGS

LIMIT = DRIFT_R  # noise floors by which a value may be away
LARGEST = 2**31 - 2**20  # bytes of a serialised file, less room for its nodes
# The smallest number of a type that has all its digits, or that a processor does not flush to zero.
LEAST = {"float32": 2.0**-126, "float16": 2.0**-24}
# Types that numpy lacks; their values travel as float32, and a Cast stands at each end of the piece.
NARROW = (
    TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
)  # fmt: skip
OF_NO_TENSORS = ("If", "Loop", "Scan")  # operators whose results runtimes do not show, because they may be no tensors
AS_FLOAT32 = "_float32"  # what the name of a value ends with that stands for one of such a type


@dataclass(frozen=True)
class Piece:
    """Some nodes of a graph. chosen: those that were asked for and are in it. inputs: its inputs by name."""

    model: ModelProto
    nodes: tuple[Node, ...]
    chosen: tuple[Node, ...]
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """One output of a piece: in float64, rounded to its type, and how far each value may be away."""

    exact: Any
    rounded: Any
    limit: Any


# -- cutting ------------------------------------------------------------------------------------------------------------


def header(model: ModelProto) -> ModelProto:
    """A model without nodes and constants: versions and functions, and the types of its values in ``value_info``."""
    graph = model.graph
    narrow = any(tensor.data_type in NARROW for tensor in graph.initializer) or any(
        attribute.name in ("to", "dtype") and attribute.i in NARROW
        for node in graph.node
        for attribute in node.attribute
    )
    narrow = narrow or any(value.type.tensor_type.elem_type in NARROW for value in graph.input)
    untold = any(node.op_type in OF_NO_TENSORS for node in graph.node)
    typed = onnx.shape_inference.infer_shapes(model) if narrow or untold else model
    found = helper.make_model(
        helper.make_graph([], graph.name, [], []), opset_imports=model.opset_import, functions=model.functions
    )
    found.ir_version = model.ir_version
    found.graph.value_info.extend([*typed.graph.value_info, *typed.graph.input, *typed.graph.output])
    return found


def cut(
    graph: Graph, head: ModelProto, chosen: Sequence[Node], values: Mapping[str, Any], outputs: Collection[str] = ()
) -> Piece:
    """The piece of these nodes. Raises Failed when they cannot be given their inputs.

    head: the result of ``header``. values: name of a value of the graph -> array. outputs: see ``CutPiece``.
    """
    types = {each.name: each.type.tensor_type.elem_type for each in head.graph.value_info}
    types = {name: kind for name, kind in types.items() if kind}
    returned = [
        name
        for name in _returned(graph, chosen, {**dict.fromkeys(types), **values})
        if not outputs or _outer(name, types) in outputs
    ]
    if not returned:
        raise Failed("the runtime shows none of its outputs as a tensor")
    nodes = _needed(graph, chosen, returned, values)
    made = {name for node in nodes for name in node.outputs}
    needed = sorted({name for node in nodes for name in node.uses} - made)
    fixed = [name for name in needed if name in graph.constants and name not in graph.defaulted]
    inputs = {name: np.asarray(values[name]) for name in needed if name not in fixed and name in values}
    texts = [name for name, array in inputs.items() if array.dtype.kind not in "fiub"]
    if texts:
        raise Failed(f"its input {texts[0]!r} is no tensor of numbers")
    fixed += [name for name in needed if name in graph.defaulted and name not in inputs]
    size = sum(graph.constants[name].nbytes for name in fixed)
    if size > LARGEST:
        raise Failed(f"its constants take {size / 2**30:.1f} GiB, and a file of one part has at most 2 GiB")
    model = ModelProto()
    model.CopyFrom(head)
    del model.graph.value_info[:]
    model.graph.initializer.extend(numpy_helper.from_array(graph.constants[name], name) for name in fixed)
    _connect(model, nodes, inputs, {name: values.get(name) for name in returned}, types)
    given_inputs = {_outer(name, types): array for name, array in inputs.items()}
    return Piece(model, tuple(nodes), tuple(node for node in nodes if node in chosen), given_inputs)


def _outer(name: str, types: Mapping[str, int]) -> str:
    """The name of an input or output of a piece for this value."""
    return name + AS_FLOAT32 if types.get(name) in NARROW else name


def _returned(graph: Graph, chosen: Sequence[Node], tensors: Container[str]) -> list[str]:
    """The values that a piece returns: those of a single node, and of several nodes those that are used outside of them."""
    made = [name for node in chosen for name in node.outputs if name and name in tensors]
    if len(chosen) == 1:
        return made
    own = set(chosen)
    outside = {name for node in graph.nodes if node not in own for name in node.uses} | set(graph.outputs)
    return [name for name in made if name in outside] or made[-1:]


def _needed(graph: Graph, chosen: Sequence[Node], returned: Collection[str], values: Mapping[str, Any]) -> list[Node]:
    """The nodes of a piece in the order of computation: the chosen ones that make what it returns, and makers of constants."""
    fixed, own = _fixed(graph), set(chosen)
    found: dict[Node, None] = {}
    waiting = list(returned)
    while waiting:
        name = waiting.pop()
        node = graph.makers.get(name)
        if node is None or node in found or not (node in own or name in fixed or name not in values):
            continue
        found[node] = None
        waiting += node.uses
    return [node for node in graph.nodes if node in found]


def _fixed(graph: Graph) -> set[str]:
    """Names of the values that depend on constants alone."""
    found = set(graph.constants) - set(graph.defaulted)
    for node in graph.nodes:
        if node.uses <= found and not node.op.startswith("Random"):
            found.update(node.outputs)
    return found


def _connect(
    model: ModelProto,
    nodes: Sequence[Node],
    inputs: Mapping[str, Any],
    returned: Mapping[str, Any],
    types: Mapping[str, int],
) -> None:
    """Give a model its nodes, its inputs and its outputs."""
    graph = model.graph
    for name, array in inputs.items():
        graph.input.append(_info(_outer(name, types), array))
        if types.get(name) in NARROW:
            graph.node.append(helper.make_node("Cast", [_outer(name, types)], [name], to=types[name]))
    graph.node.extend(node.proto for node in nodes)
    for name, array in returned.items():
        graph.output.append(_info(_outer(name, types), array))
        if types.get(name) in NARROW:
            graph.node.append(helper.make_node("Cast", [name], [_outer(name, types)], to=TensorProto.FLOAT))
    if not any(each.domain in ("", "ai.onnx") for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 17))  # of Cast


def _info(name: str, array: Any) -> onnx.ValueInfoProto:
    """The type of an input or output. array: None for one that is not known."""
    if array is None:
        return helper.make_empty_tensor_value_info(name)
    array = np.asarray(array)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def name_output(piece: Piece, name: str) -> None:
    """Give the only output of a piece another name, which must be none of its own."""
    (output,) = piece.model.graph.output
    for node in piece.model.graph.node:
        node.output[:] = [name if each == output.name else each for each in node.output]
    output.name = name


# -- the answer ----------------------------------------------------------------------------------------------------------


def answers(piece: Piece, seed: int, approximated: Collection[str] = (), rounds: int = 1) -> dict[str, Answer]:
    """The exact answer of a piece: output -> answer. The arguments are those of ``CutPiece``. Raises Failed."""
    graph = Graph(piece.model)
    try:
        steps = _steps(graph, piece.inputs) if len(piece.chosen) == 1 else {}
        return {**dict(_of_floats(graph, piece, seed, approximated, rounds)), **steps}
    except ERRORS as error:
        raise Failed(f"the piece cannot be computed in float64: {error}") from error


def _of_floats(
    graph: Graph, piece: Piece, seed: int, approximated: Collection[str], rounds: int
) -> Iterator[tuple[str, Answer]]:
    """The answers with the noise of several evaluations."""
    squares: dict[str, Any] = {}
    for index in range(rounds):
        found = noise(graph, piece.inputs, seed + index * SAMPLES, approximated=approximated)
        for name, each in found.items():
            squares[name] = squares.get(name, 0.0) + np.square(each.noise) / rounds
    for name, each in found.items():
        if not np.size(each.exact):
            continue
        limit = LIMIT * np.sqrt(squares[name])
        dtype = np.asarray(each.exact).dtype if each.dtype is None else each.dtype
        if np.dtype(dtype).kind in "iu" and graph.makers[name].op in QUANTISING:
            limit = np.maximum(limit, 1.0)  # beside a tie, which depends on everything before it
        limit = np.nan_to_num(
            limit, nan=np.inf, posinf=np.inf
        )  # a value that rounding makes infinite is not determined
        limit = np.where(limit > 0, limit + LEAST.get(np.dtype(dtype).name, 0.0), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            yield name, Answer(np.asarray(each.exact, np.float64), np.asarray(each.exact).astype(dtype), limit)


def _steps(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Answer]:
    """The answer of a node that rounds to steps: half a step is right, and beside a tie the rounding of what leads to it."""
    found: dict[str, Answer] = {}

    def after(node: Node, arguments: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        unrounded = UNROUNDED.get((node.domain, node.op))
        if unrounded is None or node.outputs[0] not in graph.outputs:
            return
        with np.errstate(all="ignore"):
            steps, dtype = unrounded(Call.of(node, arguments), *present(exact_of(arguments)))
        if steps is not None:
            steps = np.broadcast_to(steps, np.shape(outputs[0].exact))
            size = LIMIT * ROUNDINGS * max(UNIT, coarsest(arguments)) * np.maximum(1.0, np.abs(steps))
            low, high = (float(end) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
            found[node.outputs[0]] = Answer(np.clip(steps, low, high), rounded(steps, dtype), 0.5 + size)

    evaluation = Evaluation(after=after)
    evaluation.run(graph, given(evaluation, graph, inputs))
    return found


def visit_values(graph: Graph, inputs: Mapping[str, Any], visit: Callable[[str, Any], None]) -> None:
    """Call a function with the name and the array of every tensor of a node, computed in float64 and rounded to its type."""

    def after(node: Node, _: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        for name, value in zip(node.outputs, outputs):
            if name and isinstance(value.exact, np.ndarray):
                with np.errstate(over="ignore", invalid="ignore"):
                    visit(name, value.exact.astype(value.dtype) if value.is_float else value.exact)

    evaluation = Evaluation(after=after)
    evaluation.run(graph, given(evaluation, graph, inputs))


def describe(node: Node) -> str:
    """A node in words."""
    return f"{node.kind} {node.name!r}"
