"""Mistakes in what is set around the formula of the optimizer: see ``workload.recipe``. ``mistakes`` has those in the formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..workload.optimizers import Optimizer, optimizer
from ..workload.recipe import NO_RECIPE, Group, Recipe
from ..workload.schedule import Schedule
from .mistakes import Mistake

LIMIT = 1e-4  # of clipping: so small that the gradients of every model reach it
DECAY, RATE = 0.1, 0.01  # the common weight decay, and the learning rate of a group


def recipe_mistakes(own: Recipe = NO_RECIPE) -> list[Mistake]:
    """Every mistake in a recipe. own: of the model, whose groups and frozen parameters are used where it has any."""
    return [*_of_adamw(own), *_of_sgd()]


def _adamw(recipe: Recipe) -> Optimizer:
    return optimizer("adamw", weight_decay=DECAY, recipe=recipe)


def _of_adamw(own: Recipe) -> Iterator[Mistake]:
    """Mistakes in groups, clipping, schedules, frozen parameters and AMSGrad."""
    first = Group(own.groups[0].pattern if own.groups else "*bias*", lr=RATE, weight_decay=0.0)
    others = own.groups[1:]
    several = Recipe(groups=(first, *others), clip_norm=LIMIT, schedule=Schedule("cosine", steps=8, warmup=2))
    frozen = Recipe(frozen=own.frozen or ("*bias*",), amsgrad=True)

    def mistake(kind: str, check: str, says: str, wrong: Recipe | None = None, plant: str = "") -> Mistake:
        return Mistake(kind, check, says, _adamw(several), _adamw(wrong) if wrong else None, plant)

    unclipped = replace(several, clip_norm=None)
    decayed = replace(several, groups=(replace(first, weight_decay=None), *others))
    common = replace(several, groups=(replace(first, lr=None), *others))
    at_once = replace(several, schedule=Schedule("cosine", steps=8))
    values, each = replace(unclipped, clip_value=LIMIT), replace(unclipped, clip_each=LIMIT)
    yield mistake("weight decay of biases", "groups", f"has the weight decay {DECAY}", decayed)
    yield mistake("rate of a group missing", "groups", "has the learning rate 0.001", common)
    yield mistake("clipping missing", "clipping", "they are not clipped", unclipped)
    yield mistake("clipping after the step", "clipping", "they are not clipped", plant="clip late")
    yield mistake("values clipped, not the norm", "clipping", "it is the values of gradients", values)
    yield mistake("each gradient clipped by itself", "clipping", "it is the norm of each gradient", each)
    yield mistake("warm-up missing", "schedule", "the warm-up is missing", at_once)
    yield mistake("schedule a step ahead", "schedule", "one step ahead", plant="schedule early")
    yield mistake("schedule a step behind", "schedule", "one step behind", plant="schedule late")
    moving, plain = _adamw(replace(frozen, frozen=())), _adamw(frozen)
    yield Mistake("frozen parameters move", "frozen", "is frozen, and moves", plain, moving)
    yield Mistake("AMSGrad missing", "update", "AMSGrad is missing", plain, plant="no AMSGrad")


def _of_sgd() -> Iterator[Mistake]:
    """Mistakes in micro-batches and averages. A model with batch norms has averages only."""

    def sgd(recipe: Recipe) -> Optimizer:
        return optimizer("sgd", momentum=0.9, nesterov=True, recipe=recipe)

    parts, kept = sgd(Recipe(accumulate=2, average=0.9)), sgd(Recipe(average=0.9))
    last = "that of the last micro-batch alone"
    yield Mistake("micro-batches summed", "accumulation", "it is the sum over 2", parts, plant="sum of micro-batches")
    yield Mistake("zeroed between micro-batches", "accumulation", last, parts, plant="last micro-batch")
    yield Mistake("average before the step", "average", "the weights before the step", kept, plant="average early")
    yield Mistake("average with 1 - decay", "average", "its decay is 0.1", kept, sgd(Recipe(average=0.1)))
    yield Mistake("average missing", "average", "no average", kept, sgd(NO_RECIPE))
