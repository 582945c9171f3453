"""Passes of the reference, forward, that stand still at every layer until they are told what the layer returns.

So several passes run in step, and what a layer returns may come from elsewhere. Needs torch, which is the reference.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import greenlet
import torch
from torch import Tensor, nn

from ..verdict.limits import UNIT

# Layers that hand values on without arithmetic: their results carry no rounding of their own.
COPIES = (
    nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten,
    nn.Identity, nn.Dropout, nn.Dropout2d, nn.Embedding, nn.ZeroPad2d, nn.ConstantPad2d, nn.ReflectionPad2d,
    nn.PixelShuffle, nn.UpsamplingNearest2d,
)  # fmt: skip
# Float attributes that evaluation does not use, or that say how large the result is: see Models.compute_moved.
NOT_ROUNDED = ("momentum", "p", "scale_factor")


def return_freed_memory() -> None:
    """Let glibc give every freed block of 4 MiB or more back to the system.

    By itself it keeps blocks of up to 32 MiB for later: resnet50's replay at batch 8 peaked at 453 MiB where 285 were in use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 4 * 2**20)  # M_MMAP_THRESHOLD


def leaves(model: nn.Module) -> dict[str, nn.Module]:
    """The layers: modules that hold no others, by name; of a module with two names, the first."""
    return {name: module for name, module in model.named_modules() if name and not any(module.children())}


def reduction(module: nn.Module, inputs: Sequence[Tensor]) -> int:
    """How many terms one value of the layer's output sums up, for these inputs."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return int(module.in_channels // module.groups * math.prod(module.kernel_size))
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return int(module.input_size) + int(module.hidden_size)
    if isinstance(module, nn.LayerNorm):
        return math.prod(module.normalized_shape)
    if isinstance(module, nn.AvgPool2d):
        size = module.kernel_size
        return size * size if isinstance(size, int) else math.prod(size)
    if isinstance(module, nn.modules.pooling._AdaptiveAvgPoolNd):
        size = module.output_size
        sides = size if isinstance(size, tuple) else (size,) * (inputs[0].dim() - 2)
        return math.prod(-(-whole // (part or whole)) for whole, part in zip(inputs[0].shape[2:], sides))
    if isinstance(module, nn.Softmax):
        return int(inputs[0].shape[-1 if module.dim is None else module.dim])
    if isinstance(module, nn.Embedding):
        return 1
    if not type(module).__module__.startswith("torch.nn.") and inputs and inputs[0].dim():
        return int(max(inputs[0].shape[-1], *(math.prod(p.shape[1:]) for p in module.parameters() if p.dim() > 1), 1))
    return max((math.prod(weight.shape[1:]) for weight in module.parameters() if weight.dim() > 1), default=1)


def replace(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(replace(value, change) for value in values))
    if isinstance(values, (tuple, list)):
        return type(values)(replace(value, change) for value in values)
    if isinstance(values, Mapping):
        return {key: replace(value, change) for key, value in values.items()}
    return values


def flatten(values: Any) -> list[Tensor]:
    """The tensors of a structure, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    replace(values, keep)
    return found


def filled(values: Any, supply: Sequence[Tensor]) -> Any:
    """The same structure with these tensors in it."""
    given = iter(supply)
    return replace(values, lambda tensor: next(given))


def as_float64(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def as_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


class Noise:
    """Relative moves, uniform in ±size: a unit of rounding when size is UNIT."""

    PART = 2**20

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = torch.empty(2 * self.PART, dtype=torch.float64).uniform_(-1.0, 1.0, generator=self.generator)

    def move_(self, tensor: Tensor, size: float = UNIT) -> Tensor:
        """Move every value in place, a part at a time, each part by another stretch of the pool."""
        if tensor.is_floating_point():
            flat = tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
            for part in flat.split(self.PART):
                start = int(torch.randint(self.PART, (1,), generator=self.generator))
                part.addcmul_(part, self.pool[start : start + part.numel()], value=size)
        return tensor

    def moved(self, tensor: Tensor, size: float = UNIT) -> Tensor:
        return self.move_(tensor.clone(memory_format=torch.contiguous_format), size)


@contextmanager
def moved_layer(layer: nn.Module, twin: nn.Module, noise: Noise, size: float) -> Iterator[None]:
    """Within it, the layer's weights and constants (eps, slopes) are moved. twin: has the same weights, to restore them from."""
    own = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
    exact = [*twin.parameters(recurse=False), *twin.buffers(recurse=False)]
    constants = {
        key: value for key, value in vars(layer).items() if isinstance(value, float) and key not in NOT_ROUNDED
    }
    for tensor in own:
        noise.move_(tensor.data, size)
    for index, (key, value) in enumerate(constants.items()):
        setattr(layer, key, value * (1 + size * float(noise.pool[index])))
    try:
        yield
    finally:
        for tensor, original in zip(own, exact):
            tensor.data.copy_(original.data)
        for key, value in constants.items():
            setattr(layer, key, value)


@dataclass
class Halt:
    """Where a pass stands: before a call of a layer, or, with ``layer`` empty, at its end with the model's outputs."""

    layer: str
    call: int
    args: Any
    error: BaseException | None = None


class Pass(greenlet.greenlet):
    """One forward pass, which stands still at every layer until it is told what the layer returns.

    A coroutine of its own stack: the reference's code is what it is, and does not know that it is interrupted.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        self.calls: Counter[str] = Counter()

    def run(self, _: Any) -> Halt:
        try:
            return Halt("", 0, self.model(*self.inputs))
        except Exception as error:
            return Halt("", 0, (), error)

    def ask(self, layer: str, args: Any) -> Any:
        """Within the pass: what does this layer return?"""
        call = self.calls[layer]
        self.calls[layer] += 1
        return self.parent.switch(Halt(layer, call, args))


@dataclass
class Models:
    """The reference in float64, and its float32 copy with the same weights."""

    float64_model: nn.Module
    float32_model: nn.Module
    seed: int = 0
    layers: dict[str, nn.Module] = field(init=False)
    float32_layers: dict[str, nn.Module] = field(init=False)
    forwards: dict[nn.Module, Callable[..., Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.layers, self.float32_layers = leaves(self.float64_model), leaves(self.float32_model)
        self.forwards = {}
        for layers in (self.layers, self.float32_layers):
            for name, layer in layers.items():
                self.forwards[layer] = layer.forward
                object.__setattr__(layer, "forward", _interceptor(name, layer.forward))

    def release(self) -> None:
        """Give the models back as they were."""
        for layer in self.forwards:
            object.__delattr__(layer, "forward")

    def compute(self, layer: nn.Module, args: Any) -> Any:
        return self.forwards[layer](*args[0], **args[1])

    def compute_moved(self, layer: nn.Module, args: Any, noise: Noise, size: float) -> Any:
        """What the layer returns for moved arguments (moved already) with its weights and constants moved, too."""
        name = next(name for name, other in self.layers.items() if other is layer)
        if isinstance(layer, nn.Upsample) and layer.mode == "bilinear" and layer.scale_factor is not None:
            # The ratio is a constant like any other, but a little less of it would lose a row of the result.
            (x,) = args[0]
            given = layer.scale_factor
            factors = given if isinstance(given, tuple) else (given, given)
            sides = [int(side * factor) for side, factor in zip(x.shape[2:], factors)]
            moved = [factor * (1 + size * float(noise.pool[index])) for index, factor in enumerate(factors)]
            return torch._C._nn.upsample_bilinear2d(x, sides, bool(layer.align_corners), *moved)
        with moved_layer(layer, self.float32_layers[name], noise, size):
            return self.compute(layer, args)


def _interceptor(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        current = greenlet.getcurrent()
        return current.ask(name, (args, kwargs)) if isinstance(current, Pass) else forward(*args, **kwargs)

    return run


def order(models: Models, inputs: Sequence[Tensor]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Layers in the order of their first call -> the shapes of their first input and output."""
    found: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    hooks = []
    for name, layer in models.float32_layers.items():

        def note(_layer: nn.Module, args: Any, result: Any, name: str = name) -> None:
            if flatten(args) and flatten(result):
                found.setdefault(name, (tuple(flatten(args)[0].shape), tuple(flatten(result)[0].shape)))

        hooks.append(layer.register_forward_hook(note))
    try:
        with torch.no_grad():
            models.float32_model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found
