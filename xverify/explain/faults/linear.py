"""Faults of linear layers, embeddings and of flattening: matrices that are transposed, shifted, scaled or read in another order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from .changes import computing, with_output, with_weight
from .fault import PortFault


def linear(layer: Any) -> Iterator[PortFault]:
    """A transposed weight, where it is square; a transposed weight of another shape could not be loaded."""
    if layer.weight.shape[0] == layer.weight.shape[1]:
        yield PortFault("weight transposed", "its weight is transposed", with_weight("weight", lambda w: w.T))


def embedding(layer: Any) -> Iterator[PortFault]:
    """Indices that are off by one, and the factor √width that some transformers multiply by."""
    scale = layer.embedding_dim**0.5
    yield PortFault("index off by one", "looks up the row before", with_weight("weight", lambda w: w.roll(1, 0)))
    yield PortFault("index off by one", "looks up the row after", with_weight("weight", lambda w: w.roll(-1, 0)))
    yield PortFault(
        "embedding scaled", f"multiplies by the root of the width, {scale:.4g}", with_output(lambda y: y * scale)
    )


def flatten(layer: Any) -> Iterator[PortFault]:
    """Flattening with the channels last, as in a framework that keeps images as N,H,W,C."""

    def channels_last(layer: Any, x: Tensor) -> Tensor:
        return x.movedim(1, -1).flatten(layer.start_dim, layer.end_dim)

    yield PortFault("NHWC flatten", "flattens in the order H,W,C; the reference in C,H,W", computing(channels_last))
