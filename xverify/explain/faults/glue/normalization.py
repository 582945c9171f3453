"""Faults of normalisations: where eps is added, its value, the number of groups."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ....replay.operation import Operation
from ..normalization import EPSILONS, affine, normalised
from .operation import Change, first_argument, is_scalar, others, with_argument

MOST_EPS = 0.01  # a number that is added and not larger than this may be an eps
EPS_PLACES = {"layer_norm": 4, "group_norm": 4, "rms_norm": 3, "normalize": 3, "instance_norm": 7, "batch_norm": 7}
DEFAULTS = {"normalize": 1e-12, "rms_norm": None}


def normalization(operation: Operation) -> Iterator[Change]:
    """All faults of normalisations that this operation may have."""
    name = operation.name
    if name in EPS_PLACES:
        place = EPS_PLACES[name]
        right = operation.argument(place, "eps", default=DEFAULTS.get(name, 1e-5))
        says = f"has eps={{:g}} in its {name}; the reference {'its default' if right is None else f'{right:g}'}"
        yield from others("eps", says, EPSILONS, right, partial(with_argument, operation, place, "eps"))
        yield Change("normalisation missing", f"leaves out a normalisation ({name})", first_argument())
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


def _groups(operation: Operation) -> Iterator[Change]:
    right, channels = operation.argument(1, "num_groups"), operation.sources[0].tensor.shape[1]
    likely = [32, 16, 8, 4, 2, 1, channels, channels // right if right else 0]
    says, fitting = (
        f"normalises in {{}} groups; the reference in {right}",
        [n for n in likely if n and not channels % n],
    )
    yield from others("group count", says, fitting, right, partial(with_argument, operation, 1, "num_groups"))


def _rms_norm(operation: Operation) -> Iterator[Change]:
    shape, weight = operation.argument(1, "normalized_shape"), operation.argument(2, "weight")
    eps, axes = operation.argument(3, "eps"), tuple(range(-len(shape), 0))
    if eps is not None:
        outside = partial(normalised, axes=axes, eps=eps, centred=False, outside=True)
        says = "adds eps to the root mean square, not to the mean of the squares"
        yield Change("eps outside the root", says, first_argument(lambda x: affine(outside(x), weight, None)))
    yield Change(
        "mean subtracted",
        "subtracts the mean and divides by the deviation (LayerNorm); the reference divides by the root mean square",
        first_argument(lambda x: F.layer_norm(x, tuple(shape), weight, None, eps or 0.0)),
    )
    if weight is not None:
        shifted = with_argument(operation, 2, "weight", lambda w: 1 + w)
        yield Change("one plus the weight", "scales by 1 + its weight", shifted)


def _layer_norm(operation: Operation) -> Iterator[Change]:
    shape, *weights = (operation.argument(k, name) for k, name in ((1, "normalized_shape"), (2, "weight"), (3, "bias")))
    usual = partial(normalised, axes=tuple(range(-len(shape), 0)), eps=operation.argument(4, "eps", default=1e-5))
    yield Change(
        "eps outside the root",
        "adds eps to the deviation, not to the variance",
        first_argument(lambda x: affine(usual(x, outside=True), *weights)),
    )
    yield Change(
        "unbiased variance",
        "divides by the variance over n-1 values, not n",
        first_argument(lambda x: affine(usual(x, correction=1), *weights)),
    )


# -- formulas that are written out --------------------------------------------------------------------------------------


def _eps_of(maker: Operation | None) -> tuple[Tensor, float] | None:
    """What is added to a small number, and the number."""
    if maker is None or maker.name != "add":
        return None
    x, eps = maker.argument(0, "input"), maker.argument(1, "other")
    if not isinstance(x, Tensor):
        x, eps = eps, x
    small = isinstance(x, Tensor) and is_scalar(eps) and 0 < float(eps) <= MOST_EPS
    return (x, float(eps)) if small else None


def _root(operation: Operation) -> Iterator[Change]:
    """eps outside of the root, where the reference has it inside."""
    exponent = operation.argument(1, "exponent") if operation.name == "pow" else None
    if operation.name == "pow" and exponent not in (0.5, -0.5):
        return
    maker = operation.made_by(operation.argument(0, "input"))
    maker_eps = _eps_of(maker)
    source = maker.source(maker_eps[0]) if maker is not None and maker_eps is not None else None
    if source is None or maker_eps is None:
        return
    value_of, eps = source.value, maker_eps[1]
    inverse = operation.name == "rsqrt" or exponent == -0.5

    def compute(*_: Any) -> Tensor:
        root = value_of().sqrt() + eps
        return 1 / root if inverse else root

    yield Change("eps outside the root", f"adds eps={eps:g} to the root; the reference under the root", compute)


def _added(operation: Operation) -> Iterator[Change]:
    """Another eps, and eps inside of the root, where the reference has it outside."""
    found = _eps_of(operation)
    if found is None:
        return
    x, right = found
    says = f"has eps={{:g}}; the reference {right:g}"
    yield from others("eps", says, EPSILONS, right, lambda eps: first_argument(lambda x: x + eps))
    maker = operation.made_by(x)
    if maker is not None and maker.name == "sqrt" and maker.sources:
        value_of, says = maker.sources[0].value, f"adds eps={right:g} under the root; the reference to the root"
        yield Change("eps inside the root", says, lambda *_: (value_of() + right).sqrt())
