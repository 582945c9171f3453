"""Faults of losses: another reduction, and the smoothing of labels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ....replay.operation import Compute, Keywords, Operation
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
LEAST, MOST = 1e-7, 1 - 2**-23  # probabilities in the losses of Keras: its eps, and 1 - eps in float32
AVERAGES = ("mean", "sum", "batchmean")
SAYS = {"mean": "averages", "sum": "sums up", "batchmean": "sums up and divides by the size of the batch"}


def losses(operation: Operation) -> Iterator[Change]:
    """All faults that a loss may have."""
    name = operation.name
    if name == "ctc_loss":
        yield from _of_sequences(operation)
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
        exchanged = with_argument(operation, 1, "target", lambda y: 1 - y)
        yield Change("labels", says, exchanged)
        says = f"has the labels of its {name} exchanged, and the other sign (the saturating loss of a generator)"
        yield Change("labels", says, lambda args, kwargs: -exchanged(args, kwargs))
    for other in LOSSES[name]:
        yield Change(
            "another loss", f"computes {other}; the reference {name}", _other(getattr(functional, other), right)
        )
    yield from _of_scores(operation)
    if name == "cross_entropy" and operation.args[0].dim() == 2 and len(set(operation.args[0].shape)) == 1:
        says = "transposes the scores of its cross_entropy: each column is compared, and not each row"
        yield Change("transposed", says, with_argument(operation, 0, "input", lambda x: x.T))


def _of_scores(operation: Operation) -> Iterator[Change]:
    """Scores that are taken for probabilities, or probabilities for scores."""
    name, target = operation.name, operation.argument(1, "target")
    says = f"takes the scores of its {name} for probabilities, as from_logits=False does in Keras"
    if name == "cross_entropy":
        twice = with_argument(operation, 0, "input", lambda x: x.softmax(1))
        yield Change("softmax", "takes the softmax twice in its cross_entropy", twice)
        shared = target.is_floating_point()  # Keras divides by their sum where the labels are probabilities, too
        taken = with_argument(
            operation, 0, "input", lambda x: _probabilities(x / x.sum(1, True) if shared else x).log()
        )
        yield Change("scores", says, taken)
    elif name == "binary_cross_entropy_with_logits":
        twice = with_argument(operation, 0, "input", torch.sigmoid)
        yield Change("sigmoid", f"takes the sigmoid twice in its {name}", twice)
        taken = with_argument(operation, 0, "input", lambda x: _probabilities(x).logit())
        yield Change("scores", says, taken)


def _probabilities(values: Tensor) -> Tensor:
    return values.clamp(LEAST, MOST)


def _of_sequences(operation: Operation) -> Iterator[Change]:
    """Faults of the loss of sequences without an alignment (CTC)."""
    scores, targets = operation.argument(0, "log_probs"), operation.argument(1, "targets")
    classes, blank = scores.shape[-1], operation.argument(4, "blank", default=0)
    for other in dict.fromkeys((0, classes - 1)):
        if other != blank:
            says = f"takes class {other} as the blank of its ctc_loss; the reference class {blank}"
            yield Change("blank", says, with_argument(operation, 4, "blank", other))
    steps, labels = (partial(torch.full_like, fill_value=size) for size in (scores.shape[0], targets.shape[-1]))
    says = "ignores the lengths of {} in its ctc_loss: all have the full length"
    yield Change("lengths", says.format("the inputs"), with_argument(operation, 2, "input_lengths", steps))
    if targets.dim() == 2:
        yield Change("lengths", says.format("the labels"), with_argument(operation, 3, "target_lengths", labels))
    if operation.argument(5, "reduction", default="mean") == "mean":
        plain = with_argument(operation, 5, "reduction", "none")

        def divided(args: tuple[Any, ...], kwargs: Keywords) -> Any:  # by the right lengths
            given = args[3] if len(args) > 3 else kwargs["target_lengths"]
            whole = with_argument(operation, 3, "target_lengths", labels)
            named = {**kwargs, "reduction": "none"}
            return (whole(args[:5], named) / given.clamp(min=1)).mean()

        if targets.dim() == 2:
            yield Change("lengths", says.format("the labels"), divided)
        says = "does not divide each ctc_loss by the length of its labels, as the reference does"
        yield Change("reduction", says, lambda args, kwargs: plain(args, kwargs).mean())
        says = "sums up ctc_loss, which the reference averages"
        yield Change("reduction", says, with_argument(operation, 5, "reduction", "sum"))
    twice = with_argument(operation, 0, "log_probs", lambda x: torch.log_softmax(x.exp(), -1))
    yield Change("softmax", "takes the softmax twice in its ctc_loss", twice)


def _with(operation: Operation, **settings: Any) -> Compute:
    return lambda args, kwargs: operation.function(*args, **{**kwargs, **settings})


def _other(function: Any, reduction: str) -> Compute:
    return lambda args, _kwargs: function(*args[:2], reduction=reduction)
