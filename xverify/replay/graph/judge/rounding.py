"""What storing and computing a graph in a lower precision may change at its outputs: float64 evaluations with random roundings.

In these evaluations a quantised value is a real number of steps. It is not rounded to a whole one and not clipped to the range of
its type; a random part of a step is added instead. So they tell what the steps of the file may cost, and not what they do cost.
A stored number that the reference stores, too, costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....float64.rounding import held
from ....verdict.limits import UNIT
from ....verdict.local import sampled
from ....weights.canonical import Array
from .. import kinds
from ..describe import Types
from ..evaluation import EXACT, Computation, Evaluation, given
from ..layers import PARAMETERS, QUANTISED_WEIGHTS, WHOLE_SUMS, Steps
from ..model import Graph, Node
from ..operators.few_bits import FEW_BITS, Grid
from ..operators.quantized import along, blocks, real, returns_steps
from ..operators.registry import Call
from ..values import UNITS, Value, exact_of, is_float, tensor, whole_limits
from .shared import Shared
from .terms import STRUCTURAL

SAMPLES = 2  # evaluations with rounded weights, and as many with rounded results, too
STEPS = 255.0  # steps of 8 bits
# How much coarser than necessary a scale may be. A calibration sees other values than a check does.
SPARE = 2.0
SUBNORMAL = {np.dtype(np.float16): 2.0**-25}  # half the distance between the smallest numbers of a type


@dataclass(frozen=True)
class Units:
    """The unit roundoff of a lower precision; None: that of the type which the file declares for each constant and result.

    spare: how much coarser than necessary a scale of quantised values may be; steps that are coarser count as this much.
    """

    weights: float | None = None
    results: float | None = None
    spare: float = SPARE


@dataclass
class Ranges:
    """What quantised values need, over all cases so far.

    needed: name of a node -> the largest number of steps between its smallest and its largest value.
    clipped: name of a node that quantises -> share of the power of its values that lies outside of its range, in the present case.
    """

    needed: dict[str, float] = field(default_factory=dict)
    clipped: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundingNoise:
    """How much rounding changes one output: the rms of the change of every value.

    weights: when weights and quantised values are rounded. results: when all results are rounded, too.
    """

    weights: Array
    results: Array


def rounding_noise(
    graph: Graph,
    inputs: Mapping[str, Any],
    units: Units,
    ranges: Ranges,
    seed: int = 0,
    samples: int = SAMPLES,
    shared: Shared | None = None,
) -> dict[str, RoundingNoise]:
    """What rounding may change at every floating-point output of a graph.

    inputs: an array for each input by name. ranges: is updated. shared: the constants that the reference has, too.
    """
    ranges.clipped.clear()
    evaluation = _Rounded(graph, units, ranges, seed, samples, shared or {})
    found = evaluation.run(graph, given(evaluation, graph, inputs))
    noise = {}
    for name, value in zip(graph.outputs, found):
        if value is None or not isinstance(value.exact, np.ndarray) or not is_float(value.exact):
            continue
        weights, results = (evaluation.change(value, each) for each in (evaluation.with_weights, evaluation.with_all))
        noise[name] = RoundingNoise(weights, results)
    return noise


class _Rounded(Evaluation):
    """An exact pass without any quantisation, passes with rounded weights, and passes with rounded results, too."""

    def __init__(self, graph: Graph, units: Units, ranges: Ranges, seed: int, samples: int, shared: Shared) -> None:
        both = units.results is not None or _declares_narrow(graph)
        count = samples * (2 if both else 1)
        super().__init__([EXACT] * (count + 1))
        self.with_weights = range(1, samples + 1)
        self.with_all = range(samples + 1, count + 1) if both else self.with_weights
        self.graph, self.units, self.ranges, self.shared = graph, units, ranges, shared
        self.random = [np.random.default_rng([seed, index]) for index in range(count + 1)]

    def change(self, value: Value, passes: Sequence[int]) -> Array:
        """rms of the difference of these passes from the exact one, of every value."""
        return sampled(value.exact, [value.by_pass[index] for index in passes])

    def _constant(self, data: Any) -> Value:
        """The value of a constant of the file, rounded at random in all passes but the first."""
        if not is_float(data) or data.dtype == np.float64 or not data.size:
            return self.value(data)
        unit, smallest = UNITS[data.dtype], SUBNORMAL.get(data.dtype, 0.0)
        if self.units.weights is not None:
            unit = self.units.weights
            smallest = SUBNORMAL[np.dtype(np.float16)] if unit < 2.0**-10 else 0.0
        if unit <= UNIT:
            return self.value(data)
        wide = data.astype(np.float64)
        size = np.maximum(unit * np.abs(wide), smallest)
        if id(data) in self.shared:
            size = np.where(data == self.shared[id(data)], 0.0, size)
        return Value((wide, *(self._spread(wide, size, index) for index in self._noisy)), data.dtype)

    @property
    def _noisy(self) -> range:
        return range(1, len(self.passes))

    def _spread(self, array: Any, size: Any, index: int) -> Any:
        """The array with a uniform random number in ± size added to every finite value."""
        return array + np.where(np.isfinite(array), size, 0.0) * self.random[index].uniform(-1.0, 1.0, np.shape(array))

    def _rounded(self, data: Any, unit: float, index: int) -> Any:
        """Results with their rounding in a lower precision, where this does not hold them exactly."""
        if not is_float(data) or not data.size:
            return data
        exact = held(tensor(data).contiguous(), unit).numpy()
        return self._spread(data, np.where(exact, 0.0, unit * np.abs(data)), index)

    def _compute(self, computed: Computation) -> list[Value]:
        node, inputs = computed.node, computed.inputs
        results = [self._outputs(computed, 0)]
        results += [self._outputs(computed, index) or results[0] for index in self._noisy]
        steps, unit = self._steps_of(node, results[0], inputs), self._unit(node, computed.dtype)
        low, high = self._limits(node, inputs)
        for index in self._noisy:
            if steps:
                results[index] = [self._spread(results[index][0], 0.5 * steps, index), *results[index][1:]]
            elif unit and index in self.with_all and self.with_all is not self.with_weights:
                results[index] = [self._rounded(data, unit, index) for data in results[index]]
        if steps:  # the range of a type may have the place of a ReLU
            results = [[np.clip(each[0], low - 0.5, high + 0.5), *each[1:]] for each in results]
        values = [self._join(computed, outputs) for outputs in zip(*results)]
        if returns_steps(node) and is_float(results[0][0]):
            values[0] = Value(tuple(each[0] for each in results), np.dtype(np.int8))  # a real number of steps
        return values

    def _outputs(self, computed: Computation, index: int) -> list[Any]:
        """The outputs of a node in one pass before they are rounded; [] where they are those of the exact pass."""
        node, inputs = computed.node, computed.inputs
        weights = self._weights(node, inputs, index) if index else {}
        if index and not weights and computed.shares_inputs(index):
            return []
        structural = STRUCTURAL.get(node.op, frozenset())
        arguments = [
            None if value is None else value.by_pass[0 if place in structural else index]
            for place, value in enumerate(inputs)
        ]
        for place, array in weights.items():
            arguments[place] = array
        call = Call.of(node, inputs)
        call = replace(call, spread=lambda size: self._spread(0.0, size, index)) if index else call
        return call.outputs(real(node) or computed.implementation, arguments)

    def _unit(self, node: Node, dtype: Any) -> float:
        """The unit roundoff of the results of a node; 0 when they are not rounded by more than float32 rounds."""
        if kinds.copies(node):
            return 0.0
        unit = UNITS.get(dtype, 0.0) if self.units.results is None else self.units.results
        return unit if unit > UNIT else 0.0

    def _steps_of(self, node: Node, exact: Sequence[Any], inputs: Sequence[Value | None]) -> float:
        """How many steps wide the rounding of the first output of a node may be: 1, or less where its scale is too coarse."""
        if node.op in WHOLE_SUMS or not returns_steps(node) or not is_float(exact[0]):
            return 0.0
        steps = exact[0]
        if not steps.size or not np.isfinite(steps).all():
            return 0.0
        needed = max(float(np.ptp(steps)), self.ranges.needed.get(node.name, 0.0))
        self.ranges.needed[node.name] = needed
        if node.op in PARAMETERS:
            low, high = self._limits(node, inputs)
            zero = self._zero(node, inputs)
            # Where the smallest number of steps stands for 0, the quantiser has the place of a ReLU.
            relu = bool(np.all((0 if zero is None else zero.exact) == low)) and node.inputs[0] not in self.graph.inputs
            lowest = -np.inf if relu else low - 0.5
            outside = steps - np.clip(steps, lowest, high + 0.5)
            power = float(np.square(steps - np.median(steps)).sum())
            self.ranges.clipped[node.name] = float(np.square(outside).sum()) / power if power else 0.0
            if self._has_range_of_function(node, inputs, low, high):
                return 1.0
        return min(1.0, self.units.spare * max(needed, 1.0) / STEPS)

    def _has_range_of_function(self, node: Node, inputs: Sequence[Value | None], low: float, high: float) -> bool:
        """Whether the scale of a quantised result is that of the range of a function with bounds, which tools take as it is.

        low, high: the smallest and the largest number of steps.
        """
        scale, zero = inputs[PARAMETERS[node.op][0]], self._zero(node, inputs)
        offset = 0.0 if zero is None else zero.exact
        if scale is None or np.size(scale.exact) != 1 or np.size(offset) != 1:
            return False
        step, middle = (float(np.reshape(each, ())) for each in (scale.exact, offset))
        return kinds.is_range_of_function(self.graph, node.outputs[0], (low - middle) * step, (high - middle) * step)

    def _zero(self, node: Node, inputs: Sequence[Value | None]) -> Value | None:
        """The zero point of a quantised result."""
        place = PARAMETERS.get(node.op, (0, len(inputs)))[1]
        return inputs[place] if place < len(inputs) else None

    def _limits(self, node: Node, inputs: Sequence[Value | None]) -> tuple[float, float]:
        """The smallest and the largest number of steps that the type of a quantised result holds."""
        zero = self._zero(node, inputs)
        limits = np.iinfo(np.uint8 if zero is None or zero.dtype is None else zero.dtype)
        return float(limits.min), float(limits.max)

    def _weights(self, node: Node, inputs: Sequence[Value | None], index: int) -> dict[int, Any]:
        """The quantised weights of a node with a random part of a step added: which input -> array."""
        places, weights = quantised_weights(self.graph, node)
        if weights is None:
            return {}
        exact = exact_of(inputs)
        if node.op in FEW_BITS:
            return self._blocks(node, weights, exact, index)
        scale, zero = (
            exact[place] if place is not None and place < len(exact) else None for place in (places.scale, places.zero)
        )
        wide = weights.astype(np.float64)
        size = 0.5 * np.minimum(1.0, self.units.spare / coarseness(node, wide, scale, zero, weights.dtype))
        if id(weights) in self.shared:
            size = _beside(wide, self.shared[id(weights)].astype(np.float64), size)
        return {places.place: self._spread(wide, size, index)}

    def _blocks(self, node: Node, stored: Any, exact: Sequence[Any], index: int) -> dict[int, Any]:
        """The weights of a few bits of a node with a random part of a step added."""
        few = FEW_BITS[node.op]
        grid, place = few.of(node, exact), few.places[0]
        size = 0.5 * grid.gap * min(1.0, self.units.spare / block_coarseness(grid))
        if id(stored) in self.shared:
            others = [self.shared[id(stored)] if at == place else each for at, each in enumerate(exact)]
            size = _beside(grid.steps, few.of(node, others).steps, size)
        return {place: replace(grid, steps=self._spread(grid.steps, size, index))}


def _beside(steps: Any, others: Any, size: Any) -> Any:
    """How much rounding may change whole numbers that the reference has, too: nothing where they are the same.

    Two tools that round one number may get neighbours, so such a one may change by a step. Others change by ``size``.
    """
    apart = np.abs(steps - others)
    return np.where(apart == 0, 0.0, np.where(apart == 1, 1.0, size))


def quantised_weights(graph: Graph, node: Node) -> tuple[Steps, Any]:
    """Where a node takes quantised weights, and these when they are a constant of one byte for each value; else None."""
    places = QUANTISED_WEIGHTS.get(node.op, Steps(len(node.inputs), None, 0))
    weights = graph.constants.get(node.input(places.place))
    return places, weights if weights is not None and weights.dtype.itemsize == 1 and weights.ndim else None


def coarseness(node: Node, weights: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """How many times larger the scale of quantised weights is than their values need; one number, or one for each channel."""
    limits, rank = whole_limits(dtype), weights.ndim
    axis = weight_axis(node, rank)
    grid = node.op == "DequantizeLinear" and np.ndim(scale) == rank > 1
    if limits is None:
        return np.ones(())
    offset = 0.0 if zero is None else blocks(Call.of(node), zero, weights) if grid else along(zero, rank, axis)
    filled = _filled(weights - offset, offset, *limits)
    if grid:
        return _over_blocks(filled, np.asarray(scale, np.float64), node.get("block_size", 1), axis)
    per_tensor = scale is None or np.size(scale) == 1
    others = None if per_tensor else tuple(other for other in range(rank) if other != axis)
    return _factor(np.max(filled, axis=others, keepdims=not per_tensor, initial=0.0))


def block_coarseness(grid: Grid) -> float:
    """The same for weights of a few bits, whose blocks have a scale each."""
    filled = _filled(grid.steps - grid.zero, grid.zero, grid.low, grid.high)
    scale, axis = grid.scale, grid.axis
    if axis is None:
        filled, scale, axis = filled.reshape(-1), scale.reshape(-1), 0
    first = range(0, scale.shape[axis], grid.block)
    return float(_over_blocks(filled, np.take(scale, first, axis), grid.block, axis))


def _filled(steps: Any, offset: Any, least: float, most: float) -> Any:
    """How much of the way from the zero point to the end of the range each number of steps is."""
    return np.abs(steps) / np.maximum(np.where(steps > 0, most - offset, offset - least), 1.0)


def _over_blocks(filled: Any, scale: Any, block: int, axis: int) -> Any:
    """The mean over blocks, each with the power of its steps. scale: one for each block."""
    largest = np.maximum.reduceat(filled, np.arange(0, filled.shape[axis], block), axis)
    power = float(np.square(scale / _factor(largest)).sum())
    return np.sqrt(np.square(scale).sum() / power) if power else np.ones(())


def _factor(largest: Any) -> Any:
    return np.where(largest > 0, 1.0 / np.where(largest > 0, largest, 1.0), 1.0)


def weight_axis(node: Node, rank: int) -> int:
    """The axis of the quantised weights of a node along which each channel has a scale of its own."""
    if node.op == "DequantizeLinear":
        return int(node.get("axis", 1)) % rank
    if node.op in ("QLinearConv", "ConvInteger"):
        return 0
    return 0 if node.op == "QGemm" and node.get("transB", 0) else rank - 1


def _declares_narrow(graph: Graph) -> bool:
    """Whether a graph has floating-point values of a narrower type than float32."""
    return any(name in ("float16", "bfloat16") for name in Types(graph).dtypes.values())
