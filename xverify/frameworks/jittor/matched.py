"""What Jittor computes where torch is to be matched: torch's formulas of optimizers and of batch norms, in Jittor's operations."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jittor as jt

from xverify.frameworks.jittor.operations import JittorOperations
from xverify.workload.optimizers import Optimizer, update


class Equivalent(jt.optim.Optimizer):
    """An optimizer of torch.

    parameters: variables, or parameter groups of Jittor.
    o: the settings. keys: the lists of a parameter group that hold what Optimizer.state_names names, in the same order.
    """

    def __init__(self, parameters: Sequence[Any], o: Optimizer, keys: Sequence[str]) -> None:
        super().__init__(parameters, o.lr)
        self.settings, self.keys, self.ops = o, keys, JittorOperations()
        for group in self.param_groups:
            for key in keys:
                group[key] = [jt.zeros(p.shape, p.dtype).stop_grad() for p in group["params"]]

    def step(self, loss: Any = None, retain_graph: bool = False) -> None:
        self.pre_step(loss, retain_graph)
        number = float(self.n_step)
        for group in self.param_groups:
            own = replace(
                self.settings,
                lr=group.get("lr", self.settings.lr),
                weight_decay=group.get("weight_decay", self.settings.weight_decay),
            )
            for p, g, *state in zip(group["params"], group["grads"], *(group[key] for key in self.keys)):
                new_p, new_state = update(own, p, g, state, number, self.ops)
                for variable, value in zip(state, new_state):
                    variable.update(value)
                p.update(new_p)
        self.post_step()


def match_norms(model: Any) -> None:
    """Make batch norms compute as torch's do.

    Jittor computes the variance as E[x²] - E[x]², and its running variance lacks the factor n/(n - 1).
    """
    for norm in model.modules():
        if isinstance(norm, jt.nn.BatchNorm):
            norm.execute = partial(_batch_norm, norm)


def _batch_norm(norm: Any, x: Any) -> Any:
    """torch's batch norm in training mode. x: (N, C, ...)."""
    axes = [0, *range(2, x.ndim)]
    terms = x.numel() // x.shape[1]
    mean = _mean_over(x, axes)
    centred = x - mean.broadcast(x, axes)
    variance = _mean_over(centred * centred, axes)
    scale = norm.weight / jt.sqrt(variance + norm.eps)
    unbiased = variance * (terms / max(1, terms - 1))
    for running, new in ((norm.running_mean, mean), (norm.running_var, unbiased)):
        running.update(running + (new.reshape((-1,)) - running) * norm.momentum)
    return centred * scale.broadcast(x, axes) + norm.bias.broadcast(x, axes)


def _mean_over(x: Any, axes: list[int]) -> Any:
    """The mean over these axes, one after the other: a single float32 sum over all of them loses digits."""
    for axis in reversed(axes):
        x = jt.mean(x, dims=[axis])
    return x
