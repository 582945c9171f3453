"""Optimizers of Paddle with its own facilities for a recipe, and exact equivalents of torch's formulas in its operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xverify.errors import Unsupported
from xverify.framework.eager import ParameterGroup
from xverify.weights import paddle as weights
from xverify.workload.adafactor import Factored, last_two, native_axes, order_of_weight
from xverify.workload.optimizers import Optimizer, update
from xverify.workload.recipe import Group
from xverify.workload.schedule import FALL, START

# Optimizer -> Paddle's names of what Optimizer.state_names names, in the same order.
STATE_NAMES = {
    "sgd": ("velocity",),
    "adam": ("moment1", "moment2", "moment2_max"),
    "adamw": ("moment1", "moment2", "moment2_max"),
    "rmsprop": ("mean_square",),
    "adagrad": ("moment",),
    "lion": ("momentum",),
    "adafactor": ("row", "column", "square"),
}


def paddle_optimizer(o: Optimizer, trained: Sequence[weights.NamedWeight], clip: Any) -> tuple[Optimizer, Any]:
    """The settings with all of Paddle's variants, and Paddle's own optimizer of these weights.

    clip: what ``paddle_clip`` returns. Raises Unsupported for what Paddle does not have.
    """
    _check(o)
    groups = _groups(o, trained)
    listed = groups if o.recipe.groups else [part for each in trained for part in each.parts]
    scheduler = paddle_scheduler(o)
    made = _formula(o, o.lr if scheduler is None else scheduler, parameters=listed, grad_clip=clip)
    variants = ["eps-inside"] * (o.name == "rmsprop")
    variants += ["clip eps"] * (o.recipe.clip_norm is not None or o.recipe.clip_each is not None)
    variants += ["norm of groups"] * (o.recipe.clip_norm is not None and len(groups) > 1)
    return replace(o, variants=tuple(variants)), made


def _formula(o: Optimizer, rate: Any, **more: Any) -> Any:
    """An optimizer of Paddle. rate: a number or a scheduler. more: further arguments of every optimizer of Paddle."""
    from paddle import optimizer as optim

    if o.name in ("adam", "adamw"):
        more = {"beta1": o.beta1, "beta2": o.beta2, "epsilon": o.eps, "amsgrad": o.recipe.amsgrad, **more}
    if o.name == "adamw":
        return optim.AdamW(rate, weight_decay=o.weight_decay, **more)
    more["weight_decay"] = o.weight_decay or None
    if o.name == "adam":
        return optim.Adam(rate, **more)
    if o.name == "rmsprop":
        return optim.RMSProp(rate, rho=o.alpha, epsilon=o.eps, **more)
    if o.name == "adagrad":
        return optim.Adagrad(rate, o.eps, **more)
    if o.momentum:
        return optim.Momentum(rate, o.momentum, use_nesterov=o.nesterov, **more)
    return optim.SGD(rate, **more)


def _groups(o: Optimizer, trained: Sequence[weights.NamedWeight]) -> list[ParameterGroup]:
    """Parameter groups of Paddle: one for each group of the recipe, and one for all other parameters.

    The learning rate of a group is a multiple of the optimizer's.
    """
    members: dict[Group | None, list[Any]] = {}
    for each in trained:
        members.setdefault(o.recipe.group_of(each.name), []).append(each)
    groups = []
    for group in members.values():
        own = o.of(group[0].name)
        times = own.lr / o.lr if own.lr != o.lr else 1.0
        parts = [part for each in group for part in each.parts]
        groups.append({"params": parts, "learning_rate": times, "weight_decay": own.weight_decay})
    return groups


def paddle_scheduler(o: Optimizer) -> Any:
    """Paddle's scheduler; None without a schedule."""
    import paddle

    schedule, lr, rates = o.recipe.schedule, o.lr, paddle.optimizer.lr
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


def paddle_clip(o: Optimizer) -> Any:
    """Paddle's clip of gradients; None without one."""
    if not o.recipe.clip:
        return None
    import paddle

    how, limit = o.recipe.clip
    if how == "clip_value":
        return paddle.nn.ClipGradByValue(limit)
    return (paddle.nn.ClipGradByGlobalNorm if how == "clip_norm" else paddle.nn.ClipGradByNorm)(limit)


def _check(o: Optimizer) -> None:
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
    if o.name in ("lion", "adafactor"):
        raise Unsupported(f"paddle.optimizer has no {o.name.capitalize()}; run with --match-optimizer")


def _torch_axes(o: Optimizer, trained: Sequence[weights.NamedWeight]) -> list[Factored]:
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

    trained: the weights. factor: of the schedule, which multiplies every learning rate.
    """

    def __init__(self, o: Optimizer, trained: Sequence[weights.NamedWeight]) -> None:
        import paddle

        from xverify.frameworks.paddle.operations import PaddleOperations

        self.paddle, self.ops, self.steps, self.factor = paddle, PaddleOperations(), 0, 1.0
        self.parameters = [part for each in trained for part in each.parts]
        self.settings = [o.of(each.name) for each in trained for _ in each.parts]
        self.axes = dict(zip(map(id, self.parameters), _torch_axes(o, trained)))
        self.state = {
            key: {id(part): paddle.zeros_like(part) for part in self.parameters} for key in o.keys(STATE_NAMES)
        }

    def step(self) -> None:
        self.steps += 1
        with self.paddle.no_grad():
            for part, own in zip(self.parameters, self.settings):
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
