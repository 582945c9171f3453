"""What a worker is asked when a model is trained: operations of the session, beside those of ``worker``.

A state is what a step begins with: {"weights": file, "optimizer_state": file, "steps": how many were made}. Slots are keyed
"name/index" in the order of Optimizer.state_names, names and layout canonical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..framework.adapter import Framework
from ..framework.capture import TrainingRecorder
from ..weights import canonical, npz
from ..weights.names import rename_layers
from ..workload.datasets import TARGET
from ..workload.keys import case_key, state_key
from ..workload.optimizers import Optimizer

State = dict[str, Any]


class Learning:
    """Operations of worker.Session, whose attributes these are."""

    framework: Framework
    model: Any
    call: Callable[..., Any]
    cases: list[tuple[Any, ...]]
    context: Callable[[], AbstractContextManager[Any]]
    inputs: dict[str, str | None]
    outputs: dict[str, str | None]
    names: dict[str, str]
    clock: Callable[[], float]
    canonical_names: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    fused_parameters: Mapping[str, tuple[str, ...]]
    _block: Callable[[int, int], tuple[float, Any]]
    _write: Callable[[Any, canonical.Arrays], None]
    _read: Callable[[Any], canonical.Arrays]
    _plain: Callable[[Any], np.ndarray | None]
    _arrays: Callable[[int, Any], dict[str, np.ndarray]]
    _models: Callable[[str, int], Any]

    def do_learn(
        self, inputs: str, mode: str, optimizer: dict[str, Any], match: bool, time_input: bool = False
    ) -> dict[str, Any]:
        """Make the model learn in this mode, and make two steps, each on the clock. time_input: converting the batch counts."""
        self.context = nullcontext
        arrays = self._batches(inputs)
        layouts = [*self.inputs.values(), None]

        def native(batch: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
            return tuple(self.framework.to_native(array, layout) for array, layout in zip(batch, layouts))

        self.batches = [native(batch) for batch in arrays]
        held = self.framework.disable_dropout(self.model)
        start = self.clock()
        self.learner = self.framework.training(self.model, mode, self.batches[0], Optimizer.from_dict(optimizer), match)
        self.cases, self.call = self.batches, self.learner.step
        if time_input:
            step = self.learner.step
            self.cases, self.call = arrays, lambda *batch: step(*native(batch))
        self._block(0, 1)
        first = self.clock() - start
        return {
            "first_step_seconds": first,
            "second_step_seconds": self._block(0, 1)[0],
            "optimizer": self.learner.optimizer.to_dict(),
            "names": [self.canonical_names[name] for name in self.learner.names],
            "held": held,
        }

    def do_sync(self, state: State) -> None:
        """Take these weights, running statistics and optimizer_state."""
        self._write(self.model, npz.load_file(Path(state["weights"])))
        found = npz.load_file(Path(state["optimizer_state"])) if state["optimizer_state"] else {}
        optimizer_state = {}
        for own in self.learner.names:
            name = self.canonical_names[own]
            # Of parameters that are stored as their sum, all have the same gradient, and so the same optimizer_state.
            stored = name if state_key(name, 0) in found else self.fused_parameters.get(name, (name,))[0]
            count = len(self.learner.optimizer.state_names)
            keys = [state_key(stored, index) for index in range(count)]
            optimizer_state[own] = [found[key] for key in keys] if found else self._zeros(own, count)
        self.learner.set_optimizer_state(state["steps"], optimizer_state)

    def do_state(self, weights: str, optimizer_state: str) -> State:
        """Write down what the next step begins with."""
        npz.save_file(self._read(self.model), Path(weights))
        steps, found = self._optimizer_state()
        npz.save_file(found, Path(optimizer_state))
        return {"weights": weights, "optimizer_state": optimizer_state, "steps": steps}

    def do_training_step(self, state: State, case: int, path: str) -> dict[str, Any]:
        """The gradients and one step from this state, as "gradient/name", "weight/name" and "state/name/index" in a file.

        The step is the very callable that is timed; the gradients come from the same mode, from the same state.
        """
        self.do_sync(state)
        loss, gradients = self.learner.gradients(*self.batches[case])
        self.do_sync(state)
        stepped = self._loss(self.call(*self.cases[case]))
        self.framework.wait(())
        _, optimizer_state = self._optimizer_state()
        arrays = {f"gradient/{self.canonical_names[name]}": array for name, array in gradients.items()}
        arrays |= {f"weight/{name}": array for name, array in self._weights_now().items()}
        Path(path).unlink(missing_ok=True)  # whoever has the file of the step before mapped keeps it
        npz.save_file({**arrays, **{f"state/{key}": array for key, array in optimizer_state.items()}}, Path(path))
        sparse = [self.canonical_names[name] for name in self.learner.sparse]
        return {"loss": loss, "step_loss": stepped, "sparse": sparse}

    def do_apply(self, state: State, gradients: str, path: str) -> None:
        """The optimizer alone: one update from this state by these gradients; "weight/name" and "state/name/index" in a file."""
        self.do_sync(state)
        found = npz.load_file(Path(gradients))
        self.learner.apply({name: found[self.canonical_names[name]] for name in self.learner.names})
        self.framework.wait(())
        _, optimizer_state = self._optimizer_state()
        arrays = {f"weight/{name}": array for name, array in self._weights_now().items()}
        npz.save_file({**arrays, **{f"state/{key}": array for key, array in optimizer_state.items()}}, Path(path))

    def do_mistake(self, plant: str) -> None:
        """Make the learner faulty, for good: see mistakes.PLANTS."""
        from ..mutation import mistakes

        mistakes.PLANTS[plant](self.learner)
        self.call = self.learner.step

    def do_curve(self, state: State, steps: int) -> dict[str, Any]:
        """The losses of so many steps from this state, one input case after another; it ends at one that is not finite."""
        self.do_sync(state)
        losses: list[float] = []
        while len(losses) < steps and (not losses or math.isfinite(losses[-1])):
            losses.append(self._loss(self.call(*self.cases[len(losses) % len(self.cases)])))
        return {"losses": losses}

    def do_trajectory(self, state: State, at: list[int], folder: str) -> dict[str, Any]:
        """Train from this state, and keep the states before the steps of these numbers."""
        self.do_sync(state)
        states = []
        for step in range(max(at) + 1):
            if step in at:
                names = (str(Path(folder) / f"{what}-{step}.npz") for what in ("weights", "optimizer_state"))
                states.append(self.do_state(*names))
            if step < max(at):
                self.framework.wait(self.call(*self.cases[step % len(self.cases)]))
        return {"states": states}

    def do_learn_capture(self, state: State, inputs: str, folder: str, wanted: list[str]) -> dict[str, Any]:
        """A forward and a backward pass on the first case of these inputs: as ``capture``, with gradients.npz."""
        self.do_sync(state)
        recorder = TrainingRecorder(Path(folder), self._plain, self.framework.alias)
        known = rename_layers(self.framework.layers(self.model), self.names)
        names = {name: to for name, to in known.items() if to in set(wanted)}
        batch = tuple(
            self.framework.to_native(array, layout)
            for array, layout in zip(self._batches(inputs)[0], [*self.inputs.values(), None])
        )
        outputs, loss, gradients = self.framework.capture_training(self.model, batch, names, recorder)
        npz.save_file(self._arrays(0, outputs), Path(folder) / "outputs.npz")
        own = {self.canonical_names[name]: array for name, array in gradients.items()}
        npz.save_file(own, Path(folder) / "gradients.npz")
        return {"records": recorder.records, "channels_last": self.framework.channels_last, "loss": loss}

    # -- what only the reference is asked -----------------------------------------------------------------------------

    def do_learn_truth(self, state: State, inputs: str, case: int, path: str, seed: int, once: bool) -> dict[str, Any]:
        """Loss, gradients and running statistics of a step in float64, with their floors: see training_step.

        once: measured by one noisy pass.
        """
        from ..replay import training_step

        models = self._learning_models(state, seed)
        batch = [self.framework.to_native(array, None) for array in self._batches(inputs)[case]]
        try:
            repeats = 1 if once else training_step.REPEATS
            truth, arrays = training_step.step_in_float64(models, batch[:-1], batch[-1], repeats)
        finally:
            self._relearn(models, state)
        npz.save_file(arrays, Path(path))
        return asdict(truth)

    def do_learn_widened(self, state: State, inputs: str, case: int, seed: int, times: float) -> dict[str, Any]:
        """{"floors"}: how far rounding so many times as large moves the gradients of a step: see training_step."""
        from ..replay import training_step

        models = self._learning_models(state, seed)
        batch = [self.framework.to_native(array, None) for array in self._batches(inputs)[case]]
        try:
            return {"floors": training_step.gradient_changes(models, batch[:-1], batch[-1], times)}
        finally:
            self._relearn(models, state)

    def do_learn_replay(
        self, state: State, inputs: str, folder: str, records: list[dict[str, Any]], channels_last: bool, seed: int
    ) -> dict[str, Any]:
        """Replay a capture of a training step: {"forward", "backward"}, each a ReplayReport."""
        from ..replay import backward, forward
        from ..replay.tensors import Capture

        models = self._learning_models(state, seed)
        batch = [self.framework.to_native(array, None) for array in self._batches(inputs)[0]]
        calls = {(record["name"], record["call"]): record for record in records}
        captured = Capture(Path(folder), channels_last, calls, mapped=True)
        arrays = npz.load_file(Path(folder) / "outputs.npz")
        outputs = {name: arrays.get(case_key(0, name)) for name in self.outputs}
        try:
            ahead = forward.replay_forward(models, captured, batch[:-1], outputs)
            self._relearn(models, state)
            gradients = npz.load_file(Path(folder) / "gradients.npz")
            rounded = {name: found for name, found in ahead.explained.items() if found.rounding}
            behind = backward.replay_backward(models, captured, batch[:-1], batch[-1], gradients, rounded)
        finally:
            self._relearn(models, state)
        return {"forward": asdict(ahead), "backward": asdict(behind)}

    def _learning_models(self, state: State, seed: int) -> Any:
        models = self._models(state["weights"], seed)
        for model in (models.float64_model, models.float32_model):
            self.framework.disable_dropout(model)
            model.train()
        self._relearn(models, state)
        return models

    def _relearn(self, models: Any, state: State) -> None:
        """A pass in training changes running statistics: as they were."""
        arrays = npz.load_file(Path(state["weights"]))
        for model in (models.float64_model, models.float32_model):
            self._write(model, arrays)

    # -- shared -------------------------------------------------------------------------------------------------------

    def _batches(self, path: str) -> list[tuple[np.ndarray, ...]]:
        arrays = npz.load_file(Path(path))
        names = [*self.inputs, TARGET]
        return [tuple(arrays[case_key(case, name)] for name in names) for case in range(len(arrays) // len(names))]

    def _loss(self, loss: Any) -> float:
        return float(np.asarray(self.framework.to_numpy(loss, None)).reshape(()))

    def _weights_now(self) -> canonical.Arrays:
        """The weights after a step, which may be anything: a diverged one is for the report, not an error here."""
        own = self.framework.save_weights(self.model)
        return {self.canonical_names[name]: np.asarray(array, np.float32) for name, array in own.items()}

    def _optimizer_state(self) -> tuple[int, dict[str, np.ndarray]]:
        steps, found = self.learner.optimizer_state()
        return steps, {
            state_key(self.canonical_names[name], index): array
            for name, arrays in found.items()
            for index, array in enumerate(arrays)
        }

    def _zeros(self, own: str, count: int) -> list[np.ndarray]:
        return [np.zeros(self.shapes[self.canonical_names[own]], np.float32) for _ in range(count)]
