"""One training step of a subject and the exact step: parameters, and running statistics of batch norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..errors import Unsupported
from ..verdict.findings import StepTruth
from ..verdict.limits import NULL, UNIT, UNITS
from ..weights.canonical import Array
from ..workload import optimizers
from ..workload.keys import state_key
from ..workload.optimizers import Optimizer
from ..workload.recipe import NO_RECIPE, Recipe
from . import optimizer_check
from .compared import quotient, rms, share_of

SAMPLE = 2**18  # number of values of a large parameter whose step is judged
# Known differences of a framework that are no fault: name -> what the report says. Texts contain no "; ", which joins them.
OWN = {
    "one bias": "its LSTM has one bias where torch has two, so a step changes it half as much",
    "repeated rows": "its embedding has a gradient of rows: each part of a row that a batch uses twice is squared separately",
    "biased variance": "its running variance uses the biased variance: torch multiplies that by n/(n - 1)",
}

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Step:
    """A step from one of the reference's states.

    index: of the state. number: of steps before this one.
    taken: the results of the subject: "gradient/name", "weight/name", "state/name/index", "axes/name" (see
        framework.training.Training.factored); with a recipe also what messages.training.TrainingStep lists.
    before: the weights before the step, as the subject stores them. optimizer_state: of the reference before the step.
    exact: "gradient/name" and "statistic/name" in float64, and after "noise/" the rms of the noise of each of their values.
    truth: the noise floors of these.
    fused_parameters: see Framework.fused_parameters. recipe: of the run, with canonical names.
    """

    index: int
    number: int
    taken: Arrays
    before: Arrays
    optimizer_state: Arrays
    exact: Arrays
    truth: StepTruth
    fused_parameters: Mapping[str, tuple[str, ...]]
    recipe: Recipe = NO_RECIPE

    @cached_property
    def frozen(self) -> frozenset[str]:
        """The parameters of the reference that training must not change: the recipe's, and those that torch.py freezes."""
        return frozenset((*filter(self.recipe.freezes, self.truth.floors), *self.truth.frozen))

    def stored(self, name: str) -> str:
        """The reference's name of a parameter of the subject; of a sum of parameters, the name of the first."""
        return self.fused_parameters.get(name, (name,))[0]

    def own(self, name: str) -> str:
        """The subject's name of a parameter of the reference: of one that it stores in a sum, the name of that sum."""
        return next((fused for fused, parts in self.fused_parameters.items() if name in parts), name)


@dataclass
class Distance:
    """How far all gradients of a subject are from the exact ones, added up over tensors."""

    count: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    squares: float = 0.0
    exact_squares: float = 0.0

    def add(self, residual: Array, exact: Array) -> None:
        """Add one tensor. residual: its difference from the exact one."""
        self.count += residual.size
        self.absolute += float(np.abs(residual).sum())
        self.largest = max(self.largest, float(np.abs(residual).max(initial=0.0)))
        self.squares += float(np.square(residual).sum())
        self.exact_squares += float(np.square(exact).sum())

    @property
    def mean_abs(self) -> float | None:
        """Mean absolute difference; None when nothing was added."""
        return self.absolute / self.count if self.count else None

    @property
    def relative(self) -> float | None:
        """rms of the difference over rms of the exact values; None when these are all zero."""
        return math.sqrt(self.squares / self.exact_squares) if self.exact_squares else None


class Parameter:
    """The step of one parameter as the framework stores it. Of a large one, SAMPLE random values are used; with adafactor, all.

    parts: number of torch's parameters whose sum it is.
    noise: rms by which two computations of each value of its gradient may differ.
    """

    def __init__(self, name: str, step: Step, settings: Optimizer) -> None:
        self.name, self.steps = name, step.number
        parts = step.fused_parameters.get(name, (name,))
        self.parts, stored = len(parts), parts[0]
        whole, together = step.before[name], settings.name == "adafactor"
        axes = step.taken.get(f"axes/{name}")
        self.axes = None if axes is None else tuple(int(axis) for axis in axes)
        picked = (
            np.random.default_rng(step.number).integers(0, whole.size, SAMPLE) if whole.size > SAMPLE else slice(None)
        )

        def part(array: Array) -> Array:
            return np.asarray(array) if together else np.asarray(array).reshape(-1)[picked]

        self.noise = part(_noise(step, name, stored))
        given = f"clipped/{name}" if f"clipped/{name}" in step.taken else f"gradient/{name}"
        self.before, self.gradient = part(whole), part(step.taken[given])
        if given != f"gradient/{name}":  # clipping makes the noise of a gradient smaller, too
            size = rms(step.taken[f"gradient/{name}"])
            self.noise = self.noise * min(1.0, rms(self.gradient) / size if size else 1.0)
        self.own = _own_settings(step, name, settings)
        self.after = part(step.taken[f"weight/{name}"])
        count = range(len(settings.state_names))
        state, old = step.optimizer_state, [state_key(stored, index) for index in count]
        self.state = [part(state[key]) if key in state else np.zeros_like(self.before) for key in old]
        self.state_after = [part(step.taken[f"state/{state_key(name, index)}"]) for index in count]

    @property
    def unchanged(self) -> bool:
        """Whether the step did not change the parameter."""
        return not np.any(self.after - self.before)

    def is_rounded(self, dtype: str) -> bool:
        """Whether all values after the step are numbers of this lower precision."""
        return bool(self.after.any()) and holds(dtype, self.after)

    def judge(
        self, settings: Optimizer, times: int, factor: float = 1.0, momentum: float = 1.0, parts: int = 1
    ) -> optimizer_check.Judged:
        """Judge this step with optimizer_check.judge, for given settings.

        settings: of the optimizer. times: number of torch's parameters whose sum it is assumed to be.
        factor: by which the gradient is multiplied. momentum: by which the state before the step is multiplied.
        parts: number of steps that the optimizer counts for one.
        """
        gradient, settings = self.gradient * np.float32(factor), self.own(settings)
        count = len(settings.state_names)
        return optimizer_check.judge(
            settings,
            self.before,
            gradient,
            [each * np.float32(momentum) for each in self.state[:count]] if momentum != 1.0 else self.state[:count],
            (self.steps + 1) * parts,
            self.after,
            self.state_after[:count],
            times,
            self.noise,
            axes=self.axes,
        )

    def scale(self, settings: Optimizer) -> float:
        """The change of the parameter relative to the right change; NaN when the right change is zero."""
        exact, _ = optimizers.update(
            self.own(settings),
            self.before.astype(np.float64),
            self.gradient.astype(np.float64),
            [each.astype(np.float64) for each in self.state],
            self.steps + 1,
        )
        change, right = (self.after - self.before).ravel().astype(np.float64), (exact - self.before).ravel()
        size = float(right.dot(right))
        return float(change.dot(right)) / size if size else math.nan


def holds(dtype: str, values: Array) -> bool:
    """Whether this lower precision holds all these float32 values."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return bool((values.astype(np.float16).astype(np.float32) == values).all())
    return not (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF).any()  # bfloat16 has the upper half


def _noise(step: Step, name: str, stored: str) -> Array:
    """Return the rms by which each value of a gradient may differ between two computations in one framework.

    A lower precision makes a gradient less accurate, but the same computation makes the same errors, as two of them show.
    """
    floor, unit = step.exact[f"noise/gradient/{stored}"], UNITS.get(step.recipe.precision, UNIT)
    if unit == UNIT or f"accumulated/{name}" not in step.taken:
        return floor
    apart = rms(np.subtract(step.taken[f"accumulated/{name}"], step.taken[f"gradient/{name}"], dtype=np.float64))
    return np.minimum(floor, np.hypot(floor * (UNIT / unit), apart))


def _own_settings(step: Step, name: str, settings: Optimizer) -> Callable[[Optimizer], Optimizer]:
    """What makes of settings for all parameters those of one, whose rate and decay are what the framework reports that it used.

    settings: the right ones. Wrong ones, with another rate or without a decay, are changed by the same factors.
    """
    if f"rate/{name}" not in step.taken:
        return lambda given: given
    rate, decay = (float(step.taken[f"{what}/{name}"]) for what in ("rate", "decay"))

    def own(given: Optimizer) -> Optimizer:
        lr = rate * (given.lr / settings.lr) if settings.lr else rate
        missing = settings.weight_decay and not given.weight_decay
        return replace(given, lr=lr, weight_decay=0.0 if missing else decay)

    return own


class Statistic:
    """A running mean or variance after a step, (C,), in float64.

    exact: the exact value. before: the value before the step. theirs: the subject's value.
    share: the statistic of the batch, which ``momentum`` weighs. biased: the same without the factor n/(n - 1).
    floor: rms of its noise. vague: whether rounding alone may change it by over 1% of what the step adds to it.
    cancellation: rms of what sums in float32 may lose when the variance is computed as E[x²] - E[x]² (see replay.forward).
    """

    def __init__(self, name: str, step: Step) -> None:
        layer = name.rpartition(".")[0]
        self.name, self.floor = name, step.truth.statistics[name]
        momentum, n = step.truth.momentum[layer], step.truth.terms[layer]
        if momentum is None:
            raise Unsupported(f"{layer}: running statistics of a batch norm with momentum=None are not judged")
        self.momentum = momentum

        def share(statistic: str) -> Array:
            key = f"{layer}.{statistic}"
            kept = (1 - momentum) * step.before[key].astype(np.float64)
            added: Array = (step.exact[f"statistic/{key}"] - kept) / momentum
            return added

        mean, variance = share("running_mean"), share("running_var")
        squares = np.square(mean) + variance * (n - 1) / n
        of_variance = name.endswith("running_var")
        self.theirs = step.taken[f"weight/{name}"].astype(np.float64)
        self.exact, self.before = step.exact[f"statistic/{name}"], step.before[name].astype(np.float64)
        self.share = variance if of_variance else mean
        self.biased = variance * (n - 1) / n if of_variance else mean
        self.detection_share = share_of(self.floor, rms(momentum * self.share))
        self.vague = not self.detection_share <= NULL[step.recipe.precision]
        self.cancellation = momentum * UNIT * rms((3 * n + 2) * squares if of_variance else n * np.sqrt(squares))

    @property
    def ratio(self) -> float:
        """Residual / noise floor."""
        return quotient(rms(self.theirs - self.exact), self.floor)

    def within(self, expected: Array, limit: float, cancellation: bool) -> bool:
        """Whether it is at most ``limit`` noise floors from ``expected``. cancellation: also allow what cancellation loses."""
        return rms(self.theirs - expected) <= limit * self.floor + (self.cancellation if cancellation else 0.0)


# Wrong statistics that are recognised: (name of a known difference or "", what the report says, the statistic).
STATISTICS: tuple[tuple[str, str, Callable[[Statistic], Array]], ...] = (
    ("biased variance", OWN["biased variance"], lambda s: (1 - s.momentum) * s.before + s.momentum * s.biased),
    (
        "",
        "momentum weighs the old value instead of the new one",
        lambda s: s.momentum * s.before + (1 - s.momentum) * s.share,
    ),
    (
        "",
        "momentum weighs the old value instead of the new one, and running variance takes the biased variance",
        lambda s: s.momentum * s.before + (1 - s.momentum) * s.biased,
    ),
    ("", "they do not change: batch norm is in inference mode", lambda s: s.before),
)
