"""Evaluates a graph in several arithmetics side by side: in float64, in its own types, and in others that callers add.

There is one pass for each arithmetic, and every node is computed in all passes before the next node. Decisions, which are whole
numbers and comparisons, are those of the exact pass everywhere: shapes, branches and numbers of iterations cannot differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from . import kinds
from .model import Body, Graph, Node, UnsupportedOperator, schema_function
from .operators.quantized import UNROUNDED
from .operators.registry import CONTROL, Call, Operator, present
from .operators.table import find
from .reach import Reach
from .values import Named, Value, convert, dtype_of, exact_of, is_float

SMALL = 4096  # values; a smaller constant is converted once
# What the evaluation of a graph may raise: of an operator that has no implementation, or on values that it does not take.
ERRORS = (UnsupportedOperator, ArithmeticError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
After = Callable[[Node, Sequence["Value | None"], Sequence[Value]], None]


@dataclass(frozen=True)
class Computation:
    """One node that is computed in every pass.

    inputs: its inputs in all passes. dtype: the declared type of its floating-point outputs.
    """

    node: Node
    implementation: Operator
    inputs: Sequence[Value | None]
    dtype: Any

    def outputs(self, index: int = 0, working: Any = np.float64) -> list[Any]:
        """The outputs on the values of one pass. working: the type in which they are computed."""
        arguments = [None if value is None else convert(value.by_pass[index], working) for value in self.inputs]
        return Call.of(self.node, self.inputs, working).outputs(self.implementation, arguments)

    def shares_inputs(self, index: int) -> bool:
        """Whether a pass has the values of the exact pass as inputs."""
        return all(value is None or value.by_pass[index] is value.exact for value in self.inputs)

    @cached_property
    def steps(self) -> Any:
        """The exact result of a quantising operator before it is rounded to steps; None for other operators."""
        unrounded = UNROUNDED.get((self.node.domain, self.node.op))
        if unrounded is None:
            return None
        with np.errstate(all="ignore"):
            return unrounded(Call.of(self.node, self.inputs), *present(exact_of(self.inputs)))[0]


class Pass:
    """One arithmetic of an evaluation: float64 without rounding. Other arithmetics are its subclasses."""

    def given(self, data: Any, exact: Any) -> Any:
        """What the pass is given for the inputs and constants of the graph. exact: the same data in float64."""
        return exact

    def kept(self, data: Any, dtype: Any) -> Any:
        """A result as the pass keeps it. dtype: the type that the file declares."""
        return data

    def outputs(self, computed: Computation, index: int, exact: list[Any]) -> list[Any]:
        """The outputs of a node. index: the place of the pass among all passes. exact: the outputs in the exact pass."""
        return computed.outputs(index)


class OwnTypes(Pass):
    """The types of the file; products of float16 are summed in float32."""

    def given(self, data: Any, exact: Any) -> Any:
        return data

    def kept(self, data: Any, dtype: Any) -> Any:
        return convert(data, dtype)

    def outputs(self, computed: Computation, index: int, exact: list[Any]) -> list[Any]:
        return computed.outputs(index, np.float64 if computed.dtype == np.float64 else np.float32)


EXACT, OWN = Pass(), OwnTypes()


class Scope:
    """The values that a node can see: those of its body, its constants, and those of the scope around it."""

    def __init__(self, body: Body, values: Mapping[str, Value], outer: Scope | None, evaluation: Evaluation) -> None:
        self.body, self.values, self.outer, self.evaluation = body, dict(values), outer, evaluation

    def get(self, name: str) -> Value | None:
        """The value of this name; None for an input that is left out."""
        return self.value(name) if name else None

    def value(self, name: str) -> Value:
        """The value of this name, of this scope or of one around it."""
        if name in self.values:
            return self.values[name]
        if name in self.body.constants:
            return self.evaluation.constant(self.body.constants[name])
        if self.outer is None:
            raise KeyError(f"the graph {self.body.name!r} uses the value {name!r} before it is computed")
        return self.outer.value(name)

    def compute(self, node: Node) -> tuple[list[Value | None], list[Value]]:
        """The inputs and outputs of a node of the body. The outputs become values of the scope."""
        inputs = [self.get(name) for name in node.inputs]
        outputs = self.evaluation.step(node, inputs, self)
        if self.evaluation.reach is not None:
            self.evaluation.reach.visit(node, inputs, outputs)
        self.values.update({name: value for name, value in zip(node.outputs, outputs) if name})
        return inputs, outputs

    def free(self, names: Iterable[str]) -> None:
        """Drop values that no later node needs."""
        for name in names:
            self.values.pop(name, None)


class Evaluation:
    """One evaluation of a graph.

    passes: the arithmetics; the first one is exact.
    after: called after each node of the graph itself with the node, its inputs and its outputs.
    reach: looks at every node, those of subgraphs included.
    """

    def __init__(
        self, passes: Sequence[Pass] = (EXACT,), after: After | None = None, reach: Reach | None = None
    ) -> None:
        self.passes, self.after, self.reach = tuple(passes), after, reach
        self.missing = Value((None,) * len(self.passes), None)
        self.small: dict[int, Value] = {}
        self.functions: dict[tuple[Any, ...], Body | None] = {}

    def value(self, data: Any) -> Value:
        """The same data in all passes."""
        exact = convert(data, np.float64)
        return Value(tuple(each.given(data, exact) for each in self.passes), dtype_of(data))

    def constant(self, data: Any) -> Value:
        """The value of a constant of the file."""
        if data.size > SMALL:
            return self._constant(data)
        if id(data) not in self.small:
            self.small[id(data)] = self._constant(data)
        return self.small[id(data)]

    def _constant(self, data: Any) -> Value:
        return self.value(data)

    def run(self, body: Body, values: Mapping[str, Value], outer: Scope | None = None) -> list[Value | None]:
        """The outputs of a body. Values are freed after their last use."""
        scope = Scope(body, values, outer, self)
        after = self.after if outer is None and isinstance(body, Graph) else None
        for node, freed in zip(body.nodes, body.freed):
            inputs, outputs = scope.compute(node)
            if after is not None:
                after(node, inputs, outputs)
            del inputs, outputs
            scope.free(freed)
        return [scope.get(name) for name in body.outputs]

    def run_all(self, body: Body, values: Mapping[str, Value], outer: Scope | None) -> list[Value]:
        """The outputs of a body; one that is missing is a value without data."""
        return self.present(self.run(body, values, outer))

    def present(self, values: Sequence[Value | None]) -> list[Value]:
        """Values, of which those that are left out are without data."""
        return [self.missing if value is None else value for value in values]

    def step(self, node: Node, inputs: Sequence[Value | None], scope: Scope) -> list[Value]:
        """The outputs of one node."""
        if node.function is not None:
            return self._call(node.function, inputs)
        if node.domain == "" and node.op in CONTROL:
            return CONTROL[node.op](self, node, inputs, scope)
        implementation = find(node)
        if implementation is not None:
            return self._compute(Computation(node, implementation, inputs, kinds.declared(node, inputs)))
        body = self._definition(node, inputs)
        if body is None:
            raise node.unsupported("has no implementation in float64")
        return self._call(body, inputs)

    def _definition(self, node: Node, inputs: Sequence[Value | None]) -> Body | None:
        """The definition of an operator by other operators."""
        types = [None if value is None else (value.dtype, np.shape(value.exact)) for value in inputs]
        key = (node, *types)
        if key not in self.functions:
            self.functions[key] = schema_function(node, types)
        return self.functions[key]

    def _call(self, function: Body, inputs: Sequence[Value | None]) -> list[Value]:
        given = dict.fromkeys(function.inputs, self.missing)
        given.update(zip(function.inputs, self.present(inputs)))
        return self.run_all(function, given, Scope(function, {}, None, self))

    # -- one node in all passes ----------------------------------------------------------------------------------------

    def _compute(self, computed: Computation) -> list[Value]:
        node, results = computed.node, list[list[Any]]()
        whole = kinds.copies(node) or not kinds.has_float(computed.inputs)
        for index, each in enumerate(self.passes):
            if index and whole and computed.shares_inputs(index):
                results.append(results[0])
            else:
                results.append(each.outputs(computed, index, results[0] if index else []))
        return [self._join(computed, outputs) for outputs in zip(*results)]

    def _join(self, computed: Computation, outputs: Sequence[Any]) -> Value:
        """One output of a node from what each pass computed."""
        exact = outputs[0]
        own = dtype_of(exact)
        if is_float(exact) or (isinstance(exact, list) and any(map(is_float, exact))):
            dtype = computed.dtype
            return Value(tuple(each.kept(data, dtype) for each, data in zip(self.passes, outputs)), dtype)
        if own is None or kinds.decides(computed.node, own, kinds.has_float(computed.inputs)):
            return Value((exact,) * len(self.passes), own)
        return Value(tuple(outputs), own)


# -- the interface ----------------------------------------------------------------------------------------------------


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any],
    visit: Callable[[Node, Mapping[str, Any]], None] | None = None,
    watch: After | None = None,
    reach: Reach | None = None,
) -> Named:
    """The exact outputs of a graph: floating-point values in float64, everything else in its own type.

    inputs: an array for each input by name.
    visit: called after each node with the node and its outputs by name. Values are not kept after their last use.
    watch: the same, with the node, its inputs and its outputs. reach: see ``Evaluation``.
    """

    def after(node: Node, arguments: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        if watch is not None:
            watch(node, arguments, outputs)
        if visit is not None:
            visit(node, {name: value.exact for name, value in zip(node.outputs, outputs) if name})

    evaluation = Evaluation(after=after, reach=reach)
    found = evaluation.run(graph, given(evaluation, graph, inputs))
    return dict(zip(graph.outputs, exact_of(found)))


def given(evaluation: Evaluation, graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """The inputs of a graph in all passes. Raises ValueError for one that is missing."""
    inputs = {**inputs, **_sequences(graph, inputs)}
    missing = [name for name in graph.inputs if name not in inputs and not graph.optional(name)]
    if missing:
        raise ValueError(f"the graph {graph.name!r} needs the inputs {', '.join(missing)}, which are not given")
    known = {*graph.inputs, *graph.defaulted}
    found = {name: evaluation.value(_as_array(data)) for name, data in inputs.items() if name in known}
    return {**dict.fromkeys(graph.inputs, evaluation.missing), **found}


def _sequences(graph: Graph, inputs: Mapping[str, Any]) -> Named:
    """The inputs that are sequences, of the items that are given as NAME_0, NAME_1 and so on."""
    found: Named = {}
    for name in graph.inputs:
        if name not in inputs and graph.types[name].HasField("sequence_type"):
            names = itertools.takewhile(lambda each: each in inputs, (f"{name}_{place}" for place in itertools.count()))
            found[name] = [inputs[each] for each in names]
    return found


def _as_array(data: Any) -> Any:
    if data is None or isinstance(data, (list, tuple)):
        return None if data is None else [_as_array(item) for item in data]
    return np.asarray(data)
