"""Training with a recipe on JAX: a step computes the gradients of all micro-batches, and makes one update of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.training import Used
from xverify.frameworks.jax.optax_recipe import EquivalentRecipe, OptaxRecipe, RecipeSteps
from xverify.frameworks.jax.training import Around, Function, Learner, LossOf, axes_of, plainly
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, micro_batches


class Partial(Function):
    """A function some of whose weights are not trained. They are the last of its other variables.

    freezes: whether the weight of this name is one of them.
    """

    def __init__(self, function: Function, freezes: Callable[[str], bool]) -> None:
        self.function = function
        self.trained = [each for each in function.trained if not freezes(each.name)]
        self.frozen = [freezes(each.name) for each in function.trained for _ in each.parts]

    def present(self) -> tuple[list[Any], list[Any]]:
        trained, others = self.function.present()
        return self._chosen(trained, False), [*others, *self._chosen(trained, True)]

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        self.function.write(*self._whole(trained, others))

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        every, own = self._whole(trained, others)
        outputs, own = self.function(every, own, inputs, around)
        return outputs, [*own, *self._chosen(every, True)]

    def _chosen(self, values: Sequence[Any], frozen: bool) -> list[Any]:
        return [value for value, each in zip(values, self.frozen) if each == frozen]

    def _whole(self, trained: Sequence[Any], others: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What the function itself takes: (all its weights, its other variables)."""
        count = len(others) - sum(self.frozen)
        of_kind = {False: iter(trained), True: iter(others[count:])}
        return [next(of_kind[each]) for each in self.frozen], list(others[:count])


class _State(NamedTuple):
    """The state of the optimizer, and the averages of the variables; () without an average. first: no update was made yet."""

    optimizer: Any
    averages: Sequence[Any]
    first: Any


class RecipeLearner(Learner):
    """Training with the optimizer that ``steps`` is, and with its recipe."""

    optim: RecipeSteps

    def __init__(self, function: Function, steps: RecipeSteps, wrap: Callable[[Any], Any] | None, loss: LossOf) -> None:
        self.recipe = steps.optimizer.recipe
        super().__init__(function, steps, wrap, loss)
        self.state = self._state(self.state, function.present()[0], True)
        self.wrapped_observed: Any = wrap(self._observed) if wrap else self._observed

    def _state(self, optimizer: Any, averages: Sequence[Any], first: bool) -> _State:
        kept = list(averages) if self.recipe.average is not None else ()
        return _State(optimizer, kept, self.jax.numpy.asarray(first))

    def _parts(self, trained: Sequence[Any], others: Sequence[Any], *batch: Any) -> tuple[Any, list[Any], Any]:
        """The loss, the gradients of every micro-batch, and the other variables after the last of them."""
        losses, gradients = [], []
        for part in micro_batches(batch, self.recipe.accumulate):
            (loss, others), found = self.gradient(trained, others, *part)
            losses.append(loss)
            gradients.append(found)
        return sum(losses[1:], losses[0]) / len(losses), gradients, others

    def _step(self, trained: Sequence[Any], others: Sequence[Any], state: Any, *batch: Any) -> tuple[Any, ...]:
        loss, parts, others = self._parts(trained, others, *batch)
        return loss, *self._update(parts, state, trained), others

    def _update(self, parts: Sequence[Any], state: _State, trained: Sequence[Any]) -> tuple[list[Any], _State]:
        changed, optimizer = self.optim.apply_parts(parts, state.optimizer, trained)
        averages = [self._averaged(state.first, *each) for each in zip(state.averages, changed)]
        return changed, self._state(optimizer, averages, False)

    def _averaged(self, first: Any, average: Any, weight: Any) -> Any:
        assert self.recipe.average is not None
        return self.jax.numpy.where(first, weight, averaged(self.recipe.average, average, weight))

    def _observed(self, trained: Sequence[Any], others: Sequence[Any], state: _State, *batch: Any) -> Any:
        _, parts, _ = self._parts(trained, others, *batch)
        return tuple(self.optim.observed(parts, state.optimizer, trained))

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

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        fields = [self.function.by_name(values) for values in self.optim.read(self.state.optimizer)]
        return self.steps, {name: [field[name] for field in fields] for name in self.names}

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        super().set_optimizer_state(steps, state)
        self.state = self._state(self.state, self.function.present()[0], not steps)

    def averages(self) -> dict[str, Array]:
        return self.function.by_name(self.state.averages) if self.state.averages else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        self.state = self._state(self.state.optimizer, self._native(averages), not steps)


def recipe_learner(
    function: Function,
    fused: Mapping[str, tuple[str, ...]],
    wrap: Callable[[Any], Any] | None,
    optimizer: Optimizer,
    match: bool,
    loss: LossOf,
) -> RecipeLearner:
    """A model with its optimizer and recipe.

    function: the model. fused: see Framework.fused_parameters. The other arguments are those of ``Framework.training`` and of
    ``Learner``.
    """
    partial = Partial(function, optimizer.recipe.freezes)
    sums = [len(fused.get(each.name, (each.name,))) for each in partial.trained for _ in each.parts]
    axes = axes_of(partial, fused, optimizer, match)
    steps: RecipeSteps
    trained = partial.trained
    steps = EquivalentRecipe(optimizer, sums, trained, axes) if match else OptaxRecipe(optimizer, trained, axes)
    return RecipeLearner(partial, steps, wrap, loss)
