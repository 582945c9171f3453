"""A training step with a recipe, where a framework computes eagerly and its optimizer is an object: torch, Jittor and Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..workload.recipe import Recipe, micro_batches
from ..workload.schedule import Schedule
from .runner import Array
from .training import Batch, Training, Used

ParameterGroup = dict[str, Any]  # what an optimizer of a framework takes: parameters, and numbers by their names


class RecipeStep(Training):
    """Makes a step of ``accumulate``, ``clip``, ``update``, ``advance`` and ``take_average``, in the order of usual training code.

    optim: the optimizer, whose method ``step`` makes the update. share: of a micro-batch in the gradients.
    scheduler: its method ``step`` sets the next rate; None without a schedule. advanced: how often it was called.
    steps: number of updates so far.
    """

    recipe: Recipe
    optim: Any
    share: float
    scheduler: Any
    advanced: int
    steps: int

    # -- what a subclass defines ---------------------------------------------------------------------------------------

    def part_loss(self, part: Batch) -> Any:
        """The loss of a micro-batch, with its graph of gradients."""
        raise NotImplementedError

    def clip(self) -> object:
        """Clip the accumulated gradients."""
        raise NotImplementedError

    def gradient_arrays(self) -> dict[str, Array]:
        """Copies of the present gradients."""
        raise NotImplementedError

    def note(self, used: Used) -> None:
        """Note the rates and decays of the update that follows, and the gradients that the optimizer is given."""
        raise NotImplementedError

    def make_scheduler(self) -> Any:
        """Set the rates to the first ones. Returns the scheduler; None without a schedule."""
        raise NotImplementedError

    def take_average(self) -> None:
        """Take the weights in to their average."""

    # -- the step ------------------------------------------------------------------------------------------------------

    def accumulate(self, batch: Batch) -> Any:
        """Add up the gradients of all micro-batches, each with its share. Returns the loss."""
        total: Any = None
        for part in micro_batches(batch, self.recipe.accumulate):
            loss = self.part_loss(part)
            self.differentiate(loss * self.share)
            loss = loss.detach()
            total = loss if total is None else total + loss
        return total / self.recipe.accumulate

    def differentiate(self, loss: Any) -> None:
        """Add the gradients of a loss to those of the parameters."""
        loss.backward()

    def before_clipping(self) -> None:
        """What is done with the accumulated gradients before they are clipped."""

    def update(self) -> None:
        """Let the optimizer make its update."""
        self.optim.step()

    def step(self, *batch: Any) -> Any:
        loss = self.accumulate(batch)
        self.before_clipping()
        self.clip()
        self.update()
        self.steps += 1
        self.advance()
        self.take_average()
        return loss

    def observe(self, *batch: Any) -> Used:
        used, clip = Used(), self.clip

        def clip_between() -> None:
            used.accumulated = self.gradient_arrays()
            clip()

        self.clip = clip_between  # type: ignore[method-assign]
        try:
            with self.watched(used):
                self.step(*batch)
        finally:
            self.clip = clip  # type: ignore[method-assign]
        return used

    @contextmanager
    def watched(self, used: Used) -> Iterator[None]:
        """A context in which ``note`` is called before the update."""
        step = self.optim.step

        def noted(*arguments: Any) -> None:
            self.note(used)
            step(*arguments)

        self.optim.step = noted
        try:
            yield
        finally:
            self.optim.step = step

    # -- the schedule --------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int | None:
        """The number of calls after which the scheduler has set its last rate; None where it goes on."""
        return self.recipe.schedule.last if self.recipe.schedule else None

    def start_schedule(self, steps: int) -> None:
        """Set the rates to those after this number of steps, with a scheduler that goes on from there."""
        self.advanced, self.scheduler = 0, self.make_scheduler()
        for _ in range(steps):
            self.advance()

    def advance(self) -> None:
        """Let the scheduler set the next rate. After the last step of the schedule the rate stays as it is."""
        if self.scheduler is not None and (self.last is None or self.advanced < self.last):
            self.scheduler.step()
            self.advanced += 1

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        super().set_optimizer_state(steps, state)
        self.start_schedule(steps)


class Factors:
    """A scheduler of torch's factors. use: is given the factor of the next update."""

    def __init__(self, schedule: Schedule, use: Callable[[float], None]) -> None:
        self.schedule, self.use, self.steps = schedule, use, 0
        use(schedule.factor(0))

    def step(self) -> None:
        """Give the next factor."""
        self.steps += 1
        self.use(self.schedule.factor(self.steps))
