"""One node in a perturbed pass: what goes in perturbed by the growth of rounding, and its results rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ....float64.operations import perturbed_operations
from ....float64.rounding import Noise, held, sums_exactly
from ....verdict.limits import growth
from .. import kinds
from ..model import Node
from ..operators.registry import Call, Operator
from ..values import Value, array, coarsest, convert, is_float, tensor, unit_roundoff

RARE = 10.0  # how many times the noise of rounding counts where it decides between two steps of a quantised value


@dataclass(frozen=True)
class PerturbedNode:
    """A node in one perturbed pass.

    inputs: its inputs in all passes. index: the pass. dtype: the declared type of its floating-point outputs.
    """

    node: Node
    inputs: Sequence[Value | None]
    index: int
    dtype: Any
    noise: Noise

    def outputs(self, implementation: Operator, exact: list[Any], rounding: bool) -> list[Any]:
        """The outputs. A result of this pass's own values that the type holds exactly stays as it is.

        exact: the outputs in the exact pass. rounding: whether results are rounded, beside the perturbation of what goes in.
        """
        node, unit = self.node, unit_roundoff(self.dtype)
        if node.domain == "" and node.op in kinds.SOFTMAXES:
            with perturbed_operations(self.noise.of(max(unit, coarsest(self.inputs)))):
                return outputs_of(*self._given(implementation))
        plain = self._plain(implementation, exact, unit)
        if kinds.copies(node) and plain is not None:
            narrows = rounding and unit > coarsest(self.inputs)  # a cast to a narrower type rounds
            return [self._rounded(data, unit) for data in plain] if narrows else plain
        if plain is not None and all(map(partial(_is_held, unit=unit), plain)):
            return plain
        if plain is not None and self.terms > 1:
            return [self._rounded(data, unit) for data in plain] if rounding else plain
        call, arguments = self.perturbed()
        outputs = outputs_of(call, implementation, arguments)
        if rounding:
            grown = unit * kinds.result_growth(node, self.inputs)
            outputs = [noisy(data, self.noise, grown) for data in outputs]
        return outputs if plain is None else [_unless_held(*each, unit) for each in zip(outputs, plain)]

    @property
    def terms(self) -> int:
        """The length of the sums behind one value of the output."""
        return kinds.summed_terms(self.node, [None if value is None else value.exact for value in self.inputs])

    def perturbed(self) -> tuple[Call, list[Any]]:
        """The computation with its arguments and attributes perturbed by the growth of rounding: the call, and its arguments."""
        node = self.node
        unit = max(unit_roundoff(self.dtype), coarsest(self.inputs))
        size = 0.0 if kinds.copies(node) else unit * growth(self.terms)
        arguments = []
        for place, (value, data) in enumerate(zip(self.inputs, self._arguments())):
            if size > 0.0 and not self._is_structural(place) and _rounds(node, place, data):
                data = self.noise.argument(tensor(data), size).numpy()
            if value is not None and node.op == "DynamicQuantizeLinear":
                data = _beside_ties(value.exact, data)
            arguments.append(data)
        attributes = _noisy_attributes(node, self.noise, size) if size else node.attributes
        jitter = size * float(self.noise.pool[self.index])
        return Call(node, attributes, np.float64, jitter, types_of(self.inputs)), arguments

    def _plain(self, implementation: Operator, exact: list[Any], unit: float) -> list[Any] | None:
        """The outputs on the values of this pass, with nothing else perturbed; None for a sum that rounds."""
        call, _, arguments = self._given(implementation)
        floats = [tensor(data) for data in arguments if is_float(data)]
        if self.terms > 1 and not (self.node.op in kinds.SUMS and sums_exactly(floats, self.terms, unit)):
            return None
        if all(value is None or value.by_pass[self.index] is value.exact for value in self.inputs):
            return exact
        return outputs_of(call, implementation, arguments)

    def _given(self, implementation: Operator) -> tuple[Call, Operator, list[Any]]:
        """The computation on the values of this pass."""
        call = Call(self.node, self.node.attributes, np.float64, 0.0, types_of(self.inputs))
        return call, implementation, self._arguments()

    def _arguments(self) -> list[Any]:
        return [
            None if value is None else value.exact if self._is_structural(place) else value.by_pass[self.index]
            for place, value in enumerate(self.inputs)
        ]

    def _is_structural(self, place: int) -> bool:
        return place in kinds.STRUCTURAL.get(self.node.op, frozenset())

    def _rounded(self, data: Any, unit: float) -> Any:
        """A copy of an array in which the values that a type does not hold exactly are perturbed."""
        return self.noise.of(unit).rounded(tensor(data)).numpy() if is_float(data) and data.size else data


def types_of(inputs: Sequence[Value | None]) -> tuple[Any, ...]:
    """The declared types of inputs."""
    return tuple(None if value is None else value.dtype for value in inputs)


def outputs_of(call: Call, implementation: Operator, arguments: list[Any]) -> list[Any]:
    """The outputs of an implementation as arrays."""
    arguments = present(arguments)
    with torch.no_grad(), np.errstate(all="ignore"):
        found = implementation(call, *arguments)
    several = found if isinstance(found, tuple) else (found,)
    return [convert(array(data), call.dtype) for data in several]


def present(arguments: list[Any]) -> list[Any]:
    """The arguments without those that are left out at the end."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    return arguments


def noisy(data: Any, noise: Noise, size: float) -> Any:
    """A perturbed copy of an array; the data itself when it is nothing else."""
    return noise.perturbed(tensor(data), size).numpy() if is_float(data) and data.size else data


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
    if not is_float(data) or not data.size:
        return False
    return not (node.op == "Pow" and place == 1 and bool((data == np.rint(data)).all()))


def _noisy_attributes(node: Node, noise: Noise, size: float) -> Mapping[str, Any]:
    """The attributes with perturbed numbers."""
    return {
        name: value * noise.factor(index, size)
        if isinstance(value, float) and name not in kinds.EXACT_ATTRIBUTES
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
