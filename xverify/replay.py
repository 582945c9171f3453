"""Replay in float64: was every layer computed right, from what that layer was given?

The reference model runs over what another framework captured. Each layer gets the framework's own captured inputs, is compared
with the framework's own output, and hands that output on. So one pass judges every layer alone, whatever came before it, and
the code between layers too: what the reference's additions, reshapes and products make of the captured outputs must be what the
next layer was given.

A layer's floor, which ``rule`` divides by, is measured on its inputs: once more in float64 with every value moved by a unit of
rounding, and in float32; where a layer treats its items alike, on one item. The code between layers mostly agrees to the bit and
needs no floor. Where it does not, three passes run in step, a layer at a time: exact, moved, and in float32. A layer that was not
captured runs in each pass by itself, as part of the code between layers; so a replay of no capture at all gives the model's
float64 outputs and the floor of a whole model.

Needs torch, which is the reference.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import greenlet
import numpy as np
import torch
from torch import Tensor, nn

from . import catalogue, rule
from .rule import UNIT, Finding

OUTPUT = "(output)"
MEASURED_CALLS = 3  # of a layer that is called again and again; its later calls are judged by the same floors

# Layers that hand values on without arithmetic: their results carry no rounding of their own.
COPIES = (
    nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten,
    nn.Identity, nn.Dropout, nn.Dropout2d, nn.Embedding, nn.ZeroPad2d, nn.ConstantPad2d, nn.ReflectionPad2d,
    nn.PixelShuffle, nn.UpsamplingNearest2d,
)  # fmt: skip
# Layers whose channels are torch's axis 1, and the last axis of frameworks that keep images as N,H,W,C.
SPATIAL = (
    nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm, nn.GroupNorm,
    nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._AdaptiveAvgPoolNd, nn.Upsample,
    nn.PixelShuffle, nn.Dropout2d,
)  # fmt: skip
# Layers that treat the items of a batch, axis 0, alike and apart.
BY_ITEM = (*SPATIAL, nn.Linear, nn.LayerNorm, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh)
PART = 2**18
ENOUGH_VALUES = 32  # of each channel, for a floor measured on one item
# Float attributes that evaluation does not use, or that say how large the result is: see Models.compute_moved.
NOT_ROUNDED = ("momentum", "p", "scale_factor")


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


def channel_axis(module: nn.Module | None, dim: int) -> int:
    """The axis that a fault of a single feature would stay in."""
    return min(1, dim - 1) if isinstance(module, SPATIAL) else dim - 1


def return_freed_memory() -> None:
    """Let glibc give every freed block of 4 MiB or more back to the system.

    By itself it keeps blocks of up to 32 MiB for later: resnet50's replay at batch 8 peaked at 453 MiB where 285 were in use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 4 * 2**20)  # M_MMAP_THRESHOLD


# -- structures of tensors --------------------------------------------------------------------------------------------


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


def as_wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def as_narrow(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


# -- noise ------------------------------------------------------------------------------------------------------------


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


# -- passes in step ---------------------------------------------------------------------------------------------------


@dataclass
class Step:
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

    def run(self, _: Any) -> Step:
        try:
            return Step("", 0, self.model(*self.inputs))
        except Exception as error:
            return Step("", 0, (), error)

    def ask(self, layer: str, args: Any) -> Any:
        """Within the pass: what does this layer return?"""
        call = self.calls[layer]
        self.calls[layer] += 1
        return self.parent.switch(Step(layer, call, args))


@dataclass
class Models:
    """The reference in float64, and its float32 twin with the same weights."""

    wide: nn.Module
    narrow: nn.Module
    seed: int = 0
    layers: dict[str, nn.Module] = field(init=False)
    twins: dict[str, nn.Module] = field(init=False)
    forwards: dict[nn.Module, Callable[..., Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.layers, self.twins = leaves(self.wide), leaves(self.narrow)
        self.forwards = {}
        for layers in (self.layers, self.twins):
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
        with moved_layer(layer, self.twins[name], noise, size):
            return self.compute(layer, args)


def _interceptor(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        current = greenlet.getcurrent()
        return current.ask(name, (args, kwargs)) if isinstance(current, Pass) else forward(*args, **kwargs)

    return run


MAPPED = 2**20  # bytes, from which on a file is mapped


@dataclass
class Capture:
    """What a framework captured: records by (layer, call); arrays are read when they are needed.

    mapped: they stay in their files, of which the system keeps in memory what it has room for.
    """

    folder: Path = Path()
    channels_last: bool = False
    records: Mapping[tuple[str, int], Mapping[str, Sequence[str]]] = field(default_factory=dict)
    mapped: bool = False

    def load(self, file: str) -> Tensor:
        path = self.folder / file
        return torch.from_numpy(np.load(path, mmap_mode="c" if self.mapped and path.stat().st_size > MAPPED else None))


@dataclass
class Floors:
    """Of one tensor: its exact value, and mean squares by channel, (C,): of its change under rounding, of float32's error.

    None: nothing of the kind; an operation that only copies has neither. sizes: of the exact value itself, where they are known.
    """

    exact: Tensor
    moved: np.ndarray | None
    own: np.ndarray | None
    sizes: np.ndarray | None = None

    def rms(self) -> float:
        """The floor of the whole tensor, F of rule.ratios without further growth."""
        moved, own = (0.0 if squares is None else float(squares.mean()) for squares in (self.moved, self.own))
        return math.sqrt(moved + own + UNIT**2 / 3 * rms(self.exact) ** 2)


def rms(tensor: Tensor) -> float:
    """Of the finite values."""
    values = tensor.double()
    if not bool(torch.isfinite(values).all()):
        values = values[torch.isfinite(values)]
    return float(torch.linalg.vector_norm(values)) / math.sqrt(max(1, values.numel()))


class NeedsFloor(Exception):
    """Code between layers does not agree to the bit, and one pass alone cannot tell how much of that is rounding."""


def replayed(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, np.ndarray | None],
    planted: tuple[str, int] | None = None,
) -> Replay:
    """The replay of a capture, in one pass, or in three where one does not tell. outputs: what the framework returned, by name."""
    for alone in (True, False):
        done = Replay(models, capture, planted, alone)
        try:
            done.finish(outputs, done.run(inputs))
            break
        except NeedsFloor:
            pass
    return done


class Replay:
    """One replay. ``findings``: in the order of computation. missing: calls of layers that were not captured.

    planted: a fault (layer, index in catalogue.faults) that the capture is known to have. ``visible`` is then by how many floors
    it moves the layer's exact output: what no test could see is not missed. alone: one pass, without floors of the code between
    layers; raises NeedsFloor where one is needed.
    """

    def __init__(
        self, models: Models, capture: Capture, planted: tuple[str, int] | None = None, alone: bool = False
    ) -> None:
        self.models, self.capture, self.planted, self.alone = models, capture, planted, alone
        self.visible = 0.0
        self.noise = Noise(models.seed)
        self.findings: list[Finding] = []
        self.compared: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.stopped = ""
        self.fits = 0  # of the inputs of the layer at hand
        self.shares: dict[str, list[list[tuple[np.ndarray, np.ndarray]]]] = {}
        self.explained: dict[str, dict[str, Any]] = {}
        self.likely: str | None = None
        self.searches = 3  # for that many layers the catalogue is searched in vain

    def run(self, inputs: Sequence[Tensor], visit: Callable[[str, Any], None] | None = None) -> list[Floors]:
        """Replay over these inputs; returns the exact outputs of the model, with their floors, [] where it had to stop.

        visit: called with (layer, arguments) at the first calls of each layer that was not captured, in float64.
        """
        wide = [as_wide(tensor) for tensor in inputs]
        self.visit = visit
        self.items = wide[0].shape[0] if wide and wide[0].dim() else 0
        self.passes = [Pass(self.models.wide, wide)]
        if not self.alone:
            self.passes += [
                Pass(self.models.wide, [self.noise.moved(tensor) for tensor in wide]),
                Pass(self.models.narrow, [as_narrow(tensor) for tensor in inputs]),
            ]
        with torch.no_grad():
            return self._steps()

    def _steps(self) -> list[Floors]:
        replies: list[Any] = [None] * len(self.passes)
        while True:
            steps: list[Step] = [each.switch(reply) for each, reply in zip(self.passes, replies)]
            first = steps[0]
            for step in steps:
                if step.error is not None:
                    if not any(finding.reason for finding in self.findings):
                        raise step.error
                    return []  # after a tensor of another shape, the reference's own code may not go on
            if any((step.layer, step.call) != (first.layer, first.call) for step in steps):
                self.stopped = f"rounding alone changes what is computed after {first.layer or OUTPUT}"
                return []
            if not first.layer:
                return self._floors([step.args for step in steps])
            record = self.capture.records.get((first.layer, first.call))
            if record is not None and not record["outputs"]:
                record = None  # the framework broke off within this layer
            answer = self._by_itself(steps) if record is None else self._layer(steps, record)
            if answer is None:
                return []
            replies = answer

    def _by_itself(self, steps: list[Step]) -> list[Any]:
        """A layer that was not captured: each pass computes its own."""
        name = steps[0].layer
        self.missing[name] += 1
        layer, twin = self.models.layers[name], self.models.twins[name]
        size = UNIT if isinstance(layer, COPIES) else UNIT * rule.growth(reduction(layer, flatten(steps[0].args)))
        if self.visit is not None and steps[0].call < MEASURED_CALLS:
            self.visit(name, replace(steps[0].args, Tensor.clone))
        exact = self.models.compute(layer, steps[0].args)
        if self.alone:
            return [exact]
        if isinstance(layer, COPIES):
            moved = self.models.compute(layer, steps[1].args)
        else:
            # On copies: an argument may be a weight of the model.
            args = replace(steps[1].args, lambda tensor: self.noise.moved(tensor, size))
            versions = [tensor._version for tensor in flatten(args)]
            moved = replace(self.models.compute_moved(layer, args, self.noise, size), self.noise.moved)
            for original, copy, version in zip(flatten(steps[1].args), flatten(args), versions):
                if copy._version != version:  # an in-place layer
                    original.copy_(copy)
        return [exact, moved, self.models.compute(twin, steps[2].args)]

    # -- a captured layer ---------------------------------------------------------------------------------------------

    def _layer(self, steps: list[Step], record: Mapping[str, Sequence[str]]) -> list[Any] | None:
        """Judge what the layer was given and what it returned; what each pass goes on with."""
        name, call = steps[0].layer, steps[0].call
        layer = self.models.layers[name]
        given = self._inputs(steps, record["inputs"])
        args = filled(steps[0].args, [tensor.clone() if _may_overwrite(layer) else tensor for tensor in given])
        versions = [tensor._version for tensor in flatten(args)]
        result = self.models.compute(layer, args)
        in_place = [tensor._version != version for tensor, version in zip(flatten(args), versions)]
        floors = self._measure(name, filled(steps[0].args, given), flatten(result))
        if self.planted is not None and self.planted[0] == name:
            self._see(layer, self.planted[1], filled(steps[0].args, given), floors[0])
        self.compared[name] += 1
        returned = []
        theirs = [self.capture.load(file) for file in record["outputs"]]
        for index, floor in enumerate(floors[: len(theirs)]):
            found = self._nearest(theirs, floor.exact, layer)
            if found is None and index:
                break  # a state that the framework keeps to itself
            if found is None and self.fits == 0:
                # It works on another layout altogether, as time before batch: then it belongs to the code between the others.
                self.compared[name] -= 1
                return self._by_itself(steps)
            if found is None:
                self._other_shape(name, call, index, theirs[0], floor.exact)
                self._explain(self.findings[-1], theirs[0], floor, filled(steps[0].args, given))
                return None
            theirs = [other for other in theirs if other is not found[0]]
            finding = self._judge(name, call, index, "output", found[1], floor, layer, reduction(layer, given))
            returned.append(found[1])
            if finding.verdict != "EQUAL" and index == 0:
                self._explain(finding, found[1], floor, filled(steps[0].args, given))
        returned += [floor.exact for floor in floors[len(returned) :]]
        replies = [[as_wide(tensor) for tensor in returned]]
        if not self.alone:
            replies += [
                [
                    self.noise.move_(tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor)
                    for tensor in returned
                ],
                [as_narrow(tensor) for tensor in returned],
            ]
        for step, reply in zip(steps, replies):
            for tensor, changed in zip(flatten(step.args), in_place):
                if changed:  # whoever else holds the input of an in-place layer sees its result
                    tensor.copy_(reply[0])
        return [filled(result, reply) for reply in replies]

    def _inputs(self, steps: list[Step], files: Sequence[str]) -> list[Tensor]:
        """What the framework gave the layer, as the reference takes it, in float64; its own where nothing was captured.

        Each is compared with what the reference's code makes of the outputs captured before.
        """
        name, call = steps[0].layer, steps[0].call
        layer = self.models.layers[name]
        theirs = [self.capture.load(file) for file in files]
        result = []
        self.fits = 0
        for index, values in enumerate(zip(*(flatten(step.args) for step in steps))):
            own = values[0]
            alike = [tensor for tensor in theirs if tensor.is_floating_point() == own.is_floating_point()]
            found = self._nearest(alike, own, layer)
            if found is not None:
                tensor, fitted = found
                theirs = [other for other in theirs if other is not tensor]
                self.fits += 1
                if _equal(own, fitted):
                    kind = type(layer).__name__
                    self.findings.append(Finding(name, call, index, kind, "input", 0.0, 0.0, 1, 0.0, 0.0, 0.0))
                else:
                    whole = not own.is_floating_point()  # numbers, which have no rounding
                    floor = Floors(own, None, None) if whole else self._floor(values, channel_axis(layer, own.dim()))
                    self._judge(name, call, index, "input", fitted, floor, layer)
                exactly = own.is_floating_point() and all(
                    torch.equal(a, b.double()) for a, b in _parts(own, fitted, axis=-1)
                )
                result.append(own if exactly else as_wide(fitted))
            else:
                # Nothing captured, or what another division of the work gives: an image that was padded before. The layer is
                # then judged together with the code before it.
                result.append(own)
        return result

    def _nearest(self, theirs: list[Tensor], own: Tensor, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        """Which captured tensor this is, and it in the reference's layout; of several with its shape, the nearest.

        Frameworks differ in the order in which they pass the states of a cell.
        """
        fitting = [
            (tensor, form) for tensor in theirs for form in forms(tensor, own.shape, layer, self.capture.channels_last)
        ]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        return min(fitting, key=lambda pair: float(torch.dist(pair[1].double(), own.double())))

    def _measure(self, name: str, args: Any, exact: list[Tensor]) -> list[Floors]:
        """The floors of a layer's outputs on these inputs. After some calls of a layer they are known, relative to its size."""
        layer, twin = self.models.layers[name], self.models.twins[name]
        earlier = self.shares.get(name, [])
        if len(earlier) >= MEASURED_CALLS and all(len(shares) == len(exact) for shares in earlier):
            return [self._known(y, [shares[i] for shares in earlier], layer) for i, y in enumerate(exact)]
        if isinstance(layer, COPIES):
            return [Floors(y, None, None) for y in exact]
        axes = [channel_axis(layer, y.dim()) for y in exact]
        one = self._treats_apart(layer, args, exact, axes)
        if one:
            args = replace(args, lambda tensor: tensor[:1])
        parts = [y[:1] if one else y for y in exact]
        moved = flatten(self.models.compute_moved(layer, replace(args, self.noise.moved), self.noise, UNIT))
        changes = [_mean_squares(y, axis, exact=x) for x, y, axis in zip(parts, moved, axes)]
        del moved
        copy = _may_overwrite(layer)
        narrow = flatten(
            self.models.compute(twin, replace(args, lambda t: as_narrow(t).clone() if copy else as_narrow(t)))
        )
        errors = [_mean_squares(y, axis, exact=x) for x, y, axis in zip(parts, narrow, axes)]
        del narrow
        if not all(y.is_floating_point() and y.dim() for y in exact):
            return [Floors(*each) for each in zip(exact, changes, errors)]
        sizes = [float(_mean_squares(y, axis).mean()) or 1.0 for y, axis in zip(parts, axes)]
        self.shares.setdefault(name, []).append([(d / size, e / size) for d, e, size in zip(changes, errors, sizes)])
        if one:
            return [self._known(y, [share], layer) for y, share in zip(exact, self.shares[name][-1])]
        return [Floors(*each) for each in zip(exact, changes, errors)]

    def _treats_apart(self, layer: nn.Module, args: Any, exact: list[Tensor], axes: list[int]) -> bool:
        """Whether a floor measured on one item of the batch, in proportion to its size, holds for all of it."""
        if layer.training or not isinstance(layer, BY_ITEM):
            return False
        tensors = [*flatten(args), *exact]
        if not all(tensor.dim() > 1 and tensor.is_floating_point() for tensor in tensors):
            return False
        items = {tensor.shape[0] for tensor in tensors}
        channels = [y.shape[axis] for y, axis in zip(exact, axes)]
        return items == {self.items} and all(y[0].numel() >= ENOUGH_VALUES * count for y, count in zip(exact, channels))

    def _known(self, exact: Tensor, shares: Sequence[tuple[np.ndarray, np.ndarray]], layer: nn.Module) -> Floors:
        """Floors from earlier calls; over all channels, where their number changes from call to call."""
        if len({share[0].shape for share in shares}) > 1:
            shares = [(moved.mean(keepdims=True), own.mean(keepdims=True)) for moved, own in shares]
        size = _mean_squares(exact, channel_axis(layer, exact.dim()))
        moved, own = (np.broadcast_to(np.mean(parts, axis=0) * size.mean(), size.shape) for parts in zip(*shares))
        return Floors(exact, moved, own, size)

    def _floors(self, values: list[Any]) -> list[Floors]:
        """The floors of what the passes hold; one alone knows of none."""
        if self.alone:
            return [Floors(each, None, None) for each in flatten(values[0])]
        return [self._floor(each, each[0].dim() - 1) for each in zip(*map(flatten, values))]

    def _floor(self, values: Sequence[Tensor], axis: int) -> Floors:
        if self.alone:
            raise NeedsFloor
        exact, moved, own = values
        return Floors(exact, _mean_squares(moved, axis, exact=exact), _mean_squares(own, axis, exact=exact))

    def finish(self, outputs: Mapping[str, np.ndarray | None], exact: Sequence[Floors]) -> None:
        """Compare what the framework returned with what the reference's code makes of the last layers' captured outputs."""
        for index, ((name, array), floor) in enumerate(zip(outputs.items(), exact)):
            if array is not None and array.shape == tuple(floor.exact.shape):
                theirs = torch.from_numpy(array)
                if self.alone and not _equal(floor.exact, theirs):
                    raise NeedsFloor
                self.findings.append(
                    judge(f"{OUTPUT} {name}", 0, index, "", "input", theirs, floor, 1, max(0, theirs.dim() - 1))
                )

    def report(self) -> dict[str, Any]:
        """The findings as plain values, and how many calls of which layers were compared."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "compared": {name: calls for name, calls in self.compared.items() if calls},
            "missing": dict(self.missing),
            "explained": self.explained,
            "visible": self.visible,
            "stopped": self.stopped,
        }

    # -- findings -----------------------------------------------------------------------------------------------------

    def _judge(
        self,
        name: str,
        call: int,
        index: int,
        what: str,
        theirs: Tensor,
        floor: Floors,
        layer: nn.Module,
        terms: int = 1,
    ) -> Finding:
        axis = channel_axis(layer, theirs.dim())
        finding = judge(name, call, index, type(layer).__name__, what, theirs, floor, terms, axis)
        self.findings.append(finding)
        return finding

    def _explain(self, finding: Finding, theirs: Tensor, floor: Floors, args: Any) -> None:
        """Look for what the layer computes instead: the entry of the catalogue that brings it under the limit."""
        name = finding.layer
        if name in self.explained or self.searches == 0:
            return
        layer = self.models.layers[name]
        entries = list(catalogue.alternatives(layer))
        if self.likely is not None:  # what one layer does, the next of its kind will do
            entries.sort(key=lambda entry: entry.kind != self.likely)
        best: tuple[float, catalogue.Alternative] | None = None
        for entry in entries:
            value = self._instead(layer, entry, args)
            if value is None or tuple(value.shape) != tuple(theirs.shape):
                fitted = None if value is None else fit(theirs, value.shape, layer, self.capture.channels_last)
                if value is None or fitted is None:
                    continue
            else:
                fitted = theirs
            same = value.shape == floor.exact.shape
            accepted = ("EQUAL",) if same else ("EQUAL", "DRIFT")  # the floor of another shape was not measured
            moved = (floor.moved if same else None, floor.own if same else None)
            kind, terms = finding.kind, reduction(layer, flatten(args))
            found = judge(
                name, 0, 0, kind, "output", fitted, Floors(value, *moved), terms, channel_axis(layer, value.dim())
            )
            if found.verdict in accepted and (best is None or found.ratio < best[0] / 2):
                best = found.ratio, entry
                if found.ratio < 1.0:
                    break
        if best is not None:
            self.likely = best[1].kind
            self.explained[name] = {"kind": best[1].kind, "says": best[1].says, "rounding": best[1].rounding}
            return
        if _is_training_norm(layer) and self._rounded_sums(layer, finding, theirs, floor, args):
            return
        self.searches -= 1
        if (said := describe(theirs, floor.exact)) is not None:
            self.explained[name] = {"kind": said[0], "says": said[1], "rounding": False}

    def _rounded_sums(self, layer: Any, finding: Finding, theirs: Tensor, floor: Floors, args: Any) -> bool:
        """Whether a batch norm in training is right but for mean and variance, each off by what a long sum in float32 may lose.

        Then every channel is the exact one, scaled and shifted. A sum of n terms loses at most n units of rounding (Higham 2002,
        4.2), so E[x²] - E[x]² loses 3n + 2 units of E[x²], which may be all of a variance, but for eps.
        """
        exact, x = floor.exact, as_wide(flatten(args)[0])
        if theirs.shape != exact.shape or not bool(torch.isfinite(theirs).all()):
            return False
        axes = [axis for axis in range(exact.dim()) if axis != 1]
        y, given = theirs.double(), exact
        apart = given - given.mean(axes, keepdim=True)
        spread = apart.square().mean(axes, keepdim=True)
        slope = ((y - y.mean(axes, keepdim=True)) * apart).mean(axes, keepdim=True) / spread.clamp(min=1e-300)
        shift = y.mean(axes, keepdim=True) - slope * given.mean(axes, keepdim=True)
        plain = x.var(axes, unbiased=False, keepdim=True)
        variance, terms = plain + layer.eps, x.numel() // x.shape[1]
        least, most = slopes(x, axes, layer.eps)
        weight = (spread * variance / plain.clamp(min=1e-300)).sqrt()
        size = (x.square().mean(axes, keepdim=True) / variance).sqrt()
        moved = (slope - 1).abs() * given.mean(axes, keepdim=True).abs() + slope * weight * UNIT * (terms + 4) * size
        if bool(((slope < least) | (slope > most) | (shift.abs() > moved)).any()):
            return False
        axis = channel_axis(layer, exact.dim())
        fitted = Floors(slope * given + shift, floor.moved, floor.own)
        if judge(finding.layer, 0, 0, finding.kind, "output", theirs, fitted, finding.terms, axis).verdict != "EQUAL":
            return False
        self.explained[finding.layer] = {"kind": "rounded sums", "says": ROUNDED_SUMS, "rounding": True}
        return True

    def _see(self, layer: nn.Module, index: int, args: Any, floor: Floors) -> None:
        changed = self._instead(layer, catalogue.faults(layer)[index], args)
        if changed is None or changed.shape != floor.exact.shape:
            self.visible = math.inf
        else:
            found = judge(
                "", 0, 0, "", "", changed, floor, reduction(layer, flatten(args)), channel_axis(layer, changed.dim())
            )
            self.visible = max(self.visible, found.ratio, found.channel_ratio)

    def _instead(self, layer: nn.Module, entry: catalogue.Alternative, args: Any) -> Tensor | None:
        copies = replace(args, Tensor.clone)
        try:
            result = entry.forward(layer, self.models.forwards[layer], *copies[0], **copies[1])
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError, NotImplementedError):
            return None  # the entry is no way to compute a layer of this form
        found = flatten(result)
        return found[0] if found else None

    def _other_shape(self, name: str, call: int, index: int, theirs: Tensor, mine: Tensor) -> None:
        kind = type(self.models.layers[name]).__name__
        reason = f"output has shape {tuple(theirs.shape)}, the reference {tuple(mine.shape)}"
        self.findings.append(Finding(name, call, index, kind, "output", math.inf, math.inf, reason=reason))


SLACK = 1e-5  # of a slope, which is fitted to float32
ROUNDED_SUMS = "its mean and variance are sums in float32 that lose digits, as E[x²] - E[x]² in one pass does"


def slopes(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """Least and most, by channel, of an exact standard deviation over one of which E[x²] - E[x]² has lost 3n + 2 units of E[x²]."""
    variance = x.var(list(axes), unbiased=False, keepdim=True) + eps
    lost = UNIT * (3 * (x.numel() // x.shape[1]) + 2) * x.square().mean(list(axes), keepdim=True) / variance
    return (1 + lost).rsqrt() * (1 - SLACK), torch.maximum(1 - lost, eps / variance).rsqrt() * (1 + SLACK)


def _is_training_norm(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training


def order(models: Models, inputs: Sequence[Tensor]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Layers in the order of their first call -> the shapes of their first input and output."""
    found: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    hooks = []
    for name, layer in models.twins.items():

        def note(_layer: nn.Module, args: Any, result: Any, name: str = name) -> None:
            if flatten(args) and flatten(result):
                found.setdefault(name, (tuple(flatten(args)[0].shape), tuple(flatten(result)[0].shape)))

        hooks.append(layer.register_forward_hook(note))
    try:
        with torch.no_grad():
            models.narrow(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


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
        layer, twin = self.models.layers[name], self.models.twins[name]
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
            Floors(y, _mean_squares(shifted, 0, exact=y), None).rms() if y.is_floating_point() else 0.0
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


def judge(
    name: str, call: int, index: int, kind: str, what: str, theirs: Tensor, floor: Floors, terms: int, axis: int
) -> Finding:
    """Compare a captured tensor with its exact value. axis: of the channels."""
    exact = floor.exact
    if not exact.is_floating_point() or _equal(exact, theirs):
        same = bool((exact.to(theirs.dtype) == theirs).all())
        reason = None if same else f"{int((exact != theirs).sum())} of {theirs.numel()} whole numbers differ"
        return Finding(name, call, index, kind, what, 0.0, 0.0, terms, 0.0, 0.0, 0.0, reason)
    sums, mean, largest = [], 0.0, 0.0
    for part, exactly in _parts(theirs, exact, axis=axis):
        residual = part - exactly
        sums.append(_square_norms(residual, axis))
        mean += float(torch.linalg.vector_norm(residual, 1)) / theirs.numel()
        largest = max(largest, float(torch.linalg.vector_norm(residual, math.inf)))
    if not math.isfinite(mean):
        finite = torch.isfinite(theirs - exact)
        # Equal infinities are equal, and NaN stands where NaN should.
        alike = (exact.isnan() & theirs.isnan()) | (exact.float() == theirs)
        if not bool((finite | alike).all()):
            reason = f"{what} has {_not_finite(theirs)}, the reference {_not_finite(exact)}"
            return Finding(name, call, index, kind, what, math.inf, math.inf, terms, reason=reason)
        theirs, exact = (torch.where(finite, tensor, 0.0) for tensor in (theirs, exact))
        return judge(name, call, index, kind, what, theirs, Floors(exact, floor.moved, floor.own), terms, axis)
    squares = np.sum(sums, axis=0) * len(sums[0]) / max(1, theirs.numel())
    sizes = _mean_squares(exact, axis) if floor.sizes is None else floor.sizes
    ratio, channel = rule.ratios(squares, floor.moved, floor.own, sizes, terms)
    size, error = math.sqrt(float(sizes.mean())), math.sqrt(float(squares.mean()))
    relative = error / size if size else error
    return Finding(name, call, index, kind, what, ratio, channel, terms, mean, largest, relative)


def _parts(*tensors: Tensor, axis: int) -> Iterator[tuple[Tensor, ...]]:
    """Stretches of tensors of one shape, of PART values or one item: temporaries of theirs stay in the processor's cache.

    axis: of the channels, of which every stretch has all.
    """
    first = tensors[0]
    if axis == 0 or first.dim() == 0 or first.numel() <= PART:
        yield tensors
    else:
        items = max(1, PART * first.shape[0] // first.numel())
        yield from zip(*(tensor.split(items) for tensor in tensors))


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    """Whether a tensor, rounded to float32 if it is wide, is the other to the bit."""
    if as_narrow(mine[:0] if mine.dim() else mine).dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    return all(torch.equal(as_narrow(a), b) for a, b in _parts(mine, theirs, axis=-1))


def _may_overwrite(layer: nn.Module) -> bool:
    """Whether the layer may compute in place."""
    return bool(getattr(layer, "inplace", False)) or not type(layer).__module__.startswith("torch.nn.")


def _mean_squares(tensor: Tensor, axis: int, exact: Tensor | None = None) -> np.ndarray:
    """By channel, (C,); of the difference from ``exact``, if given. What is not finite counts as nothing."""
    pairs = _parts(*((tensor,) if exact is None else (tensor, exact)), axis=axis)
    found = []
    for part, *exactly in pairs:
        values = part - exactly[0] if exactly else part
        squares = _square_norms(values, axis)
        if not np.isfinite(squares).all():
            squares = _square_norms(values.nan_to_num(0.0, 0.0, 0.0), axis)
        found.append(squares)
    total: np.ndarray = np.sum(found, axis=0)
    return total * len(total) / max(1, tensor.numel())


def _square_norms(values: Tensor, axis: int) -> np.ndarray:
    """Sums of squares by channel, (C,)."""
    if not values.is_floating_point():
        values = values.double()
    others = [other for other in range(values.dim()) if other != axis]
    norms = torch.linalg.vector_norm(values, dim=others) if others else values.abs()
    found: np.ndarray = np.atleast_1d(norms.double().square().numpy())
    return found


def _not_finite(tensor: Tensor) -> str:
    return f"{int(tensor.isnan().sum())} NaN and {int(tensor.isinf().sum())} infinite values"


def describe(theirs: Tensor, exact: Tensor) -> tuple[str, str] | None:
    """(kind, clause) for a difference that no entry of the catalogue makes, from its form alone."""
    if theirs.shape != exact.shape or not exact.is_floating_point():
        return None
    y, x = theirs.double().flatten(), exact.flatten()
    size = float(x.square().sum())
    if not size or not math.isfinite(size) or not bool(torch.isfinite(y).all()):
        return None
    zeros = (y == 0) & (x != 0)
    share = float(zeros.double().mean())
    if 0.01 < share < 0.99:
        scale = float(y.dot(x)) / float(x[~zeros].square().sum() or 1.0)
        if float((y - scale * x)[~zeros].norm()) < 1e-3 * math.sqrt(size):
            return (
                "dropout left on",
                f"{share:.0%} of its values are zero and the others {scale:.3g} times as large: dropout is on",
            )
    scale = float(y.dot(x)) / size
    rest = float((y - scale * x).norm()) / math.sqrt(size)
    if abs(scale - 1) > 20 * max(rest, 4 * UNIT):
        return "scaled", f"its result is {scale:.7g} times the reference's"
    for axis in range(exact.dim()):
        if exact.shape[axis] < 3:
            continue
        others = [other for other in range(exact.dim()) if other != axis]
        apart = (theirs.double() - exact).square()
        by_place = apart.sum(others) if others else apart
        most = int(by_place.argmax())
        if axis and float(by_place[most]) > 0.999 * float(by_place.sum()):
            return (
                "one stale weight",
                f"only its channel {most} (axis {axis}) differs: a wrong value in that channel's weights",
            )
        if axis and bool((by_place > 1e-3 * by_place[most]).sum() * 4 <= exact.shape[axis]):
            return "some channels", f"few of its channels differ (axis {axis}), channel {most} most"
    if torch.equal(y.sort().values.float(), x.sort().values.float()):
        return "reordered", "its result has the reference's values in another order"
    for axis in range(1, exact.dim()):
        for shift in (1, -1):
            moved = exact.roll(shift, axis)
            if not torch.equal(moved, exact) and float((theirs.double() - moved).norm()) < 1e-5 * math.sqrt(size):
                return "shifted", f"its result is shifted by {shift} along axis {axis}"
    return None


def forms(theirs: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> list[Tensor]:
    """What a captured tensor may be in the reference's layout; [] when its shape has no place for it.

    channels_last: the framework keeps images as N,H,W,C. Where both layouts fit, as for a square image with as many channels,
    a convolution's can be but one; of a ReLU's both are told.
    """
    shape = tuple(shape)
    same = [theirs] if tuple(theirs.shape) == shape else []
    if channels_last and theirs.dim() in (3, 4, 5):
        turned = theirs.movedim(-1, 1)
        if tuple(turned.shape) == shape:
            return [turned.contiguous()] if isinstance(layer, SPATIAL) else [*same, turned.contiguous()]
    return same


def fit(theirs: Tensor, shape: Sequence[int], layer: nn.Module | None, channels_last: bool) -> Tensor | None:
    """The first of its forms, or None."""
    return next(iter(forms(theirs, shape, layer, channels_last)), None)
