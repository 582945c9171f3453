"""Lion as an optimizer of torch, by the formula of its authors: torch.optim has none."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from xverify.float64.named_losses import TorchOperations
from xverify.workload.optimizers import Optimizer, update


class Lion(torch.optim.Optimizer):
    """Lion.

    parameters: tensors, or parameter groups of torch. o: the settings; each group has its own learning rate and weight decay.
    """

    def __init__(self, parameters: Sequence[Any], o: Optimizer) -> None:
        super().__init__(parameters, {"lr": o.lr, "weight_decay": o.weight_decay})
        self.settings = o

    def step(self, closure: None = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                own = replace(self.settings, lr=group["lr"], weight_decay=group["weight_decay"])
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._move(own, parameter)

    def _move(self, own: Optimizer, parameter: Any) -> None:
        state = self.state[parameter]
        momentum = state.get("momentum", torch.zeros_like(parameter))
        new, (state["momentum"],) = update(own, parameter, parameter.grad, [momentum], 1, TorchOperations())
        parameter.copy_(new)
