"""Training with a recipe in Paddle: its parameter groups, gradient clips and schedulers, or torch's formulas in its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework
from xverify.framework.recipe_step import Factors, ParameterGroup, RecipeStep
from xverify.framework.training import Batch, Used
from xverify.frameworks.paddle.optimizers import Equivalent, paddle_optimizer, torch_axes
from xverify.frameworks.paddle.training import Learner, gathered, trainable_weights
from xverify.weights import paddle as weights
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import Group, averaged, clipped, micro_batches
from xverify.workload.schedule import FALL, START


class RecipeLearner(RecipeStep, Learner):
    """Training with paddle.optimizer and Paddle's own facilities, or with an exact equivalent of torch's."""

    def __init__(
        self, framework: Framework, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool
    ) -> None:
        self.match, self.recipe = match, optimizer.recipe
        self.share = 1 / self.recipe.accumulate  # of a micro-batch in the gradients
        self.own_clip = None if match else _own_clip(optimizer)
        if not match:
            _check_own(optimizer)
        self.frozen = [
            part for each in trainable_weights(model) if self.recipe.freezes(each.name) for part in each.parts
        ]
        self._freeze(True)
        first = micro_batches(batch, self.recipe.accumulate)[0]
        super().__init__(framework, model, mode, first, optimizer, match)
        self.averaged: dict[int, Any] = {}
        if self.recipe.average is not None:
            self.averaged = {id(part): self.paddle.zeros_like(part) for part in self.parts}
        self.start_schedule(0)

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def _make_optimizer(self, o: Optimizer, match: bool) -> tuple[Optimizer, Any]:
        self.settings = {id(part): o.of(each.name) for each in self.weights for part in each.parts}
        if match:
            return o.plain, Equivalent(
                self.paddle, o, self.parts, list(self.settings.values()), torch_axes(o, self.weights)
            )
        groups = self._groups(o)
        listed = groups if o.recipe.groups else self.parts
        settings, made = paddle_optimizer(self.paddle, o, listed, self._make_scheduler(o), grad_clip=self.own_clip)
        differences = ["clip eps"] * (o.recipe.clip_norm is not None or o.recipe.clip_each is not None)
        differences += ["norm of groups"] * (o.recipe.clip_norm is not None and len(groups) > 1)
        return replace(settings, variants=(*settings.variants, *differences)), made

    def _groups(self, o: Optimizer) -> list[ParameterGroup]:
        """Parameter groups of Paddle: one for each group of the recipe, and one for all other parameters.

        The learning rate of a group is a multiple of the optimizer's.
        """
        members: dict[Group | None, list[Any]] = {}
        for each in self.weights:
            members.setdefault(o.recipe.group_of(each.name), []).extend(each.parts)
        found = []
        for parts in members.values():
            own = self.settings[id(parts[0])]
            times = own.lr / o.lr if own.lr != o.lr else 1.0
            found.append({"params": parts, "learning_rate": times, "weight_decay": own.weight_decay})
        return found

    def make_scheduler(self) -> Any:
        if self.match:
            self.optim.factor = 1.0
            return Factors(self.recipe.schedule, self._set_factor) if self.recipe.schedule else None
        scheduler = self._make_scheduler(self.optimizer)
        if scheduler is not None:
            self.optim.set_lr_scheduler(scheduler)
        return scheduler

    def _set_factor(self, factor: float) -> None:
        self.optim.factor = factor

    def _make_scheduler(self, o: Optimizer) -> Any:
        """Paddle's scheduler; None without a schedule."""
        schedule, lr, rates = o.recipe.schedule, o.lr, self.paddle.optimizer.lr
        if schedule is None:
            return None
        count = (schedule.steps or 0) - schedule.warmup
        make: dict[str, Callable[[], Any]] = {
            "constant": lambda: lr,
            "step": lambda: rates.StepDecay(lr, schedule.every, schedule.gamma),
            "linear": lambda: rates.PolynomialDecay(lr, count, lr * schedule.end),
            "cosine": lambda: rates.CosineAnnealingDecay(lr, count, lr * schedule.end),
            "one-cycle": lambda: rates.OneCycleLR(lr, count, START, lr / START / FALL),
        }
        later = make[schedule.kind]()
        return rates.LinearWarmup(later, schedule.warmup, lr * schedule.start, lr) if schedule.warmup else later

    # -- the step -----------------------------------------------------------------------------------------------------

    def part_loss(self, part: Batch) -> Any:
        return self._loss(part)

    def update(self) -> None:
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)

    def clip(self) -> None:
        """Clip the gradients by torch's formula. Paddle's optimizer clips them itself."""
        if not (self.match and self.recipe.clip):
            return
        present = [each.parts for each in self.weights if all(part.grad is not None for part in each.parts)]
        owners = [owner for owner, parts in enumerate(present) for _ in parts]
        trained = [part for parts in present for part in parts]
        with self.paddle.no_grad():
            gradients = [part.grad for part in trained]
            for part, new in zip(trained, clipped(self.recipe.clip, gradients, self.framework.operations, owners)):
                part.grad = new

    def take_average(self) -> None:
        """Take the weights in to their average, by torch's formula."""
        decay = self.recipe.average
        if decay is not None:
            with self.paddle.no_grad():
                for part in self.parts:
                    average = self.averaged[id(part)]
                    average.set_value(averaged(decay, None if self.steps == 1 else average, part))

    @contextmanager
    def watched(self, used: Used) -> Iterator[None]:
        with super().watched(used), self._clipped_by_optimizer() as seen:
            yield
        known = [each for each in self.weights if all(id(part) in seen for part in each.parts)]
        used.clipped |= {each.name: gathered(each, [seen[id(part)] for part in each.parts]) for each in known}

    def note(self, used: Used) -> None:
        used.clipped = self.gradient_arrays()
        used.rates = {each.name: self._rate(each.parts[0]) for each in self.weights}
        used.decays = {each.name: self.settings[id(each.parts[0])].weight_decay for each in self.weights}

    def gradient_arrays(self) -> dict[str, Array]:
        return self._by_name({id(part): part.grad for part in self.parts})

    def _rate(self, part: Any) -> float:
        if self.match:
            return self.settings[id(part)].lr * self.optim.factor
        return float(np.float32(self.optim.get_lr()) * np.float32(part.optimize_attr["learning_rate"]))

    @contextmanager
    def _clipped_by_optimizer(self) -> Iterator[dict[int, Any]]:
        """The gradients that Paddle's clip returns within the context, by parameter."""
        found: dict[int, Any] = {}
        own = self.own_clip
        if own is None:
            yield found
            return
        clip = own._dygraph_clip

        def recorded(pairs: Sequence[tuple[Any, Any]]) -> Any:
            within = clip(pairs)
            # The memory of a gradient is free as soon as the update is made.
            found.update({id(part): gradient.clone() for part, gradient in within})
            return within

        own._dygraph_clip = recorded
        try:
            yield found
        finally:
            del own._dygraph_clip

    def _by_name(self, of_parts: Mapping[int, Any]) -> dict[str, Array]:
        return {each.name: gathered(each, [of_parts[id(part)] for part in each.parts]) for each in self.weights}

    # -- the state ----------------------------------------------------------------------------------------------------

    def averages(self) -> dict[str, Array]:
        return self._by_name(self.averaged) if self.averaged else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        for each in self.weights:
            for part, array in zip(each.parts, weights.from_canonical(each, averages[each.name])):
                self.averaged[id(part)].set_value(array)

    def _freeze(self, frozen: bool) -> None:
        for part in self.frozen:
            part.stop_gradient = frozen

    @contextmanager
    def unfrozen(self) -> Iterator[None]:
        self._freeze(False)
        try:
            yield
        finally:
            self._freeze(True)


def _own_clip(o: Optimizer) -> Any:
    """Paddle's clip of gradients; None without one."""
    if not o.recipe.clip:
        return None
    import paddle

    how, limit = o.recipe.clip
    if how == "clip_value":
        return paddle.nn.ClipGradByValue(limit)
    return (paddle.nn.ClipGradByGlobalNorm if how == "clip_norm" else paddle.nn.ClipGradByNorm)(limit)


def _check_own(o: Optimizer) -> None:
    """Raise Unsupported for a setting that Paddle has no facility for."""
    if o.recipe.average is not None:
        raise Unsupported(
            "Paddle has no moving average of weights outside of static programs; run with --match-optimizer"
        )
    if not o.lr and any(group.lr for group in o.recipe.groups):
        raise Unsupported(
            "the learning rate of a parameter group of Paddle is a multiple of the optimizer's, which is 0; "
            "run with --match-optimizer"
        )
