"""Evaluates a graph in several arithmetics side by side: in float64, in float64 with perturbations, and in its own types.

There is one pass for each arithmetic, and every node is computed in all passes before the next node. Decisions, which are whole
numbers and comparisons, are those of the exact pass everywhere: shapes, branches and numbers of iterations cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...float64.perturbation import Arithmetic
from ...float64.rounding import Noise
from . import kinds
from .judge.approximations import errors, usual_errors
from .judge.perturbed_node import RARE, PerturbedNode, noisy, outputs_of, present, types_of
from .model import Body, Graph, Node, schema_function
from .operators.quantized import UNROUNDED, rounded
from .operators.registry import Call, Operator
from .operators.table import find
from .values import Named, Value, coarsest, convert, dtype_of, is_float

SMALL = 4096  # values; a smaller constant is converted once
After = Callable[[Node, Sequence["Value | None"], "list[Value]"], "list[Value]"]


@dataclass(frozen=True)
class Pass:
    """One arithmetic. noise: the source of perturbations of a perturbed pass."""

    arithmetic: Arithmetic
    noise: Noise | None = None


EXACT = Pass(Arithmetic.EXACT)
OWN = Pass(Arithmetic.FLOAT32)  # the types of the file; products of float16 are summed in float32


class Scope:
    """The values that a node can see: those of its body, its constants, and those of the scope around it."""

    def __init__(self, body: Body, values: Mapping[str, Value], outer: Scope | None, evaluation: Evaluation) -> None:
        self.body, self.values, self.outer, self.evaluation = body, dict(values), outer, evaluation

    def get(self, name: str) -> Value | None:
        """The value of this name; None for an input that is left out."""
        if not name:
            return None
        if name in self.values:
            return self.values[name]
        if name in self.body.constants:
            return self.evaluation.constant(self.body.constants[name])
        if self.outer is None:
            raise KeyError(f"the graph {self.body.name!r} uses the value {name!r} before it is computed")
        return self.outer.get(name)


class Evaluation:
    """One evaluation of a graph.

    passes: the arithmetics; the first one is exact.
    rounding: whether perturbed passes round the result of every node, too.
    approximated: names of nodes that the runtime approximates; see ``approximations``. Perturbed passes have that error, too.
    after: called after each node of the graph itself with the node, its inputs and its outputs; returns the outputs with which
        the evaluation goes on.
    """

    def __init__(
        self,
        passes: Sequence[Pass] = (EXACT,),
        rounding: bool = False,
        after: After | None = None,
        approximated: Collection[str] = (),
    ) -> None:
        self.passes, self.rounding, self.after = tuple(passes), rounding, after
        self.approximated = frozenset(approximated)
        self.small: dict[int, Value] = {}
        self.functions: dict[tuple[Any, ...], Body | None] = {}

    def value(self, data: Any, dtype: Any = None) -> Value:
        """The same data in all passes. dtype: its declared type, when that is another one."""
        wide = convert(data, np.float64)
        passes = [data if each.arithmetic is Arithmetic.FLOAT32 else wide for each in self.passes]
        return Value(tuple(passes), dtype_of(data) if dtype is None else dtype)

    def constant(self, data: Any) -> Value:
        """The value of a constant of the file."""
        if data.size > SMALL:
            return self.value(data)
        if id(data) not in self.small:
            self.small[id(data)] = self.value(data)
        return self.small[id(data)]

    def run(self, body: Body, values: Mapping[str, Value], outer: Scope | None = None) -> list[Value | None]:
        """The outputs of a body. Values are freed after their last use."""
        scope = Scope(body, values, outer, self)
        for node, freed in zip(body.nodes, body.freed):
            inputs = [scope.get(name) for name in node.inputs]
            outputs = self.step(node, inputs, scope)
            if outer is None and self.after is not None and isinstance(body, Graph):
                outputs = self.after(node, inputs, outputs)
            scope.values.update({name: value for name, value in zip(node.outputs, outputs) if name})
            del inputs, outputs
            for name in freed:
                scope.values.pop(name, None)
        return [scope.get(name) for name in body.outputs]

    def step(self, node: Node, inputs: Sequence[Value | None], scope: Scope) -> list[Value]:
        """The outputs of one node."""
        from .operators.control import CONTROL  # it evaluates subgraphs, so it needs this module

        if node.function is not None:
            return self._call(node.function, inputs)
        if node.domain == "" and node.op in CONTROL:
            return CONTROL[node.op](self, node, inputs, scope)
        implementation = find(node)
        if implementation is None:
            body = self._definition(node, inputs)
            if body is None:
                raise node.unsupported("has no implementation in float64")
            return self._call(body, inputs)
        return self._compute(node, implementation, inputs)

    def _definition(self, node: Node, inputs: Sequence[Value | None]) -> Body | None:
        """The definition of an operator by other operators."""
        types = [None if value is None else (value.dtype, np.shape(value.exact)) for value in inputs]
        key = (node, *types)
        if key not in self.functions:
            self.functions[key] = schema_function(node, types)
        return self.functions[key]

    def _call(self, function: Body, inputs: Sequence[Value | None]) -> list[Value]:
        missing = Value((None,) * len(self.passes), None)
        given = {name: missing if value is None else value for name, value in zip(function.inputs, inputs)}
        given.update(dict.fromkeys(function.inputs[len(inputs) :], missing))
        outputs = self.run(function, given, outer=Scope(function, {}, None, self))
        return [missing if value is None else value for value in outputs]

    # -- one node in all passes ----------------------------------------------------------------------------------------

    def _compute(self, node: Node, implementation: Operator, inputs: Sequence[Value | None]) -> list[Value]:
        dtype = kinds.declared(node, inputs)
        results = [self._exact(node, implementation, inputs)]
        copies, floats = kinds.copies(node), kinds.has_float(inputs)
        steps = self._steps(node, inputs)
        for index, each in enumerate(self.passes[1:], start=1):
            shared = all(value is None or value.by_pass[index] is value.exact for value in inputs)
            if shared and (copies or not floats):
                found = results[0]
            elif each.arithmetic is Arithmetic.PERTURBED and steps is not None:
                found = self._perturbed_steps(node, inputs, index, dtype, steps)
            elif each.arithmetic is Arithmetic.PERTURBED:
                found = self._perturbed(node, implementation, inputs, index, dtype, results[0])
            else:
                found = self._own(node, implementation, inputs, index, dtype)
            results.append(found)
        return [self._join(node, outputs, dtype, floats) for outputs in zip(*results)]

    def _join(self, node: Node, outputs: Sequence[Any], dtype: Any, floats: bool) -> Value:
        """One output of a node from what each pass computed."""
        exact = outputs[0]
        own = dtype_of(exact)
        if is_float(exact) or (isinstance(exact, list) and any(map(is_float, exact))):
            outputs = [
                convert(data, dtype) if each.arithmetic is Arithmetic.FLOAT32 else data
                for each, data in zip(self.passes, outputs)
            ]
            return Value(tuple(outputs), dtype)
        if own is None or kinds.decides(node, own, floats):
            return Value((exact,) * len(self.passes), own)
        return Value(tuple(outputs), own)

    def _exact(self, node: Node, implementation: Operator, inputs: Sequence[Value | None]) -> list[Any]:
        call = Call(node, node.attributes, np.float64, 0.0, types_of(inputs))
        return outputs_of(call, implementation, [None if value is None else value.exact for value in inputs])

    def _own(
        self, node: Node, implementation: Operator, inputs: Sequence[Value | None], index: int, dtype: Any
    ) -> list[Any]:
        """The outputs in float32; in float64 where the file declares that."""
        working = np.float64 if dtype == np.float64 else np.float32
        call = Call(node, node.attributes, working, 0.0, types_of(inputs))
        return outputs_of(
            call,
            implementation,
            [None if value is None else convert(value.by_pass[index], working) for value in inputs],
        )

    def _perturbed(
        self,
        node: Node,
        implementation: Operator,
        inputs: Sequence[Value | None],
        index: int,
        dtype: Any,
        exact: list[Any],
    ) -> list[Any]:
        """The outputs in a perturbed pass."""
        noise = self._noise(index)
        outputs = PerturbedNode(node, inputs, index, dtype, noise).outputs(implementation, exact, self.rounding)
        if not inputs or inputs[0] is None:
            return outputs
        x = inputs[0].by_pass[index]
        if node.name in self.approximated:
            size = errors(node, x)
            return [outputs[0] + np.copysign(size, noisy(size, noise, 2.0))]  # up or down, by the whole error
        size = usual_errors(node, x, outputs[0])
        return outputs if size is None else [outputs[0] + noisy(size, noise, 1.0) - size]

    def _noise(self, index: int) -> Noise:
        noise = self.passes[index].noise
        assert noise is not None
        return noise

    def _steps(self, node: Node, inputs: Sequence[Value | None]) -> Any:
        """The exact result of a quantising operator before it is rounded to steps; None for other operators."""
        unrounded = UNROUNDED.get((node.domain, node.op))
        if unrounded is None or all(each.arithmetic is not Arithmetic.PERTURBED for each in self.passes):
            return None
        call = Call(node, node.attributes, np.float64, 0.0, types_of(inputs))
        with np.errstate(all="ignore"):
            return unrounded(call, *present([None if value is None else value.exact for value in inputs]))[0]

    def _perturbed_steps(
        self, node: Node, inputs: Sequence[Value | None], index: int, dtype: Any, steps: Any
    ) -> list[Any]:
        """The steps of a quantising operator under perturbation.

        A value beside a tie may be rounded the other way. That is rare, and one such value changes the result far more than all
        other rounding. A few samples would miss it, so small perturbations count RARE times here.
        """
        call, arguments = PerturbedNode(node, inputs, index, dtype, self._noise(index)).perturbed()
        with np.errstate(all="ignore"):
            found, kind = UNROUNDED[node.domain, node.op](call, *present(arguments))
            size = RARE * np.maximum(np.abs(found - steps), coarsest(inputs) * np.abs(steps))
        # Scales are the same for all values, and would round all of them in one direction. The directions are drawn, and those of
        # every second pass are the opposite ones, so that each value beside a tie is rounded the other way in half of the passes.
        up = np.random.default_rng(np.size(steps)).random(np.shape(steps)) < 0.5
        drawn = np.where(up == bool(index % 2), size, -size)
        return [rounded(np.where(size < 0.5, steps + drawn, found), kind)]


# -- the interface ----------------------------------------------------------------------------------------------------


def evaluate(
    graph: Graph, inputs: Mapping[str, Any], visit: Callable[[Node, Mapping[str, Any]], None] | None = None
) -> Named:
    """The exact outputs of a graph: floating-point values in float64, everything else in its own type.

    inputs: an array for each input by name.
    visit: called after each node with the node and its outputs by name. Values are not kept after their last use.
    """

    def after(node: Node, _: Sequence[Value | None], outputs: list[Value]) -> list[Value]:
        if visit is not None:
            visit(node, {name: value.exact for name, value in zip(node.outputs, outputs) if name})
        return outputs

    evaluation = Evaluation(after=after)
    found = evaluation.run(graph, given(evaluation, graph, inputs))
    return {name: None if value is None else value.exact for name, value in zip(graph.outputs, found)}


def given(evaluation: Evaluation, graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Value]:
    """The inputs of a graph in all passes. Raises ValueError for one that is missing."""
    missing = [name for name in graph.inputs if name not in inputs and not graph.optional(name)]
    if missing:
        raise ValueError(f"the graph {graph.name!r} needs the inputs {', '.join(missing)}, which are not given")
    known = {*graph.inputs, *graph.defaulted}
    found = {name: evaluation.value(_as_array(data)) for name, data in inputs.items() if name in known}
    empty = Value((None,) * len(evaluation.passes), None)
    return {**dict.fromkeys(graph.inputs, empty), **found}


def _as_array(data: Any) -> Any:
    if data is None or isinstance(data, (list, tuple)):
        return None if data is None else [_as_array(item) for item in data]
    return np.asarray(data)


def unsupported(graph: Graph) -> list[str]:
    """One sentence for each node of a graph and of its subgraphs that cannot be computed in float64."""
    return list(_unsupported(graph))


def _unsupported(body: Body) -> Iterable[str]:
    from .operators.control import CONTROL

    for node in body.nodes:
        inner = [value for value in (*node.attributes.values(), node.function) if isinstance(value, Body)]
        for part in inner:
            yield from _unsupported(part)
        if node.function is not None or (node.domain == "" and node.op in CONTROL):
            continue
        try:
            known = find(node) is not None or schema_function(node, [(np.float32, None)] * len(node.inputs)) is not None
        except Exception as error:
            yield str(error)
            continue
        if not known:
            yield str(node.unsupported("has no implementation in float64"))
