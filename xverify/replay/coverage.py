"""Which weights and constants of the model could a test see at all?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..verdict import limits as rule
from ..verdict.limits import UNIT
from .stepping import Models, Noise, flatten, reduction, replace
from .tensors import Floors, mean_squares, rms


class Coverage:
    """Which weights and constants of the model a fault of could show, on the inputs of one pass.

    Each is spoilt in turn, on one item of the batch: a bias dropped, a scale set to one, the rows of a matrix moved by one, eps
    times ten. When the layer's output moves by fewer than rule.VISIBLE floors in each of its first calls, no comparison could tell:
    of a cell's recurrent weights the second call tells, because the first has a state of zeros.
    """

    def __init__(self, models: Models) -> None:
        self.models, self.noise = models, Noise(models.seed)
        self.visible: dict[str, bool] = {}

    @property
    def tested(self) -> list[str]:
        return [key for key, visible in self.visible.items() if visible]

    @property
    def untested(self) -> list[str]:
        return [key for key, visible in self.visible.items() if not visible]

    def visit(self, name: str, args: Any) -> None:
        layer, twin = self.models.layers[name], self.models.float32_layers[name]
        spoilers = [each for each in _spoilers(layer, twin) if not self.visible.get(f"{name}.{each[0]}")]
        if not spoilers:
            return
        batches = {tensor.shape[0] for tensor in flatten(args) if tensor.dim()}
        if len(batches) == 1:
            args = replace(args, lambda tensor: tensor[:1])

        def compute() -> list[Tensor]:
            return flatten(self.models.compute(layer, replace(args, Tensor.clone)))

        exact = compute()
        size = UNIT * rule.growth(reduction(layer, flatten(args)))
        copies = replace(args, lambda tensor: self.noise.moved(tensor, size))
        moved = flatten(self.models.compute_moved(layer, copies, self.noise, size))
        floors = [
            Floors(y, mean_squares(shifted, 0, exact=y), None).rms() if y.is_floating_point() else 0.0
            for y, shifted in zip(exact, moved)
        ]
        for key, spoil, restore in spoilers:
            spoil()
            try:
                changed = compute()
            finally:
                restore()
            moves = zip(exact, changed, floors)
            self.visible[f"{name}.{key}"] = any(rms(y - x) > rule.VISIBLE * floor for x, y, floor in moves)


def _spoilers(layer: nn.Module, twin: nn.Module) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """(name, spoil it, restore it) for each weight, statistic and eps of a layer."""
    weights = dict(layer.named_parameters(recurse=False)) | dict(layer.named_buffers(recurse=False))
    exact = dict(twin.named_parameters(recurse=False)) | dict(twin.named_buffers(recurse=False))
    for key, tensor in weights.items():
        if not tensor.is_floating_point() or tensor.numel() < 2:
            continue
        if tensor.dim() > 1:
            spoil = partial(_set, tensor, tensor.roll(1, 0) if tensor.shape[0] > 1 else tensor.flip(-1))
        else:
            scale = key.endswith(("weight", "var"))
            spoil = partial(_set, tensor, torch.ones_like(tensor) if scale else torch.zeros_like(tensor))
        yield key, spoil, partial(_set, tensor, exact[key])
    if isinstance(getattr(layer, "eps", None), float):
        yield "eps", partial(setattr, layer, "eps", 10 * layer.eps), partial(setattr, layer, "eps", twin.eps)


def _set(tensor: Tensor, value: Tensor) -> None:
    tensor.data.copy_(value.data)
