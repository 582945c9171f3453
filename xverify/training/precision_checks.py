"""The checks of mixed precision: in which precision layers compute, where weights are kept, and how the loss is scaled.

Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from ..errors import Absent
from ..messages.training import Scaling, StepTaken, TrainingCaptured
from ..results.figures import shown_ratio
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict.limits import EQUAL_RHO, UNITS
from ..weights.canonical import Array
from ..workload.recipe import Recipe
from .recipe_checks import distance, of_rounding, trained, vague_gradients
from .step import Step

FLOAT32 = "float32"
ALIKE = 0.1  # gradients that are all multiplied by one factor show it up to this share
FACTOR = 2.0  # a factor of all gradients that is nearer to 1 may be chance
UNDERFLOW = (
    "float16 has no number between 0 and 6e-8, and this run does not scale its loss. Scale it: --loss-scale dynamic here, "
    "torch.amp.GradScaler in torch, LossScaleOptimizer in Keras; or train in bfloat16"
)


def judge_layers(recipe: Recipe, captured: TrainingCaptured | Absent | None) -> Iterator[Check]:
    """The dtypes of what the layers returned, in a run with mixed precision.

    captured: Absent where the layers could not be captured; None where they were captured in another mode.
    """
    if not recipe.is_mixed or not isinstance(captured, TrainingCaptured):
        return
    dtypes = {each.name: each.output_dtype or FLOAT32 for each in captured.records}
    count, lower = len(dtypes), sum(dtype == recipe.precision for dtype in dtypes.values())
    if lower:
        others = f", the others {FLOAT32}" if lower < count else ""
        says = f"{lower} of {count} layers return {recipe.precision}{others}"
        yield Check("precision", 0, Verdict.EQUAL, says=says, compared=count, known=count)
    else:
        says = (
            f"no layer returns {recipe.precision}: the model computes in {' and '.join(sorted(set(dtypes.values())))}"
        )
        yield Check("precision", 0, Verdict.DIFFERENT, says=says, compared=count, known=count)


def lower_than(right: Mapping[str, int], found: Mapping[str, int]) -> str:
    """The precision of a subject's matrix products where the reference computes all of its own in float32; "" otherwise.

    right, found: precision -> number of products and convolutions, of the reference and of a subject.
    """
    lower = [] if set(right) & set(UNITS) else set(found) & set(UNITS)
    return max(lower, key=UNITS.__getitem__, default="")


def judge_products(right: Mapping[str, int], found: Mapping[str, int], lowered: str) -> Iterator[Check]:
    """The precision of the matrix products of a user's own step; nothing where all are in float32, or none could be seen.

    right, found: see ``lower_than``. lowered: the precision in which the reference computes because the subject does; "" otherwise.
    """
    lower, wanted = ({name: each[name] for name in each if name in UNITS} for each in (found, right))
    if not found or not (lower or wanted):
        return
    count = sum(found.values())
    if set(lower) == set(wanted):
        says = _products(lower, count)
        says += f"; torch.py computes in {FLOAT32}, and its noise is that of its step in {lowered}" if lowered else ""
        yield Check("precision", 0, Verdict.EQUAL, says=says, compared=count, known=count)
    else:
        says = f"{_products(lower, count)}; in torch.py, {_products(wanted, sum(right.values()))}"
        yield Check("precision", 0, Verdict.DIFFERENT, says=says, compared=count, known=count)


def _products(lower: Mapping[str, int], count: int) -> str:
    """What a report says of the precision of matrix products. count: of all of them."""
    if not lower:
        return f"all matrix products and convolutions compute in {FLOAT32}"
    share = sum(lower.values()) / count
    return f"{share:.0%} of the matrix products and convolutions compute in {' and '.join(sorted(lower))}"


def judge_mixed(step: Step, taken: StepTaken) -> Iterator[Check]:
    """The checks of a step in mixed precision; nothing for one in float32."""
    if not step.recipe.is_mixed:
        return
    if taken.master:
        yield _judge_master(step, taken)
    if step.recipe.scales:
        yield _judge_unscaled(step)
    if taken.scaling is not None:
        yield _judge_scaling(taken.scaling, step.number)


def _judge_master(step: Step, taken: StepTaken) -> Check:
    """The dtypes of the weights that a step updates."""
    count = sum(taken.master.values())
    for dtype, kept in taken.master.items():
        if dtype != FLOAT32:
            says = (
                f"{kept} of {count} weights are kept in {dtype}, so that an update that is smaller than the rounding of its weight "
                f"is lost: keep them in {FLOAT32} (torch.autocast, or the policy mixed_{step.recipe.precision} of Keras)"
            )
            return Check("master weights", step.number, Verdict.DIFFERENT, math.inf, says, compared=count, known=count)
    return Check("master weights", step.number, Verdict.EQUAL, compared=count, known=count)


def _judge_unscaled(step: Step) -> Check:
    """The gradients before they are clipped, which must not contain the scale of the loss any more."""
    names = trained(step)
    found = {name: np.asarray(step.taken[f"accumulated/{name}"], np.float64) for name in names}
    own = {name: _own_gradient(step, name) for name in names}
    floors = {name: step.truth.floors[step.stored(name)] for name in names}
    worst, place = max((distance(found[name], own[name], floors[name]), name) for name in names)
    if worst <= EQUAL_RHO:
        return of_rounding("unscaling", step, worst, len(names), vague_gradients(step, own, floors))
    away = f"{shown_ratio(worst, 3)} x its noise floor away from its own"
    says = f"{place}: the gradient that is clipped, or given to the optimizer, is {away}"
    factor = common_factor([(found[name], own[name]) for name in names])
    if factor:
        says = (
            f"gradients are {factor:.6g} times too large when they are clipped or given to the optimizer: divide them by the scale "
            "of the loss first (GradScaler.unscale_)"
        )
    return Check("unscaling", step.number, Verdict.DIFFERENT, worst, says, compared=len(names), known=len(names))


def _own_gradient(step: Step, name: str) -> Array:
    """The framework's own gradient, which is the mean of those of all micro-batches."""
    count = step.recipe.accumulate
    keys = [f"part/{index}/{name}" for index in range(count)] if count > 1 else [f"gradient/{name}"]
    total: Array = np.mean([step.taken[key] for key in keys], axis=0, dtype=np.float64)
    return total


def common_factor(pairs: Sequence[tuple[Array, Array]]) -> float:
    """The one factor by which all arrays differ from the others; 0.0 where there is none, or where it may be chance.

    pairs: an array, and what it should be.
    """
    factors = []
    for found, right in pairs:
        size = float(np.square(right).sum())
        if size:
            factors.append(float((np.asarray(found, np.float64) * right).sum()) / size)
    factor = median(factors) if factors else 0.0
    alike = all(abs(each - factor) <= ALIKE * abs(factor) for each in factors)
    return factor if alike and (factor >= FACTOR or 0 < factor <= 1 / FACTOR) else 0.0


def _judge_scaling(scaling: Scaling, number: int) -> Check:
    """The scale after a usual step, after gradients that are not finite, and at the end of an interval."""
    wrong = ""
    if scaling.after_step != scaling.scale or scaling.counted != 1:
        wrong = (
            f"after a step with finite gradients the scale is {scaling.after_step:g}, and {scaling.counted} steps are counted; "
            f"{scaling.scale:g} and 1 are right"
        )
    elif scaling.moved:
        wrong = f"a step with infinite gradients changes {scaling.moved} weights: it must be skipped"
    elif scaling.after_overflow != scaling.overflow / 2 or scaling.overflow_counted:
        wrong = (
            f"after a step with infinite gradients the scale is {scaling.after_overflow:g}, and {scaling.overflow_counted} steps "
            f"are counted; {scaling.overflow / 2:g} and 0 are right"
        )
    elif scaling.after_interval != scaling.scale * 2:
        wrong = (
            f"after {scaling.interval} steps with finite gradients the scale is {scaling.after_interval:g}; "
            f"{scaling.scale * 2:g} is right"
        )
    if wrong:
        return Check("scaling", number, Verdict.DIFFERENT, math.inf, wrong, compared=3, known=3)
    return Check(
        "scaling", number, Verdict.EQUAL, says=f"the loss is multiplied by {scaling.scale:g}", compared=3, known=3
    )
