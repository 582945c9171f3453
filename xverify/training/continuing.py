"""Judge whether training goes on in another framework as in the one that it was begun in. Pure functions over arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..results.verdicts import Verdict
from ..verdict.limits import EQUAL_RHO, STEP, UNIT, failing
from ..weights.canonical import Array
from ..workload.adafactor import Factored, refactored
from ..workload.keys import state_key
from ..workload.optimizers import Optimizer
from .compared import quotient, rms
from .optimizer_check import Judged, judge

Arrays = Mapping[str, Array]

STEPS = 3  # that are made in both frameworks
REPLICAS = 4  # of the steps in the first framework, from a state that is perturbed
# Units roundoff by which each value of that state is changed: the sums of another framework round otherwise, too.
PERTURBED = 8.0
# Of the difference of the weights after all steps, in the spread of the replicas. Right continuations have up to 20
# (docs/resuming.md). Faults of the state show in the state and in the first step; this one is for what both do not see.
LIMIT = 60.0
# Of the change of a weight: what a known formula of the other framework may do to it.
MOST_DRIFT = 0.1
# Of a gradient, beside its size: two frameworks round it otherwise, and a wrong port computes another one.
GRADIENT = 1e-2
NEGLIGIBLE = 1e-3  # of the largest gradient; of a smaller one, rounding may be all there is
# Of a state that was written and read back. Keras multiplies the momentum of SGD by the learning rate.
ROUNDED = 4 * UNIT


@dataclass(frozen=True)
class State:
    """Weights, optimizer state and the number of steps so far, with canonical names: "parameter/index" in ``state``."""

    weights: Arrays
    state: Arrays
    steps: int


@dataclass(frozen=True)
class Made:
    """What a step wrote: "gradient/name", "weight/name", "state/name/index" and "axes/name"."""

    arrays: Arrays

    @property
    def axes(self) -> dict[str, Factored]:
        """See Training.factored."""
        return {
            name.removeprefix("axes/"): tuple(map(int, axes))
            for name, axes in self.arrays.items()
            if name.startswith("axes/")
        }

    def weight(self, name: str) -> Array:
        """A weight after the step."""
        return self.arrays[f"weight/{name}"]

    def states(self, name: str, count: int) -> list[Array]:
        """The state of a parameter after the step."""
        return [self.arrays[f"state/{state_key(name, index)}"] for index in range(count)]


@dataclass(frozen=True)
class StepJudged:
    """One further step.

    source, own: the largest residual / noise floor of a parameter, by the formula of the first framework and by that of this one.
    what: the parameter and the array that has the second one.
    """

    source: float
    own: float
    what: str


class Apart(NamedTuple):
    """How far a weight of the two frameworks is apart after all steps.

    ratio: the difference / its noise floor. share: the difference / the change of the weight. name: of the weight.
    """

    ratio: float = 0.0
    share: float = 0.0
    name: str = ""


def states_of(arrays: Arrays, name: str, count: int) -> list[Array]:
    """The arrays of state of a parameter."""
    return [arrays[state_key(name, index)] for index in range(count)]


def differences(wanted: State, read: State, names: Sequence[str], optimizer: Optimizer) -> list[str]:
    """What a state that was read differs in from the one that it should be, in sentences.

    names: of the trained parameters. optimizer: that of ``read``.
    """
    found = [
        f"the weight {name} differs: {_how(wanted.weights, name, name, read.weights[name])}"
        for name in read.weights
        if not np.array_equal(wanted.weights[name], read.weights[name])
    ]
    for index, kind in enumerate(optimizer.state_names):
        keys = {name: state_key(name, index) for name in names}
        of_kind = {name: wanted.state[key] for name, key in keys.items()}
        for name, key in keys.items():
            if not _close(of_kind[name], read.state[key]):
                found.append(f"{kind} of {name} differs: {_how(of_kind, name, name, read.state[key])}")
    if wanted.steps != read.steps:
        found.append(f"the number of steps is {read.steps}, and should be {wanted.steps}")
    return found


def _close(wanted: Array, read: Array) -> bool:
    return wanted.shape == read.shape and bool((np.abs(wanted - read) <= ROUNDED * np.abs(wanted)).all())


def _how(arrays: Arrays, name: str, key: str, read: Array) -> str:
    """How an array differs from the one of this name, in a clause."""
    wanted = arrays[name]
    for other, array in arrays.items():
        if other != name and array.any() and array.shape == read.shape and _close(array, read):
            return f"it is that of {other}"
    if wanted.ndim == 2 and wanted.shape[0] == wanted.shape[1] and _close(wanted.T, read):
        return "it is transposed"
    with np.errstate(invalid="ignore", over="ignore"):
        if wanted.any() and _nearly(np.sqrt(np.abs(wanted)), read):
            return "it is the square root"
        if wanted.any() and _nearly(np.square(wanted), read):
            return "it is the square"
    size = rms(wanted)
    share = rms(read.astype(np.float64) - wanted) / size if size else math.inf
    return f"the rms of the difference is {share:.2g} of its size"


def _nearly(wanted: Array, read: Array) -> bool:
    return bool(np.allclose(wanted, read, rtol=1e-5, atol=0.0))


def judge_step(source: Optimizer, own: Optimizer, names: Sequence[str], before: State, made: Made) -> StepJudged:
    """Judge one step with the gradients that the framework itself computed.

    source, own: the settings with the formula variants of the first framework, and of this one. before: the state before the step.
    """
    by_source: list[tuple[float, str]] = []
    by_own: list[tuple[float, str]] = []
    for name in names:
        for settings, found in ((source, by_source), (own, by_own)):
            judged = _judged(settings, own, name, before, made)
            found.append((judged.rho, f"{judged.what} of {name}".replace("its change of ", "the change of ")))
    worst_own = max(by_own)
    return StepJudged(max(by_source)[0], worst_own[0], worst_own[1])


def _judged(settings: Optimizer, own: Optimizer, name: str, before: State, made: Made) -> Judged:
    count = len(own.state_names)
    return judge(
        settings.of(name),
        before.weights[name],
        made.arrays[f"gradient/{name}"],
        states_of(before.state, name, count),
        before.steps + 1,
        made.weight(name),
        made.states(name, count),
        axes=made.axes.get(name),
    )


def other_gradients(source: Made, target: Made, names: Sequence[str]) -> list[str]:
    """The gradients of a step that differ between the frameworks by more than rounding, in sentences. names: in both."""
    keys = {name: f"gradient/{name}" for name in names}
    largest = max((rms(source.arrays[key]) for key in keys.values()), default=0.0)
    found = []
    for name, key in keys.items():
        size = max(rms(source.arrays[key]), NEGLIGIBLE * largest)
        share = quotient(rms(target.arrays[key].astype(np.float64) - source.arrays[key]), size)
        if not share <= GRADIENT:
            found.append(
                f"the gradient of {name} differs by {share:.2g} of its size, with the same weights and batch: the other "
                "framework's model computes otherwise, which `xverify run MODEL --task train` explains"
            )
    return found


def after(made: Made, names: Sequence[str], count: int, steps: int) -> State:
    """The state after a step."""
    state = {state_key(n, i): array for n in names for i, array in enumerate(made.states(n, count))}
    return State({name: made.weight(name) for name in names}, state, steps)


def in_axes(state: State, made: Made) -> State:
    """The state with adafactor's means over the axes that the framework of this step takes."""
    found = dict(state.state)
    for name, axes in made.axes.items():
        keys = [state_key(name, index) for index in range(3)]
        found |= dict(zip(keys, refactored([found[key] for key in keys], axes)))
    return replace(state, state=found)


def from_axes(state: State, made: Made) -> State:
    """The state with adafactor's means over torch's axes. made: a step of the framework whose state it is."""
    found = dict(state.state)
    for name, axes in made.axes.items():
        keys = [state_key(name, index) for index in range(3)]
        row, column, estimate = (found[key].astype(np.float64) for key in keys)
        if axes:
            average = row.mean(axes[0], keepdims=True)
            estimate = row * column / np.where(average > 0, average, 1)
        means = [np.broadcast_to(estimate.mean(axis, keepdims=True), estimate.shape) for axis in (-1, -2)]
        found |= dict(zip(keys, (*(np.array(each, np.float32) for each in means), np.zeros(row.shape, np.float32))))
    return replace(state, state=found)


def perturbed(arrays: Arrays, seed: int) -> dict[str, Array]:
    """The arrays with every value changed by at most PERTURBED units roundoff. seed: of the changes; 0: none."""
    if not seed:
        return dict(arrays)
    noise = np.random.default_rng(seed)
    return {
        name: (array * (1 + PERTURBED * UNIT * noise.uniform(-1, 1, array.shape))).astype(array.dtype)
        for name, array in arrays.items()
    }


def apart(names: Sequence[str], source: Arrays, target: Arrays, replicas: Sequence[tuple[Arrays, Arrays]]) -> Apart:
    """The weight that differs most between the frameworks after all steps.

    source, target: the weights after all steps.
    replicas: for each, the weights that it began with, and those after the steps; the first one is not perturbed.
    """
    found = [Apart()]
    for name in names:
        right, *changes = (end[name].astype(np.float64) - first[name] for first, end in replicas)
        spread = [rms(change - right) for change in changes]
        rounding = UNIT * rms(source[name]) * math.sqrt(STEPS)
        floor = math.hypot(math.sqrt(np.mean(np.square(spread))), rounding)
        differs = rms(target[name].astype(np.float64) - source[name])
        found.append(Apart(quotient(differs, floor), quotient(differs, rms(right)), name))
    return max(found)


def verdict(steps: Sequence[StepJudged], found: Apart, same_formula: bool) -> Verdict:
    """EQUAL, DRIFT where only the known formula of the framework differs, or DIFFERENT.

    same_formula: whether both frameworks have the same formula.
    """
    worst = max(step.own for step in steps)
    if worst > EQUAL_RHO:
        return failing(worst, STEP)
    if found.ratio <= LIMIT and (same_formula or max(step.source for step in steps) <= EQUAL_RHO):
        return Verdict.EQUAL
    return Verdict.DIFFERENT if same_formula or found.share > MOST_DRIFT else Verdict.DRIFT
