"""Training with torch.optim, and torch's own facilities for a recipe."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from xverify.errors import Failed
from xverify.framework.adapter import Array
from xverify.framework.eager import EagerLearner, parameter_groups, reset_rates
from xverify.framework.objective import NOT_DIFFERENTIABLE
from xverify.framework.structures import Natives, only_output
from xverify.framework.training import Batch, Used
from xverify.frameworks.torch.base import TrainsOnTorch
from xverify.weights.torch import divided_as, whole
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import micro_batches


def by_name(parameters: Mapping[str, Any], gradients: Sequence[Any]) -> dict[str, Array]:
    """Parameter name -> gradient. It is zero for a parameter on which the loss does not depend."""
    return {
        name: _array_or_zeros(gradient, parameter) for (name, parameter), gradient in zip(parameters.items(), gradients)
    }


def _array_or_zeros(tensor: Any, parameter: Any) -> Array:
    """A copy of the tensor as an array; for None zeros of the parameter's shape."""
    if tensor is None:
        return np.zeros(tuple(parameter.shape), np.float32)
    tensor = whole(tensor.detach())
    return tensor.expand(parameter.shape).cpu().numpy().copy()  # a mean of adafactor has fewer values


class Learner(EagerLearner):
    """Training with torch.optim. The forward pass runs in the mode; the loss and the update are eager."""

    # Optimizer -> torch.optim's names of what Optimizer.state_names names, in the same order.
    STATE_NAMES = {
        "sgd": ("momentum_buffer",),
        "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
        "adamw": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
        "rmsprop": ("square_avg",),
        "adagrad": ("sum",),
        "lion": ("momentum",),
        "adafactor": ("row_var", "col_var", "variance"),
    }

    def __init__(self, framework: TrainsOnTorch, model: Any, mode: str, batch: Batch, optimizer: Optimizer) -> None:
        from xverify.frameworks.torch import optimizers

        super().__init__(framework, optimizer, False)
        self.torch, self.model = framework.torch, model
        model.train()
        batch = micro_batches(batch, self.recipe.accumulate)[0]
        self.forward = framework.modes[mode](framework, model, batch[:-1])
        self.parameters = dict(model.named_parameters())
        still = [name for name, each in self.parameters.items() if not each.requires_grad or self.recipe.freezes(name)]
        self.frozen = [self.parameters.pop(name) for name in still]
        self.freeze(True)
        self.names = list(self.parameters)
        if not self.names:
            raise Failed("every parameter of the model file is frozen (requires_grad is False), so nothing is trained")
        groups = parameter_groups(optimizer, self.parameters)
        self.rates = [group["lr"] for group in groups]
        self.optim = optimizers.torch_optimizer(optimizer, groups)
        # With one label per item, torch's own function is called directly: a wrapper would take 1% of a short step.
        one_label = framework.setup.objective is None and batch[-1].dim() == 1
        self.cross_entropy = framework.torch.nn.functional.cross_entropy if one_label else framework.cross_entropy
        self.inputs = len(batch) - 1
        self.clip = optimizers.clipping(self.recipe, list(self.parameters.values()))  # type: ignore[method-assign]
        self.averaged = self._make_average() if self.recipe.average is not None else None
        self.start_schedule(0)

    def _make_average(self) -> Any:
        import torch.optim.swa_utils as loaded  # torch itself does not import it

        utils: Any = loaded
        return utils.AveragedModel(self.model, multi_avg_fn=utils.get_ema_multi_avg_fn(self.recipe.average))

    # -- the step -----------------------------------------------------------------------------------------------------

    @property
    def step(self) -> Callable[..., Any]:
        """The function of one step, without a recipe with what it needs in local names.

        The usual model has one input, and gets a function without a star call. Together this saves 0.5% of a step of 0.9 ms.
        """
        if self.has_recipe:
            return super().step
        forward, cross_entropy, optim, tensor = self.forward, self.cross_entropy, self.optim, self.torch.Tensor
        loss_of: Any = self.framework.setup.objective

        def logits(outputs: Any) -> Any:
            return outputs if type(outputs) is tensor else only_output(outputs)

        def update(loss: Any) -> Any:
            loss.backward()
            optim.step()
            self.steps += 1
            return loss

        def step(x: Any, target: Any) -> Any:
            optim.zero_grad()
            return update(cross_entropy(logits(forward(x)), target))

        def step_of_several(*batch: Any) -> Any:
            optim.zero_grad()
            return update(cross_entropy(logits(forward(*batch[:-1])), batch[-1]))

        def step_of_objective(*batch: Any) -> Any:
            optim.zero_grad()
            loss = loss_of(forward(*batch[:-1]), batch[-1])
            if not loss.requires_grad:
                raise Failed(NOT_DIFFERENTIABLE)
            return update(loss)

        if loss_of is not None:
            return step_of_objective
        return step if self.inputs == 1 else step_of_several

    def loss_of(self, outputs: Any, target: Any) -> Any:
        """The loss of a batch. target: the last entry of a Batch. Raises Failed where it cannot be differentiated."""
        objective: Any = self.framework.setup.objective
        loss = objective(outputs, target) if objective else self.cross_entropy(only_output(outputs), target)
        if not loss.requires_grad:
            raise Failed(NOT_DIFFERENTIABLE)
        return loss

    def batch_loss(self, batch: Batch) -> Any:
        return self.loss_of(self.forward(*batch[:-1]), batch[-1])

    def accumulate(self, batch: Batch) -> Any:
        self.clear()
        return super().accumulate(batch)

    def clear(self) -> None:
        self.optim.zero_grad()

    def gradient_arrays(self) -> dict[str, Array]:
        return by_name(self.parameters, [each.grad for each in self.parameters.values()])

    def set_gradients(self, gradients: Mapping[str, Array]) -> None:
        for name, parameter in self.parameters.items():
            parameter.grad = divided_as(self.framework.to_native(gradients[name], None), parameter)

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

    # -- the schedule -------------------------------------------------------------------------------------------------

    def own_scheduler(self) -> Any:
        from xverify.frameworks.torch.optimizers import torch_scheduler

        reset_rates(self.optim.param_groups, self.rates)
        return torch_scheduler(self.optimizer, self.optim, self.rates)

    def start_schedule(self, steps: int) -> None:
        with warnings.catch_warnings():
            # A scheduler warns when it is stepped before its optimizer, and SequentialLR uses an argument that torch deprecates.
            warnings.simplefilter("ignore")
            super().start_schedule(steps)

    # -- the state ----------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        result = {}
        for name, parameter in self.parameters.items():
            state = self.optim.state.get(parameter, {})
            result[name] = [_array_or_zeros(state.get(key), parameter) for key in self.optimizer.keys(self.STATE_NAMES)]
        return self.steps, result

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.optim.state.clear()
        self.steps = steps
        self.start_schedule(steps)
        # Only Adagrad makes its state before the first step.
        for name, arrays in state.items() if steps or self.optimizer.name == "adagrad" else ():
            native = {
                key: divided_as(self.framework.to_native(array, None), self.parameters[name])
                for key, array in zip(self.optimizer.keys(self.STATE_NAMES), arrays)
            }
            if self.optimizer.name == "adafactor":
                from xverify.frameworks.torch.adafactor import kept

                native = kept(native)
            if self.optimizer.name != "sgd":
                native["step"] = self.torch.tensor(float(steps))
            self.optim.state[self.parameters[name]] = native

    def _averages(self) -> Natives:
        """The averaged parameters, by name."""
        return dict(self.averaged.module.named_parameters()) if self.averaged is not None else {}

    def averages(self) -> dict[str, Array]:
        return {
            name: each.detach().cpu().numpy().copy()
            for name, each in self._averages().items()
            if name in self.parameters
        }

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        assert self.averaged is not None
        self.averaged.n_averaged.fill_(steps)
        present = self._averages()
        with self.torch.no_grad():
            for name, array in averages.items():
                present[name].copy_(self.framework.to_native(array, None))

    def freeze(self, frozen: bool) -> None:
        for parameter in self.frozen:
            parameter.requires_grad_(not frozen and parameter.is_floating_point())
