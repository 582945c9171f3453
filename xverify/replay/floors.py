"""The noise floor of a layer's outputs on the inputs of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..weights.canonical import Array
from .layer_kinds import COPIES, ITEMWISE, channel_axis, is_training_norm, may_overwrite
from .perturbation import Noise
from .stepping import Models
from .structures import as_float32, flatten, map_tensors
from .tensors import Floors, mean_squares

# Calls of one layer whose floors are measured. Later calls have the same floors in relation to the size of their outputs.
MEASURED_CALLS = 3
ALIKE = 1e-3  # relative difference of the size of every channel, below which two calls have the same floors
ENOUGH_VALUES = 32  # least number of values of a channel for a floor that is measured on one item of the batch

# Mean squares by channel, (C,), of the change under perturbation and of the float32 error, over the mean square of the output.
RelativeFloors = tuple[Array, Array]


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
        earlier = self.relative.get(name, [])
        if len(earlier) >= MEASURED_CALLS and all(len(call) == len(exact) for call in earlier):
            return [self._in_proportion(y, [call[i] for call in earlier], layer, unit) for i, y in enumerate(exact)]
        if isinstance(layer, COPIES):
            return [Floors(y, None, None, unit=unit) for y in exact]
        axes = [channel_axis(layer, y.dim()) for y in exact]
        one_item = self._one_item_is_enough(layer, args, exact, axes)
        if one_item:
            args = map_tensors(args, lambda tensor: tensor[:1])
        parts = [y[:1] if one_item else y for y in exact]
        scalable = all(y.is_floating_point() and y.dim() for y in exact)
        sizes = [mean_squares(y, axis) for y, axis in zip(parts, axes)] if scalable else []
        key = (name, len(earlier), unit)
        known = self.known.get(key) if scalable else None
        if known is not None and alike(sizes, known[0]):
            relative, floors = known[1], None
        else:
            perturbations = self._perturbations(name, args, parts, axes, self.noise_of(unit))
            errors = self._errors(name, args, parts, axes, unit)
            floors = [Floors(*each, unit=unit) for each in zip(exact, perturbations, errors)]
            if not scalable:
                return floors
            means = [float(size.mean()) or 1.0 for size in sizes]
            relative = [(d / mean, e / mean) for d, e, mean in zip(perturbations, errors, means)]
            self.known.setdefault(key, (sizes, relative))
        self.relative.setdefault(name, []).append(relative)
        if floors is None or one_item:
            return [self._in_proportion(y, [each], layer, unit) for y, each in zip(exact, relative)]
        return floors

    def noise_of(self, unit: float) -> Noise:
        """The noise of a precision, which is that of the run or float32."""
        if unit != self.noise.unit and self.float32_noise is None:
            self.float32_noise = Noise(self.models.seed, unit)
        return self.noise if self.float32_noise is None or unit == self.noise.unit else self.float32_noise

    def _perturbations(self, name: str, args: Any, exact: list[Tensor], axes: list[int], noise: Noise) -> list[Array]:
        """Mean squares of the change of each output when arguments, weights and constants are perturbed."""
        layer = self.models.layers[name]
        arguments = self.models.perturbed_arguments(layer, args, noise, noise.unit)
        perturbed = flatten(self.models.compute_perturbed(layer, arguments, noise, noise.unit))
        del arguments
        return [mean_squares(y, axis, exact=x) for x, y, axis in zip(exact, perturbed, axes)]

    def _errors(self, name: str, args: Any, exact: list[Tensor], axes: list[int], unit: float) -> list[Array]:
        """Mean squares of the error of each output of the reference in float32, or in the lower precision of this unit."""
        copy = may_overwrite(self.models.layers[name])
        layer = self.models.float32_layers[name]
        own = map_tensors(args, lambda t: as_float32(t).clone() if copy else as_float32(t))
        with self.models.precision.autocast(unit):
            outputs = flatten(self.models.compute(layer, own))
        return [mean_squares(y, axis, exact=x) for x, y, axis in zip(exact, outputs, axes)]

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
        if len({perturbation.shape for perturbation, _ in relative}) > 1:
            relative = [
                (perturbation.mean(keepdims=True), error.mean(keepdims=True)) for perturbation, error in relative
            ]
        size = mean_squares(exact, channel_axis(layer, exact.dim()))
        perturbation, error = (
            np.broadcast_to(np.mean(parts, axis=0) * size.mean(), size.shape) for parts in zip(*relative)
        )
        return Floors(exact, perturbation, error, size, unit=unit)
