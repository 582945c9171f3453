"""One training step as a subject made it, beside the exact one: its parameters, and the running statistics of its batch norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..verdict import limits as rule
from ..workload import optimizers
from ..workload.keys import state_key
from ..workload.optimizers import Optimizer
from . import optimizer_check

SAMPLE = 2**18  # values of a parameter whose step is judged
OWN = {
    "one bias": "its LSTM has one bias where torch has two, so a step moves it half as far",
    "repeated rows": "the gradient of its embedding comes as rows: where a batch uses one twice, each share is squared by itself",
    "biased variance": "running variance takes the biased variance: torch's takes n/(n - 1) of it",
}

State = dict[str, Any]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Step:
    """The step after ``number`` others, from the reference's state of this index.

    taken: what the subject computed and left behind. before: the weights, as the subject stores them; optimizer_state: its state.
    exact: gradients and statistics in float64; truth: what backward.truth says besides.
    fused_parameters: see Framework.fused_parameters.
    """

    index: int
    number: int
    taken: Arrays
    before: Arrays
    optimizer_state: Arrays
    exact: Arrays
    truth: Mapping[str, Any]
    fused_parameters: Mapping[str, tuple[str, ...]]


@dataclass
class Size:
    """How far gradients are from the exact ones, over all of them."""

    count: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    squares: float = 0.0
    whole: float = 0.0

    def add(self, residual: np.ndarray, right: np.ndarray) -> None:
        self.count += residual.size
        self.absolute += float(np.abs(residual).sum())
        self.largest = max(self.largest, float(np.abs(residual).max(initial=0.0)))
        self.squares += float(np.square(residual).sum())
        self.whole += float(np.square(right).sum())

    @property
    def mean_abs(self) -> float | None:
        return self.absolute / self.count if self.count else None

    @property
    def relative(self) -> float | None:
        return math.sqrt(self.squares / self.whole) if self.whole else None


class Parameter:
    """One parameter's step, as the framework made it, in the form in which the framework stores it; of a large one, SAMPLE values.

    parts: how many of torch's parameters it is the sum of. noise: rms by which two computations of its gradient may differ.
    """

    def __init__(self, name: str, step: Step, settings: Optimizer) -> None:
        self.name, self.steps = name, step.number
        parts = step.fused_parameters.get(name, (name,))
        self.parts, stored = len(parts), parts[0]
        self.noise: float = step.truth["floors"][stored]
        whole = step.before[name]
        picked = (
            np.random.default_rng(step.number).integers(0, whole.size, SAMPLE) if whole.size > SAMPLE else slice(None)
        )

        def part(array: np.ndarray) -> np.ndarray:
            return np.asarray(array).reshape(-1)[picked]

        self.before, self.gradient = part(whole), part(step.taken[f"gradient/{name}"])
        self.after = part(step.taken[f"weight/{name}"])
        keys = [(state_key(stored, index), state_key(name, index)) for index in range(len(settings.state_names))]
        self.optimizer_state = [
            part(step.optimizer_state[old]) if old in step.optimizer_state else np.zeros_like(self.before)
            for old, _ in keys
        ]
        self.state_after = [part(step.taken[f"state/{new}"]) for _, new in keys]

    def judge(self, settings: Optimizer, times: int, factor: float = 1.0) -> tuple[float, str]:
        """optimizer_check.judge of this step, were it made with these settings, so many times, with the gradient times a factor."""
        gradient = self.gradient * np.float32(factor)
        count = len(settings.state_names)
        return optimizer_check.judge(
            settings,
            self.before,
            gradient,
            self.optimizer_state[:count],
            self.steps + 1,
            self.after,
            self.state_after[:count],
            times,
            self.noise,
        )

    def scale(self, settings: Optimizer) -> float:
        """How many times as far as it should it moved."""
        exact, _ = optimizers.update(
            settings,
            self.before.astype(np.float64),
            self.gradient.astype(np.float64),
            [slot.astype(np.float64) for slot in self.optimizer_state],
            self.steps + 1,
            np.sqrt,
        )
        moved, right = (self.after - self.before).ravel().astype(np.float64), (exact - self.before).ravel()
        size = float(right.dot(right))
        return float(moved.dot(right)) / size if size else math.nan


class Statistic:
    """A running mean or variance after a step, (C,), in float64.

    old: before the step. share: what the batch adds, by ``momentum``; biased: the same without n/(n - 1). floor: rms. lost: rms of
    what sums in float32 may lose of it, where E[x²] - E[x]² is the variance: see replay.Replay.
    """

    def __init__(self, name: str, step: Step) -> None:
        layer = name.rpartition(".")[0]
        self.name, self.floor = name, float(step.truth["statistics"][name])
        m, n = step.truth["momentum"][layer], step.truth["terms"][layer]
        self.momentum: float = m

        def share(statistic: str) -> np.ndarray:
            key = f"{layer}.{statistic}"
            added: np.ndarray = (step.exact[f"statistic/{key}"] - (1 - m) * step.before[key].astype(np.float64)) / m
            return added

        mean, variance = share("running_mean"), share("running_var")
        squares = np.square(mean) + variance * (n - 1) / n
        of_variance = name.endswith("running_var")
        self.theirs = step.taken[f"weight/{name}"].astype(np.float64)
        self.right, self.old = step.exact[f"statistic/{name}"], step.before[name].astype(np.float64)
        self.share = variance if of_variance else mean
        self.biased = variance * (n - 1) / n if of_variance else mean
        self.lost = m * rule.UNIT * rms((3 * n + 2) * squares if of_variance else n * np.sqrt(squares))

    @property
    def ratio(self) -> float:
        """How far it is from the right one, over its floor."""
        return rms(self.theirs - self.right) / self.floor if self.floor else 0.0

    def within(self, expected: np.ndarray, limit: float, lossy: bool) -> bool:
        """Whether it is this one, to so many floors, and, when lossy, to what sums may lose."""
        return rms(self.theirs - expected) <= limit * self.floor + (self.lost if lossy else 0.0)


# What running statistics may be instead: (a framework's own difference or "", what is said of it, the statistic).
STATISTICS: tuple[tuple[str, str, Callable[[Statistic], np.ndarray]], ...] = (
    ("biased variance", OWN["biased variance"], lambda s: (1 - s.momentum) * s.old + s.momentum * s.biased),
    (
        "",
        "momentum weighs the old value instead of the new one",
        lambda s: s.momentum * s.old + (1 - s.momentum) * s.share,
    ),
    (
        "",
        "momentum weighs the old value instead of the new one, and running variance takes the biased variance",
        lambda s: s.momentum * s.old + (1 - s.momentum) * s.biased,
    ),
    ("", "they do not change: batch norm is in inference mode", lambda s: s.old),
)


def rms(array: np.ndarray) -> float:
    return math.sqrt(float(np.mean(np.square(array))))
