"""Faults of reductions and running sums: another reduction, other axes, weights that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ....replay.operation import Keywords, Operation
from .arithmetic import ORDINALS
from .operation import Change, first_argument, others, with_argument, with_result, with_shape

REDUCTIONS = {"mean": "averages", "sum": "sums", "amax": "takes the maximum", "amin": "takes the minimum"}


def reductions(operation: Operation) -> Iterator[Change]:
    """All faults that a reduction, or a running sum or product, may have."""
    name = operation.name
    if name in REDUCTIONS:
        yield from _reduction(operation)
    elif name in ("var", "std"):
        yield from _deviation(operation)
    elif name in ("norm", "linalg_norm", "linalg_vector_norm"):
        yield from _norm(operation)
    elif name in ("cumsum", "cumprod"):
        yield Change("exclusive", "leaves the value itself out of its running sum", _exclusive(operation))


def _reduction(operation: Operation) -> Iterator[Change]:
    name, dim = operation.name, operation.sources[0].tensor.dim()
    axes, keep = operation.argument(1, "dim", "axis"), operation.argument(2, "keepdim", default=False)
    given = axes if axes is not None else tuple(range(dim))

    def reduced(name: str, axes: Any) -> Any:
        return first_argument(lambda x: getattr(torch, name)(x, axes, keep))

    for other, words in REDUCTIONS.items():
        if other != name:
            says = f"{words} where the reference {REDUCTIONS[name]}"
            yield Change("reduction", says, reduced(other, given))
    product = operation.sources[0].maker
    if name == "sum" and product is not None and product.name == "mul" and len(product.sources) == 2:
        for place, source in enumerate(product.sources):
            if source.tensor.shape == operation.sources[0].tensor.shape:
                says = (
                    f"averages the {ORDINALS[place]} factor, where the reference sums a product: weights are left out"
                )
                average = lambda *_, source=source: source.value().mean(given, keep)  # noqa: E731
                yield Change("weights missing", says, average)
    if isinstance(axes, int):
        for place, word in ((0, "first"), (-1, "last")):
            says = f"takes the {word} position, where the reference {REDUCTIONS[name]}"
            taken = first_argument(lambda x, place=place: x.narrow(axes, place % x.shape[axes], 1))
            yield Change("reduction", says, with_shape(operation, taken))
        says = f"{REDUCTIONS[name]} over axis {{}}; the reference over {axes}"
        yield from others("reduction axis", says, range(dim), axes % dim, lambda axis: reduced(name, axis))


def _deviation(operation: Operation) -> Iterator[Change]:
    correction = operation.kwargs.get("correction", operation.kwargs.get("unbiased", True))
    axes = operation.argument(1, "dim", "axis")
    if isinstance(axes, bool) or not isinstance(correction, (bool, int)):
        return
    keep = bool(operation.kwargs.get("keepdim", False))
    chosen = tuple(range(operation.sources[0].tensor.dim())) if axes is None else axes
    mine, theirs, other = ("n", "n-1", 0) if correction else ("n-1", "n", 1)
    function: Any = torch.var if operation.name == "var" else torch.std
    yield Change(
        "unbiased variance",
        f"divides by {mine}, the reference by {theirs}, in a variance",
        first_argument(lambda x: function(x, chosen, correction=other, keepdim=keep)),
    )


def _norm(operation: Operation) -> Iterator[Change]:
    """The square of a norm, and the norm over another axis."""
    says = "leaves out the square root of a norm"
    yield Change("function missing", says, with_result(operation, torch.square))
    axis, dim = operation.argument(2, "dim", "axis"), operation.sources[0].tensor.dim()
    if isinstance(axis, int):
        says = f"takes a norm over axis {{}}; the reference over {axis}"
        compute = partial(with_argument, operation, 2, "dim")
        yield from others("reduction axis", says, range(dim), axis % dim, compute)


def _exclusive(operation: Operation) -> Any:
    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        result = operation.function(*args, **kwargs)
        return result - args[0] if operation.name == "cumsum" else result / args[0]

    return compute
