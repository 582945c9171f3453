"""Training on JAX: a step computes the gradients of all micro-batches, and makes one update of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.training import Training, Used
from xverify.frameworks.jax.function import Function, LossOf, Partial
from xverify.frameworks.jax.optax import Equivalent, Optax, Steps
from xverify.frameworks.jax.optax_adafactor import Axes
from xverify.weights.flax_layout import split
from xverify.workload.adafactor import check_no_sums
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, mean_of_parts, micro_batches


class _State(NamedTuple):
    """The state of a learner.

    optimizer: its state. averages: of the variables. first: whether no update was made yet. Both are () without an average.
    """

    optimizer: Any
    averages: Sequence[Any] = ()
    first: Any = ()


class Learner(Training):
    """Training with the optimizer that ``steps`` is, and with its recipe.

    wrap: compiles a function; None: it runs as it is. loss: see ``Framework.loss``.
    """

    def __init__(self, function: Function, steps: Steps, wrap: Callable[[Any], Any] | None, loss: LossOf) -> None:
        import jax

        self.jax, self.function, self.optim, self.loss_of = jax, function, steps, loss
        self.optimizer, self.factored = steps.optimizer, steps.factored
        self.recipe = steps.optimizer.recipe
        self.names = [each.name for each in function.trained]
        present = function.present()[0]
        self.state = self._state(steps.begin(present), present, True)
        self.steps = 0
        self.gradient = jax.value_and_grad(self._loss, has_aux=True)
        self.compiles = wrap is not None
        self.wrapped_step: Any = wrap(self._step) if wrap else self._step
        self.wrapped_gradient: Any = wrap(self.gradient) if wrap else self.gradient
        self.wrapped_observed: Any = wrap(self._observed) if wrap else self._observed

    def _state(self, optimizer: Any, averages: Sequence[Any], first: bool) -> _State:
        if self.recipe.average is None:
            return _State(optimizer)
        return _State(optimizer, list(averages), self.jax.numpy.asarray(first))

    # -- the step -----------------------------------------------------------------------------------------------------

    def _loss(self, trained: Sequence[Any], others: Sequence[Any], *batch: Any) -> tuple[Any, list[Any]]:
        outputs, others = self.function(trained, others, batch[:-1])
        return self.loss_of(outputs, batch[-1]), others

    def _parts(self, trained: Sequence[Any], others: Sequence[Any], *batch: Any) -> tuple[Any, list[Any], Any]:
        """The loss, the gradients of every micro-batch, and the other variables after the last of them."""
        losses, gradients = [], []
        for part in micro_batches(batch, self.recipe.accumulate):
            (loss, others), of_part = self.gradient(trained, others, *part)
            losses.append([loss])
            gradients.append(of_part)
        return mean_of_parts(losses)[0], gradients, others

    def _step(self, trained: Sequence[Any], others: Sequence[Any], state: _State, *batch: Any) -> tuple[Any, ...]:
        loss, parts, others = self._parts(trained, others, *batch)
        return loss, *self._update(parts, state, trained), others

    def _update(self, parts: Sequence[Any], state: _State, trained: Sequence[Any]) -> tuple[list[Any], _State]:
        changed, optimizer = self.optim.apply(parts, state.optimizer, trained)
        averages = [self._averaged(state.first, *each) for each in zip(state.averages, changed)]
        return changed, self._state(optimizer, averages, False)

    def _averaged(self, first: Any, average: Any, weight: Any) -> Any:
        assert self.recipe.average is not None
        return self.jax.numpy.where(first, weight, averaged(self.recipe.average, average, weight))

    def _observed(self, trained: Sequence[Any], others: Sequence[Any], state: _State, *batch: Any) -> Any:
        _, parts, _ = self._parts(trained, others, *batch)
        return tuple(self.optim.observed(parts, state.optimizer, trained))

    def step(self, *batch: Any) -> Any:
        loss, trained, self.state, others = self.wrapped_step(*self.function.present(), self.state, *batch)
        self.function.write(trained, others)
        self.steps += 1
        if (
            not self.compiles
        ):  # the loss is then the output of one operation among many, and the others are not waited for
            self.jax.block_until_ready((trained, self.state, others))
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        (loss, _), of_variables = self.wrapped_gradient(*self.function.present(), *batch)
        return float(loss), self.function.by_name(of_variables)

    def observe(self, *batch: Any) -> Used:
        accumulated, clipped, rates = self.wrapped_observed(*self.function.present(), self.state, *batch)
        self.step(*batch)
        used, place = Used(self.function.by_name(accumulated), self.function.by_name(clipped)), 0
        for each in self.function.trained:
            used.rates[each.name] = float(np.float32(rates[place]))
            used.decays[each.name] = self.optim.settings[place].weight_decay
            place += len(each.parts)
        return used

    def apply(self, gradients: Mapping[str, Array]) -> None:
        trained, others = self.function.present()
        parts = [self._native(gradients)] * self.recipe.accumulate
        changed, self.state = self._update(parts, self.state, trained)
        self.function.write(changed, others)
        self.steps += 1

    def graphs(self) -> int | None:
        """The number of graphs that were compiled for a step; None when the mode makes none."""
        return int(self.wrapped_step._cache_size()) if self.compiles else None

    # -- the state ----------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        fields = [self.function.by_name(values) for values in self.optim.read(self.state.optimizer)]
        return self.steps, {name: [field[name] for field in fields] for name in self.names}

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.steps = steps
        count = len(self.optimizer.state_names)
        fields = [self._native({name: arrays[index] for name, arrays in state.items()}) for index in range(count)]
        present = self.function.present()[0]
        self.state = self._state(self.optim.resume(present, steps, fields), present, not steps)

    def averages(self) -> dict[str, Array]:
        return self.function.by_name(self.state.averages) if self.state.averages else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        self.state = self._state(self.state.optimizer, self._native(averages), not steps)

    def _native(self, arrays: Mapping[str, Array]) -> list[Any]:
        """One array for each variable. arrays: canonical, by the names of weights."""
        shapes = iter([tuple(value.shape) for value in self.function.present()[0]])
        return [
            self.jax.numpy.asarray(array)
            for each in self.function.trained
            for array in split(each, arrays[each.name], [next(shapes) for _ in each.parts])
        ]


def learner(
    function: Function,
    fused: Mapping[str, tuple[str, ...]],
    wrap: Callable[[Any], Any] | None,
    optimizer: Optimizer,
    match: bool,
    loss: LossOf,
) -> Learner:
    """A model with its optimizer and recipe.

    function: the model. fused: see Framework.fused_parameters. The other arguments are those of ``Framework.training`` and of
    ``Learner``.
    """
    if optimizer.recipe.frozen:
        function = Partial(function, optimizer.recipe.freezes)
    trained, axes = function.trained, None
    if optimizer.name == "adafactor":
        if match:
            check_no_sums(fused)
        axes = Axes(trained, [tuple(value.shape) for value in function.present()[0]])
    sums = [len(fused.get(each.name, (each.name,))) for each in trained for _ in each.parts]
    steps = Equivalent(optimizer, trained, sums, axes) if match else Optax(optimizer, trained, axes)
    return Learner(function, steps, wrap, loss)


def cross_entropy(logits: Any, target: Any) -> Any:
    """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()
