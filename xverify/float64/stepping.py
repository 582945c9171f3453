"""The reference model in float64 and float32, and forward passes of it that pause before every layer.

A paused pass continues when it is given the output of the layer. Several passes can therefore run side by side, layer by layer, and
the output of a layer can come from another framework.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import greenlet
import torch
from torch import Tensor, nn

from ..framework import generators
from ..weights.canonical import Array
from .arithmetic import float64_arithmetic, given_arithmetic
from .layer_kinds import APPROXIMATED, COUNTED, SOFTMAXES, is_torch_layer, leaves
from .linear import called_by_weights, owners_of
from .operations import Counting, perturbed_arithmetic, perturbed_operations
from .parametrized import recomputing
from .perturbation import perturbed_layer
from .precision import FLOAT32, Precision
from .replaced import hooked
from .rounding import Noise, rounded_log_softmax, rounded_softmax
from .source import Spot, spots
from .structures import flatten, map_tensors, named_tensors
from .tables import Tables, replaced_tables

Shape = tuple[int, ...]


def return_freed_memory() -> None:
    """Make glibc return every freed block of 4 MiB or more to the system.

    By default it keeps blocks of up to 32 MiB for later use: the replay of resnet50 at batch 8 then had a peak of 453 MiB, of
    which 285 MiB were in use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 4 * 2**20)  # M_MMAP_THRESHOLD


@dataclass
class Pause:
    """Where a pass has paused: before a call of a layer, or at its end.

    layer: name of the layer; "" at the end of the pass.
    call: which call of that layer, from 0.
    args: (positional, keyword) arguments of the layer; at the end, the outputs of the model.
    error: the exception that ended the pass.
    spots: the lines of the model's code that call the layer, the outermost first.
    """

    layer: str
    call: int
    args: Any
    error: BaseException | None = None
    spots: Sequence[Spot] = ()


class SteppingPass(greenlet.greenlet):
    """One forward pass, which pauses before every layer until it is given the layer's output.

    It is a coroutine with a stack of its own, because the code of the model is ordinary code that cannot yield.
    ``switch(outputs)`` resumes it and returns the next Pause.

    arithmetic: returns a context manager within which the code of the model runs between pauses.
    draws: whether the model draws random numbers. The pass then has generators of its own, so that it does not get the numbers
        that another pass seeded.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[Tensor],
        arithmetic: Callable[[], AbstractContextManager[Any]] = nullcontext,
        draws: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.inputs, self.arithmetic = model, inputs, arithmetic
        self.calls: Counter[str] = Counter()
        self.owners = owners_of(model)
        self.random = generators.Own() if draws else nullcontext()

    def switch(self, *args: Any) -> Any:
        """Resume the pass, and return the next Pause. torch's modes are those of a thread, which all passes share."""
        with called_by_weights(self.owners), self.arithmetic(), self.random:
            return super().switch(*args)

    def run(self, _: Any) -> Pause:
        """The body of the coroutine; the argument of the first switch has no meaning."""
        try:
            return Pause("", 0, self.model(*self.inputs))
        except Exception as error:
            return Pause("", 0, (), error)

    def ask(self, layer: str, args: Any) -> Any:
        """Pause within the pass, and return the output of this layer that ``switch`` is given."""
        call = self.calls[layer]
        self.calls[layer] += 1
        return self.parent.switch(Pause(layer, call, args, spots=spots()))


def completed(running: SteppingPass, answer: Callable[[Pause], Any]) -> Any:
    """Let a pass run to its end. Returns what its model returns, and raises the error that stops it.

    answer: gives the output of the layer before which the pass pauses.
    """
    given = None
    with torch.no_grad():
        while True:
            pause: Pause = running.switch(given)
            if pause.error is not None:
                raise pause.error
            if not pause.layer:
                return pause.args
            given = answer(pause)


@dataclass
class Models:
    """The reference model in float64, and its float32 copy with the same weights.

    Their layers are intercepted until ``release`` is called: within a SteppingPass they pause, elsewhere they compute.

    seed: seed of the perturbations.
    perturbed_tables: tables of the float64 model with the rounding of the code that computes them (see ``tables``).
    draws: whether a pass of the models draws random numbers, which change nothing in a model that can be compared.
    settles: whether digits are cut off as those of the exact value where it is a whole number but for rounding (see
        ``rounding.settled``); not where float32 falls short of one.
    outputs: the names of the model's outputs; without any, they have the order in which the model returns them.
    precision: in which the captured framework computed.
    layers, float32_layers: the layers of the two models by name.
    measured_floors: (layer, call, unit roundoff) -> the sizes of its outputs, each mean squares by channel, and their
        ``floors.RelativeFloors``; see ``floors.FloorMeter``.
    forwards: the ``forward`` of each layer of both models, before it was intercepted.
    """

    float64_model: nn.Module
    float32_model: nn.Module
    seed: int = 0
    perturbed_tables: Tables = field(default_factory=dict)
    outputs: Sequence[str] = ()
    precision: Precision = FLOAT32
    draws: bool = False
    settles: bool = True
    measured_floors: dict[tuple[str, int, float], tuple[list[Array], list[Any]]] = field(default_factory=dict)
    layers: dict[str, nn.Module] = field(init=False)
    float32_layers: dict[str, nn.Module] = field(init=False)
    forwards: dict[nn.Module, Callable[..., Any]] = field(init=False)
    float64_layers: set[nn.Module] = field(init=False)

    def __post_init__(self) -> None:
        self.layers, self.float32_layers = leaves(self.float64_model), leaves(self.float32_model)
        self.float64_layers = set(self.layers.values())
        self.forwards = {}
        for layers in (self.layers, self.float32_layers):
            for name, layer in layers.items():
                self.forwards[layer] = recomputing(layer, layer.forward)
                object.__setattr__(layer, "forward", _intercepted(name, layer.forward))

    def noise(self, sample: int = 0) -> Noise:
        """New perturbations, of the precision in which the captured framework computed. sample: which ones."""
        return Noise(self.seed + sample, self.precision.unit)

    def draw_apart(self) -> None:
        """Give each later pass generators of random numbers of its own, because the models draw some."""
        self.draws = True

    def release(self) -> None:
        """Stop the interception of the layers."""
        for layer in self.forwards:
            object.__delattr__(layer, "forward")

    def in_order(self, returned: Any) -> list[Tensor]:
        """The tensors that the model returned, in the order of ``outputs``."""
        return named_tensors(returned, self.outputs) if self.outputs else flatten(returned)

    def compute(self, layer: nn.Module, args: Any) -> Any:
        """The output of a layer of either model for these (positional, keyword) arguments.

        A layer of the float64 model that is not torch's may ask for float32 in its own code; it is computed in float64.
        """
        if is_torch_layer(layer) or layer not in self.float64_layers:
            with given_arithmetic(), self._arithmetic(layer):
                return self.forwards[layer](*args[0], **args[1])
        counting = Counting()
        with given_arithmetic(), counting, self._arithmetic(layer):
            result = self.forwards[layer](*args[0], **args[1])
        if counting.terms:
            COUNTED[layer] = max(COUNTED.get(layer, 1), counting.terms)
        return result

    def perturbed_arguments(self, layer: nn.Module, args: Any, noise: Noise, size: float) -> Any:
        """Perturbed copies of the arguments of a float64 layer.

        A layer of torch is perturbed through its arguments. Where each operation is, masks and whole numbers stay as they are.
        """
        if isinstance(layer, SOFTMAXES):
            return map_tensors(args, Tensor.clone)
        change = noise.argument if is_torch_layer(layer) else noise.given
        return map_tensors(args, lambda tensor: change(tensor, size))

    def compute_perturbed(self, layer: nn.Module, args: Any, noise: Noise, size: float) -> Any:
        """The output of a float64 layer with its weights and constants perturbed.

        args: what ``perturbed_arguments`` returned.
        """
        if isinstance(layer, SOFTMAXES) and layer.dim is not None:
            return _rounded_softmax(layer, args, noise, size)
        if isinstance(layer, nn.Upsample) and layer.mode == "bilinear" and layer.scale_factor is not None:
            return _perturbed_upsample(layer, args[0][0], noise, size)
        name = next(name for name, other in self.layers.items() if other is layer)
        own = {("", key): table for (owner, key), table in self.perturbed_tables.items() if owner == name}
        with (
            replaced_tables(layer, own),
            perturbed_layer(layer, noise, size),
            self._arithmetic(layer, noise),
        ):
            return self.forwards[layer](*args[0], **args[1])

    @contextmanager
    def perturbed_code(self, noise: Noise) -> Iterator[None]:
        """The context of a perturbed pass: every operation of the float64 model's own code rounds."""
        with (
            replaced_tables(self.float64_model, self.perturbed_tables),
            perturbed_arithmetic(noise, settles=self.settles),
        ):
            yield

    def _arithmetic(self, layer: nn.Module, noise: Noise | None = None) -> AbstractContextManager[Any]:
        """The arithmetic of a layer's own code. noise: perturbs each operation; None: nothing is perturbed."""
        if noise is not None and isinstance(layer, APPROXIMATED):
            return perturbed_operations(noise)
        if is_torch_layer(layer) or layer not in self.float64_layers:
            return nullcontext()
        return float64_arithmetic() if noise is None else perturbed_arithmetic(noise, settles=self.settles)


def _rounded_softmax(layer: nn.Module, args: Any, noise: Noise, size: float) -> Tensor:
    """The output of a layer of SOFTMAXES with its rounding. size: relative rounding of a sum."""
    (x,) = flatten(args)
    function = rounded_softmax if isinstance(layer, nn.Softmax) else rounded_log_softmax
    return function(x, layer.dim, noise, size)


def _perturbed_upsample(layer: nn.Upsample, x: Tensor, noise: Noise, size: float) -> Tensor:
    """Resize by a perturbed ratio to the exact size.

    The ratio is a constant like any other, but a slightly smaller one would lose a row of the output.
    """
    ratio = layer.scale_factor
    factors = ratio if isinstance(ratio, tuple) else (ratio, ratio)
    sides = [int(side * factor) for side, factor in zip(x.shape[2:], factors)]
    perturbed = [factor * noise.factor(index, size) for index, factor in enumerate(factors)]
    output: Tensor = torch._C._nn.upsample_bilinear2d(x, sides, bool(layer.align_corners), *perturbed)
    return output


def _intercepted(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        current = greenlet.getcurrent()
        return current.ask(name, (args, kwargs)) if isinstance(current, SteppingPass) else forward(*args, **kwargs)

    return run


def order(models: Models, inputs: Sequence[Tensor]) -> dict[str, tuple[Shape, Shape]]:
    """Layer -> the shapes of its first input and output, in the order of the layers' first calls."""
    found: dict[str, tuple[Shape, Shape]] = {}

    def note(name: str, _layer: nn.Module, args: Any, output: Any) -> None:
        if flatten(args) and flatten(output):
            found.setdefault(name, (tuple(flatten(args)[0].shape), tuple(flatten(output)[0].shape)))

    layers = models.float32_layers.items()
    with (
        hooked(layer.register_forward_hook(partial(note, name)) for name, layer in layers),
        torch.no_grad(),
        called_by_weights(owners_of(models.float32_model)),
    ):
        models.float32_model(*inputs)
    return found
