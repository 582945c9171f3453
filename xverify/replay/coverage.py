"""Determines in which weights and constants of a model a fault would be visible, on the inputs of one pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.layer_kinds import summed_terms
from ..float64.perturbation import Noise
from ..float64.replaced import replaced
from ..float64.stepping import Models
from ..float64.structures import flatten, map_tensors
from ..verdict import limits
from ..verdict.limits import UNIT
from .tensors import Floors, mean_squares, rms


class Coverage:
    """Determines in which weights and constants of a model a fault would be visible. ``Replay.run`` takes its method ``visit``.

    Each of them is made wrong in turn, on one item of the batch: a bias is dropped, a scale is set to one, the rows of a matrix are
    shifted by one, eps is multiplied by ten. A fault is not visible when the layer's output changes by at most ``limits.VISIBLE``
    noise floors in each of the first calls of the layer. Several calls are tested because the first call of a recurrent cell has
    a state of zeros, which hides its recurrent weights.

    visible: "layer.attribute" -> whether a fault in it is visible.
    """

    def __init__(self, models: Models) -> None:
        self.models, self.noise = models, Noise(models.seed)
        self.visible: dict[str, bool] = {}

    @property
    def tested(self) -> list[str]:
        """The names of weights and constants in which a fault is visible."""
        return [key for key, visible in self.visible.items() if visible]

    @property
    def untested(self) -> list[str]:
        """The names of weights and constants in which no fault is visible."""
        return [key for key, visible in self.visible.items() if not visible]

    def visit(self, name: str, args: Any) -> None:
        """Test one call of a layer. args: its arguments in float64."""
        layer = self.models.layers[name]
        faults = {key: fault for key, fault in _faults(layer).items() if not self.visible.get(f"{name}.{key}")}
        if not faults:
            return
        batches = {tensor.shape[0] for tensor in flatten(args) if tensor.dim()}
        if len(batches) == 1:
            args = map_tensors(args, lambda tensor: tensor[:1])
        exact = self._outputs(layer, args)
        floors = self._floors(layer, args, exact)
        for key, fault in faults.items():
            with fault:
                changed = self._outputs(layer, args)
            compared = zip(exact, changed, floors)
            shows = any(rms(y - x) > limits.VISIBLE * floor for x, y, floor in compared)
            self.visible[f"{name}.{key}"] = shows

    def _outputs(self, layer: nn.Module, args: Any) -> list[Tensor]:
        return flatten(self.models.compute(layer, map_tensors(args, Tensor.clone)))

    def _floors(self, layer: nn.Module, args: Any, exact: list[Tensor]) -> list[float]:
        """The noise floor (rms) of each output."""
        size = UNIT * limits.growth(summed_terms(layer, flatten(args)))
        copies = self.models.perturbed_arguments(layer, args, self.noise, size)
        perturbed = flatten(self.models.compute_perturbed(layer, copies, self.noise, size))
        return [
            Floors(y, mean_squares(changed, 0, exact=y), None).rms() if y.is_floating_point() else 0.0
            for y, changed in zip(exact, perturbed)
        ]


def _faults(layer: nn.Module) -> dict[str, AbstractContextManager[None]]:
    """For each weight, statistic and eps of a layer, the context in which it is wrong."""
    found: dict[str, AbstractContextManager[None]] = {}
    for name, tensor in (dict(layer.named_parameters()) | dict(layer.named_buffers())).items():
        if tensor.is_floating_point() and tensor.numel() > 1:
            found[name] = _wrong_weight(name, tensor)
    if isinstance(getattr(layer, "eps", None), float):
        found["eps"] = replaced(layer, eps=10 * layer.eps)
    return found


def _wrong(name: str, tensor: Tensor) -> Tensor:
    """A wrong value of a weight or statistic."""
    if tensor.dim() > 1:
        return tensor.roll(1, 0) if tensor.shape[0] > 1 else tensor.flip(-1)
    scale = name.endswith(("weight", "var"))
    return torch.ones_like(tensor) if scale else torch.zeros_like(tensor)


@contextmanager
def _wrong_weight(name: str, tensor: Tensor) -> Iterator[None]:
    original = tensor.data
    tensor.data = _wrong(name, original)
    try:
        yield
    finally:
        tensor.data = original
