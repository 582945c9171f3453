"""Training with a recipe in torch: parameter groups, torch.nn.utils.clip_grad, lr_scheduler, and swa_utils.AveragedModel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from xverify.framework.adapter import Array
from xverify.framework.training import Batch, Used
from xverify.frameworks.torch.base import TrainsOnTorch
from xverify.frameworks.torch.training import Learner, by_name
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import micro_batches


class RecipeLearner(Learner):
    """Training with torch.optim and torch's own facilities for the recipe.

    A step runs ``accumulate``, ``clip``, ``update``, ``advance`` and ``take_average``, in the order in which people write them.
    """

    def __init__(self, framework: TrainsOnTorch, model: Any, mode: str, batch: Batch, optimizer: Optimizer) -> None:
        self.recipe = optimizer.recipe
        self.share = 1 / self.recipe.accumulate  # of a micro-batch in the gradients
        self.frozen: dict[str, Any] = {}
        super().__init__(framework, model, mode, micro_batches(batch, self.recipe.accumulate)[0], optimizer)
        self.clip = self._make_clip()
        self.averaged = self._make_average() if self.recipe.average is not None else None
        self._start_schedule(0)

    def _make_optimizer(self, parameters: list[Any]) -> Any:
        """torch's optimizer with a parameter group for each group of the recipe, and one for all other parameters."""
        self.frozen = {name: each for name, each in self.parameters.items() if self.recipe.freezes(name)}
        for name, parameter in self.frozen.items():
            parameter.requires_grad_(False)
            del self.parameters[name]
        self.names = list(self.parameters)
        groups: dict[tuple[float, float], list[Any]] = {}
        for name, parameter in self.parameters.items():
            own = self.optimizer.of(name)
            groups.setdefault((own.lr, own.weight_decay), []).append(parameter)
        listed = [{"params": each, "lr": lr, "weight_decay": decay} for (lr, decay), each in groups.items()]
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

    def _start_schedule(self, steps: int) -> None:
        """Set the rates to those after this number of steps, with a scheduler that goes on from there."""
        for group, lr in zip(self.optim.param_groups, self.rates):
            group.pop("initial_lr", None)
            group["lr"] = lr
        self.advanced = 0
        with warnings.catch_warnings():
            # A scheduler warns when it is stepped before its optimizer, and SequentialLR uses an argument that torch deprecates.
            warnings.simplefilter("ignore")
            self.scheduler = self._make_scheduler()
            for _ in range(steps):
                self.advance()

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

    def advance(self) -> None:
        """Let the scheduler set the next rate. After the last step of the schedule the rate stays as it is."""
        schedule = self.recipe.schedule
        if schedule is None:
            return
        if schedule.last is None or self.advanced < schedule.last:
            self.scheduler.step()
            self.advanced += 1

    def accumulate(self, batch: Batch) -> Any:
        """Add up the gradients of all micro-batches, each with its share. Returns the loss."""
        total: Any = None
        for part in micro_batches(batch, self.recipe.accumulate):
            loss = self.loss_of(self.forward(*part[:-1]), part[-1])
            self.differentiate(loss * self.share)
            total = loss.detach() if total is None else total + loss.detach()
        return total / self.recipe.accumulate

    def differentiate(self, loss: Any) -> None:
        """Add the gradients of a loss to those of the parameters."""
        loss.backward()

    def before_clipping(self) -> None:
        """What is done with the accumulated gradients before they are clipped."""

    def update(self) -> None:
        """Let the optimizer make its update."""
        self.optim.step()

    def gradient_arrays(self) -> dict[str, Array]:
        """Copies of the present gradients."""
        return by_name(self.parameters, [each.grad for each in self.parameters.values()])

    def take_average(self) -> None:
        """Take the weights in to their average."""
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)

    @property
    def step(self) -> Callable[..., Any]:
        """The function of one step."""

        def step(*batch: Any) -> Any:
            self.optim.zero_grad()
            loss = self.accumulate(batch)
            self.before_clipping()
            self.clip()
            self.update()
            self.advance()
            self.take_average()
            self.steps += 1
            return loss

        return step

    def observe(self, *batch: Any) -> Used:
        used, clip, names = Used(), self.clip, {id(each): name for name, each in self.parameters.items()}

        def clip_between() -> None:
            used.accumulated = self.gradient_arrays()
            clip()

        def given(optim: Any, *_: Any) -> None:
            used.clipped = self.gradient_arrays()
            for group in optim.param_groups:
                used.rates |= {names[id(each)]: float(group["lr"]) for each in group["params"]}
                used.decays |= {names[id(each)]: float(group["weight_decay"]) for each in group["params"]}

        self.clip, handle = clip_between, self.optim.register_step_pre_hook(given)
        try:
            self.step(*batch)
        finally:
            self.clip = clip
            handle.remove()
        return used

    def set_optimizer_state(self, steps: int, state: Mapping[str, Any]) -> None:
        super().set_optimizer_state(steps, state)
        self._start_schedule(steps)

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
