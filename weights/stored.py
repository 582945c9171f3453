"""The weights of a model as its file stores them, with the batch norms among them, and how a batch norm is folded into a layer.

Folding a batch norm (gamma, beta, mean, var, eps) into the layer before it, with the weight W and the bias b, gives

    W' = W * s    b' = beta + (b - mean) * s    with s = gamma / sqrt(var + eps) for each output channel
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from .canonical import Array, shape_of

EPSILONS = (1e-5, 1e-3)  # what torch and Keras add to the variance when nobody says otherwise
LIKELY = 2  # layers that are tried for a batch norm whose layer the file does not tell
STEPS = "steps of "  # before the name of a quantised array, in a file that xverify writes for itself: its steps
# Ends of the names of a batch norm's arrays: gamma, beta, mean, variance.
SUFFIXES_OF_NORMS = (
    ("weight", "bias", "running_mean", "running_var"),
    ("gamma", "beta", "moving_mean", "moving_variance"),
)


@dataclass(frozen=True)
class BatchNorm:
    """A batch norm of a model.

    gamma, beta, mean, var: names of its arrays; "" for a gamma of 1 and a beta of 0.
    eps: what is added to the variance; None: unknown.
    weight, bias: names of the arrays of the layer before it; "" where there is none, or where the file does not tell.
    axis: the axis of the output channels in this weight.
    """

    name: str
    gamma: str
    beta: str
    mean: str
    var: str
    eps: float | None = None
    weight: str = ""
    bias: str = ""
    axis: int = 0

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of its own arrays."""
        return tuple(name for name in (self.gamma, self.beta, self.mean, self.var) if name)


@dataclass(frozen=True)
class Stored:
    """The weights of a model.

    arrays: name -> array; a quantised one with the values that it stands for.
    norms: its batch norms. quantised: name -> dtype, for arrays that are stored as whole numbers; of GGUF, for all arrays.
    places: name -> the node that uses it, where the file has nodes with names.
    steps: name -> the steps of a quantised array, (5, rows, blocks), where the file tells them; see ``quantised.values``.
    facts: what the file of a language model says about it: "architecture", the numbers "heads" and "kv_heads", and "importance", 1
        where some values counted more than others when their steps were chosen; "compensated", 1 where numbers that are not the
        nearest ones may compensate the errors of others.
    unread: name -> type, of arrays that are left out because their type is not known.
    """

    arrays: Mapping[str, Array]
    norms: tuple[BatchNorm, ...] = ()
    quantised: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, Array] = field(default_factory=dict)
    facts: Mapping[str, str | int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> str:
        """An array with its place, as a message names it."""
        place = self.places.get(name, "")
        return f"{name} (of {place})" if place and not name.startswith(place) else name


@dataclass(frozen=True)
class Fold:
    """A batch norm with the layer into which it can be folded.

    layer, bias: names of the layer's arrays; "" for no bias. axis: of the output channels in the weight; of a depthwise kernel
        with several outputs of a channel, the first of two. eps: see BatchNorm.
    """

    norm: BatchNorm
    layer: str
    bias: str
    axis: int
    eps: float

    @property
    def uses(self) -> frozenset[str]:
        """The names of all arrays in it."""
        return frozenset({self.layer, self.bias, *self.norm.arrays} - {""})


def norms_by_name(arrays: Mapping[str, Array]) -> tuple[BatchNorm, ...]:
    """The batch norms that the names of arrays tell, in files that keep no graph."""
    found = []
    for gamma, beta, mean, var in SUFFIXES_OF_NORMS:
        for name in arrays:
            begin = name.removesuffix(var)
            if begin == name or begin + mean not in arrays:
                continue
            first, second = (begin + end if begin + end in arrays else "" for end in (gamma, beta))
            found.append(BatchNorm(begin.rstrip("./"), first, second, begin + mean, name))
    return tuple(found)


def folds(stored: Stored) -> Iterator[Fold]:
    """Every batch norm with its layer. Where the file tells neither the layer nor eps, those that are likely."""
    for norm in stored.norms:
        layers = [(norm.weight, norm.bias, norm.axis)] if norm.weight else _likely_layers(stored, norm)
        for layer, bias, axis in layers:
            for eps in EPSILONS if norm.eps is None else (norm.eps,):
                yield Fold(norm, layer, bias, axis, eps)


def _likely_layers(stored: Stored, norm: BatchNorm) -> list[tuple[str, str, int]]:
    """(weight, bias, axis of the output channels) of the layers whose names are nearest to that of a batch norm."""
    channels = stored.arrays[norm.var].size
    found = []
    for name in stored.arrays:
        shape = shape_of(stored.arrays, name)
        axes = [axis for axis in dict.fromkeys((0, len(shape) - 1)) if len(shape) > 1 and shape[axis] == channels]
        if len(shape) > 3 and shape[-2] * shape[-1] == channels and shape[-2] > 1:
            axes.append(len(shape) - 2)  # a depthwise kernel of Keras
        begin = name[: max(name.rfind("."), name.rfind("/")) + 1]
        bias = begin + "bias" if begin + "bias" in stored.arrays else ""
        if bias and math.prod(shape_of(stored.arrays, bias)) != channels:
            continue  # the channels of the batch norm are what the layer is given
        found += [(name, bias, axis) for axis in axes]
    return sorted(found, key=lambda each: unlike(each[0], norm.name))[:LIKELY]


def unlike(layer: str, norm: str) -> tuple[int, int]:
    """How little the name of a layer is like that of a batch norm: by the module they are in, and by the last number."""
    paths = [re.split(r"[./]", layer)[:-1], re.split(r"[./]", norm)]
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*(path[:-1] for path in paths))))
    numbers = [re.findall(r"\d+", "/".join(path)) or ["0"] for path in paths]
    return -common, abs(int(numbers[0][-1]) - int(numbers[1][-1]))


def fold(stored: Stored, how: Fold, times: int = 1) -> tuple[Array, Array]:
    """(weight, bias) of a layer with its batch norm folded in. times: how often; only 1 is right."""
    weight = stored.arrays[how.layer].astype(np.float64)
    scale = factors(stored, how.norm, how.eps)
    mean = stored.arrays[how.norm.mean].astype(np.float64)
    beta = stored.arrays[how.norm.beta].astype(np.float64) if how.norm.beta else np.zeros_like(mean)
    shift = stored.arrays[how.bias].astype(np.float64).reshape(-1) if how.bias else np.zeros_like(mean)
    for _ in range(times):
        weight = weight * _along(scale, weight, how.axis)
        shift = beta + (shift - mean) * scale
    return weight, shift


def _along(scale: Array, weight: Array, axis: int) -> Array:
    """The factors of the output channels of a weight; those of a depthwise kernel lie in its last two axes."""
    shape = [-1 if each == axis else 1 for each in range(weight.ndim)]
    if scale.size != weight.shape[axis]:
        shape[axis:] = weight.shape[axis:]
    return scale.reshape(shape)


def factors(stored: Stored, norm: BatchNorm, eps: float) -> Array:
    """gamma / sqrt(var + eps)."""
    var = stored.arrays[norm.var].astype(np.float64)
    gamma = stored.arrays[norm.gamma].astype(np.float64) if norm.gamma else np.ones_like(var)
    found: Array = gamma / np.sqrt(np.maximum(var + eps, np.finfo(np.float64).tiny))
    return found
