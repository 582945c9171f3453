"""Training where a framework computes eagerly and its optimizer is an object: torch, Jittor and Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..workload.optimizers import Optimizer
from ..workload.recipe import micro_batches
from ..workload.schedule import Schedule
from .runner import Array
from .training import Batch, Training, Used

ParameterGroup = dict[str, Any]  # what an optimizer of a framework takes: parameters, and numbers by their names


class EagerLearner(Training):
    """Makes a step of ``accumulate``, ``clip``, ``update``, ``advance`` and ``take_average``, in the order of usual training code.

    optim: the optimizer, whose method ``step`` makes the update. share: of a micro-batch in the gradients.
    scheduler: its method ``step`` sets the next rate; None without a schedule. advanced: how often it was called.
    steps: number of updates so far.
    """

    optim: Any
    scheduler: Any
    advanced: int

    def __init__(self, framework: Any, optimizer: Optimizer, match: bool) -> None:
        """Take the settings; a subclass then makes ``optim``, and calls ``start_schedule(0)``."""
        self.framework, self.optimizer, self.match = framework, optimizer, match
        self.recipe = optimizer.recipe
        self.has_recipe = bool(optimizer.recipe)
        self.share, self.steps = 1 / self.recipe.accumulate, 0

    # -- what a subclass defines ---------------------------------------------------------------------------------------

    def batch_loss(self, batch: Batch) -> Any:
        """The loss of a batch or of a micro-batch, with its graph of gradients."""
        raise NotImplementedError

    def clip(self) -> object:
        """Clip the accumulated gradients."""
        raise NotImplementedError

    def gradient_arrays(self) -> dict[str, Array]:
        """Copies of the present gradients."""
        raise NotImplementedError

    def set_gradients(self, gradients: Mapping[str, Array]) -> None:
        """Replace the present gradients. gradients: what ``gradient_arrays`` returns."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forget the present gradients."""

    def note(self, used: Used) -> None:
        """Note the rates and decays of the update that follows, and the gradients that the optimizer is given."""
        raise NotImplementedError

    def set_factor(self, factor: float) -> None:
        """Multiply all rates of the settings by this factor of the schedule."""
        raise NotImplementedError

    def own_scheduler(self) -> Any:
        """Set the rates to the first ones. Returns the framework's own scheduler; None without a schedule."""
        raise NotImplementedError

    def take_average(self) -> None:
        """Take the weights in to their average."""

    def freeze(self, frozen: bool) -> None:
        """Let the parameters that are not trained have no gradient, or a gradient."""

    # -- the step ------------------------------------------------------------------------------------------------------

    def accumulate(self, batch: Batch) -> Any:
        """Add up the gradients of all micro-batches, each with its share. Returns the loss."""
        total: Any = None
        for part in micro_batches(batch, self.recipe.accumulate):
            loss = self.batch_loss(part) * self.share
            self.differentiate(loss)
            loss = self.without_graph(loss)
            total = loss if total is None else total + loss
        return total

    def without_graph(self, loss: Any) -> Any:
        """A loss whose gradients are computed, so that the sum of losses does not keep its graph."""
        return loss.detach()

    def differentiate(self, loss: Any) -> None:
        """Add the gradients of a loss to those of the parameters."""
        loss.backward()

    def before_clipping(self) -> None:
        """What is done with the accumulated gradients before they are clipped."""

    def update(self) -> None:
        """Let the optimizer make its update."""
        self.optim.step()

    def step(self, *batch: Any) -> Any:
        if not self.has_recipe:
            loss = self.batch_loss(batch)
            self.differentiate(loss)
            self.update()
            self.steps += 1
            return loss
        loss = self.accumulate(batch)
        self.before_clipping()
        self.clip()
        self.update()
        self.steps += 1
        self.advance()
        self.take_average()
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss = self.batch_loss(batch)
        self.clear()
        self.differentiate(loss)
        arrays = self.gradient_arrays()
        self.clear()
        return float(loss.detach()), arrays

    def apply(self, gradients: Mapping[str, Array]) -> None:
        self.set_gradients(gradients)
        self.optim.step()
        self.clear()
        self.steps += 1

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

    @contextmanager
    def unfrozen(self) -> Iterator[None]:
        self.freeze(False)
        try:
            yield
        finally:
            self.freeze(True)

    # -- the schedule --------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int | None:
        """The number of calls after which the scheduler has set its last rate; None where it goes on."""
        return self.recipe.schedule.last if self.recipe.schedule else None

    def start_schedule(self, steps: int) -> None:
        """Set the rates to those after this number of steps, with a scheduler that goes on from there."""
        schedule, self.advanced = self.recipe.schedule, 0
        if self.match:
            self.set_factor(1.0)
            self.scheduler = Factors(schedule, self.set_factor) if schedule else None
        else:
            self.scheduler = self.own_scheduler()
        for _ in range(steps):
            self.advance()

    def advance(self) -> None:
        """Let the scheduler set the next rate. After the last step of the schedule the rate stays as it is."""
        if self.scheduler is not None and (self.last is None or self.advanced < self.last):
            self.scheduler.step()
            self.advanced += 1


def parameter_groups(optimizer: Optimizer, parameters: Mapping[str, Any]) -> list[ParameterGroup]:
    """One group of an optimizer for each learning rate and weight decay."""
    return [
        {"params": [parameters[name] for name in names], "lr": lr, "weight_decay": decay}
        for (lr, decay), names in optimizer.groups(parameters).items()
    ]


def reset_rates(groups: Sequence[ParameterGroup], rates: Sequence[float], factor: float = 1.0) -> None:
    """Set the learning rate of each group to this multiple of its first one, and forget what a scheduler noted there."""
    for group, rate in zip(groups, rates):
        group.pop("initial_lr", None)
        group["lr"] = rate * factor


class Factors:
    """A scheduler of torch's factors. use: is given the factor of the next update."""

    def __init__(self, schedule: Schedule, use: Callable[[float], None]) -> None:
        self.schedule, self.use, self.steps = schedule, use, 0
        use(schedule.factor(0))

    def step(self) -> None:
        """Give the next factor."""
        self.steps += 1
        self.use(self.schedule.factor(self.steps))
