"""The work of a worker that trains its model.

Gradients, weights and optimizer state are in array files, with canonical names and in canonical layout.
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Failed, Unsupported
from ..framework import dropout
from ..framework.capture import LOWER, TrainingRecorder
from ..framework.ranks import DropoutsDrawn, WeightsHeld
from ..framework.training import Training
from ..messages import training as messages
from ..messages.training import (
    DropoutsListed,
    StepTaken,
    TrainingCaptured,
    TrainingPrepared,
    TrainingState,
)
from ..weights import canonical, npz
from ..weights.canonical import Array
from ..workload.adafactor import refactored
from ..workload.keys import average_key, case_key, state_key
from ..workload.optimizers import Optimizer
from ..workload.ranks import rank_file, shard_file
from ..workload.recipe import micro_batches
from .arranged import ArrangedTraining, CallSplitter, recipe_names
from .handlers import Group
from .scaling import scaled_steps
from .state import State
from .timing import time_calls

MARGIN = 4.0  # between the scale of the loss in a step and in a pass whose layers are captured


def labelled_batches(state: State, path: str) -> list[tuple[Array, ...]]:
    """The batches of an array file: the inputs, then the targets; for replicas, each as the list of their parts."""
    count, names = state.framework.replicas, [*state.inputs, *state.targets]
    files = [Path(path)] if count == 1 else [shard_file(path, rank) for rank in range(count)]
    arrays = [npz.load_file(each) for each in files]

    def array(key: str) -> Any:
        return arrays[0][key] if count == 1 else [each[key] for each in arrays]

    return [tuple(array(case_key(case, name)) for name in names) for case in range(len(arrays[0]) // len(names))]


def native_batch(state: State, batch: Sequence[Array]) -> tuple[Any, ...]:
    """A batch as the framework's own tensors; see framework.training.Batch."""
    layouts = [*state.inputs.values(), *state.targets.values()]
    tensors = [state.runner.to_native(array, layout) for array, layout in zip(batch, layouts)]
    inputs, targets = tensors[: len(state.inputs)], tensors[len(state.inputs) :]
    return *inputs, targets[0] if state.framework.setup.objective is None else dict(zip(state.targets, targets))


class TrainingSession(Group):
    """Handlers of requests about a model that is trained.

    learner: the model with its optimizer; ``PrepareTraining`` makes it.
    batches: the batches for training, as native tensors.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.learner: Training
        self.batches: list[tuple[Any, ...]] = []
        self.dropouts = DropoutsListed((), ())
        self.drawn = DropoutsDrawn()

    def join(self, request: messages.JoinRanks) -> None:
        """Meet the other ranks. Raises Failed where this machine does not see the files of the run."""
        if not Path(request.folder).is_dir():
            raise Failed(
                f"{platform.node()} does not see {request.folder}: set TMPDIR to a folder on a file system that all machines share"
            )
        self.state.framework.join(
            request.rank, request.count, request.plan, request.meeting, request.seconds, request.shares
        )
        self.state.plan = request.plan

    def prepare(self, request: messages.PrepareTraining) -> TrainingPrepared:
        """Prepare the model for training in a mode, and time two steps."""
        state, framework = self.state, self.state.trained
        state.context = nullcontext
        arrays = labelled_batches(state, request.inputs)
        self.batches = [native_batch(state, batch) for batch in arrays]
        if request.dropout:
            weighted = {name.rpartition(".")[0] for name in state.canonical_names.values()}
            layers, calls, functions = dropout.examine(
                framework, state.model, self.batches[0][:-1], self._layer_names(), weighted
            )
            self.dropouts = DropoutsListed(tuple(layers), tuple(calls), tuple(dict.fromkeys(functions)))
        rates = framework.dropout_rates(state.model) if state.plan else {}
        dropout_disabled = framework.disable_dropout(state.model)
        if request.plant:
            from .mistakes import IN_MODEL

            IN_MODEL[request.plant](each for parts in framework.layers(state.model).values() for each in parts)
        apart = state.parallelize()
        state.note_held()
        optimizer = self._optimizer(request.optimizer)
        framework.set_up(replace(framework.setup, precision=optimizer.recipe.precision))
        start = state.clock()
        self.learner = framework.training(state.model, request.mode, self.batches[0], optimizer, request.match)
        if state.arrangement:
            self.learner = ArrangedTraining(self.learner, state.arrangement)
        if optimizer.recipe.scales:
            self._settle_scale()
        state.cases, state.call = self.batches, self.learner.step
        state.blocking = state.framework.steps_block
        if request.time_input:
            step = self.learner.step
            state.cases, state.call = list(arrays), lambda *batch: step(*native_batch(state, batch))
        time_calls(state, 0, 1)
        first = state.clock() - start
        if rates:
            self.drawn = framework.draw_dropouts(state.model, self.batches[0][:-1], rates)
        return TrainingPrepared(
            first,
            time_calls(state, 0, 1)[0],
            self.learner.optimizer,
            tuple(state.canonical_names[name] for name in self.learner.names),
            tuple(dropout_disabled),
            apart,
        )

    def _settle_scale(self) -> None:
        """Let the learner find a scale of the loss with which the gradients of every batch are finite."""
        for batch in self.batches:
            self.learner.gradients(*batch)
        # The layers are captured on a part of a batch, whose mean has larger gradients.
        framework, scale = self.state.framework, self.learner.scaler_state()[0] / MARGIN
        framework.set_up(replace(framework.setup, loss_scale=scale))

    def _optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The settings with this framework's names in the place of patterns. Raises Unsupported when it takes no recipe."""
        state, recipe = self.state, optimizer.recipe
        if recipe.is_mixed and recipe.precision not in state.framework.mixed:
            raise Unsupported(
                f"training with {state.runner.name} is compared in float32 only; the run has the precision {recipe.precision}"
                + f". {state.framework.not_mixed}" * bool(state.framework.not_mixed)
            )
        if not state.framework.takes_recipe and (recipe or recipe.amsgrad):
            what = ", ".join(["AMSGrad"] * recipe.amsgrad + recipe.says())
            raise Unsupported(
                f"training with {state.runner.name} takes plain optimizers only, with or without "
                f"--match-optimizer; the run has: {what}"
            )
        if not recipe:
            return optimizer
        fused, names = state.fused_parameters, recipe_names(recipe, state.arrangement, state.canonical_names)
        return replace(
            optimizer, recipe=recipe.named({own: fused.get(name, (name,))[0] for own, name in names.items()})
        )

    def set_state(self, request: messages.SetState) -> None:
        """Set weights, running statistics and optimizer state."""
        self.set(request.state)

    def step(self, request: messages.TrainingStep) -> StepTaken:
        """Compute the gradients, and make one step with the timed callable; both in the same mode and from the same state."""
        state = self.state
        batch, shown = self.batches[request.case], list[dict[str, Array]]()
        for rank in range(state.framework.replicas):
            with state.framework.of_rank(rank):
                self.set(request.state)
                loss, gradients = self.learner.gradients(*batch)
                shown.append({f"gradient/{state.canonical_names[name]}": array for name, array in gradients.items()})
        if self.learner.optimizer.recipe:
            shown[0] |= self._used(request.state, batch)
        self.set(request.state)
        step_loss = self._loss(state.call(*state.cases[request.case]))
        state.runner.wait(())
        for rank, arrays in enumerate(shown):
            path = rank_file(request.path, rank)
            path.unlink(missing_ok=True)  # a process that has mapped the file of the previous step keeps its content
            with state.framework.of_rank(rank):
                npz.save_file({**arrays, **self._after_step()}, path)
        sparse = tuple(state.canonical_names[name] for name in self.learner.sparse)
        scaling = scaled_steps(self, request) if request.scaling and self.learner.optimizer.recipe.scales else None
        return StepTaken(loss, step_loss, sparse, self._master(), scaling)

    def _master(self) -> dict[str, int]:
        """The dtypes of the weights that a step in mixed precision updates, and the number of weights of each."""
        if not self.learner.optimizer.recipe.is_mixed:
            return {}
        found = self.state.framework.precisions(self.state.model)
        return dict(Counter(found[name] for name in self.learner.names if name in found))

    def _used(self, begin: TrainingState, batch: tuple[Any, ...]) -> dict[str, Array]:
        """What a step from this state uses of the recipe: see the request."""
        names, recipe = self.state.canonical_names, self.learner.optimizer.recipe
        arrays: dict[str, Array] = {}
        for index, part in enumerate(micro_batches(batch, recipe.accumulate) if recipe.accumulate > 1 else ()):
            self.set(begin)
            found = self.learner.gradients(*part)[1]
            arrays |= {f"part/{index}/{names[name]}": array for name, array in found.items()}
        self.set(begin)
        used = self.learner.observe(*batch)
        for what, values in (("accumulated", used.accumulated), ("clipped", used.clipped)):
            arrays |= {f"{what}/{names[name]}": array for name, array in values.items()}
        for what, numbers in (("rate", used.rates), ("decay", used.decays)):
            arrays |= {f"{what}/{names[name]}": np.asarray(number, np.float64) for name, number in numbers.items()}
        return arrays

    def apply_gradients(self, request: messages.ApplyGradients) -> None:
        """Make one update with given gradients."""
        state = self.state
        self.set(request.state)
        arrays = npz.load_file(Path(request.gradients))
        self.learner.apply({name: arrays[state.canonical_names[name]] for name in self.learner.names})
        state.runner.wait(())
        npz.save_file(self._after_step(), Path(request.path))

    def plant_mistake(self, request: messages.PlantMistake) -> None:
        """Make the training faulty permanently."""
        from .mistakes import PLANTS

        PLANTS[request.plant](self.learner.inner if isinstance(self.learner, ArrangedTraining) else self.learner)
        self.state.call = self.learner.step

    def loss_curve(self, request: messages.LossCurve) -> tuple[float, ...]:
        """Make steps from a state, and return their losses."""
        cases, losses = self.state.cases, list[float]()
        order = request.order or range(len(cases))
        self.set(request.state)
        # One of several ranks goes on: the others may not see that its loss is not finite.
        while len(losses) < request.steps and (not losses or self.state.plan or math.isfinite(losses[-1])):
            losses.append(self._loss(self.state.call(*cases[order[len(losses) % len(order)]])))
        return tuple(losses)

    def trajectory(self, request: messages.Trajectory) -> tuple[TrainingState, ...]:
        """Train, and save the requested states."""
        cases = self.state.cases
        self.set(request.state)
        states = []
        for step in range(max(request.at) + 1):
            if step in request.at:
                files = (str(Path(request.folder) / f"{what}-{step}.npz") for what in ("weights", "optimizer_state"))
                states.append(self._save(*files))
            if step < max(request.at):
                self.state.runner.wait(self.state.call(*cases[step % len(cases)]))
        return tuple(states)

    def capture(self, request: messages.CaptureTraining) -> TrainingCaptured:
        """Capture one forward and backward pass, and write outputs.npz and gradients.npz beside the arrays of the layers."""
        state, framework, folder = self.state, self.state.framework, Path(request.folder)
        self.set(request.state)
        recorder = TrainingRecorder(folder, self._plain_array, framework.alias)
        wanted = set(request.wanted)
        names = {
            name: to
            for name, to in self._layer_names().items()
            if to in wanted or state.channels.made_by(name) & wanted
        }
        batch = native_batch(state, labelled_batches(state, request.inputs)[0])
        with self.learner.unfrozen():
            outputs, loss, gradients = framework.capture_training(state.model, batch, names, recorder)
        npz.save_file(
            {key: widened(each) for key, each in state.output_arrays(0, outputs).items()}, folder / "outputs.npz"
        )
        npz.save_file(state.canonical_arrays(gradients), folder / "gradients.npz")
        calls = CallSplitter(state.channels, folder, framework.channels_last).split(recorder.records)
        return TrainingCaptured(tuple(calls), framework.channels_last, loss, framework.setup.loss_scale)

    def list_dropouts(self, request: messages.ListDropouts) -> DropoutsListed:
        """The dropout layers that were found when training was prepared."""
        return self.dropouts

    def draw_dropouts(self, request: messages.DrawDropouts) -> DropoutsDrawn:
        """What the dropout layers of this rank drew when training was prepared."""
        return self.drawn

    def weights_held(self, request: messages.ListWeightsHeld) -> WeightsHeld:
        """What this rank had of the weights when training was prepared."""
        return self.state.held

    def masked_pass(self, request: messages.MaskedPass) -> float:
        """Make one forward and backward pass with given dropout masks."""
        state = self.state
        self.set(request.state)
        masks = npz.load_file(Path(request.masks))
        with self.learner.unfrozen():
            found = dropout.masked_backward(
                state.framework, state.model, self.batches[request.case], self._layer_names(), masks
            )
        own = state.canonical_arrays(found.parameter_gradients)
        npz.save_file({f"gradient/{name}": array for name, array in own.items()}, Path(request.path))
        return found.loss

    # -- shared -------------------------------------------------------------------------------------------------------

    def _plain_array(self, value: Any) -> Array | None:
        """See State.plain_array."""
        array = self.state.plain_array(value)
        return None if array is None else widened(array)

    def _layer_names(self) -> dict[str, str]:
        """Native -> canonical name of every layer."""
        return self.state.layer_names()

    def set(self, begin: TrainingState) -> None:
        """Set weights, running statistics and optimizer state."""
        state, learner = self.state, self.learner
        state.write_weights(state.model, npz.OnDisk(Path(begin.weights)))
        arrays = npz.load_file(Path(begin.optimizer_state)) if begin.optimizer_state else {}
        count = len(learner.optimizer.state_names)
        values = {}
        for own in learner.names:
            name = state.canonical_names[own]
            # Parameters that are stored as their sum have the same gradient, and therefore the same optimizer state.
            stored = name if state_key(name, 0) in arrays else state.fused_parameters.get(name, (name,))[0]
            keys = [state_key(stored, index) for index in range(count)]
            values[own] = [arrays[key] if key in arrays else np.zeros(state.shapes[name], np.float32) for key in keys]
            if own in learner.factored:
                values[own] = refactored(values[own], learner.factored[own])
        learner.set_optimizer_state(begin.steps, values)
        if learner.optimizer.recipe.average is not None:
            learner.set_averages(begin.steps, self._averages(arrays))

    def _averages(self, found: Mapping[str, Array]) -> dict[str, Array]:
        """The averages of a state, by the framework's own names; where there is none, the present weight."""
        own, present = self.state.canonical_names, self.weights_now()
        averages = {}
        for name in self.learner.names:
            parts = [average_key(each) for each in self.state.fused_parameters.get(own[name], (own[name],))]
            known = all(key in found for key in parts)
            averages[name] = np.sum([found[key] for key in parts], axis=0) if known else present[own[name]]
        return averages

    def _save(self, weights: str, optimizer_state: str) -> TrainingState:
        npz.save_file(self.state.read_weights(self.state.model), Path(weights))
        steps, found = self._optimizer_state()
        npz.save_file(found, Path(optimizer_state))
        return TrainingState(weights, optimizer_state, steps)

    def _after_step(self) -> dict[str, Array]:
        """The present weights and optimizer state: "weight/name", "state/name/index", and "axes/name" (Training.factored)."""
        _, optimizer_state = self._optimizer_state()
        arrays = {f"weight/{name}": array for name, array in self.weights_now().items()}
        names = self.state.canonical_names
        arrays |= {f"axes/{names[own]}": np.array(axes, np.int32) for own, axes in self.learner.factored.items()}
        return {**arrays, **{f"state/{key}": array for key, array in optimizer_state.items()}}

    def weights_now(self) -> canonical.Arrays:
        """The weights after a step. They may have any value: the report shows a step that diverged, so it is no error here."""
        own = self.state.framework.save_weights(self.state.model)
        return {name: np.asarray(array, np.float32) for name, array in self.state.canonical_arrays(own).items()}

    def _optimizer_state(self) -> tuple[int, dict[str, Array]]:
        steps, found = self.learner.optimizer_state()
        names = self.state.canonical_names
        averages = {average_key(names[name]): array for name, array in self.learner.averages().items()}
        return steps, averages | {
            state_key(names[name], index): array for name, arrays in found.items() for index, array in enumerate(arrays)
        }

    def _loss(self, loss: Any) -> float:
        return float(np.asarray(self.state.runner.to_numpy(loss, None)).reshape(()))


def widened(array: Array) -> Array:
    """An array of bfloat16 or float16 in float32, which holds all their values; any other array as it is."""
    return array.astype(np.float32) if array.dtype.name in LOWER else array
