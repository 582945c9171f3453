"""Dropout layers of any framework: how each of them drops, and passes in which given masks take the place of what it draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Unsupported
from ..weights.canonical import Array
from .capture import OpenCall, Recorder, recording
from .training import BackwardPass, Batch
from .trains import Trains

TRIED = 2**15  # values on which a dropout layer is tried, at least


@dataclass(frozen=True)
class DropoutLayer:
    """A dropout layer, as it was found by calling it on ones in training mode.

    name: its canonical name.
    rate: the share of the values that became zero.
    scale: what it makes of a one that it keeps; NaN where it does not make zeros and one other value.
    channels: whether it drops whole channels.
    draws: number of values, or of channels, that were drawn.
    """

    name: str
    rate: float
    scale: float
    channels: bool
    draws: int


@dataclass(frozen=True)
class DropoutCall:
    """A call of a dropout layer in a forward pass.

    name, call: canonical name of the layer, and number of its earlier calls in the pass.
    shape: of its output, in the framework's own layout.
    before, after: the layers with weights that are called last before it, and first after it; "" where there is none.
    """

    name: str
    call: int
    shape: tuple[int, ...]
    before: str = ""
    after: str = ""


class DropsOut(Trains):
    """A runner that takes dropout out of training, or gives it masks. All methods are optional."""

    def disable_dropout(self, model: Any) -> list[str]:
        """Set the probability of every dropout layer to zero permanently. Returns the names of the layers changed.

        Where functions drop values, they do so no more while the model exists.
        """
        return []

    def dropouts(self, model: Any) -> Mapping[str, Any]:
        """The dropout layers of the model by the names of ``layers``. {}: they cannot be given masks (--dropout-masks)."""
        return {}

    def functional_dropout(self) -> AbstractContextManager[list[str]]:
        """The functions that drop values and that code outside of layers calls within the context; [] where this is not known."""
        return nullcontext([])

    def drop(self, layer: Any, x: Any) -> Any:
        """Call one of the ``dropouts`` in training mode, without gradients. x: a native tensor."""
        raise Unsupported(f"the adapter of {self.name} does not call dropout layers")


def mask_key(name: str, call: int) -> str:
    """The name of the mask of a call in an array file."""
    return f"{name}/{call}"


class PassRecorder(Recorder):
    """Records the order of the calls of layers, and the shapes of outputs, without their values.

    masks: ``mask_key`` -> what the output of this call is multiplied by, as a tensor of the framework.
    """

    def __init__(self, masks: Mapping[str, Any]) -> None:
        super().__init__(folder=None, to_numpy=lambda value: None)  # type: ignore[arg-type]  # it writes no file
        self.masks = masks
        self.shapes: dict[tuple[str, int], tuple[int, ...]] = {}

    def end(self, record: OpenCall, outputs: Any) -> None:
        """Note the shape of an output that is a tensor."""
        if hasattr(outputs, "shape"):
            self.shapes[record.name, record.call] = tuple(int(size) for size in outputs.shape)

    def leave(self, record: OpenCall, outputs: Any) -> Any:
        self.end(record, outputs)
        mask = self.masks.get(mask_key(record.name, record.call))
        return outputs if mask is None else outputs * mask


def examine(
    framework: DropsOut, model: Any, inputs: Sequence[Any], names: Mapping[str, str], weighted: set[str]
) -> tuple[list[DropoutLayer], list[DropoutCall], list[str]]:
    """How each dropout layer of a model drops, and its calls in a forward pass, before dropout is disabled.

    The last list has the functions that drop values.

    names: native -> canonical name of every layer. weighted: canonical names of the layers with weights.
    """
    found = {names[name]: layer for name, layer in framework.dropouts(model).items() if name in names}
    recorder = PassRecorder({})
    with framework.functional_dropout() as functions:
        framework.capture(model, tuple(inputs), names, recorder)
    order = [(record.name, record.call) for record in recorder.records]
    calls, layers, idle = [], dict[str, DropoutLayer](), set[str]()
    for place, (name, call) in enumerate(order):
        if name not in found or (name, call) not in recorder.shapes or name in idle:
            continue
        shape = recorder.shapes[name, call]
        if name not in layers:
            tried = _tried(framework, name, found[name], shape)
            if tried is None:
                idle.add(name)
                continue
            layers[name] = tried
        before = next((each for each, _ in reversed(order[:place]) if each in weighted), "")
        after = next((each for each, _ in order[place + 1 :] if each in weighted), "")
        calls.append(DropoutCall(name, call, shape, before, after))
    return list(layers.values()), calls, functions


def _tried(framework: DropsOut, name: str, layer: Any, shape: tuple[int, ...]) -> DropoutLayer | None:
    """Call a dropout layer on ones of this shape, as often as it takes to see how it drops; None when it changes nothing."""
    channel = len(shape) - 1 if framework.channels_last else 1
    inner = tuple(axis for axis in range(1, len(shape)) if axis != channel)
    zeros, kept, per_channel = list[Array](), list[float](), True
    drawn = 0
    while drawn < TRIED and len(zeros) < TRIED:
        ones = framework.to_native(np.ones(shape, np.float32), None)
        values = framework.to_numpy(framework.drop(layer, ones), None)
        zero = values == 0
        per_channel = per_channel and bool(inner) and bool((zero == zero.all(inner, keepdims=True)).all())
        zeros.append(zero)
        kept += [float(part) for part in np.unique(values[~zero])[:2]]
        drawn += zero.size
    draws = [each.all(inner) if per_channel else each for each in zeros]
    count = sum(each.size for each in draws)
    rate = sum(int(each.sum()) for each in draws) / count
    if not rate and set(kept) == {1.0}:
        return None
    regular = bool(kept) and max(kept) - min(kept) <= 1e-5 * max(kept)
    return DropoutLayer(name, rate, kept[0] if regular and rate else math.nan, per_channel, count)


def masked_backward(
    framework: DropsOut,
    model: Any,
    batch: Batch,
    names: Mapping[str, str],
    masks: Mapping[str, Array],
) -> BackwardPass:
    """One eager forward and backward pass in which dropout layers multiply by given masks. Dropout must be disabled.

    names: native -> canonical name of the dropout layers. masks: ``mask_key`` -> mask in the framework's own layout.
    """
    native = {key: framework.to_native(mask, None) for key, mask in masks.items()}
    layers = {names[name]: [layer] for name, layer in framework.dropouts(model).items() if name in names}
    with recording(layers, framework.layer_method, PassRecorder(native)):
        return framework.backward(model, batch, list)
