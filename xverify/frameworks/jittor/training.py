"""Training with jittor.optim and Jittor's own facilities for a recipe, or with an exact equivalent of torch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xverify.framework.adapter import Array, Framework
from xverify.framework.eager import EagerLearner, parameter_groups, reset_rates
from xverify.framework.structures import Natives, only_output
from xverify.framework.training import Batch, Used
from xverify.weights import jittor as weights
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, clipped


def trainable_parameters(model: Any) -> Natives:
    """Name -> variable of each trainable parameter of a model in training mode. A tied parameter occurs once."""
    return {name: value for name, value in weights.named_variables(model).items() if not value.is_stop_grad()}


class Learner(EagerLearner):
    """Training with jittor.optim and Jittor's own facilities, or with an exact equivalent of torch's."""

    # Optimizer -> lists of Jittor's parameter group that hold what Optimizer.state_names names, in the same order.
    ADAM = ("m", "values", "largest")
    STATE_NAMES = {"sgd": ("values",), "adam": ADAM, "adamw": ADAM, "lion": ("values",)}
    STATE_NAMES |= {"rmsprop": ("values",), "adagrad": ("values",), "adafactor": ("row", "column", "square")}

    def __init__(self, framework: Framework, model: Any, batch: Batch, optimizer: Optimizer, match: bool) -> None:
        import jittor

        super().__init__(framework, optimizer, match)
        self.jt, self.model = jittor, model
        model.train()
        trainable = trainable_parameters(model)
        self.parameters = {name: each for name, each in trainable.items() if not self.recipe.freezes(name)}
        self.names = list(self.parameters)
        # With one label per item, Jittor's own function is called directly: two more operations would take 2% of a short step.
        direct = framework.setup.objective is None and batch[-1].ndim == 1 and not match
        self.cross_entropy = jittor.nn.cross_entropy_loss if direct else framework.cross_entropy
        self.optimizer, self.optim = self._make_optimizer(optimizer)
        # Jittor's optimizer counts every backward pass as a step.
        self.counted = 1 if match else self.recipe.accumulate
        self.averaged: Natives = {}
        if self.recipe.average is not None:
            self.averaged = {name: jittor.zeros_like(each).stop_grad() for name, each in self.parameters.items()}
        self.start_schedule(0)

    def _make_optimizer(self, o: Optimizer) -> tuple[Optimizer, Any]:
        """The settings with all variants, and the optimizer."""
        groups = parameter_groups(o, self.parameters)
        self.rates = [group["lr"] for group in groups]
        self.places = {
            name: (index, place)
            for index, names in enumerate(o.groups(self.parameters).values())
            for place, name in enumerate(names)
        }
        if self.match:
            from xverify.frameworks.jittor.matched import Equivalent, match_norms

            match_norms(self.model)
            return o.plain, Equivalent(groups, o, o.keys(self.STATE_NAMES))
        from xverify.frameworks.jittor.optimizers import jittor_optimizer

        return jittor_optimizer(o, groups)

    # -- the schedule -------------------------------------------------------------------------------------------------

    def set_factor(self, factor: float) -> None:
        reset_rates(self.optim.param_groups, self.rates, factor)

    def own_scheduler(self) -> Any:
        from xverify.frameworks.jittor.optimizers import jittor_scheduler

        self.optim.lr = self.optimizer.lr
        self.set_factor(1.0)
        return jittor_scheduler(self.optimizer, self.optim)

    @property
    def last(self) -> int | None:
        schedule = self.recipe.schedule
        if self.match or schedule is None or schedule.steps is None:
            return super().last
        return schedule.steps + ("late schedule" in self.optimizer.variants)  # it has its last rate one step later

    # -- the step -----------------------------------------------------------------------------------------------------

    def step(self, *batch: Any) -> Any:
        loss = super().step(*batch)
        self.jt.sync_all()  # without it Jittor would not compute the update
        return loss

    def batch_loss(self, batch: Batch) -> Any:
        outputs, objective = self.model(*batch[:-1]), self.framework.setup.objective
        return objective(outputs, batch[-1]) if objective else self.cross_entropy(only_output(outputs), batch[-1])

    def differentiate(self, loss: Any) -> None:
        self.optim.backward(loss)

    def without_graph(self, loss: Any) -> Any:
        # The graph ends with the step; a copy for each micro-batch would take half a percent of a short one.
        return loss

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

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss = self.batch_loss(batch)
        arrays = self.jt.grad(loss, list(self.parameters.values()))
        return float(loss.numpy().item()), {name: each.numpy() for name, each in zip(self.parameters, arrays)}

    def gradient_arrays(self) -> dict[str, Array]:
        return {name: self._of_group(name, "grads").numpy() for name in self.places}

    def set_gradients(self, gradients: Mapping[str, Array]) -> None:
        for group, names in zip(self.optim.param_groups, self.optimizer.groups(self.parameters).values()):
            group["grads"] = [self.jt.array(gradients[name]).stop_grad() for name in names]
        self.optim.n_step += 1

    def apply(self, gradients: Mapping[str, Array]) -> None:
        super().apply(gradients)
        self.jt.sync_all()

    # -- the state ----------------------------------------------------------------------------------------------------

    def _of_group(self, name: str, key: str) -> Any:
        """An entry of the optimizer for a parameter. key: of the list in its group, such as that of the momenta."""
        group, place = self.places[name]
        return self.optim.param_groups[group][key][place]

    def _state(self, name: str) -> list[Any]:
        """The optimizer state of a parameter, in the order of Optimizer.state_names."""
        return [self._of_group(name, key) for key in self.optimizer.keys(self.STATE_NAMES)]

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        state = {name: [variable.numpy() for variable in self._state(name)] for name in self.parameters}
        return self.optim.n_step // self.counted, state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.optim.n_step = steps * self.counted
        for name in self.parameters:
            for variable, array in zip(self._state(name), state[name]):
                variable.update(self.jt.array(array).stop_grad())
        self.start_schedule(steps)

    def averages(self) -> dict[str, Array]:
        return {name: each.numpy() for name, each in self.averaged.items()}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        for name, array in averages.items():
            self.averaged[name].update(self.jt.array(array).stop_grad())
