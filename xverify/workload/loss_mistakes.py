"""Wrong losses: what ``xverify mutate --task train`` plants, and what a report recognises a wrong loss by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .losses import VARIANTS, Loss, Objective


@dataclass(frozen=True)
class WrongLoss:
    """An objective with one mistake.

    kind: the name of the mistake. says: what a report says about it.
    """

    kind: str
    says: str
    objective: Objective


def wrong_losses(objective: Objective) -> Iterator[WrongLoss]:
    """The objective with each mistake that can be made in it. A mistake may leave the value as it is: a mean over one row."""
    terms = objective.terms
    for place, term in enumerate(terms):
        others = terms[:place], terms[place + 1 :]
        of = f"{term.name} of {term.output!r}: " if len(terms) > 1 else ""
        for kind, says, wrong in _mistakes(term):
            yield WrongLoss(
                kind + _named(term, terms), of + says, replace(objective, terms=(*others[0], wrong, *others[1]))
            )
        if len(terms) > 1:
            left = replace(objective, terms=(*others[0], *others[1]))
            yield WrongLoss("term missing" + _named(term, terms), f"the term {term.says()} is missing", left)
        if term.weight != 1:
            plain = replace(objective, terms=(*others[0], replace(term, weight=1.0), *others[1]))
            yield WrongLoss("weight missing" + _named(term, terms), f"{of}its weight {term.weight:g} is missing", plain)


def _named(term: Loss, terms: Sequence[Loss]) -> str:
    """The output of a term, where there are several terms."""
    return f", {term.output}" if len(terms) > 1 else ""


def _mistakes(term: Loss) -> Iterator[tuple[str, str, Loss]]:
    """(kind, what a report says, the wrong loss) of a term."""
    yield from _reductions(term)
    if term.name == "cross_entropy":
        yield from _of_cross_entropy(term)
    if term.name in ("cross_entropy", "bce_with_logits"):
        for kind, variant in (("softmax applied twice", "softmax twice"), ("from_logits forgotten", "not from logits")):
            yield kind, VARIANTS[variant], replace(term, variant=variant)
    for setting in ("delta", "beta", "temperature"):
        for value in _other_values(term, setting):
            right = getattr(term, setting)
            yield f"other {setting}", f"it has {setting} {value:g}, not {right:g}", _with(term, setting, value)
    if term.name == "huber" and term.delta != 1:
        yield "smooth_l1 for huber", "it is smooth_l1, which is huber divided by delta", _smooth(term)
    if term.name == "mse":
        yield "l1 for mse", "it is the mean of the distances, not of their squares", replace(term, name="l1")


def _with(term: Loss, setting: str, value: float) -> Loss:
    if setting == "delta":
        return replace(term, delta=value)
    return replace(term, beta=value) if setting == "beta" else replace(term, temperature=value)


def _smooth(term: Loss) -> Loss:
    return replace(term, name="smooth_l1", beta=term.delta, delta=1.0)


def _other_values(term: Loss, setting: str) -> Iterator[float]:
    """Values that the setting may have by mistake; torch's default first. () where the loss does not have it."""
    owner = {"delta": "huber", "beta": "smooth_l1", "temperature": "info_nce"}[setting]
    if term.name == owner:
        right = getattr(term, setting)
        usual = (0.1, 0.07, 0.5, 1.0) if setting == "temperature" else (1.0, 0.5, 0.1, 2.0, 1 / 9)
        yield from (value for value in dict.fromkeys((*usual, 2 * right)) if value != right)


def _reductions(term: Loss) -> Iterator[tuple[str, str, Loss]]:
    rows = "rows" if term.name == "cross_entropy" else "values"
    if term.reduction in ("mean", "batchmean"):
        right = f"the mean over the {rows}" if term.reduction == "mean" else "the sum divided by the items"
        yield "loss summed, not averaged", f"it is the sum over all {rows}, not {right}", replace(term, reduction="sum")
        other = "batchmean" if term.reduction == "mean" else "mean"
        says = f"the sum over all {rows} divided by the items" if other == "batchmean" else f"the mean over the {rows}"
        yield "mean over the wrong axis", f"it is {says}, not {right}", replace(term, reduction=other)
        yield "items summed", f"{VARIANTS['items summed']}; it should be {right}", replace(term, variant="items summed")
        if term.reduction == "mean":
            says = f"it is the mean divided once more by the {rows}, not {right}"
            yield "mean divided twice", says, replace(term, variant="mean twice")
    else:
        yield (
            "loss averaged, not summed",
            f"it is the mean over the {rows}, not their sum",
            replace(term, reduction="mean"),
        )
    if term.name == "ctc" and term.reduction == "mean":
        says = "the loss of an item is not divided by its number of labels"
        yield "labels not counted", says, replace(term, variant="plain mean")


def _of_cross_entropy(term: Loss) -> Iterator[tuple[str, str, Loss]]:
    if term.label_smoothing:
        says = f"label smoothing {term.label_smoothing:g} is missing"
        yield "label smoothing missing", says, replace(term, label_smoothing=0.0)
    if term.class_weights:
        yield "class weights missing", "the class weights are missing", replace(term, class_weights=())
        if term.reduction == "mean":
            yield "plain mean of weighted rows", VARIANTS["plain mean"], replace(term, variant="plain mean")
    if term.ignore_index is not None:
        says = f"{VARIANTS['ignored is class 0']} (ignore_index is {term.ignore_index})"
        yield "wrong ignored index", says, replace(term, variant="ignored is class 0")
        if term.reduction == "mean":
            yield "ignored positions counted", VARIANTS["ignored counted"], replace(term, variant="ignored counted")
