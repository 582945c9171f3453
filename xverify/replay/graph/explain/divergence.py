"""Finds where two graphs that get equal inputs begin to compute different values, both in float64.

A value of the file corresponds to a value of the reference when they are equal, whatever their names are. Going back from an output
that differs, through values that correspond to none, leads to the first node that computes what the reference does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..evaluation import Evaluation, given
from ..kinds import QUANTISING
from ..model import Body, Graph, Node
from ..values import Value
from .node_difference import Neighbours, between, described, differences
from .sketch import Sketch, apart, reordered, sketch
from .structure import changed_settings

# Relative difference of corresponding values: folding in float32 alone changes values by up to this.
LEAST, MOST = 2e-6, 1e-4
SHARE = 1 / 30  # of the difference of the outputs, within these limits
CLIPPED = 0.02  # share of values beyond the range of a quantisation that is too much
FEW_STEPS = 16  # a quantisation that uses fewer steps than this is too coarse
QUANTISED = 0.2  # relative difference that quantised values may have
MOST_RANGES = 2  # quantisations that are named
SHOWN = 4  # missing nodes that a sentence names


@dataclass
class Trace:
    """The values of a graph.

    sketches: name of a value -> its sketch.
    data: names of the values that depend on the numbers in an input, and not on its shape alone.
    ranges: name of a quantisation whose range does not fit its input -> a sentence.
    least: the relative difference that the precision of the values explains. quantised: whether some of them are quantised.
    through: whether a value without a sketch, such as a list, is looked through to the node that makes it.
    """

    graph: Body
    sketches: dict[str, Sketch] = field(default_factory=dict)
    data: set[str] = field(default_factory=set)
    ranges: dict[str, str] = field(default_factory=dict)
    least: float = LEAST
    quantised: bool = False
    through: bool = False

    @cached_property
    def by_count(self) -> dict[tuple[int, bool], list[str]]:
        """(number of values, whether whole) -> names of the values that depend on data."""
        found: dict[tuple[int, bool], list[str]] = {}
        for name, each in self.sketches.items():
            if name in self.data:
                found.setdefault((each.count, each.whole), []).append(name)
        return found

    def alike(self, other: Sketch) -> list[str]:
        """The values that depend on data with the number of values and the kind of another one."""
        return self.by_count.get((other.count, other.whole), [])

    def needed(self, node: Node) -> list[str]:
        """The inputs of a node that depend on data."""
        return [name for name in dict.fromkeys((*node.inputs, *sorted(node.uses))) if name in self.data]

    def neighbours(self, node: Node) -> Neighbours:
        """A node with the nodes that use its outputs."""
        after = [user for name in node.outputs for user in self.graph.users.get(name, ())]
        return Neighbours(node, tuple(after), self.graph.constants)

    def between(self, reference: Trace) -> Callable[[Node, Node], Iterator[str]]:
        """A function that says how a node of this graph differs from one of the reference."""
        return lambda mine, theirs: differences(self.neighbours(mine), reference.neighbours(theirs))


def trace(graph: Graph, inputs: Mapping[str, Any], turn: bool = False) -> Trace:
    """Evaluate a graph in float64, and keep a sketch of every value. turn: see ``sketch``."""
    traced = Trace(graph, quantised=quantises(graph))
    for name in graph.inputs:
        if isinstance(inputs.get(name), np.ndarray):
            traced.sketches[name] = sketch(inputs[name], turn)
            traced.data.add(name)
    for node in graph.nodes:
        if node.op not in ("Shape", "Size") and any(name in traced.data for name in node.uses):
            traced.data |= {name for name in node.outputs if name}

    def after(node: Node, arguments: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        if node.op == "QuantizeLinear":
            traced.ranges.update((node.name, says) for says in _badly_scaled(node, arguments))
        for name, value in zip(node.outputs, outputs):
            if name and isinstance(value.exact, np.ndarray) and value.exact.dtype.kind in "fiub":
                traced.sketches[name] = sketch(value.exact, turn)

    evaluation = Evaluation(after=after)
    evaluation.run(graph, given(evaluation, graph, inputs))
    return traced


def quantises(graph: Graph) -> bool:
    """Whether a graph computes quantised values."""
    return any(node.op in QUANTISING for node in graph.nodes)


def _badly_scaled(node: Node, arguments: Sequence[Value | None]) -> Iterator[str]:
    """A sentence when the range of a quantisation is far smaller or far larger than its input."""
    first, second, third = (*arguments, None)[:3]
    if first is None or second is None:
        return
    x, scale = first.exact, second.exact
    zero = third.exact if third is not None else np.zeros(1, np.uint8)
    if np.size(scale) != 1 or zero.dtype.itemsize != 1 or zero.dtype.kind not in "iu" or not np.size(x):
        return
    limits, offset, step = np.iinfo(zero.dtype), float(zero.reshape(-1)[0]), float(np.reshape(scale, -1)[0])
    low, high = (limits.min - offset) * step, (limits.max - offset) * step
    beyond = float(np.mean((x < low - step) | (x > high + step)))
    reach = float(np.max(np.abs(x)))
    if beyond > CLIPPED and reach > 1.5 * max(-low, high):
        yield (
            f"{described(node)} clips {100 * beyond:.0f}% of its values to [{low:.3g}, {high:.3g}], and they reach {reach:.3g}: "
            f"its scale {step:.3g} is too small"
        )
    elif 0 < float(np.max(x) - np.min(x)) < FEW_STEPS * step:
        steps = max(1, round(float(np.max(x) - np.min(x)) / step))
        yield f"{described(node)} has {steps} steps for all of its values: its scale {step:.3g} is too large"


def divergences(
    file: Trace,
    reference: Trace,
    outputs: Mapping[str, str],
    any_order: bool = False,
    coarse: float = 0.0,
    general: bool = True,
) -> list[str]:
    """Sentences on where the file begins to compute something else than the reference; [] when nothing is found.

    outputs: name of an output of the reference -> its name in the file.
    any_order: whether values may correspond in any order, because the axes of an image are turned.
    coarse: the relative difference that rounded or quantised weights explain.
    general: whether the inputs are random. Of zeros, for example, many values are equal by chance: what a value corresponds to is
        not told then.
    """
    sentences = list(file.ranges.values())[:MOST_RANGES]
    if sentences:
        return sentences  # all values behind them differ
    for away, theirs, mine in compared_outputs(file, reference, outputs):
        allowed = tolerance(file, reference, away, coarse)
        comparison = Comparison(file, reference, allowed, any_order, general)
        says = comparison.explain(mine, theirs) if away > allowed else ""
        if file.quantised and MOST < away <= allowed:
            says = comparison.within(mine, theirs)
        if says and says not in sentences:
            sentences.append(says)
    same = "" if sentences else changed_settings(file.graph, reference.graph, file.between(reference), described)
    return sentences or ([same] if same else [])


def compared_outputs(file: Trace, reference: Trace, outputs: Mapping[str, str]) -> Iterator[tuple[float, str, str]]:
    """(relative difference, name in the reference, name in the file) of the outputs that both have."""
    for theirs, mine in outputs.items():
        if mine in file.sketches and theirs in reference.sketches:
            yield apart(file.sketches[mine], reference.sketches[theirs]), theirs, mine


def tolerance(file: Trace, reference: Trace, away: float, coarse: float) -> float:
    """The relative difference that corresponding values may have. away: that of the outputs. coarse: see ``divergences``."""
    coarse = max(coarse, QUANTISED) if file.quantised else coarse
    return max(coarse, min(MOST, max(file.least, reference.least, away * SHARE)))


class Comparison:
    """Which values of a file and of a reference correspond to each other."""

    def __init__(self, file: Trace, reference: Trace, tolerance: float, any_order: bool, general: bool) -> None:
        self.file, self.reference, self.tolerance, self.any_order = file, reference, tolerance, any_order
        self.general = general
        self.known: dict[tuple[bool, str], list[str]] = {}

    def equal(self, name: str, in_file: bool = True) -> list[str]:
        """The values of the other graph that correspond to a value."""
        key = (in_file, name)
        mine, other = (self.file, self.reference) if in_file else (self.reference, self.file)
        if key not in self.known:
            self.known[key] = self._equal(mine.sketches[name], other) if name in mine.sketches else []
        return self.known[key]

    def _equal(self, own: Sketch, other: Trace) -> list[str]:
        alike = [each for each in other.alike(own) if self._same(own, other.sketches[each])]
        if self.tolerance > MOST and len(alike) > 1:
            # Rounding may bring a value near to several, of which the nearest is meant, with its exact copies.
            least = min(apart(own, other.sketches[each]) for each in alike)
            alike = [each for each in alike if apart(own, other.sketches[each]) <= least * (1 + MOST)]
        return alike

    def _same(self, mine: Sketch, theirs: Sketch) -> bool:
        near = apart(mine, theirs) <= (0.0 if mine.whole else self.tolerance)
        return near or (self.any_order and reordered(mine, theirs, self.tolerance))

    def explain(self, mine: str, theirs: str) -> str:
        """The sentence on one output. mine, theirs: its names."""
        others = [name for name in self.equal(mine) if name != theirs]
        if others and not self.general:
            return ""
        if others:
            return self._unfinished(mine, theirs, others)
        entries = self._entries(mine)
        return self._describe(entries[0], theirs) if entries else ""

    def within(self, mine: str, theirs: str) -> str:
        """The sentence on a node inside of a quantised file whose output is as near as quantisation explains.

        It computes what the reference does not have, and so does a node behind it. What a fault changed may become small later.
        """
        leading = set(self.file.graph.ancestors(mine))
        for node in self.file.graph.nodes:
            if node in leading and self._lacks(node) and all(map(self._has_partner, self.file.needed(node))):
                users = [user for name in node.outputs for user in self.file.graph.users.get(name, ())]
                if any(user in leading and self._lacks(user) for user in users):
                    return self._describe(node, theirs)
        return ""

    def _lacks(self, node: Node) -> bool:
        """Whether an output of a node has no partner."""
        return any(name in self.file.data and not self._has_partner(name) for name in node.outputs)

    def _unfinished(self, mine: str, theirs: str, others: Sequence[str]) -> str:
        """The sentence on an output that is an earlier value of the reference."""
        missing = min((self._between(name, theirs) for name in others), key=len)
        if not missing or any(name in self.reference.graph.outputs for name in others):
            return ""
        names = ", ".join(described(node) for node in missing[:SHOWN])
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        return f"the output {mine} is what the reference has before its last nodes, which the file leaves out: {names}{more}"

    def _between(self, start: str, end: str) -> list[Node]:
        """The nodes of the reference that lead from one value to another."""
        graph = self.reference.graph
        before, ahead, found = set(graph.ancestors(end)), {start}, []
        for node in graph.nodes:
            if node in before and node.uses & ahead:
                ahead |= {name for name in node.outputs if name}
                found.append(node)
        return found

    def _entries(self, output: str) -> list[Node]:
        """The nodes of the file that make a value without partner of values that have one, in the order of the file."""
        found, seen, stack = set(), set(), [output]
        while stack:
            name = stack.pop()
            node = self.file.graph.makers.get(name)
            if name in seen or node is None:
                continue
            seen.add(name)
            lacking = [each for each in self.file.needed(node) if not self._has_partner(each)]
            if not lacking:
                found.add(node)
            stack += lacking
        return [node for node in self.file.graph.nodes if node in found]

    def _has_partner(self, name: str) -> bool:
        # A value that has no sketch is a sequence; one that is an input of the graph is the same in both graphs.
        if name not in self.file.sketches and name in self.file.graph.makers:
            return not self.file.through
        return name not in self.file.graph.makers or bool(self.equal(name))

    def _describe(self, node: Node, output: str) -> str:
        """The sentence on the first node whose value the reference does not have."""
        own = self.file.neighbours(node)
        before = [other for name in self.file.needed(node) for other in self.equal(name)]
        says = between(own, self._counterparts(before, output), output in before)
        held = self._held(next((name for name in node.outputs if name in self.file.sketches), ""))
        order = f"; its output holds the values of the reference's {held} in another order" if held else ""
        return f"the first value that differs is that of {described(node)}: {says}{order}"

    def _held(self, name: str) -> str:
        """A value of the reference that holds the numbers of a value of the file in another order."""
        own = self.file.sketches.get(name)
        if own is None or own.whole or not self.general:
            return ""
        sketches = self.reference.sketches
        names = self.reference.alike(own)
        return next((each for each in names if reordered(own, sketches[each], self.tolerance)), "")

    def _counterparts(self, before: Sequence[str], output: str) -> list[Neighbours]:
        """The nodes of the reference that take these values, lead to the output, and make something that the file does not have."""
        leading = set(self.reference.graph.ancestors(output))
        return [
            self.reference.neighbours(node)
            for node in self.reference.graph.nodes
            if node in leading and set(before) & node.uses and self._makes_what_is_missing(node)
        ]

    def _makes_what_is_missing(self, node: Node) -> bool:
        """Whether a node of the reference makes a value that the file does not have, beside others that it may have."""
        known = [bool(self.equal(name, in_file=False)) for name in node.outputs if name in self.reference.sketches]
        return not known or not all(known)
