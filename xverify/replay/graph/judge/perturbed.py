"""A pass of an evaluation in which what goes into each node is perturbed by the growth of rounding, and its results are rounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ....float64.operations import perturbed_operations
from ....float64.rounding import Noise, held, settled, sums_exactly
from ....verdict.limits import UNIT, growth
from .. import kinds
from ..evaluation import Computation, Pass
from ..model import Node
from ..operators.quantized import UNROUNDED, rounded
from ..operators.registry import COMPOSED, Call, present, types_of
from ..values import coarsest, exact_of, is_float, tensor, unit_roundoff
from . import terms
from .approximations import errors, usual_errors

CUTTING = ("Cast", "CastLike")  # operators that cut off digits where their result is of a type of whole numbers
RARE = 10.0  # how many times the noise of rounding counts where it decides between two steps of a quantised value


class Perturbed(Pass):
    """Float64 with random perturbations of the size of rounding.

    noise: their source. rounding: whether the result of every node is rounded, too.
    approximated: names of nodes that the runtime approximates, whose error is added; see ``approximations``.
    """

    def __init__(self, noise: Noise, rounding: bool = False, approximated: Collection[str] = ()) -> None:
        self.noise, self.rounding, self.approximated = noise, rounding, frozenset(approximated)

    def outputs(self, computed: Computation, index: int, exact: list[Any]) -> list[Any]:
        node, inputs = computed.node, computed.inputs
        if computed.steps is not None:
            return [self._steps(computed, index)]
        outputs = PerturbedNode(computed, index, self.noise).outputs(exact, self.rounding)
        if not inputs or inputs[0] is None:
            return outputs
        x = inputs[0].by_pass[index]
        if node.name in self.approximated:
            size = errors(node, x)
            return [outputs[0] + np.copysign(size, noisy(size, self.noise, 2.0))]  # up or down, by the whole error
        sizes = usual_errors(node, x, outputs)
        if sizes:
            return [each + noisy(size, self.noise, 1.0) - size for each, size in zip(outputs, sizes)]
        size = self._of_equal_terms(computed, exact, outputs)
        return (
            outputs if size is None else [outputs[0] + size * np.random.default_rng(index).uniform(-1, 1, size.shape)]
        )

    def _of_equal_terms(self, computed: Computation, exact: list[Any], outputs: list[Any]) -> Any:
        """How far the sums of a node with equal terms may be away in its own type; None where no sum rounds more than others do.

        outputs: in this pass. A sum that is the exact one there does not round.
        """
        if not self.rounding:
            return None
        size = terms.rounding_of_equal_terms(computed.node, exact_of(computed.inputs), exact[0])
        # A perturbation is uniform, so its rms is smaller than its largest value.
        grown = math.sqrt(3) * unit_roundoff(computed.dtype) / UNIT
        if size is None:
            return None
        usual = unit_roundoff(computed.dtype) * terms.result_growth(computed.node, computed.inputs) * np.abs(exact[0])
        size = np.where(outputs[0] == exact[0], 0.0, size * grown)
        return size if bool((size > usual).any()) else None

    def _steps(self, computed: Computation, index: int) -> Any:
        """The steps of a quantising operator.

        A value beside a tie may be rounded the other way. That is rare, and one such value changes the result far more than all
        other rounding. A few samples would miss it, so small perturbations count RARE times here.
        """
        node, inputs, steps = computed.node, computed.inputs, computed.steps
        call, arguments = PerturbedNode(computed, index, self.noise).perturbed()
        with np.errstate(all="ignore"):
            found, kind = UNROUNDED[node.domain, node.op](call, *present(arguments))
            size = RARE * np.maximum(np.abs(found - steps), coarsest(inputs) * np.abs(steps))
        # Scales are the same for all values, and would round all of them in one direction. The directions are drawn, and those of
        # every second pass are the opposite ones, so that each value beside a tie is rounded the other way in half of the passes.
        up = np.random.default_rng(np.size(steps)).random(np.shape(steps)) < 0.5
        drawn = np.where(up == bool(index % 2), size, -size)
        return rounded(np.where(size < 0.5, steps + drawn, found), kind)


@dataclass(frozen=True)
class PerturbedNode:
    """A node in one perturbed pass. index: the place of the pass among all passes."""

    computed: Computation
    index: int
    noise: Noise

    def outputs(self, exact: list[Any], rounding: bool) -> list[Any]:
        """The outputs. A result of this pass's own values that the type holds exactly stays as it is.

        exact: the outputs in the exact pass. rounding: whether results are rounded, beside the perturbation of what goes in.
        """
        node, inputs, unit = self.computed.node, self.computed.inputs, unit_roundoff(self.computed.dtype)
        if (node.domain, node.op) in COMPOSED:
            with perturbed_operations(self.noise.of(max(unit, coarsest(inputs))), compiled=False):
                return self._unperturbed(self._spread)
        plain = self._plain(exact, unit)
        if kinds.copies(node) and plain is not None:
            narrows = rounding and unit > coarsest(inputs)  # a cast to a narrower type rounds
            return [self._rounded(data, unit) for data in plain] if narrows else plain
        if plain is not None and all(map(partial(_is_held, unit=unit), plain)):
            return plain
        if plain is not None and self.terms > 1:
            return [self._rounded(data, unit) for data in plain] if rounding else plain
        call, arguments = self.perturbed()
        outputs = call.outputs(self.computed.implementation, arguments)
        if rounding:
            grown = unit * terms.result_growth(node, inputs)
            outputs = [noisy(data, self.noise, grown) for data in outputs]
        return outputs if plain is None else [_unless_held(*each, unit) for each in zip(outputs, plain)]

    @cached_property
    def terms(self) -> int:
        """The length of the sums behind one value of the output."""
        return terms.summed_terms(self.computed.node, exact_of(self.computed.inputs))

    def perturbed(self) -> tuple[Call, list[Any]]:
        """The computation with its arguments and attributes perturbed by the growth of rounding: the call, and its arguments."""
        node, inputs = self.computed.node, self.computed.inputs
        unit = max(unit_roundoff(self.computed.dtype), coarsest(inputs))
        size = 0.0 if kinds.copies(node) else unit * growth(self.terms)
        arguments = []
        for place, (value, data) in enumerate(zip(inputs, self._arguments())):
            if size > 0.0 and not self._is_structural(place) and _rounds(node, place, data):
                data = self.noise.argument(tensor(data), size).numpy()
            if value is not None and node.op == "DynamicQuantizeLinear":
                data = _beside_ties(value.exact, data)
            arguments.append(data)
        attributes = _noisy_attributes(node, self.noise, size) if size else node.attributes
        jitter = size * float(self.noise.pool[self.index])
        return Call(node, attributes, np.float64, jitter, types_of(inputs), self._spread), arguments

    def _spread(self, size: Any) -> Any:
        return self.noise.perturbed(tensor(size), 1.0).numpy() - size

    def _plain(self, exact: list[Any], unit: float) -> list[Any] | None:
        """The outputs on the values of this pass, with nothing else perturbed; None for a sum that rounds."""
        if self.terms > 1:
            floats = [tensor(data) for data in self._arguments() if is_float(data)]
            if self.computed.node.op not in terms.SUMS or not sums_exactly(floats, self.terms, unit):
                return None
        return exact if self.computed.shares_inputs(self.index) else self._unperturbed()

    def _unperturbed(self, spread: Callable[[Any], Any] | None = None) -> list[Any]:
        """The outputs on the values of this pass. spread: see ``Call``."""
        call = replace(Call.of(self.computed.node, self.computed.inputs), spread=spread)
        return call.outputs(self.computed.implementation, self._arguments())

    def _arguments(self) -> list[Any]:
        found = [
            None if value is None else value.exact if self._is_structural(place) else value.by_pass[self.index]
            for place, value in enumerate(self.computed.inputs)
        ]
        if self.computed.node.op in CUTTING and not unit_roundoff(self.computed.dtype) and is_float(found[0]):
            found[0] = self._settled(found[0], self.computed.inputs[0])
        return found

    def _settled(self, data: Any, value: Any) -> Any:
        """The same with whole numbers for values that are ones but for rounding, where the file's own types do not fall short."""
        unit, own = coarsest(self.computed.inputs), value.by_pass[-1]
        agree = np.trunc(own) == np.trunc(settled(tensor(value.exact), unit, 0.5).numpy())
        return np.where(agree, settled(tensor(data), unit).numpy(), data)

    def _is_structural(self, place: int) -> bool:
        return place in terms.STRUCTURAL.get(self.computed.node.op, frozenset())

    def _rounded(self, data: Any, unit: float) -> Any:
        """A copy of an array in which the values that a type does not hold exactly are perturbed."""
        return self.noise.of(unit).rounded(tensor(data)).numpy() if is_float(data) and data.size else data


def noisy(data: Any, noise: Noise, size: float) -> Any:
    """A perturbed copy of an array; the data itself when it is nothing else."""
    return noise.perturbed(tensor(data), size).numpy() if is_float(data) and data.size else data


def _beside_ties(exact: Any, moved: Any) -> Any:
    """Multiply small perturbations by RARE in values that are quantised over their own range afterwards.

    A perturbation of half a step or more stays as it is: it changes the step by itself, and RARE would make it grow in every layer.
    The ends of the range stay, too, because they determine the scale of all values.
    """
    if not exact.size:
        return moved
    low, high = min(0.0, float(exact.min())), max(0.0, float(exact.max()))
    change = moved - exact
    small = (RARE * np.abs(change) < (high - low) / 255 / 2) & (exact > low) & (exact < high)
    return exact + np.where(small, RARE, 1.0) * change


def _rounds(node: Node, place: int, data: Any) -> bool:
    """Whether an input is rounded. A whole exponent stays whole: a negative number has no other powers."""
    if not is_float(data) or not data.size:
        return False
    return not (node.op == "Pow" and place == 1 and bool((data == np.rint(data)).all()))


def _noisy_attributes(node: Node, noise: Noise, size: float) -> Mapping[str, Any]:
    """The attributes with perturbed numbers."""
    return {
        name: value * noise.factor(index, size)
        if isinstance(value, float) and name not in terms.EXACT_ATTRIBUTES
        else value
        for index, (name, value) in enumerate(node.attributes.items())
    }


def _is_held(data: Any, unit: float) -> bool:
    """Whether a type holds all values of an array exactly. unit: its unit roundoff."""
    return not is_float(data) or not data.size or bool(held(tensor(data).contiguous(), unit).all())


def _unless_held(data: Any, plain: Any, unit: float) -> Any:
    """Perturbed values, without a perturbation where the plain ones need none, or where it led out of the domain of a function."""
    if not is_float(data) or not data.size or data.shape != plain.shape:
        return data
    stay = held(tensor(plain).contiguous(), unit).numpy()
    with np.errstate(invalid="ignore"):
        stay |= np.isnan(data - data)  # infinite or missing
    return np.where(stay, plain, data) if stay.any() else data
