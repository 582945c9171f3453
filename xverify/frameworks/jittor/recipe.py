"""Training with a recipe in Jittor: its parameter groups, clip_grad_norm and schedulers, or torch's formulas in its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework
from xverify.framework.recipe_step import Factors, ParameterGroup, RecipeStep
from xverify.framework.structures import Natives
from xverify.framework.training import Batch, Used
from xverify.frameworks.jittor.training import Learner
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import CLIPS, averaged, clipped


class RecipeLearner(RecipeStep, Learner):
    """Training with jittor.optim and Jittor's own facilities, or with an exact equivalent of torch's."""

    def __init__(self, framework: Framework, model: Any, batch: Batch, optimizer: Optimizer, match: bool) -> None:
        self.match, self.recipe = match, optimizer.recipe
        if not match:
            _check_own(optimizer)
        super().__init__(framework, model, batch, optimizer, match)
        self.share, self.steps = 1 / self.recipe.accumulate, 0
        # Jittor's optimizer counts every backward pass as a step.
        self.counted = 1 if match else self.recipe.accumulate
        self.averaged: Natives = {}
        if self.recipe.average is not None:
            self.averaged = {name: self.jt.zeros_like(each).stop_grad() for name, each in self.parameters.items()}
        self.start_schedule(0)

    def _trained(self, parameters: Natives, optimizer: Optimizer) -> Natives:
        return {name: each for name, each in parameters.items() if not optimizer.recipe.freezes(name)}

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def _groups(self, o: Optimizer) -> list[ParameterGroup]:
        """Parameter groups of Jittor: one for each learning rate and weight decay."""
        groups = o.groups(self.parameters)
        self.places = {
            name: (index, place) for index, names in enumerate(groups.values()) for place, name in enumerate(names)
        }
        self.rates = [lr for lr, _ in groups]
        return [
            {"params": [self.parameters[name] for name in names], "lr": lr, "weight_decay": decay}
            for (lr, decay), names in groups.items()
        ]

    def _jittor_optimizer(self, o: Optimizer, parameters: list[Any]) -> tuple[Optimizer, Any]:
        settings, optim = super()._jittor_optimizer(o, self._groups(o))
        schedule, differences = o.recipe.schedule, []
        late = schedule and not schedule.warmup and (schedule.kind == "cosine" or schedule.every == 1)
        differences += ["late schedule"] * bool(late)
        differences += ["steps of micro-batches"] * (o.recipe.accumulate > 1 and o.name in ("adam", "adamw"))
        return replace(settings, variants=(*settings.variants, *differences)), optim

    def _equivalent_optimizer(self, o: Optimizer, parameters: list[Any]) -> tuple[Optimizer, Any]:
        return super()._equivalent_optimizer(o, self._groups(o))

    def make_scheduler(self) -> Any:
        self.optim.lr = self.optimizer.lr
        for group, lr in zip(self.optim.param_groups, self.rates):
            group.pop("initial_lr", None)
            group["lr"] = lr
        if self.match:
            return Factors(self.recipe.schedule, self._set_factor) if self.recipe.schedule else None
        return self._make_scheduler()

    def _set_factor(self, factor: float) -> None:
        for group, lr in zip(self.optim.param_groups, self.rates):
            group["lr"] = lr * factor

    def _make_scheduler(self) -> Any:
        """Jittor's scheduler; None without one."""
        schedule = self.recipe.schedule
        if schedule is None:
            return None
        from jittor import lr_scheduler

        if schedule.kind == "cosine" and not schedule.warmup:
            return lr_scheduler.CosineAnnealingLR(self.optim, schedule.steps, schedule.end * self.optimizer.lr)
        if schedule.kind == "step" and not schedule.warmup:
            return lr_scheduler.StepLR(self.optim, schedule.every, schedule.gamma)
        return self.jt.optim.LambdaLR(self.optim, schedule.factor)

    @property
    def last(self) -> int | None:
        schedule = self.recipe.schedule
        if self.match or schedule is None or schedule.steps is None:
            return super().last
        return schedule.steps + ("late schedule" in self.optimizer.variants)  # it has its last rate one step later

    # -- the step -----------------------------------------------------------------------------------------------------

    def step(self, *batch: Any) -> Any:
        loss = super().step(*batch)
        self.jt.sync_all()
        return loss

    def part_loss(self, part: Batch) -> Any:
        return self._loss(*part)

    def differentiate(self, loss: Any) -> None:
        self.optim.backward(loss)

    def accumulate(self, batch: Batch) -> Any:
        before = self.optim.n_step
        loss = super().accumulate(batch)
        if self.match:
            self.optim.n_step = before + 1
        return loss

    def clip(self) -> None:
        """Clip the gradients of all groups."""
        if not self.recipe.clip:
            return
        if not self.match:
            self.optim.clip_grad_norm(self.recipe.clip[1])
            return
        gradients = [each for group in self.optim.param_groups for each in group["grads"]]
        for each, new in zip(gradients, clipped(self.recipe.clip, gradients, self.framework.operations)):
            each.update(new)

    def take_average(self) -> None:
        """Take the weights in to their average, by torch's formula."""
        decay = self.recipe.average
        if decay is not None:
            first = self.optim.n_step == 1
            for name, average in self.averaged.items():
                average.update(averaged(decay, None if first else average, self.parameters[name]) * 1.0)

    def note(self, used: Used) -> None:
        used.clipped = self.gradient_arrays()
        for name, (index, _) in self.places.items():
            group = self.optim.param_groups[index]
            used.rates[name], used.decays[name] = float(group["lr"]), float(group["weight_decay"])

    def gradient_arrays(self) -> dict[str, Array]:
        groups = self.optim.param_groups
        return {name: groups[index]["grads"][place].numpy() for name, (index, place) in self.places.items()}

    # -- the state ----------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        steps, state = super().optimizer_state()
        return steps // self.counted, state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        Learner.set_optimizer_state(self, steps * self.counted, state)
        self.start_schedule(steps)

    def _variables(self, index: int) -> list[Any]:
        group, place = self.places[self.names[index]]
        return [self.optim.param_groups[group][key][place] for key in self.optimizer.keys(self.STATE_NAMES)]

    def averages(self) -> dict[str, Array]:
        return {name: each.numpy() for name, each in self.averaged.items()}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        for name, array in averages.items():
            self.averaged[name].update(self.jt.array(array).stop_grad())


def _check_own(o: Optimizer) -> None:
    """Raise Unsupported for a setting that Jittor has no facility for."""
    recipe = o.recipe
    lacks = ""
    if recipe.clip and recipe.clip[0] != "clip_norm":
        lacks = f"jittor.optim clips the norm of all gradients only: {CLIPS[recipe.clip[0]]} cannot be limited"
    if recipe.average is not None:
        lacks = "Jittor has no moving average of weights"
    if o.name == "rmsprop" and any(group.weight_decay for group in recipe.groups):
        lacks = "jittor.optim.RMSprop has no weight decay"
    if (
        recipe.schedule
        and recipe.schedule.kind == "cosine"
        and recipe.schedule.end
        and any(g.lr for g in recipe.groups)
    ):
        lacks = "Jittor's cosine schedule has one smallest rate for all groups"
    if lacks:
        raise Unsupported(f"{lacks}; run with --match-optimizer")
