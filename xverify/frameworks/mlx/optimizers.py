"""Optimizers of mlx.optimizers with MLX's own facilities for a recipe, and exact equivalents of torch's formulas in its operations.

MLX's optimizers take a tree of gradients, and keep a tree of state beside it. ``bias_correction=True`` makes its Adam and AdamW
torch's; without it, as by default, their moments are not corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mlx import core, optimizers
from mlx.utils import tree_flatten, tree_unflatten

from xverify.errors import Unsupported
from xverify.frameworks.mlx.operations import MlxOperations
from xverify.weights.flax_layout import NamedWeight
from xverify.workload.adafactor import Factored
from xverify.workload.optimizers import Optimizer, update_sum
from xverify.workload.recipe import CLIPS, clipped

# Optimizer -> MLX's names of what Optimizer.state_names names, in the same order.
STATE_NAMES = {
    "sgd": ("v",),
    "adam": ("m", "v"),
    "adamw": ("m", "v"),
    "rmsprop": ("v",),
    "adagrad": ("v",),
    "lion": ("m",),
}
DECAYS = ("sgd", "adamw", "lion")  # MLX's optimizers that have a weight decay

Flat = dict[str, Any]  # path of an array in the model -> an array


class Parameter(NamedTuple):
    """An array that is trained.

    settings: its own. sums: the number of torch's parameters that it is the sum of; 1 for most.
    owner: the number of its weight. axes: see adafactor.Factored; None with another optimizer.
    """

    settings: Optimizer
    sums: int = 1
    owner: int = 0
    axes: Factored | None = None


def flat(tree: Any) -> Flat:
    """The arrays of a tree of MLX by their paths."""
    found: Flat = tree_flatten(tree, destination={})
    return found


def tree(arrays: Mapping[str, Any]) -> Any:
    """The tree of arrays by their paths."""
    return tree_unflatten(list(arrays.items()))


class Steps:
    """An optimizer with its recipe: what a learner calls in a step. parameters: path -> array that is trained.

    optimizer: its settings, with the variants of its formula. state: the tree of arrays that a step changes.
    """

    optimizer: Optimizer
    state: Any

    def clip(self, gradients: Flat) -> Flat:
        """The gradients that the optimizer is given."""
        raise NotImplementedError

    def update(self, model: Any, gradients: Flat) -> None:
        """Make one update of the model."""
        raise NotImplementedError

    def rates(self) -> Mapping[str, float]:
        """The learning rate of every parameter in the last update."""
        raise NotImplementedError

    def read(self, path: str) -> list[Any]:
        """What ``Optimizer.state_names`` names, for one parameter."""
        raise NotImplementedError

    def write(self, steps: int, fields: Mapping[str, Sequence[Any]]) -> None:
        """Replace the state by one after this number of steps. fields: path -> what ``read`` returns."""
        raise NotImplementedError


class Mlx(Steps):
    """An optimizer of mlx.optimizers. Raises Unsupported for what MLX has no facility for."""

    def __init__(self, o: Optimizer, model: Any, parameters: Mapping[str, Parameter]) -> None:
        check(o)
        self.optimizer, self.keys = o, o.keys(STATE_NAMES)
        groups = list(dict.fromkeys(each.settings for each in parameters.values()))
        self.group_of = {path: groups.index(each.settings) for path, each in parameters.items()}
        self.optimizers = [_own(each) for each in groups]
        self.whole = self.optimizers[0]
        if len(groups) > 1:
            filters = [self._filter(number) for number in range(len(groups) - 1)]
            self.whole = optimizers.MultiOptimizer(self.optimizers, filters)
        self.whole.init(model.trainable_parameters())
        self.state = [each.state for each in self.optimizers]

    def _filter(self, number: int) -> Callable[[str, Any], bool]:
        return lambda path, _: self.group_of[path] == number

    def clip(self, gradients: Flat) -> Flat:
        limit = self.optimizer.recipe.clip_norm
        return gradients if limit is None else flat(optimizers.clip_grad_norm(tree(gradients), limit)[0])

    def update(self, model: Any, gradients: Flat) -> None:
        self.whole.update(model, tree(gradients))

    def rates(self) -> Mapping[str, float]:
        rates = [each.learning_rate.item() for each in self.optimizers]
        return {path: rates[number] for path, number in self.group_of.items()}

    def _kept(self, path: str) -> dict[str, Any]:
        """What the optimizer keeps of a parameter."""
        value: Any = self.optimizers[self.group_of[path]].state
        for key in path.split("."):
            value = value[int(key) if isinstance(value, list) else key]
        kept: dict[str, Any] = value
        return kept

    def read(self, path: str) -> list[Any]:
        kept = self._kept(path)
        return [kept[key] for key in self.keys]

    def write(self, steps: int, fields: Mapping[str, Sequence[Any]]) -> None:
        for each in self.optimizers:
            each.state["step"] = core.array(steps, core.uint64)
        for path, arrays in fields.items():
            self._kept(path).update(zip(self.keys, arrays))


def check(o: Optimizer) -> None:
    """Raise Unsupported for a setting that MLX has no facility for."""
    recipe, says = o.recipe, ""
    if o.name == "adafactor":
        says = "the means of MLX's Adafactor are taken over other axes of kernels, and its weight decay is scaled"
    elif recipe.amsgrad:
        says = "MLX's Adam has no AMSGrad"
    elif o.name not in DECAYS and (o.weight_decay or any(group.weight_decay for group in recipe.groups)):
        says = f"mlx.optimizers has no weight decay for {o.name}"
    elif recipe.clip_value is not None or recipe.clip_each is not None:
        says = f"MLX has no function that clips the {CLIPS[recipe.clip[0]]}" if recipe.clip else ""
    elif recipe.average is not None:
        says = "MLX has no moving average of weights"
    elif recipe.schedule is not None and recipe.schedule.kind == "one-cycle":
        says = "MLX has no one-cycle schedule"
    if says:
        raise Unsupported(f"{says}; run with --match-optimizer")


def _own(o: Optimizer) -> Any:
    """An optimizer of MLX, for one learning rate and weight decay."""
    rate, betas = _rate(o), [o.beta1, o.beta2]
    if o.name == "adamw":
        return optimizers.AdamW(rate, betas, o.eps, o.weight_decay, bias_correction=True)
    if o.name == "adam":
        return optimizers.Adam(rate, betas, o.eps, bias_correction=True)
    if o.name == "rmsprop":
        return optimizers.RMSprop(rate, o.alpha, o.eps)
    if o.name == "adagrad":
        return optimizers.Adagrad(rate, o.eps)
    if o.name == "lion":
        return optimizers.Lion(rate, betas, o.weight_decay)
    return optimizers.SGD(rate, o.momentum, o.weight_decay, nesterov=o.nesterov)


def _rate(o: Optimizer) -> Any:
    """The learning rate of a parameter: a number, or a schedule of MLX."""
    schedule, lr = o.recipe.schedule, o.lr
    if schedule is None:
        return lr
    count = (schedule.steps or 0) - schedule.warmup
    make: dict[str, Callable[[], Any]] = {
        "constant": lambda: lambda step: core.array(lr),
        "step": lambda: optimizers.step_decay(lr, schedule.gamma, schedule.every),
        "linear": lambda: optimizers.linear_schedule(lr, lr * schedule.end, count),
        "cosine": lambda: optimizers.cosine_decay(lr, count, lr * schedule.end),
    }
    later = make[schedule.kind]()
    if not schedule.warmup:
        return later
    rise = optimizers.linear_schedule(lr * schedule.start, lr, schedule.warmup)
    return optimizers.join_schedules([rise, later], [schedule.warmup])


class Equivalent(Steps):
    """Torch's formulas in MLX's operations."""

    def __init__(self, o: Optimizer, model: Any, parameters: Mapping[str, Parameter]) -> None:
        self.optimizer, self.parameters, self.operations = o, parameters, MlxOperations()
        present = flat(model.trainable_parameters())
        self.fields: dict[str, list[Any]] = {
            path: [core.zeros_like(present[path]) for _ in o.state_names] for path in parameters
        }
        self.state = {"step": core.array(0), "rate": core.array(1.0), "fields": self.fields}

    def clip(self, gradients: Flat) -> Flat:
        owners = [self.parameters[path].owner for path in gradients]
        arrays = clipped(self.optimizer.recipe.clip, list(gradients.values()), self.operations, owners)
        return dict(zip(gradients, arrays))

    def update(self, model: Any, gradients: Flat) -> None:
        factor: Any = 1.0
        if self.optimizer.recipe.schedule:
            factors = core.array(self.optimizer.recipe.schedule.factors(), core.float32)
            factor = factors[core.minimum(self.state["step"], len(factors) - 1)]
            self.state["rate"] = factor
        self.state["step"] = self.state["step"] + 1
        step, present, changed = self.state["step"].astype(core.float32), flat(model.trainable_parameters()), {}
        for path, gradient in gradients.items():
            settings, sums, _, axes = self.parameters[path]
            own, state = replace(settings, lr=settings.lr * factor), self.fields[path]
            changed[path], state[:] = update_sum(sums, own, present[path], gradient, state, step, self.operations, axes)
        model.update(tree(changed))

    def rates(self) -> Mapping[str, float]:
        return {path: each.settings.lr * self.state["rate"].item() for path, each in self.parameters.items()}

    def read(self, path: str) -> list[Any]:
        return self.fields[path]

    def write(self, steps: int, fields: Mapping[str, Sequence[Any]]) -> None:
        self.state["step"] = core.array(steps)
        for path, arrays in fields.items():
            self.fields[path][:] = arrays


def made(
    o: Optimizer, model: Any, trained: Sequence[NamedWeight], fused: Mapping[str, Sequence[str]], match: bool
) -> Steps:
    """The optimizer of a run. trained: the weights that it changes. fused: see Framework.fused_parameters."""
    parameters = {
        part.path: Parameter(o.of(each.name), len(fused.get(each.name, (each.name,))), number, _axes(o, each))
        for number, each in enumerate(trained)
        for part in each.parts
    }
    return Equivalent(o.plain, model, parameters) if match else Mlx(o, model, parameters)


def _axes(o: Optimizer, weight: NamedWeight) -> Factored | None:
    """The axes of the arrays of a weight that are the last two of torch's weight; None where the optimizer needs none."""
    if o.name != "adafactor":
        return None
    from functools import partial

    from xverify.weights.flax_layout import to_canonical
    from xverify.workload.adafactor import last_two, native_axes, order_of_weight

    part = weight.parts[0]
    turn = partial(to_canonical, axes=part.axes, flipped=part.flipped)
    shapes = [tuple(each.variable.value.shape) for each in weight.parts]
    order = order_of_weight(weight.name, shapes, turn)
    return native_axes(order, last_two(len(order)))
