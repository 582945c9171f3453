"""The checks of a recipe: right steps pass, and every mistake turns its own check red and is named."""

from dataclasses import replace

import numpy as np
import pytest

from xverify import Group, Recipe, Schedule
from xverify.training.checks import judge_update
from xverify.training.compared import Coverage
from xverify.training.recipe_checks import judge_recipe
from xverify.training.step import Step
from xverify.verdict.findings import StepTruth
from xverify.workload.optimizers import optimizer, update
from xverify.workload.recipe import averaged, clip_factors
from xverify.workload.schedule import late_one_cycle

RECIPE = Recipe(
    groups=(Group("*.bias", weight_decay=0.0), Group("head.weight", lr=0.01)),
    frozen=("stem.*",),
    clip_norm=0.5,
    schedule=Schedule("cosine", steps=10, warmup=4),
    accumulate=2,
    average=0.9,
)
SETTINGS = optimizer("adamw", weight_decay=0.1, recipe=RECIPE)
SHAPES = {
    "stem.weight": (3, 4),
    "stem.bias": (3,),
    "mid.weight": (6, 3),
    "mid.bias": (6,),
    "head.weight": (5, 6),
    "head.bias": (5,),
}


def taken(settings=SETTINGS, number=2, seed=0, **swapped):
    """(the arrays of a right step with these settings, the weights before, the optimizer's state before).

    swapped: other results, by the first part of their names: functions of the right array and of its name.
    """
    noise, recipe = np.random.default_rng(seed), settings.recipe
    before = {name: noise.normal(0, 0.3, shape).astype(np.float32) for name, shape in SHAPES.items()}
    state = {}
    for name, shape in SHAPES.items():
        state[f"{name}/0"] = noise.normal(0, 0.1, shape).astype(np.float32) * bool(number)
        state[f"{name}/1"] = noise.uniform(0, 0.1, shape).astype(np.float32) * bool(number)
        state[f"{name}/average"] = (before[name] + noise.normal(0, 0.01, shape)).astype(np.float32)
    found, names = {}, [name for name in SHAPES if not recipe.freezes(name)]

    def put(kind, name, array):
        change = swapped.get(kind)
        found[f"{kind}/{name}"] = np.asarray(change(array, name) if change else array)
        return found[f"{kind}/{name}"]

    for name in names:
        parts = [noise.normal(0, 1, SHAPES[name]).astype(np.float32) for _ in range(recipe.accumulate)]
        found |= {f"part/{index}/{name}": part for index, part in enumerate(parts)}
        found[f"gradient/{name}"] = np.mean(parts, 0, dtype=np.float32)
        put("accumulated", name, np.mean(parts, 0, dtype=np.float32))
    squares = [float(np.square(found[f"accumulated/{name}"].astype(np.float64)).sum()) for name in names]
    factors = clip_factors("clip_norm", recipe.clip_norm, squares, np.sqrt, min)
    for name, factor in zip(names, factors):
        g = put("clipped", name, (found[f"accumulated/{name}"] * factor).astype(np.float32))
        own = settings.of(name, recipe.factor(number))
        lr, decay = put("rate", name, np.float64(own.lr)), put("decay", name, np.float64(own.weight_decay))
        own = replace(own, lr=float(lr), weight_decay=float(decay))
        old = [state[f"{name}/{index}"].astype(np.float64) for index in range(2)]
        w, after = update(own, before[name].astype(np.float64), g.astype(np.float64), old, number + 1)
        w = put("weight", name, w.astype(np.float32))
        found |= {f"state/{name}/{index}": each.astype(np.float32) for index, each in enumerate(after)}
        average = averaged(recipe.average, state[f"{name}/average"] if number else None, w.astype(np.float64))
        found[f"state/{name}/average"] = np.asarray(average, np.float32)
    for name in SHAPES:
        if name not in names:
            put("weight", name, before[name])
    if "average" in swapped:
        for name in names:
            arrays = (state[f"{name}/average"], before[name], found[f"weight/{name}"])
            found[f"state/{name}/average"] = swapped["average"](*arrays).astype(np.float32)
    return found, before, state


def judged(arrays, number=2, variants=(), settings=SETTINGS, floors=None):
    """Check -> its result, for a run that asked for these settings. arrays: what ``taken`` returns. floors: other than 1e-7."""
    found, before, state = arrays
    zeros, floors = dict.fromkeys(SHAPES, 0.0), {**dict.fromkeys(SHAPES, 1e-7), **(floors or {})}
    truth = StepTruth(1.0, 1e-7, floors=floors, sizes=zeros, statistics={}, momentum={}, terms={})
    noise = {f"noise/gradient/{name}": np.full(shape, 1e-7) for name, shape in SHAPES.items()}
    step = Step(number, number, found, before, state if number else {}, noise, truth, {}, settings.recipe)
    checks = [*judge_recipe(step, settings, variants), judge_update(step, settings, variants, (), Coverage())]
    return {check.name: check for check in checks}


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_right_step_is_equal_in_every_check(number):
    checks = judged(taken(number=number), number)
    assert list(checks) == ["accumulation", "clipping", "schedule", "groups", "frozen", "average", "update"]
    assert {check.verdict for check in checks.values()} == {"EQUAL"}, checks


def test_nothing_is_checked_that_the_recipe_does_not_have():
    only = replace(SETTINGS, recipe=Recipe(frozen=("stem.*",)))
    arrays = taken()
    assert list(judged(arrays, settings=only)) == ["frozen", "update"]


@pytest.mark.parametrize(
    ("check", "says", "swapped"),
    [
        ("accumulation", "it is the sum over 2 micro-batches", {"accumulated": lambda g, name: g * 2}),
        ("accumulation", "its error is", {"accumulated": lambda g, name: g * 1.01}),
        ("schedule", "the rate does not change at all", {"rate": lambda lr, name: SETTINGS.of(name).lr}),
        ("schedule", "it is one step ahead", {"rate": lambda lr, name: SETTINGS.of(name).lr * RECIPE.factor(3)}),
        ("schedule", "it is one step behind", {"rate": lambda lr, name: SETTINGS.of(name).lr * RECIPE.factor(1)}),
        ("schedule", "it counts micro-batches", {"rate": lambda lr, name: SETTINGS.of(name).lr * RECIPE.factor(5)}),
        (
            "schedule",
            "the warm-up is missing",
            {"rate": lambda lr, name: SETTINGS.of(name).lr * Schedule("cosine", 10).factor(2)},
        ),
        (
            "groups",
            "head.weight has the learning rate 0.001; its group 'head.weight' has 0.01",
            {"rate": lambda lr, name: 1e-3 * RECIPE.factor(2)},
        ),
        (
            "groups",
            "mid.bias has the weight decay 0.1; its group '*.bias' has 0",
            {"decay": lambda decay, name: 0.1},
        ),
        (
            "groups",
            "mid.weight has the weight decay 0; a parameter without a group has 0.1",
            {"decay": lambda decay, name: 0.0},
        ),
        (
            "frozen",
            "stem.bias is frozen, and moves by 0.01",
            {"weight": lambda w, name: w + 0.01 * (name == "stem.bias")},
        ),
        ("average", "the weights before the step", {"average": lambda a, before, after: averaged(0.9, a, before)}),
        ("average", "its decay is 0.1, not 0.9", {"average": lambda a, before, after: averaged(0.1, a, after)}),
        ("average", "it does not change", {"average": lambda a, before, after: a}),
        ("average", "it is the weight itself", {"average": lambda a, before, after: after}),
    ],
)
def test_a_mistake_breaks_its_own_check_alone(check, says, swapped):
    checks = judged(taken(**swapped))
    broken = {name: each for name, each in checks.items() if each.verdict not in ("EQUAL", "UNTESTED")}
    assert list(broken) == [check], broken
    assert broken[check].verdict == "DIFFERENT"
    assert says in broken[check].says


def test_a_missing_rate_of_most_parameters_is_no_fault_of_the_schedule():
    biases = replace(SETTINGS, recipe=replace(RECIPE, groups=(Group("*.bias", lr=0.01), Group("head.weight", lr=0.01))))
    arrays = taken(biases, rate=lambda lr, name: 1e-3 * RECIPE.factor(2))
    checks = judged(arrays, settings=biases)
    assert (checks["schedule"].verdict, checks["groups"].verdict) == ("EQUAL", "DIFFERENT")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda g, all_: g, "they are not clipped"),
        (lambda g, all_: np.clip(g, -0.5, 0.5), "it is the values of gradients that is clipped"),
        (
            lambda g, all_: g * min(1, 0.5 / (np.linalg.norm(g) + 1e-6)),
            "it is the norm of each gradient that is clipped",
        ),
    ],
)
def test_other_ways_of_clipping_are_named(made, says):
    right = taken()[0]
    clipped = {name: made(right[f"accumulated/{name}"], right) for name in SHAPES if f"accumulated/{name}" in right}
    checks = judged(taken(clipped=lambda g, name: clipped[name].astype(np.float32)))
    assert (checks["clipping"].verdict, checks["update"].verdict) == ("DIFFERENT", "EQUAL")
    assert says in checks["clipping"].says


def test_gradients_within_the_limit_leave_clipping_untested():
    loose = replace(SETTINGS, recipe=replace(RECIPE, clip_norm=1e6))
    checks = judged(taken(loose), settings=loose)
    assert checks["clipping"].verdict == "UNTESTED"
    assert "no gradient reached the limit" in checks["clipping"].says
    missing = judged(taken(loose, clipped=lambda g, name: g * 0.5), settings=loose)
    assert missing["clipping"].verdict == "DIFFERENT"


def test_differences_of_frameworks_are_named_where_they_are_known():
    tiny = replace(SETTINGS, recipe=replace(RECIPE, clip_norm=1e-6))

    def without_eps(g, name):
        arrays = [each for key, each in small.items() if key.startswith("accumulated/")]
        norm = np.sqrt(sum(float(np.square(each.astype(np.float64)).sum()) for each in arrays))
        return (small[f"accumulated/{name}"] * min(1.0, 1e-6 / norm)).astype(np.float32)

    shrunk = {"accumulated": lambda g, name: g * np.float32(1e-5)}
    small = taken(tiny, **shrunk)[0]
    arrays = taken(tiny, **shrunk, clipped=without_eps)
    assert judged(arrays, settings=tiny)["clipping"].verdict == "DIFFERENT"
    named = judged(arrays, variants=("clip eps",), settings=tiny)["clipping"]
    assert (named.verdict, named.difference) == ("DRIFT", "clip eps")

    late = taken(rate=lambda lr, name: SETTINGS.of(name).lr * RECIPE.factor(1))
    assert judged(late, variants=("late schedule",))["schedule"].difference == "late schedule"
    parts = taken(rate=lambda lr, name: SETTINGS.of(name).lr * RECIPE.factor(5))
    assert judged(parts, variants=("schedule of micro-batches",))["schedule"].difference == "schedule of micro-batches"
    twice = taken(average=lambda a, before, after: averaged(0.9, averaged(0.9, a, before), after))
    assert judged(twice)["average"].verdict == "DIFFERENT"
    assert judged(twice, variants=("average of micro-batches",))["average"].difference == "average of micro-batches"


def test_the_norm_of_groups_and_a_late_one_cycle_are_named_where_they_are_known():
    right = taken()[0]

    def by_group(g, name):
        members = [other for other in SHAPES if not RECIPE.freezes(other)]
        members = [other for other in members if RECIPE.group_of(other) == RECIPE.group_of(name)]
        squares = [np.square(right[f"accumulated/{other}"].astype(np.float64)).sum() for other in members]
        return (right[f"accumulated/{name}"] * min(1, 0.5 / np.sqrt(sum(squares)))).astype(np.float32)

    assert judged(taken(clipped=by_group))["clipping"].verdict == "DIFFERENT"
    named = judged(taken(clipped=by_group), variants=("clip eps", "norm of groups"))["clipping"]
    assert (named.verdict, named.difference) == ("DRIFT", "norm of groups")

    cycle = replace(SETTINGS, recipe=replace(RECIPE, schedule=Schedule("one-cycle", steps=12)))
    late = taken(cycle, rate=lambda lr, name: cycle.of(name).lr * late_one_cycle(2, 12))
    assert judged(late, settings=cycle)["schedule"].verdict == "DIFFERENT"
    assert judged(late, settings=cycle, variants=("late one-cycle",))["schedule"].difference == "late one-cycle"


def test_an_update_with_a_rate_that_was_not_reported_is_different():
    arrays = taken()
    name, own = "head.weight", SETTINGS.of("head.weight", 2 * RECIPE.factor(2))
    old = [arrays[2][f"{name}/{index}"].astype(np.float64) for index in range(2)]
    w, _ = update(own, arrays[1][name].astype(np.float64), arrays[0][f"clipped/{name}"].astype(np.float64), old, 3)
    arrays[0][f"weight/{name}"] = w.astype(np.float32)
    checks = judged(arrays)
    assert (checks["groups"].verdict, checks["update"].verdict) == ("EQUAL", "DIFFERENT")


@pytest.mark.parametrize("floor", [np.inf, np.nan, 0.5])
def test_micro_batches_are_untested_where_rounding_hides_every_gradient(floor):
    arrays = taken(accumulated=lambda g, name: g * 1.01)
    assert judged(arrays)["accumulation"].verdict == "DIFFERENT"
    check = judged(arrays, floors=dict.fromkeys(SHAPES, floor))["accumulation"]
    assert (check.verdict, check.compared, check.known) == ("UNTESTED", 0, 4)
    assert check.says == "rounding alone may change every gradient by over 1%"
    assert judged(arrays, floors={"mid.weight": floor})["accumulation"].verdict == "DIFFERENT"
    assert judged(taken(), floors={"mid.weight": floor})["accumulation"].compared == 3


def test_a_port_without_an_average_is_told_so():
    found, *before = taken()
    kept = {name: array for name, array in found.items() if not name.endswith("/average")}
    check = judged((kept, *before))["average"]
    assert (check.verdict, check.says) == ("DIFFERENT", "no average of mid.weight is kept, and of 3 more")


def test_squares_that_are_added_one_by_one_in_float32_are_no_fault():
    """Jittor adds them so, and beside the first value all others are rounded away."""

    def small(g, name):
        values = np.full(g.shape, 2.2e-4, np.float32)
        values.flat[0] = 1.0 if name == "mid.weight" else values.flat[0]
        return values

    given = taken(accumulated=small)[0]
    squares = np.concatenate([np.square(a).ravel() for key, a in given.items() if key.startswith("accumulated/")])
    found, exact = np.cumsum(squares, dtype=np.float32)[-1], squares.sum(dtype=np.float64)
    assert found == 1 < exact
    share = np.float32(np.sqrt(exact / found))
    assert judged(taken(accumulated=small, clipped=lambda g, name: g * share))["clipping"].verdict == "EQUAL"
    wrong = judged(taken(accumulated=small, clipped=lambda g, name: g * np.float32(1.0001)))["clipping"]
    assert wrong.verdict == "DIFFERENT"


def test_gradients_that_are_clipped_by_themselves_are_named_where_one_is_much_larger():
    large = {"accumulated": lambda g, name: g * (1e4 if name == "mid.weight" else 1)}
    given = taken(**large)[0]

    def by_itself(g, name):
        own = given[f"accumulated/{name}"].astype(np.float64)
        rounded = min(1.0, 0.5 / (np.linalg.norm(own) + 1e-6)) * (1 + 4 * 2.0**-24)
        return (own * rounded).astype(np.float32)

    check = judged(taken(**large, clipped=by_itself))["clipping"]
    assert "it is the norm of each gradient that is clipped" in check.says
