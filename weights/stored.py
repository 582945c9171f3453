"""The weights of a model as its file stores them, with the batch norms among them, and how a batch norm is folded into a layer.

Folding a batch norm (gamma, beta, mean, var, eps) into the layer before it, with the weight W and the bias b, gives

    W' = W * s    b' = beta + (b - mean) * s    with s = gamma / sqrt(var + eps) for each output channel
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from .canonical import Array

EPSILONS = (1e-5, 1e-3)  # what torch and Keras add to the variance when nobody says otherwise
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
    norms: its batch norms. quantised: name -> dtype, for arrays that are stored as whole numbers.
    places: name -> the node that uses it, where the file has nodes with names.
    """

    arrays: Mapping[str, Array]
    norms: tuple[BatchNorm, ...] = ()
    quantised: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> str:
        """An array with its place, as a message names it."""
        place = self.places.get(name, "")
        return f"{name} (of {place})" if place and not name.startswith(place) else name


@dataclass(frozen=True)
class Folded:
    """A layer after a batch norm was folded into it.

    weight, bias: the new arrays. of: names of the arrays that were folded.
    """

    norm: BatchNorm
    layer: str
    weight: Array
    bias: Array
    of: frozenset[str]


def norms_by_name(arrays: Mapping[str, Array]) -> tuple[BatchNorm, ...]:
    """The batch norms that the names of arrays tell, in files that keep no graph."""
    found = []
    for gamma, beta, mean, var in SUFFIXES_OF_NORMS:
        for name in arrays:
            begin = name.removesuffix(var)
            if begin == name or begin + mean not in arrays:
                continue
            given = [begin + end if begin + end in arrays else "" for end in (gamma, beta)]
            found.append(BatchNorm(begin.rstrip("./"), *given, begin + mean, name))
    return tuple(found)


def folded(stored: Stored, times: int = 1) -> Iterator[Folded]:
    """Every layer with the batch norm behind it folded in.

    times: how often; only 1 is right. Where the file does not tell the layer, or eps, every layer and usual value that fits is tried.
    """
    for norm in stored.norms:
        for layer, bias, axis in _layers(stored, norm):
            for eps in EPSILONS if norm.eps is None else (norm.eps,):
                yield fold(stored, norm, layer, bias, axis, eps, times)


def _layers(stored: Stored, norm: BatchNorm) -> Iterator[tuple[str, str, int]]:
    """(weight, bias, axis of the output channels) of each layer that can come before a batch norm."""
    if norm.weight:
        yield norm.weight, norm.bias, norm.axis
        return
    channels = stored.arrays[norm.var].size
    for name, array in stored.arrays.items():
        if array.ndim < 2:
            continue
        begin = name[: max(name.rfind("."), name.rfind("/")) + 1]
        bias = begin + "bias" if begin + "bias" in stored.arrays else ""
        for axis in dict.fromkeys((0, array.ndim - 1)):
            if array.shape[axis] == channels:
                yield name, bias, axis


def fold(stored: Stored, norm: BatchNorm, layer: str, bias: str, axis: int, eps: float, times: int = 1) -> Folded:
    """One layer with a batch norm folded in."""
    weight = stored.arrays[layer].astype(np.float64)
    scale = factors(stored, norm, eps)
    mean = stored.arrays[norm.mean].astype(np.float64)
    beta = stored.arrays[norm.beta].astype(np.float64) if norm.beta else np.zeros_like(mean)
    shift = stored.arrays[bias].astype(np.float64).reshape(-1) if bias else np.zeros_like(mean)
    for _ in range(times):
        weight = weight * scale.reshape([-1 if each == axis else 1 for each in range(weight.ndim)])
        shift = beta + (shift - mean) * scale
    return Folded(norm, layer, weight, shift, frozenset({layer, bias, *norm.arrays} - {""}))


def factors(stored: Stored, norm: BatchNorm, eps: float) -> Array:
    """gamma / sqrt(var + eps)."""
    var = stored.arrays[norm.var].astype(np.float64)
    gamma = stored.arrays[norm.gamma].astype(np.float64) if norm.gamma else np.ones_like(var)
    found: Array = gamma / np.sqrt(np.maximum(var + eps, np.finfo(np.float64).tiny))
    return found
