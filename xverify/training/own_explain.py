"""Asks the reference for the known mistake that explains what a user's own training step does instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..messages.own_step import ExplainOwnStep
from .compared import rounding_alone
from .own_exact import Beside
from .own_made import of_parameters
from .own_reference import ReferenceSteps
from .own_step import Explain, Weights

AFTER = 6  # steps from the first one that differs that a mistake must explain
ENDED = "the search for a cause ended before all known mistakes were tried"


def explaining(
    reference: ReferenceSteps, label: str, taken: Path, beside: Beside, weights: Weights, said: list[str]
) -> Explain:
    """A function that looks for the known mistake that explains these weights after all steps.

    label: of the subject. taken: the beginning of the names of the files of its steps. beside: the first step that differs.
    said: gets what the function says.
    """

    def explain(place: str, factor: float | None) -> tuple[str, str]:
        reference.process.phase(f"looking for what the step of {label} does instead")
        found = reference.worker.ask(_question(reference, taken, beside, weights, place, factor))
        says = "; ".join(filter(None, (found.says, ENDED if found.ended else "")))
        if says and not found.difference:
            said.append(says)
        return says, found.difference

    return explain


def _question(
    reference: ReferenceSteps, taken: Path, beside: Beside, weights: Weights, place: str, factor: float | None
) -> ExplainOwnStep:
    """The question. factor: see ExplainOwnStep."""
    made, exact = beside.made, beside.rival or beside.exact
    count = made.number + AFTER
    truths = reference.truths[:count]
    nothing = set[str]().union(*(rounding_alone(of_parameters(truth.gradient_sizes)) for truth in truths))
    names = [name for name in weights.names if name not in nothing]
    return ExplainOwnStep(
        weights=reference.files[:count],
        inputs=str(reference.prepared.training),
        taken=exact.given or str(taken),
        exact=str(exact.folder),
        plain=str(exact.plain),
        names=tuple(names),
        losses=tuple({} if place == "statistics" else _both(made.all_losses[k], truth.losses) for k, truth in enumerate(truths)),
        exact_losses=tuple(dict(truth.losses) for truth in truths),
        loss_floors=tuple(dict(truth.loss_floors) for truth in truths),
        place=place,
        first=made.number,
        blamed=tuple(each.name for each in weights.blamed(made) if each.name in names),
        optimizer=made.optimizer(weights.failing[0].name) if weights.failing else "",
        factor=factor,
        variants=exact.variants,
        given=exact.given,
        fused_parameters=dict(exact.fused_parameters),
        parts=reference.parts,
    )  # fmt: skip


def _both(losses: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    """The losses that the subject and the reference have under the same name."""
    return {name: loss for name, loss in losses.items() if name in right}
