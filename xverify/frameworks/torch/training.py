"""Training with torch.optim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xverify.errors import Failed
from xverify.framework.adapter import Array
from xverify.framework.objective import NOT_DIFFERENTIABLE
from xverify.framework.structures import only_output
from xverify.framework.training import Batch, Training
from xverify.frameworks.torch.base import TrainsOnTorch
from xverify.workload.optimizers import Optimizer


def by_name(parameters: Mapping[str, Any], gradients: Sequence[Any]) -> dict[str, Array]:
    """Parameter name -> gradient. It is zero for a parameter on which the loss does not depend."""
    return {
        name: _array_or_zeros(gradient, parameter) for (name, parameter), gradient in zip(parameters.items(), gradients)
    }


def _array_or_zeros(tensor: Any, parameter: Any) -> Array:
    """A copy of the tensor as an array; for None zeros of the parameter's shape."""
    if tensor is None:
        return np.zeros(tuple(parameter.shape), np.float32)
    return tensor.detach().expand(parameter.shape).cpu().numpy().copy()  # a mean of adafactor has fewer values


class Learner(Training):
    """Training with torch.optim. The forward pass runs in the mode; the loss and the update are eager."""

    # Optimizer -> torch.optim's names of what Optimizer.state_names names, in the same order.
    STATE_NAMES = {
        "sgd": ("momentum_buffer",),
        "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
        "adamw": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
        "rmsprop": ("square_avg",),
        "lion": ("momentum",),
        "adafactor": ("row_var", "col_var", "variance"),
    }

    def __init__(self, framework: TrainsOnTorch, model: Any, mode: str, batch: Batch, optimizer: Optimizer) -> None:
        self.framework, self.torch, self.optimizer, self.model = framework, framework.torch, optimizer, model
        model.train()
        self.parameters = dict(model.named_parameters())
        self.names = list(self.parameters)
        self.forward = framework.modes[mode](framework, model, batch[:-1])
        self.optim = self._make_optimizer(list(self.parameters.values()))
        # With one label per item, torch's own function is called directly: a wrapper would take 1% of a short step.
        one_label = framework.setup.objective is None and batch[-1].dim() == 1
        self.cross_entropy = framework.torch.nn.functional.cross_entropy if one_label else framework.cross_entropy
        self.inputs, self.steps = len(batch) - 1, 0

    def _make_optimizer(self, parameters: list[Any]) -> Any:
        """torch's optimizer with the settings of ``self.optimizer``."""
        o, optim = self.optimizer, self.torch.optim
        if o.name == "sgd":
            return optim.SGD(parameters, o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=o.nesterov)
        if o.name == "rmsprop":
            return optim.RMSprop(parameters, o.lr, o.alpha, o.eps, o.weight_decay)
        if o.name == "lion":
            from xverify.frameworks.torch.lion import Lion

            return Lion(parameters, o)
        if o.name == "adafactor":
            from xverify.frameworks.torch.adafactor import own_adafactor

            return own_adafactor(parameters, o)
        kind = optim.Adam if o.name == "adam" else optim.AdamW
        return kind(parameters, o.lr, (o.beta1, o.beta2), o.eps, o.weight_decay, o.recipe.amsgrad)

    @property
    def step(self) -> Callable[..., Any]:
        """The function of one step, with what it needs in local names.

        The usual model has one input, and gets a function without a star call. Together this saves 0.5% of a step of 0.9 ms.
        """
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

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss = self.loss_of(self.forward(*batch[:-1]), batch[-1])
        self.optim.zero_grad()
        loss.backward()
        arrays = by_name(self.parameters, [parameter.grad for parameter in self.parameters.values()])
        self.optim.zero_grad()
        return float(loss.detach()), arrays

    def apply(self, gradients: Mapping[str, Array]) -> None:
        for name, parameter in self.parameters.items():
            parameter.grad = self.framework.to_native(gradients[name], None)
        self.optim.step()
        self.steps += 1

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        result = {}
        for name, parameter in self.parameters.items():
            state = self.optim.state.get(parameter, {})
            result[name] = [_array_or_zeros(state.get(key), parameter) for key in self.optimizer.keys(self.STATE_NAMES)]
        return self.steps, result

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.optim.state.clear()
        self.steps = steps
        if not steps:
            return
        for name, arrays in state.items():
            native = {
                key: self.framework.to_native(array, None)
                for key, array in zip(self.optimizer.keys(self.STATE_NAMES), arrays)
            }
            if self.optimizer.name == "adafactor":
                from xverify.frameworks.torch.adafactor import kept

                native = kept(native)
            if self.optimizer.name != "sgd":
                native["step"] = self.torch.tensor(float(steps))
            self.optim.state[self.parameters[name]] = native
