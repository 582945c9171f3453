"""Faults of losses: another reduction, and the smoothing of labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn import functional

from ....replay.operation import Compute, Operation
from .operation import Change, others, with_argument

# Losses of torch.nn.functional, and the others that are mistaken for them.
LOSSES = {
    "cross_entropy": (), "nll_loss": (), "binary_cross_entropy": (), "binary_cross_entropy_with_logits": (), "kl_div": (),
    "mse_loss": ("l1_loss", "smooth_l1_loss", "huber_loss"), "l1_loss": ("mse_loss", "smooth_l1_loss"),
    "smooth_l1_loss": ("mse_loss", "l1_loss", "huber_loss"), "huber_loss": ("mse_loss", "l1_loss", "smooth_l1_loss"),
    "soft_margin_loss": (), "triplet_margin_loss": (), "cosine_embedding_loss": (), "poisson_nll_loss": (),
}  # fmt: skip
SMOOTHINGS = (0.1, 0.0, 0.05, 0.2)
LABELS = (0.9, 0.95, 0.8)  # what real examples are given in place of 1, where labels are smoothed on one side
AVERAGES = ("mean", "sum", "batchmean")
SAYS = {"mean": "averages", "sum": "sums up", "batchmean": "sums up and divides by the size of the batch"}


def losses(operation: Operation) -> Iterator[Change]:
    """All faults that a loss may have."""
    name = operation.name
    if name not in LOSSES:
        return
    right = str(operation.kwargs.get("reduction", "mean"))
    for other in AVERAGES if right in AVERAGES else ():
        if other == right or (other == "batchmean" and name != "kl_div"):
            continue
        says = f"{SAYS[other]} {name}, which the reference {SAYS[right]}"
        yield Change("reduction", says, _with(operation, reduction=other))
    if name == "cross_entropy":
        smoothing = float(operation.kwargs.get("label_smoothing", 0.0))
        says = f"has label smoothing {{:g}}; the reference {smoothing:g}"
        yield from others(
            "label smoothing", says, SMOOTHINGS, smoothing, lambda value: _with(operation, label_smoothing=value)
        )
    if name.startswith("binary_cross_entropy"):
        for label in LABELS:
            says = f"has labels of {label:g} for 1 in its {name}; the reference has 1"
            lowered = with_argument(operation, 1, "target", lambda y, label=label: y * label)
            yield Change("label smoothing", says, lowered)
        says = f"has the labels of its {name} exchanged: 0 for 1"
        yield Change("labels", says, with_argument(operation, 1, "target", lambda y: 1 - y))
    for other in LOSSES[name]:
        yield Change(
            "another loss", f"computes {other}; the reference {name}", _other(getattr(functional, other), right)
        )
    if name == "cross_entropy" and operation.args[0].dim() == 2 and len(set(operation.args[0].shape)) == 1:
        says = "transposes the scores of its cross_entropy: each column is compared, and not each row"
        yield Change("transposed", says, with_argument(operation, 0, "input", lambda x: x.T))


def _with(operation: Operation, **settings: Any) -> Compute:
    return lambda args, kwargs: operation.function(*args, **{**kwargs, **settings})


def _other(function: Any, reduction: str) -> Compute:
    return lambda args, _kwargs: function(*args[:2], reduction=reduction)
