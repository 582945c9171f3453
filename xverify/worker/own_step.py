"""The work of a worker whose model file makes its own training step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..framework.generators import Draws
from ..framework.own_mistake import OwnMistake
from ..framework.own_state import StateReader
from ..framework.own_step import OwnStep, Step, numbered, optimizers_by_name
from ..framework.structures import Natives
from ..messages import own_step as messages
from ..messages.own_step import OwnStepsTaken
from ..messages.training import TrainingPrepared
from ..verdict.own_step import START, StateEntry, state_file
from ..weights import npz
from ..weights.canonical import Array
from ..workload.ranks import rank_file
from .handlers import Group
from .state import State
from .timing import time_calls
from .training import labelled_batches


def named_batch(state: State, batch: tuple[Array, ...]) -> Natives:
    """A batch by the names of the spec, as the framework's own tensors. batch: the inputs, then the targets."""
    layouts = {**state.inputs, **state.targets}
    return {name: state.runner.to_native(array, layouts[name]) for name, array in zip(layouts, batch)}


class OwnStepSession(Group):
    """Handlers of requests about a user's own training step.

    mode: the mode in which it is timed. inputs: the file of the batches.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.mode = self.inputs = ""
        self.mistake: OwnMistake | None = None
        self.planted = ExitStack()  # what the mistake has changed

    def prepare(self, request: messages.PrepareOwnStep) -> TrainingPrepared:
        """Make the step in a mode, and time two calls."""
        state, asked = self.state, request.training
        state.context = nullcontext
        arrays = labelled_batches(state, asked.inputs)
        self.mode, self.inputs = asked.mode, asked.inputs
        dropout_disabled = state.trained.disable_dropout(state.model)
        apart = state.parallelize()
        begun = state.clock()
        step, _, _ = self._start(asked.mode)
        state.note_held()  # after train_state, which may broadcast them
        state.cases, state.call = [(named_batch(state, batch),) for batch in arrays], step
        state.blocking = state.framework.steps_block
        if asked.time_input:
            self._make_batch_in_call(arrays, step)
        losses = state.call(*state.cases[0])
        OwnStep.of(state.source).check(losses)
        state.runner.wait(losses)
        state.runner.wait(())
        first = state.clock() - begun
        if not asked.time_input and state.framework.replicas == 1 and self._changed(state.cases[0][0], arrays[0]):
            self._make_batch_in_call(arrays, step)
        second = time_calls(state, 0, 1)[0]
        return TrainingPrepared(first, second, asked.optimizer, (), tuple(dropout_disabled), apart)

    def _make_batch_in_call(self, arrays: list[tuple[Array, ...]], step: Step) -> None:
        """Let the timed calls make their native batch themselves."""
        self.state.cases, self.state.call = list(arrays), lambda *batch: step(named_batch(self.state, batch))

    def _changed(self, batch: Natives, arrays: tuple[Array, ...]) -> bool:
        """Whether a step has changed its batch, which it was given made of these arrays; it cannot be given this batch again."""
        layouts = {**self.state.inputs, **self.state.targets}
        now = {name: self.state.runner.to_numpy(tensor, layouts[name]) for name, tensor in batch.items()}
        differs = (not np.array_equal(now[name], array) for name, array in zip(layouts, arrays))
        new = named_batch(self.state, arrays)  # a new tensor of Jittor requires a gradient
        requires = [[getattr(each, "requires_grad", False) for each in some.values()] for some in (batch, new)]
        return requires[0] != requires[1] or any(differs)

    def take(self, request: messages.TakeOwnSteps) -> OwnStepsTaken:
        """Make a step from the weights of each file. The timed step then has the state that these steps leave.

        Where ranks are devices of this process, the steps are made once for each, to write what it has.
        """
        path, framework = Path(request.path), self.state.framework
        for rank in reversed(range(framework.replicas)):
            with framework.of_rank(rank):
                taken = self._take(replace(request, path=str(rank_file(path, rank))))
        return taken

    def _take(self, request: messages.TakeOwnSteps) -> OwnStepsTaken:
        state, framework = self.state, self.state.framework
        batches, draws = labelled_batches(state, self.inputs), Draws(state.source.folder)
        state.write_weights(state.model, npz.OnDisk(Path(request.weights[0])))
        numbers = self._numbers(request, draws)
        with numbers():
            step, optimizers, reader = self._start("eager" if request.watched else self.mode)
        held = list[tuple[StateEntry, ...]]()
        if not request.watched:
            npz.save_file(reader.read().arrays, state_file(Path(request.path), START))
        names = {id(optimizer): name for name, optimizer in optimizers.items()}
        losses, updated, products = list[dict[str, float]](), dict[str, str](), dict[str, int]()
        for number, file in enumerate(request.weights):
            state.write_weights(state.model, npz.OnDisk(Path(file)))
            batch = named_batch(state, batches[number % len(batches)])  # a new one: a step may change its batch
            with (
                numbers(),
                framework.watched_updates(state.model) if request.watched else nullcontext([]) as updates,
                framework.watched_products() if request.watched and not number else nullcontext(products) as products,
            ):
                returned = step(batch)
                framework.wait(returned)
                framework.wait(())
            losses.append({name: self._number(value) for name, value in returned.items()})
            if not request.watched:
                now = reader.read()
                held.append(now.entries)
                npz.save_file(now.arrays, state_file(Path(request.path), number))
            after = state.canonical_arrays(framework.save_weights(state.model))
            arrays = {f"{number}/weight/{name}": np.asarray(array, np.float32) for name, array in after.items()}
            gradients = [state.canonical_arrays(each.gradients) for each in updates]
            arrays |= {f"{number}/gradient/{key}": array for key, array in numbered(gradients).items()}
            for update, given in zip(updates, gradients):
                updated |= dict.fromkeys(given, names.get(id(update.optimizer), type(update.optimizer).__name__))
            npz.save_file(arrays, messages.step_file(request.path, number))
        drawn = draws.says() if request.watched and request.other_numbers else ""
        variants = tuple(framework.own_variants)
        shows = framework.shows_clipped
        return OwnStepsTaken(tuple(losses), updated, tuple(held), drawn, shows, variants, products)

    def _numbers(self, request: messages.TakeOwnSteps, draws: Draws) -> Callable[[], AbstractContextManager[None]]:
        """Makes the context of random numbers in which a step is made. draws: gets what is noted."""

        @contextmanager
        def noted() -> Iterator[None]:
            with draws.other_numbers(), self.state.framework.watched_draws(draws.note):
                yield

        if not request.other_numbers:
            return nullcontext
        return noted if request.watched else draws.other_numbers

    def loss_curve(self, request: messages.OwnLossCurve) -> tuple[dict[str, float], ...]:
        """Train freely, and return the losses of each step."""
        state, found = self.state, list[dict[str, float]]()
        batches = labelled_batches(state, self.inputs)
        state.write_weights(state.model, npz.OnDisk(Path(request.weights)))
        step, _, _ = self._start(self.mode)
        order = request.order or range(len(batches))
        while (
            len(found) < request.steps
            and (  # one of several ranks goes on, as in ``TrainingSession.loss_curve``
                state.plan or all(math.isfinite(loss) for losses in found[-1:] for loss in losses.values())
            )
        ):
            returned = step(named_batch(state, batches[order[len(found) % len(order)]]))
            state.framework.wait(returned)
            found.append({name: self._number(value) for name, value in returned.items()})
        return tuple(found)

    def _start(self, mode: str) -> tuple[Step, Natives, StateReader]:
        """(the step in a mode with a new state, the optimizers of this state by name, what reads this state)."""
        state = self.state
        self.planted.close()
        state.framework.train(state.model)
        with state.framework.making():
            made, step = OwnStep.of(state.source).start(state.framework.wrapped(state.model))
        optimizers = optimizers_by_name(made, state.model, state.framework.is_optimizer)
        if self.mistake is not None:
            own = {to: name for name, to in state.canonical_names.items()}
            mistake = replace(self.mistake, parameter=own.get(self.mistake.parameter, ""))
            self.planted.enter_context(state.framework.own_mistake(mistake, state.model, optimizers))
        reader = StateReader(state.framework, state.model, made, state.named)
        return state.framework.own_step(step, mode), optimizers, reader

    def plant(self, request: messages.PlantOwnMistake) -> None:
        """Make a mistake in the steps to come. Raises Unsupported where the framework cannot make it."""
        self.mistake = request.mistake
        self._start(self.mode)

    def _number(self, value: Any) -> float:
        """A loss as a number. value: a native tensor of one value, or a number."""
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, np.generic):  # as train_on_batch of Keras returns it
            return float(value.item())
        return float(np.asarray(self.state.runner.to_numpy(value, None)).reshape(()))
