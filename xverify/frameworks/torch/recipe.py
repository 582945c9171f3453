"""Training with a recipe in torch: parameter groups, torch.nn.utils.clip_grad, lr_scheduler, and swa_utils.AveragedModel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from xverify.framework.adapter import Array
from xverify.framework.recipe_step import RecipeStep
from xverify.framework.structures import Natives
from xverify.framework.training import Batch, Used
from xverify.frameworks.torch.base import TrainsOnTorch
from xverify.frameworks.torch.training import Learner, by_name
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import micro_batches


class RecipeLearner(RecipeStep, Learner):
    """Training with torch.optim and torch's own facilities for the recipe."""

    def __init__(self, framework: TrainsOnTorch, model: Any, mode: str, batch: Batch, optimizer: Optimizer) -> None:
        self.recipe = optimizer.recipe
        self.share = 1 / self.recipe.accumulate  # of a micro-batch in the gradients
        self.frozen: Natives = {}
        super().__init__(framework, model, mode, micro_batches(batch, self.recipe.accumulate)[0], optimizer)
        self.clip = self._make_clip()  # type: ignore[method-assign]
        self.averaged = self._make_average() if self.recipe.average is not None else None
        self.start_schedule(0)

    def _make_optimizer(self, parameters: list[Any]) -> Any:
        """torch's optimizer with a parameter group for each group of the recipe, and one for all other parameters."""
        self.frozen = {name: each for name, each in self.parameters.items() if self.recipe.freezes(name)}
        for name, parameter in self.frozen.items():
            parameter.requires_grad_(False)
            del self.parameters[name]
        self.names = list(self.parameters)
        groups = self.optimizer.groups(self.names)
        listed = [
            {"params": [self.parameters[name] for name in names], "lr": lr, "weight_decay": decay}
            for (lr, decay), names in groups.items()
        ]
        self.rates = [lr for lr, _ in groups]
        return super()._make_optimizer(listed)

    def _make_clip(self) -> Callable[[], object]:
        utils, trained = self.torch.nn.utils, list(self.parameters.values())
        if not self.recipe.clip:
            return lambda: None
        how, limit = self.recipe.clip
        if how == "clip_value":
            return lambda: utils.clip_grad_value_(trained, limit)
        if how == "clip_norm":
            return lambda: utils.clip_grad_norm_(trained, limit)
        return lambda: [utils.clip_grad_norm_(parameter, limit) for parameter in trained]

    def _make_average(self) -> Any:
        import torch.optim.swa_utils as loaded  # torch itself does not import it

        utils: Any = loaded
        return utils.AveragedModel(self.model, multi_avg_fn=utils.get_ema_multi_avg_fn(self.recipe.average))

    def make_scheduler(self) -> Any:
        for group, lr in zip(self.optim.param_groups, self.rates):
            group.pop("initial_lr", None)
            group["lr"] = lr
        return self._make_scheduler()

    def start_schedule(self, steps: int) -> None:
        with warnings.catch_warnings():
            # A scheduler warns when it is stepped before its optimizer, and SequentialLR uses an argument that torch deprecates.
            warnings.simplefilter("ignore")
            super().start_schedule(steps)

    def _make_scheduler(self) -> Any:
        """torch's scheduler; None without a schedule."""
        schedule, lr_scheduler = self.recipe.schedule, self.torch.optim.lr_scheduler
        if schedule is None:
            return None
        optim, warmup = self.optim, schedule.warmup
        count = (schedule.steps or 0) - warmup
        if schedule.kind == "one-cycle":
            return lr_scheduler.OneCycleLR(optim, self.rates, total_steps=count, cycle_momentum=False)
        make: Callable[[], Any] = {
            "constant": lambda: lr_scheduler.ConstantLR(optim, 1.0),
            "step": lambda: lr_scheduler.StepLR(optim, schedule.every, schedule.gamma),
            "linear": lambda: lr_scheduler.LinearLR(optim, 1.0, schedule.end, count),
            "cosine": lambda: lr_scheduler.CosineAnnealingLR(optim, count, schedule.end * self.optimizer.lr),
        }[schedule.kind]
        if schedule.kind == "cosine" and schedule.end and len(set(self.rates)) > 1:
            # CosineAnnealingLR has one smallest rate for all groups.
            return lr_scheduler.LambdaLR(optim, schedule.factor)
        if not warmup:
            return make()
        rise = lr_scheduler.LinearLR(optim, schedule.start, 1.0, warmup)
        return lr_scheduler.SequentialLR(optim, [rise, make()], [warmup])

    def part_loss(self, part: Batch) -> Any:
        return self.loss_of(self.forward(*part[:-1]), part[-1])

    def accumulate(self, batch: Batch) -> Any:
        self.optim.zero_grad()
        return super().accumulate(batch)

    def gradient_arrays(self) -> dict[str, Array]:
        return by_name(self.parameters, [each.grad for each in self.parameters.values()])

    def take_average(self) -> None:
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    @contextmanager
    def watched(self, used: Used) -> Iterator[None]:
        handle = self.optim.register_step_pre_hook(lambda *_: self.note(used))
        try:
            yield
        finally:
            handle.remove()

    def note(self, used: Used) -> None:
        names = {id(each): name for name, each in self.parameters.items()}
        used.clipped = self.gradient_arrays()
        for group in self.optim.param_groups:
            used.rates |= {names[id(each)]: float(group["lr"]) for each in group["params"]}
            used.decays |= {names[id(each)]: float(group["weight_decay"]) for each in group["params"]}

    def averages(self) -> dict[str, Array]:
        if self.averaged is None:
            return {}
        found = dict(self.averaged.module.named_parameters())
        return {name: found[name].detach().cpu().numpy().copy() for name in self.names}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        assert self.averaged is not None
        found = dict(self.averaged.module.named_parameters())
        self.averaged.n_averaged.fill_(steps)
        with self.torch.no_grad():
            for name, array in averages.items():
                found[name].copy_(self.framework.to_native(array, None))

    @contextmanager
    def unfrozen(self) -> Iterator[None]:
        for parameter in self.frozen.values():
            parameter.requires_grad_(True)
        try:
            yield
        finally:
            for parameter in self.frozen.values():
                parameter.requires_grad_(False)
