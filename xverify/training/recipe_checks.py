"""The checks of a recipe: each setting around the optimizer, judged from what the framework had before it. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median

import numpy as np

from ..results.figures import shown_ratio
from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.limits import EQUAL_RHO, NULL, UNIT, growth
from ..weights.canonical import Array
from ..workload.keys import average_key
from ..workload.optimizers import Optimizer
from ..workload.recipe import CLIPS, DIFFERENCES, Group, Recipe, averaged, clip_factors
from ..workload.schedule import Schedule, late_one_cycle
from .compared import quotient, rms, share_of
from .step import Step

RATE_FLOOR = (
    2 * UNIT
)  # of the factor of a schedule, of which 1 is the largest: a cosine in float32 is off by about that
SAME_RATE = 4 * UNIT  # two rates or decays that differ by less than this share of themselves are the same

Arrays = Mapping[str, Array]
# A step that may be computed instead of the right one: (what the report says, parameter -> its result).
Explanation = tuple[str, Callable[[str], Array]]


def judge_recipe(step: Step, settings: Optimizer, variants: Sequence[str]) -> Iterator[Check]:
    """The checks of the settings that the recipe has, in the order in which a step uses them.

    settings: with canonical names. variants: the known differences of the framework, keys of recipe.DIFFERENCES among them.
    """
    recipe = settings.recipe
    if recipe.accumulate > 1:
        yield _judge_accumulation(step, recipe)
    if recipe.clip:
        yield _judge_clipping(step, recipe, recipe.clip, variants)
    if recipe.schedule or recipe.groups:
        yield from _judge_rates(step, settings, variants)
    if step.frozen:
        yield _judge_frozen(step)
    if recipe.average is not None:
        yield _judge_average(step, recipe.average, recipe.accumulate, variants)


def trained(step: Step) -> list[str]:
    """The parameters of the subject that the recipe does not freeze."""
    names = [key.removeprefix("gradient/") for key in step.taken if key.startswith("gradient/")]
    return [name for name in names if step.stored(name) not in step.frozen]


def _judged(
    name: str,
    step: Step,
    ratios: Mapping[str, float],
    same: Callable[[Callable[[str], Array]], bool],
    known: Sequence[Explanation],
    wrong: Sequence[Explanation],
    vague: Collection[str] = (),
) -> Check:
    """The check that follows from the ratios of all parameters.

    ratios: parameter -> residual / noise floor. same: whether a wrong step explains all results.
    known: differences of the framework by their names. wrong: mistakes by what the report says of them.
    vague: parameters in whose results a fault would not show.
    """
    count, (worst, place) = len(ratios), max((ratio, parameter) for parameter, ratio in ratios.items())
    if worst <= EQUAL_RHO:
        return of_rounding(name, step, worst, count, vague)
    for difference, explained in known:
        if same(explained):
            says = f"{difference}: {DIFFERENCES[difference]}"
            return Check(name, step.number, Verdict.DRIFT, worst, says, difference, count, count)
    says = f"{place}: its error is {shown_ratio(worst, 3)} x its noise floor"
    says += next((f": {what}" for what, explained in wrong if same(explained)), "")
    verdict = limits.failing(worst, limits.STEP)
    return Check(name, step.number, verdict, worst, says, compared=count, known=count)


def of_rounding(name: str, step: Step, worst: float, count: int, vague: Collection[str]) -> Check:
    """The check of gradients that differ by rounding alone. worst: the largest ratio. vague: see ``vague_gradients``."""
    if len(vague) < count:
        return Check(name, step.number, Verdict.EQUAL, worst, compared=count - len(vague), known=count)
    says = f"rounding alone may change every gradient by over {NULL[step.recipe.precision]:.0%}"
    return Check(name, step.number, Verdict.UNTESTED, says=says, known=count)


def vague_gradients(step: Step, own: Arrays, floors: Mapping[str, float]) -> set[str]:
    """The gradients that rounding alone may change as much as a fault. floors: the rms of the noise of each."""
    return {name for name, each in own.items() if not share_of(floors[name], rms(each)) <= NULL[step.recipe.precision]}


def distance(found: Array, exact: Array, floor: float) -> float:
    """rms(found - exact) / floor; infinite for NaN and infinities, and 0.0 where the floor is not known."""
    residual = found.astype(np.float64) - exact
    return quotient(rms(residual), floor) if np.isfinite(residual).all() else math.inf


def _judge_accumulation(step: Step, recipe: Recipe) -> Check:
    """The mean of the framework's own gradients of the micro-batches, against what it has accumulated."""
    count, names = recipe.accumulate, trained(step)

    def parts(name: str) -> Array:
        return np.stack([step.taken[f"part/{index}/{name}"] for index in range(count)]).astype(np.float64)

    def floor(name: str) -> float:
        return math.hypot(UNIT * rms(np.abs(parts(name)).sum(0)), step.truth.floors[step.stored(name)])

    floors = {name: floor(name) for name in names}

    def ratio(name: str, exact: Array) -> float:
        return distance(step.taken[f"accumulated/{name}"], exact, floors[name])

    def same(explained: Callable[[str], Array]) -> bool:
        return all(ratio(name, explained(name)) <= limits.DRIFT_RHO for name in names)

    wrong: list[Explanation] = [
        (f"it is the sum over {count} micro-batches, not their mean", lambda name: parts(name).sum(0)),
        ("it is that of the last micro-batch alone", lambda name: parts(name)[-1] / count),
        ("it is that of the last micro-batch alone", lambda name: parts(name)[-1]),
    ]
    own = {name: parts(name).mean(0) for name in names}
    ratios = {name: ratio(name, own[name]) for name in names}
    return _judged("accumulation", step, ratios, same, [], wrong, vague_gradients(step, own, floors))


def _judge_clipping(step: Step, recipe: Recipe, clip: tuple[str, float], variants: Sequence[str]) -> Check:
    """The framework's own gradients, clipped by torch's formula, against those that its optimizer was given."""
    (how, limit), names = clip, trained(step)
    own = {name: np.asarray(step.taken[f"accumulated/{name}"], np.float64) for name in names}
    squares = {name: float(np.square(each).sum()) for name, each in own.items()}
    right = _clipped(own, squares, how, limit)
    of_all = _noise_of_norm(own.values())
    of_one = cache(lambda name: _noise_of_norm([own[name]]))

    def ratio(name: str, exact: Array, noise: float) -> float:
        return distance(step.taken[f"clipped/{name}"], exact, noise * rms(exact))

    def away(name: str) -> float:
        noise = {"clip_norm": of_all, "clip_value": UNIT}.get(how) or of_one(name)
        return ratio(name, right[name], noise)

    def same(explained: Callable[[str], Array]) -> bool:
        return all(ratio(name, explained(name), max(of_all, of_one(name))) <= EQUAL_RHO for name in names)

    known: list[Explanation] = []
    if "clip eps" in variants:
        known.append(("clip eps", _clipped(own, squares, how, limit, 0.0).__getitem__))
    if "norm of groups" in variants:
        known.append(("norm of groups", _clipped_by_group(step, recipe, clip, own, squares).__getitem__))
    wrong: list[Explanation] = [("they are not clipped", own.__getitem__)]
    for other, what in CLIPS.items():
        if other != how:
            wrong.append(
                (
                    f"it is the {what} that is clipped, not the {CLIPS[how]}",
                    _clipped(own, squares, other, limit).__getitem__,
                )
            )
    check = _judged("clipping", step, {name: away(name) for name in names}, same, known, wrong)
    if check.verdict == Verdict.EQUAL and all(np.array_equal(own[name], right[name]) for name in names):
        says = f"no gradient reached the limit of {limit:g}, so nothing was clipped"
        return Check("clipping", step.number, Verdict.UNTESTED, says=says, known=len(names))
    return check


def _noise_of_norm(gradients: Iterable[Array]) -> float:
    """The share by which the norm of these values may be off in float32.

    A framework may add the squares one after the other. Most errors of such a sum cancel, but not where many squares are so small
    beside the sum of those before that they are rounded away. The sum is therefore made in float32, too.
    """
    found, exact, terms = np.float32(0), 0.0, 0
    for each in gradients:
        squares = np.square(each.ravel())
        exact, terms = exact + float(squares.sum()), terms + squares.size
        found = np.cumsum(np.append(found, squares), dtype=np.float32)[-1]
    return max(UNIT * growth(terms), abs(float(found) - exact) / exact / 2 if exact else 0.0)


def _clipped(
    own: Arrays, squares: Mapping[str, float], how: str, limit: float, eps: float | None = None
) -> dict[str, Array]:
    if how == "clip_value":
        return {name: np.clip(each, -limit, limit) for name, each in own.items()}
    given = {} if eps is None else {"eps": eps or 1e-300}  # a norm may be zero
    factors = clip_factors(how, limit, list(squares.values()), math.sqrt, min, **given)
    return {name: each * factor for (name, each), factor in zip(own.items(), factors)}


def _clipped_by_group(
    step: Step, recipe: Recipe, clip: tuple[str, float], own: Arrays, squares: Mapping[str, float]
) -> dict[str, Array]:
    """The gradients, each parameter group of which is clipped by its own norm."""
    members, found = dict[Group | None, list[str]](), dict[str, Array]()
    for name in own:
        members.setdefault(recipe.group_of(step.stored(name)), []).append(name)
    for names in members.values():
        gradients, sums = {name: own[name] for name in names}, {name: squares[name] for name in names}
        found |= _clipped(gradients, sums, *clip, 0.0)
    return found


def _judge_rates(step: Step, settings: Optimizer, variants: Sequence[str]) -> Iterator[Check]:
    """The factor of the schedule, and then the rate and the decay of every parameter, given the framework's own factor."""
    names, recipe = trained(step), settings.recipe
    rates = {name: float(step.taken[f"rate/{name}"]) for name in names}
    right = {name: settings.of(step.stored(name)) for name in names}
    # A group's rate may be missing, so that the factor is that of the parameters with the common rate, where there are any.
    common = [name for name in names if right[name].lr == settings.lr] or names
    shares = [rates[name] / right[name].lr for name in common if right[name].lr]
    factor = median(shares) if shares else 1.0
    if recipe.schedule:
        yield _judge_schedule(step, recipe.schedule, recipe.accumulate, factor, variants)
    if recipe.groups:
        yield _judge_groups(
            step, settings, right, {name: rate / factor if factor else 0.0 for name, rate in rates.items()}
        )


def _judge_schedule(step: Step, schedule: Schedule, parts: int, factor: float, variants: Sequence[str]) -> Check:
    """The factor of the schedule. parts: number of micro-batches. factor: the framework's own."""
    number = step.number
    exact = schedule.factor(number)
    ratio = abs(factor - exact) / RATE_FLOOR

    def same(expected: float) -> bool:
        return abs(factor - expected) <= EQUAL_RHO * RATE_FLOOR

    def check(verdict: Verdict, says: str = "", difference: str = "") -> Check:
        return Check("schedule", number, verdict, ratio, says, difference, compared=1, known=1)

    if ratio <= EQUAL_RHO:
        return check(Verdict.EQUAL)
    behind, micro = schedule.factor(max(0, number - 1)), schedule.factor(parts * number + parts - 1)
    known = [("late schedule", behind), ("schedule of micro-batches", micro)]
    if schedule.kind == "one-cycle" and schedule.steps:
        known.append(("late one-cycle", late_one_cycle(number, schedule.steps)))
    for difference, expected in known:
        if difference in variants and same(expected):
            return check(Verdict.DRIFT, f"{difference}: {DIFFERENCES[difference]}", difference)
    wrong = [("it is one step ahead", schedule.factor(number + 1)), ("it is one step behind", behind)]
    if schedule.warmup:
        shorter = replace(schedule, warmup=0) if schedule.kind != "constant" else None
        rest = replace(shorter, steps=schedule.steps - schedule.warmup) if shorter and schedule.steps else None
        wrong += [("the warm-up is missing", each.factor(number)) for each in (shorter, rest) if each]
    wrong += [("the rate does not change at all", 1.0), ("it counts micro-batches", micro)]
    says = f"the learning rates are multiplied by {factor:.7g}; the {schedule.says()} has {exact:.7g}"
    says += next((f": {what}" for what, expected in wrong if same(expected)), "")
    return check(limits.failing(ratio, limits.STEP), says)


def _judge_groups(step: Step, settings: Optimizer, right: Mapping[str, Optimizer], rates: Mapping[str, float]) -> Check:
    """rates: without the factor of the schedule."""
    worst, says = 0.0, ""
    for name, own in right.items():
        group = settings.recipe.group_of(step.stored(name))
        of = f"its group {group.pattern!r}" if group else "a parameter without a group"
        decay = float(step.taken[f"decay/{name}"])
        for what, taken, exact in (("learning rate", rates[name], own.lr), ("weight decay", decay, own.weight_decay)):
            ratio = abs(taken - exact) / (SAME_RATE * max(abs(exact), abs(taken))) if taken != exact else 0.0
            if ratio > max(worst, 1.0):
                worst, says = ratio, f"{name} has the {what} {taken:.6g}; {of} has {exact:.6g}"
    count, verdict = len(right), Verdict.DIFFERENT if says else Verdict.EQUAL
    return Check("groups", step.number, verdict, worst, says, compared=count, known=count)


def _judge_frozen(step: Step) -> Check:
    """Frozen parameters, which a step must leave as they are, bit by bit."""
    names = [name for name in step.before if step.stored(name) in step.frozen]
    moved = {name: rms(step.taken[f"weight/{name}"].astype(np.float64) - step.before[name]) for name in names}
    moving = {name: far for name, far in moved.items() if far}
    if not moving:
        return Check("frozen", step.number, Verdict.EQUAL, 0.0, compared=len(names), known=len(names))
    name, far = next(iter(moving.items()))
    others = f", and so do {len(moving) - 1} more" if len(moving) > 1 else ""
    by_recipe = step.recipe.freezes(step.stored(name))
    says = f"{name} is frozen, and" if by_recipe else f"the reference does not train {name}, and the port does: it"
    says += f" moves by {far:.3g} in a step{others}"
    return Check("frozen", step.number, Verdict.DIFFERENT, math.inf, says, compared=len(names), known=len(names))


def _judge_average(step: Step, decay: float, parts: int, variants: Sequence[str]) -> Check:
    """The average of the framework's own weights after the step, against its average. parts: number of micro-batches."""
    names = trained(step)
    missing = [name for name in names if f"state/{average_key(name)}" not in step.taken]
    if missing:
        says = f"no average of {missing[0]} is kept" + (f", and of {len(missing) - 1} more" if len(missing) > 1 else "")
        return Check("average", step.number, Verdict.DIFFERENT, math.inf, says, known=len(names))
    old = {name: _average_before(step, name) for name in names}
    after = {name: step.taken[f"weight/{name}"].astype(np.float64) for name in names}
    before = {name: step.before[name].astype(np.float64) for name in names}

    def floor(name: str) -> float:
        return UNIT * rms(np.abs(after[name]) + np.abs(before[name] if (known := old[name]) is None else known))

    def ratio(name: str, exact: Array) -> float:
        return distance(step.taken[f"state/{average_key(name)}"], exact, floor(name))

    def same(explained: Callable[[str], Array]) -> bool:
        return all(ratio(name, explained(name)) <= EQUAL_RHO for name in names)

    def by_parts(name: str) -> Array:
        present = old[name]
        for _ in range(parts - 1):
            present = averaged(decay, present, before[name])
        return np.asarray(averaged(decay, present, after[name]))

    known: list[Explanation] = [("average of micro-batches", by_parts)] * ("average of micro-batches" in variants)
    wrong: list[Explanation] = [
        ("it takes in the weights before the step", lambda name: averaged(decay, old[name], before[name])),
        (f"its decay is {1 - decay:.6g}, not {decay:g}", lambda name: averaged(1 - decay, old[name], after[name])),
        ("it does not change", lambda name: before[name] if (known := old[name]) is None else known),
        ("it is the weight itself", after.__getitem__),
    ]
    check = _judged(
        "average", step, {n: ratio(n, averaged(decay, old[n], after[n])) for n in names}, same, known, wrong
    )
    if check.verdict == Verdict.EQUAL and all(
        (1 - decay) * rms(after[n] - before[n]) < EQUAL_RHO * floor(n) for n in names
    ):
        says = "the step moves the weights so little that their average does not show it"
        return Check("average", step.number, Verdict.UNTESTED, says=says, known=len(names))
    return check


def _average_before(step: Step, name: str) -> Array | None:
    """The average before the step; None before the first update."""
    keys = [average_key(part) for part in step.fused_parameters.get(name, (name,))]
    if not step.number or not all(key in step.optimizer_state for key in keys):
        return None
    return np.asarray(sum(step.optimizer_state[key].astype(np.float64) for key in keys))
