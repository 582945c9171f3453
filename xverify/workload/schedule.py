"""The schedule of a learning rate. The formulas are those of torch.optim.lr_scheduler (documentation of 2.x)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SpecError, UsageError, nearest

KINDS = ("constant", "step", "cosine", "linear", "one-cycle")
RISE, START, FALL = 0.3, 25.0, 1e4  # of OneCycleLR: pct_start, div_factor and final_div_factor
TABLE = 2**16  # factors of a schedule that are computed in advance; a schedule without an end keeps the last of them


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes from one update to the next. Every rate is multiplied by the same factor.

    kind: one of KINDS.
    steps: number of updates until the last rate, the warm-up included. It is needed by cosine, linear and one-cycle.
    warmup: number of updates in which the factor rises linearly from ``start`` to 1, before the schedule of this kind begins.
    start: the factor of the first update of a warm-up.
    end: the last factor of cosine and linear.
    every, gamma: of step: after each ``every`` updates the factor is multiplied by ``gamma``.
    Raises SpecError for values that contradict each other.
    """

    kind: str
    steps: int | None = None
    warmup: int = 0
    start: float = 1 / 3
    end: float = 0.0
    every: int | None = None
    gamma: float = 0.1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SpecError(f"schedule is {self.kind!r}{nearest(str(self.kind), KINDS)} Known: {', '.join(KINDS)}")
        for what in ("steps", "warmup", "every"):
            value, least = getattr(self, what), 0 if what == "warmup" else 1
            if value is not None and not (isinstance(value, int) and not isinstance(value, bool) and value >= least):
                raise SpecError(
                    f"{what} of the {self.kind} schedule is {value!r}: it must be a whole number, at least {least}"
                )
        for what in ("start", "end", "gamma"):
            value = getattr(self, what)
            if not (is_number(value) and 0 <= value <= 1) or (what == "start" and not value):
                raise SpecError(f"{what} of the {self.kind} schedule is {value!r}: it must be a number from 0 to 1")
        self._check_lengths()

    def _check_lengths(self) -> None:
        kind, steps = self.kind, self.steps
        if kind in ("cosine", "linear", "one-cycle") and steps is None:
            raise SpecError(f"the {kind} schedule needs steps: the number of updates until its last rate")
        if kind == "step" and self.every is None:
            raise SpecError("the step schedule needs every: the number of updates between two rates")
        if kind == "constant" and not self.warmup:
            raise SpecError("the constant schedule has no warm-up, so it changes nothing: leave it out")
        if kind == "one-cycle" and self.warmup:
            raise SpecError(f"the one-cycle schedule rises by itself: leave warmup={self.warmup} out")
        if kind == "one-cycle" and steps is not None and steps < 5:
            raise SpecError(f"the one-cycle schedule has {steps} steps: it needs at least 5 to rise and to fall")
        if steps is not None and self.warmup >= steps:
            raise SpecError(
                f"the warm-up of {self.warmup} steps is as long as the {kind} schedule of {steps} steps or longer: "
                "it must leave a step for the schedule itself"
            )
        if kind == "step" and steps is not None and self.every is not None and self.warmup + self.every >= steps:
            raise SpecError(
                f"the step schedule changes its rate first after {self.warmup + self.every} steps, and has {steps}: it needs more"
            )

    def factor(self, step: int) -> float:
        """What every learning rate is multiplied by in an update. step: number of updates before it.

        After the last step of the schedule, the factor stays as it is.
        """
        if step < self.warmup:
            return self.start + (1 - self.start) * step / self.warmup
        step -= self.warmup
        if self.kind == "constant":
            return 1.0
        if self.kind == "step":
            return self.gamma ** (step // (self.every or 1))
        count = (self.steps or 1) - self.warmup
        if self.kind == "one-cycle":
            return _one_cycle(min(step, count - 1), count)
        share = min(step, count) / count
        falling = (1 + math.cos(math.pi * share)) / 2 if self.kind == "cosine" else 1 - share
        return self.end + (1 - self.end) * falling

    def factors(self) -> list[float]:
        """The factors of all updates; of a schedule without an end, those of the first TABLE."""
        return [self.factor(step) for step in range(self.steps + 1 if self.steps else TABLE)]

    @property
    def last(self) -> int | None:
        """The number of updates after which torch's scheduler has its last rate; None where it goes on."""
        if self.kind == "one-cycle" and self.steps:
            return self.steps - 1
        return self.steps if self.kind in ("cosine", "linear") else None

    def says(self) -> str:
        """For example ``cosine schedule of 10 steps, warm-up 2``."""
        length = f" of {self.steps} steps" if self.steps else ""
        falls = f", x {self.gamma:g} every {self.every} steps" if self.kind == "step" else ""
        ends = f", down to {self.end:g}" if self.end else ""
        return f"{self.kind} schedule{length}{falls}{ends}" + (f", warm-up {self.warmup}" if self.warmup else "")


def _one_cycle(step: int, steps: int) -> float:
    """The factor of torch's OneCycleLR with its own shares: up to 1 from 1/START, and down to 1/(START·FALL)."""
    return _cycle(step, RISE * steps - 1, steps - 1)


def late_one_cycle(step: int, steps: int) -> float:
    """The factor of optax's cosine_onecycle_schedule: its peak is after a whole number of steps, and its end after all of them."""
    return _cycle(min(step, steps), int(RISE * steps), steps)


def _cycle(step: int, top: float, last: int) -> float:
    """A factor that rises to 1 at ``top``, and falls until ``last``, along halves of a cosine."""
    low, lowest = 1 / START, 1 / (START * FALL)
    rising = step <= top
    begin, end, share = (low, 1.0, step / top) if rising else (1.0, lowest, (step - top) / (last - top))
    return end + (begin - end) / 2 * (1 + math.cos(math.pi * share))


def parse_schedule(text: str) -> Schedule:
    """A schedule of the command line: KIND:STEPS[:WARMUP], for example ``cosine:100:10``. For step, STEPS is ``every``."""
    kind, *numbers = text.split(":")
    try:
        steps, warmup = [*map(int, numbers), 0][:2] if numbers else (None, 0)
    except ValueError:
        steps = warmup = None
    if warmup is None or len(numbers) > 2 or (kind in KINDS and steps is None):
        raise UsageError(f"--schedule is {text!r}: write KIND:STEPS or KIND:STEPS:WARMUP, e.g. cosine:100:10")
    if kind == "constant":  # its only length is that of the warm-up
        return Schedule(kind, warmup=steps or 0)
    return Schedule(kind, every=steps, warmup=warmup) if kind == "step" else Schedule(kind, steps, warmup)


def is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
