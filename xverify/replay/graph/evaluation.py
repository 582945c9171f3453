"""Evaluates a graph in several arithmetics side by side: in float64, in float64 with perturbations, and in its own types.

There is one pass for each arithmetic, and every node is computed in all passes before the next node. Decisions, which are whole
numbers and comparisons, are those of the exact pass everywhere: shapes, branches and numbers of iterations cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...verdict.limits import growth
from ..perturbation import Arithmetic, Noise
from . import kinds
from .approximations import errors
from .model import Body, Graph, Node, schema_function
from .operators.quantized import UNROUNDED, rounded
from .operators.registry import Call, Operator
from .operators.table import find
from .values import Named, Value, array, coarsest, convert, dtype_of, is_float, tensor, unit_roundoff

RARE = 10.0  # how many times the noise of rounding counts where it decides between two steps of a quantised value
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
        from .control import CONTROL  # it evaluates subgraphs, so it needs this module

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
        """The outputs when everything that goes in is perturbed, and every result rounded."""
        noise, call, arguments = self._perturbed_call(node, inputs, index, dtype)
        result = unit_roundoff(dtype)
        outputs = outputs_of(call, implementation, arguments)
        narrows = result > coarsest(inputs)  # a cast to a narrower type rounds
        if self.rounding and (narrows or not kinds.copies(node)):
            grown = result * kinds.result_growth(node, inputs)
            outputs = [_noisy(data, noise, grown) for data in outputs]
        if node.name in self.approximated:
            size = errors(node, arguments[0])
            outputs = [outputs[0] + _noisy(size, noise, 1.0) - size]
        return [_finite(data, other) for data, other in zip(outputs, exact)]

    def _perturbed_call(
        self, node: Node, inputs: Sequence[Value | None], index: int, dtype: Any
    ) -> tuple[Noise, Call, list[Any]]:
        """A perturbed computation of a node: the source of noise, the call, and its arguments."""
        noise = self.passes[index].noise
        assert noise is not None
        structural = kinds.STRUCTURAL.get(node.op, frozenset())
        unit = max(unit_roundoff(dtype), coarsest(inputs))
        terms = kinds.summed_terms(node, [None if value is None else value.exact for value in inputs])
        size = 0.0 if kinds.copies(node) else unit * growth(terms)
        arguments = []
        for place, value in enumerate(inputs):
            data = None if value is None else value.exact if place in structural else value.by_pass[index]
            rounds = size > 0.0 and place not in structural and _rounds(node, place, data)
            data = _noisy(data, noise, size) if rounds else data
            if value is not None and node.op == "DynamicQuantizeLinear":
                data = _beside_ties(value.exact, data)
            arguments.append(data)
        attributes = _noisy_attributes(node, noise, size) if size else node.attributes
        return noise, Call(node, attributes, np.float64, size * float(noise.pool[index]), types_of(inputs)), arguments

    def _steps(self, node: Node, inputs: Sequence[Value | None]) -> Any:
        """The exact result of a quantising operator before it is rounded to steps; None for other operators."""
        unrounded = UNROUNDED.get((node.domain, node.op))
        if unrounded is None or all(each.arithmetic is not Arithmetic.PERTURBED for each in self.passes):
            return None
        call = Call(node, node.attributes, np.float64, 0.0, types_of(inputs))
        with np.errstate(all="ignore"):
            return unrounded(call, *_present([None if value is None else value.exact for value in inputs]))[0]

    def _perturbed_steps(
        self, node: Node, inputs: Sequence[Value | None], index: int, dtype: Any, steps: Any
    ) -> list[Any]:
        """The steps of a quantising operator under perturbation.

        A value beside a tie may be rounded the other way. That is rare, and one such value changes the result far more than all
        other rounding. A few samples would miss it, so small perturbations count RARE times here.
        """
        _, call, arguments = self._perturbed_call(node, inputs, index, dtype)
        with np.errstate(all="ignore"):
            found, kind = UNROUNDED[node.domain, node.op](call, *_present(arguments))
            size = RARE * np.maximum(np.abs(found - steps), coarsest(inputs) * np.abs(steps))
        # Scales are the same for all values, and would round all of them in one direction. The directions are drawn, and those of
        # every second pass are the opposite ones, so that each value beside a tie is rounded the other way in half of the passes.
        up = np.random.default_rng(np.size(steps)).random(np.shape(steps)) < 0.5
        drawn = np.where(up == bool(index % 2), size, -size)
        return [rounded(np.where(size < 0.5, steps + drawn, found), kind)]


def types_of(inputs: Sequence[Value | None]) -> tuple[Any, ...]:
    return tuple(None if value is None else value.dtype for value in inputs)


def outputs_of(call: Call, implementation: Operator, arguments: list[Any]) -> list[Any]:
    """The outputs of an implementation as arrays."""
    arguments = _present(arguments)
    with torch.no_grad(), np.errstate(all="ignore"):
        found = implementation(call, *arguments)
    several = found if isinstance(found, tuple) else (found,)
    return [convert(array(data), call.dtype) for data in several]


def _present(arguments: list[Any]) -> list[Any]:
    """The arguments without those that are left out at the end."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    return arguments


def _beside_ties(exact: Any, moved: Any) -> Any:
    """Perturbed values that are going to be quantised over their own range, with small perturbations counting RARE times.

    A perturbation that reaches half a step stays as it is, because it shows in the steps by itself, and would grow by RARE in every
    layer of a network. The ends of the range stay, too, because they determine the scale of all values.
    """
    if not exact.size:
        return moved
    low, high = min(0.0, float(exact.min())), max(0.0, float(exact.max()))
    change = moved - exact
    small = (RARE * np.abs(change) < (high - low) / 255 / 2) & (exact > low) & (exact < high)
    return exact + np.where(small, RARE, 1.0) * change


def _rounds(node: Node, place: int, data: Any) -> bool:
    """Whether an input is rounded. A whole exponent stays whole: a negative number has no other powers."""
    return is_float(data) and not (node.op == "Pow" and place == 1 and bool((data == np.rint(data)).all()))


def _noisy(data: Any, noise: Noise, size: float) -> Any:
    """A perturbed copy of an array; the data itself when it is nothing else."""
    return noise.perturbed(tensor(data), size).numpy() if is_float(data) and data.size else data


def _noisy_attributes(node: Node, noise: Noise, size: float) -> Mapping[str, Any]:
    """The attributes with perturbed numbers."""
    return {
        name: value * noise.factor(index, size)
        if isinstance(value, float) and name not in kinds.EXACT_ATTRIBUTES
        else value
        for index, (name, value) in enumerate(node.attributes.items())
    }


def _finite(data: Any, exact: Any) -> Any:
    """Perturbed values, with the exact ones where the perturbation led out of the domain of a function."""
    if not is_float(data) or not is_float(exact) or data.shape != exact.shape or np.isfinite(data.sum()):
        return data
    return np.where(np.isfinite(data), data, exact)


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
    from .control import CONTROL

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
