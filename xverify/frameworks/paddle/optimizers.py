"""Optimizers of Paddle, and exact equivalents of torch's formulas in its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xverify.errors import Unsupported
from xverify.weights import paddle as weights
from xverify.workload.adafactor import Factored, last_two, native_axes, order_of_weight
from xverify.workload.optimizers import Optimizer, update

# Optimizer -> Paddle's names of what Optimizer.state_names names, in the same order.
STATE_NAMES = {
    "sgd": ("velocity",),
    "adam": ("moment1", "moment2", "moment2_max"),
    "adamw": ("moment1", "moment2", "moment2_max"),
    "rmsprop": ("mean_square",),
    "lion": ("momentum",),
    "adafactor": ("row", "column", "square"),
}


def paddle_optimizer(
    paddle: Any, o: Optimizer, parameters: list[Any], rate: Any = None, **more: Any
) -> tuple[Optimizer, Any]:
    """The settings with Paddle's formula variants, and Paddle's own optimizer.

    rate: a scheduler in the place of the learning rate. more: further arguments of every optimizer of Paddle.
    """
    optim, rate, more = paddle.optimizer, o.lr if rate is None else rate, {"parameters": parameters, **more}
    if o.name in ("lion", "adafactor"):
        raise Unsupported(f"paddle.optimizer has no {o.name.capitalize()}; run with --match-optimizer")
    if o.name in ("adam", "adamw"):
        more = {"beta1": o.beta1, "beta2": o.beta2, "epsilon": o.eps, "amsgrad": o.recipe.amsgrad, **more}
    if o.name == "adamw":
        return o.plain, optim.AdamW(rate, weight_decay=o.weight_decay, **more)
    more["weight_decay"] = o.weight_decay or None
    if o.name == "adam":
        return o.plain, optim.Adam(rate, **more)
    if o.name == "rmsprop":
        return replace(o, variants=("eps-inside",)), optim.RMSProp(rate, rho=o.alpha, epsilon=o.eps, **more)
    if o.momentum:
        return o.plain, optim.Momentum(rate, o.momentum, use_nesterov=o.nesterov, **more)
    return o.plain, optim.SGD(rate, **more)


def torch_axes(o: Optimizer, trained: Sequence[weights.NamedWeight]) -> list[Factored]:
    """For each parameter, its axes that are the last two of torch's weight; [] when the optimizer needs none.

    Raises Unsupported for a weight that is no parameter with the same axes.
    """
    if o.name != "adafactor":
        return []
    orders = [
        order_of_weight(each.name, [part.shape for part in each.parts], partial(_alone, each)) for each in trained
    ]
    return [native_axes(order, last_two(len(order))) for order in orders]


def _alone(weight: weights.NamedWeight, array: Any) -> Any:
    """The canonical array of a weight that is one variable."""
    return weights.to_canonical(weight, [array])


class Equivalent:
    """torch's formulas in Paddle's operations, with those methods of a Paddle optimizer that a Learner calls.

    each: the settings of each parameter; (): all have those of ``settings``.
    axes: of each parameter, those that adafactor takes; (): another optimizer.
    factor: of the schedule, which multiplies every learning rate.
    """

    def __init__(
        self,
        paddle: Any,
        settings: Optimizer,
        parameters: Sequence[Any],
        each: Sequence[Optimizer] = (),
        axes: Sequence[Factored] = (),
    ) -> None:
        from xverify.frameworks.paddle.operations import PaddleOperations

        self.axes, self.ops = dict(zip(map(id, parameters), axes)), PaddleOperations()
        self.paddle, self.parameters, self.steps, self.factor = paddle, parameters, 0, 1.0
        self.each = each or [settings] * len(parameters)
        self.state = {
            key: {id(part): paddle.zeros_like(part) for part in parameters} for key in settings.keys(STATE_NAMES)
        }

    def step(self) -> None:
        self.steps += 1
        with self.paddle.no_grad():
            for part, own in zip(self.parameters, self.each):
                if part.grad is None:
                    continue
                state = [of_parts[id(part)] for of_parts in self.state.values()]
                own = replace(own, lr=own.lr * self.factor)
                axes = self.axes.get(id(part))
                new, values = update(own, part, part.grad, state, float(self.steps), self.ops, axes=axes)
                for tensor, value in zip(state, values):
                    tensor.set_value(value)
                part.set_value(new)

    def clear_grad(self, set_to_zero: bool) -> None:
        for part in self.parameters:
            part.clear_gradient(set_to_zero)

    def _get_accumulator(self, name: str, part: Any) -> Any:
        return self.state[name][id(part)]
