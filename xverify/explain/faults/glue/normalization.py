"""Faults of normalisations: where eps is added, its value, the number of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ....replay.operation import Operation
from ..normalization import EPSILONS
from .operation import Change, first_argument, is_scalar, with_argument

MOST_EPS = 0.01  # a number that is added and not larger than this may be an eps
EPS_PLACES = {"layer_norm": 4, "group_norm": 4, "rms_norm": 3, "normalize": 3, "instance_norm": 7, "batch_norm": 7}
DEFAULTS = {"normalize": 1e-12, "rms_norm": None}


def normalization(operation: Operation) -> Iterator[Change]:
    """All faults of normalisations that this operation may have."""
    name = operation.name
    if name in EPS_PLACES:
        yield from _setting(operation)
    if name == "group_norm":
        yield from _groups(operation)
    elif name == "rms_norm":
        yield from _rms_norm(operation)
    elif name == "layer_norm":
        yield from _layer_norm(operation)
    elif name in ("rsqrt", "sqrt", "pow"):
        yield from _root(operation)
    elif name == "add":
        yield from _added(operation)


def _setting(operation: Operation) -> Iterator[Change]:
    place = EPS_PLACES[operation.name]
    right = operation.argument(place, "eps", default=DEFAULTS.get(operation.name, 1e-5))
    for eps in EPSILONS:
        if eps != right:
            told = "its default" if right is None else f"{right:g}"
            says = f"has eps={eps:g} in its {operation.name}; the reference {told}"
            yield Change("eps", says, with_argument(operation, place, "eps", eps))


def _groups(operation: Operation) -> Iterator[Change]:
    right = operation.argument(1, "num_groups")
    channels = operation.sources[0].tensor.shape[1]
    likely = [32, 16, 8, 4, 2, 1, channels, channels // right if right else 0]
    for groups in dict.fromkeys(likely):
        if groups and groups != right and channels % groups == 0:
            says = f"normalises in {groups} groups; the reference in {right}"
            yield Change("group count", says, with_argument(operation, 1, "num_groups", groups))


def _rms_norm(operation: Operation) -> Iterator[Change]:
    shape, weight = operation.argument(1, "normalized_shape"), operation.argument(2, "weight")
    eps = operation.argument(3, "eps")
    axes = tuple(range(-len(shape), 0))

    def scaled(y: Tensor) -> Tensor:
        return y if weight is None else y * weight

    if eps is not None:
        yield Change(
            "eps outside the root",
            "adds eps to the root mean square, not to the mean of the squares",
            first_argument(lambda x: scaled(x / (x.square().mean(axes, keepdim=True).sqrt() + eps))),
        )
    yield Change(
        "mean subtracted",
        "subtracts the mean and divides by the deviation (LayerNorm); the reference divides by the root mean square",
        first_argument(lambda x: F.layer_norm(x, tuple(shape), weight, None, eps or 0.0)),
    )
    if weight is not None:
        yield Change(
            "one plus the weight", "scales by 1 + its weight", with_argument(operation, 2, "weight", lambda w: 1 + w)
        )


def _layer_norm(operation: Operation) -> Iterator[Change]:
    shape, weight, bias = (
        operation.argument(k, name) for k, name in ((1, "normalized_shape"), (2, "weight"), (3, "bias"))
    )
    eps = operation.argument(4, "eps", default=1e-5)
    axes = tuple(range(-len(shape), 0))

    def affine(y: Tensor) -> Tensor:
        y = y if weight is None else y * weight
        return y if bias is None else y + bias

    def deviation(x: Tensor, correction: int) -> Tensor:
        return x.var(axes, correction=correction, keepdim=True)

    def centred(x: Tensor) -> Tensor:
        return x - x.mean(axes, keepdim=True)

    yield Change(
        "eps outside the root",
        "adds eps to the deviation, not to the variance",
        first_argument(lambda x: affine(centred(x) / (deviation(x, 0).sqrt() + eps))),
    )
    yield Change(
        "unbiased variance",
        "divides by the variance over n-1 values, not n",
        first_argument(lambda x: affine(centred(x) / (deviation(x, 1) + eps).sqrt())),
    )


# -- formulas that are written out --------------------------------------------------------------------------------------


def _eps_of(maker: Operation | None) -> tuple[Tensor, float] | None:
    """What is added to a small number, and the number."""
    if maker is None or maker.name != "add":
        return None
    x, eps = maker.argument(0, "input"), maker.argument(1, "other")
    if not isinstance(x, Tensor):
        x, eps = eps, x
    if isinstance(x, Tensor) and is_scalar(eps) and 0 < float(eps) <= MOST_EPS:
        return x, float(eps)
    return None


def _root(operation: Operation) -> Iterator[Change]:
    """eps outside of the root, where the reference has it inside."""
    exponent = operation.argument(1, "exponent") if operation.name == "pow" else None
    if operation.name == "pow" and exponent not in (0.5, -0.5):
        return
    maker = operation.made_by(operation.argument(0, "input"))
    found = _eps_of(maker)
    if maker is None or found is None:
        return
    x, eps = found
    source = maker.source(x)
    inverse = operation.name == "rsqrt" or exponent == -0.5

    def compute(_: Any, __: Any) -> Tensor:
        assert source is not None
        root = source.value().sqrt() + eps
        return 1 / root if inverse else root

    if source is not None:
        yield Change("eps outside the root", f"adds eps={eps:g} to the root; the reference under the root", compute)


def _added(operation: Operation) -> Iterator[Change]:
    """Another eps, and eps inside of the root, where the reference has it outside."""
    found = _eps_of(operation)
    if found is None:
        return
    x, right = found
    for eps in EPSILONS:
        if eps != right:
            says = f"has eps={eps:g}; the reference {right:g}"
            yield Change("eps", says, first_argument(lambda x, eps=eps: x + eps))
    maker = operation.made_by(x)
    if maker is not None and maker.name == "sqrt" and maker.sources:
        inside = maker.sources[0]

        def compute(_: Any, __: Any) -> Tensor:
            return (inside.value() + right).sqrt()

        yield Change("eps inside the root", f"adds eps={right:g} under the root; the reference to the root", compute)
