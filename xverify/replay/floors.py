"""The noise floor of a layer's outputs on the inputs of one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..float64.layer_kinds import COPIES, ITEMWISE, channel_axis, is_training_norm, may_overwrite
from ..float64.perturbation import DECISIONS, MARGIN, Noise
from ..float64.stepping import Models
from ..float64.structures import as_float32, flatten, map_tensors
from ..verdict.local import enough
from ..verdict.tables import Table
from ..weights.canonical import Array
from .tensors import Floors, NoiseOf, mean_squares

# Calls of one layer whose floors are measured. Later calls have the same floors in relation to the size of their outputs.
MEASURED_CALLS = 3
ALIKE = 1e-3  # relative difference of the size of every channel, below which two calls have the same floors
ENOUGH_VALUES = 32  # least number of values of a channel for a floor that is measured on one item of the batch

Item = TypeVar("Item")
MORE_SAMPLES = 8  # perturbed computations of a layer, or of glue code, that is beyond a limit


@dataclass(frozen=True)
class RelativeFloors:
    """The floors of one output as shares of its size.

    perturbation, error: mean squares by channel, (C,), of the change under perturbation and of the float32 error, over the mean
        square of the output. tables: the same by decade of size and channel.
    """

    perturbation: Array
    error: Array
    tables: tuple[Table, Table]


def alike(sizes: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether outputs of two calls have the same sizes in every channel. Each is mean squares by channel, (C,)."""
    return [each.shape for each in sizes] == [each.shape for each in others] and all(
        np.allclose(mine, other, rtol=ALIKE, atol=0.0) for mine, other in zip(sizes, others)
    )


class FloorMeter:
    """Measures noise floors: a layer computes once more in float64 with everything perturbed, and once in float32.

    items: size of the batch. Layers that treat all items alike are measured on one item.
    known: the floors of earlier replays of the same models. They are used again where the layer computes outputs of the same sizes,
        as it does in every port that is right.
    """

    def __init__(self, models: Models, noise: Noise) -> None:
        self.models, self.noise = models, noise
        # Of layers that stay in float32, where others compute in a lower precision.
        self.float32_noise: Noise | None = None
        self.items = 0
        self.relative: dict[str, list[list[RelativeFloors]]] = {}  # layer -> its measured calls -> their outputs
        self.known = models.measured_floors

    def measure(self, name: str, args: Any, exact: list[Tensor]) -> list[Floors]:
        """The noise floors of a layer's outputs.

        args: the arguments of the call, in float64.
        exact: the outputs of the call, in float64.
        """
        layer = self.models.layers[name]
        unit = self.models.precision.forward_unit(name)
        if isinstance(layer, COPIES):
            return [Floors(y, None, None, unit=unit) for y in exact]
        axes = [channel_axis(layer, y.dim()) for y in exact]
        found = self._measured(name, args, exact, axes, unit)
        again = cache(partial(self._more_samples, name, args, exact, axes, unit))
        undecided = cache(partial(self._undecided, name, args, exact, unit))
        return [
            replace(each, again=partial(_item, again, index), undecided=partial(_item, undecided, index))
            for index, each in enumerate(found)
        ]

    def _undecided(self, name: str, args: Any, exact: list[Tensor], unit: float) -> list[Tensor]:
        """Which whole numbers change when the layer rounds MARGIN times as much."""
        found = [torch.zeros_like(y, dtype=torch.bool) for y in exact]
        for index in range(DECISIONS):
            noise = Noise(self.models.seed + index, MARGIN * unit)
            for changed, perturbed, y in zip(found, self._perturbed(name, args, noise), exact):
                if perturbed.shape == y.shape:
                    changed |= perturbed != y
        return found

    def _measured(self, name: str, args: Any, exact: list[Tensor], axes: list[int], unit: float) -> list[Floors]:
        layer, earlier = self.models.layers[name], self.relative.get(name, [])
        if len(earlier) >= MEASURED_CALLS and all(len(call) == len(exact) for call in earlier):
            return [self._in_proportion(y, [call[i] for call in earlier], layer, unit) for i, y in enumerate(exact)]
        one_item = self._one_item_is_enough(layer, args, exact, axes)
        if one_item:
            args = map_tensors(args, lambda tensor: tensor[:1])
        parts = [y[:1] if one_item else y for y in exact]
        scalable = all(y.is_floating_point() and y.dim() for y in exact)
        sizes = [mean_squares(y, axis) for y, axis in zip(parts, axes)] if scalable else []
        key = (name, len(earlier), unit)
        known = self.known.get(key) if scalable else None
        floors: list[Floors] = []
        if known is not None and alike(sizes, known[0]):
            relative = known[1]
        else:
            perturbed, own = self._perturbed(name, args, self.noise_of(unit)), self._own(name, args, unit)
            floors = [Floors.between(*each, unit) for each in zip(parts, perturbed, own, axes)]
            if not scalable:
                return floors
            relative = [_relative(each, axis) for each, axis in zip(floors, axes)]
            self.known.setdefault(key, (sizes, relative))
        self.relative.setdefault(name, []).append(relative)
        if not floors or one_item:
            return [self._in_proportion(y, [each], layer, unit) for y, each in zip(exact, relative)]
        return floors

    def _more_samples(self, name: str, args: Any, exact: list[Tensor], axes: list[int], unit: float) -> list[Floors]:
        """The floors by MORE_SAMPLES perturbed computations of all items."""
        own = self._own(name, args, unit)
        found = [Floors.between(y, None, e, axis, unit) for y, e, axis in zip(exact, own, axes)]
        changes = [torch.zeros_like(y, dtype=torch.float64) for y in exact]
        for index in range(MORE_SAMPLES):
            noise = Noise(self.models.seed + 1 + index, unit)
            for change, perturbed, y in zip(changes, self._perturbed(name, args, noise), exact):
                change += (perturbed - y).square() / MORE_SAMPLES
        return [each.sampled(change, axis) for each, change, axis in zip(found, changes, axes)]

    def noise_of(self, unit: float) -> Noise:
        """The noise of a precision, which is that of the run or float32."""
        if unit != self.noise.unit and self.float32_noise is None:
            self.float32_noise = Noise(self.models.seed, unit)
        return self.noise if self.float32_noise is None or unit == self.noise.unit else self.float32_noise

    def _perturbed(self, name: str, args: Any, noise: Noise) -> list[Tensor]:
        """The outputs when arguments, weights and constants are perturbed."""
        layer = self.models.layers[name]
        arguments = self.models.perturbed_arguments(layer, args, noise, noise.unit)
        return flatten(self.models.compute_perturbed(layer, arguments, noise, noise.unit))

    def _own(self, name: str, args: Any, unit: float) -> list[Tensor]:
        """The outputs of the reference in float32, or in the lower precision of this unit."""
        copy = may_overwrite(self.models.layers[name])
        layer = self.models.float32_layers[name]
        own = map_tensors(args, lambda t: as_float32(t).clone() if copy else as_float32(t))
        with self.models.precision.autocast(unit):
            return flatten(self.models.compute(layer, own))

    def _one_item_is_enough(self, layer: nn.Module, args: Any, exact: list[Tensor], axes: list[int]) -> bool:
        """Whether a floor that is measured on one item of the batch, in proportion to its size, holds for all items."""
        if is_training_norm(layer) or not isinstance(layer, ITEMWISE):
            return False
        tensors = [*flatten(args), *exact]
        if not all(tensor.dim() > 1 and tensor.is_floating_point() for tensor in tensors):
            return False
        items = {tensor.shape[0] for tensor in tensors}
        channels = [y.shape[axis] for y, axis in zip(exact, axes)]
        return items == {self.items} and all(y[0].numel() >= ENOUGH_VALUES * count for y, count in zip(exact, channels))

    def _in_proportion(
        self, exact: Tensor, relative: Sequence[RelativeFloors], layer: nn.Module, unit: float
    ) -> Floors:
        """Floors in proportion to the size of this output; over all channels, where their number differs between calls."""
        if len({each.perturbation.shape for each in relative}) > 1:
            relative = [
                replace(each, perturbation=each.perturbation.mean(keepdims=True), error=each.error.mean(keepdims=True))
                for each in relative
            ]
        axis = channel_axis(layer, exact.dim())
        size = mean_squares(exact, axis)
        perturbation, error = (
            np.broadcast_to(np.mean(parts, axis=0) * size.mean(), size.shape)
            for parts in ([each.perturbation for each in relative], [each.error for each in relative])
        )
        tables = zip(*(each.tables for each in relative))
        whole = math.sqrt(float(size.mean()))
        noise = [_by_tables(each, tuple(exact.shape), axis, whole) for each in tables]
        return Floors(exact, perturbation, error, size, unit=unit, noise=(noise[0], noise[1]))


def _item(function: Callable[[], Sequence[Item]], index: int) -> Item:
    return function()[index]


def _relative(floors: Floors, axis: int) -> RelativeFloors:
    """The floors of a measured output as shares of its size."""
    assert floors.perturbation is not None
    assert floors.float32_error is not None
    exact = floors.exact.detach().numpy()
    mean = float(mean_squares(floors.exact, axis).mean()) or 1.0
    flat = exact.reshape(-1)

    def squares(noise: NoiseOf, places: Array) -> Array:
        step = int(places[1] - places[0]) if places.size > 1 else 1
        found: Array = np.square(noise(places, flat[::step][: places.size]))
        return found

    tables = [
        Table.of(exact, partial(squares, each), axis, enough(exact.shape)) for each in floors.noise if each is not None
    ]
    return RelativeFloors(floors.perturbation / mean, floors.float32_error / mean, (tables[0], tables[1]))


def _by_tables(tables: Sequence[Table], shape: tuple[int, ...], axis: int, size: float) -> NoiseOf:
    """The noise by some tables together. size: rms of the output."""

    def noise(places: Array, values: Array) -> Array:
        found: Array = np.sqrt(np.mean([each.noise(values, places, shape, axis, size) for each in tables], axis=0))
        return found

    return noise
