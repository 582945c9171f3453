"""The work of a reference's worker in training: steps in float64, and replays of captured steps. It needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..messages import training as messages
from ..messages.training import TrainingState, TruthComputed
from ..verdict.findings import ReplayReport
from ..weights import npz
from ..workload.keys import case_key
from .handlers import Group
from .training import labelled_batches, native_batch


class TrainingReference(Group):
    """Handlers of requests to the reference of a training run."""

    def truth(self, request: messages.TrainingTruth) -> TruthComputed:
        """Compute loss, gradients and running statistics of a step in float64; see float64.training_step."""
        from ..float64 import training_step
        from ..float64.losses import KnownLosses
        from ..float64.precision import Precision

        repeats = 1 if request.once else training_step.REPEATS
        precision = Precision(request.precision)
        written = self.state.replayed_models(request.state.weights, request.seed, training=True).float64_model
        frozen = tuple(name for name, each in written.named_parameters() if not each.requires_grad)
        with self._models(request.state, request.seed, precision) as models, self._masked(models, request.masks):
            batch = self._batch(request.inputs, request.case)
            known = KnownLosses(self.state.objective, self.state.outputs)
            loss = self.state.framework.loss
            truth, arrays = training_step.step_in_float64(
                models, batch[:-1], batch[-1], repeats, loss, known, request.parts
            )
        npz.save_file(arrays, Path(request.path))
        return TruthComputed(replace(truth, frozen=frozen), known.named)

    def gradient_floors(self, request: messages.GradientFloors) -> None:
        """Measure how much larger rounding changes the gradients; see float64.training_step."""
        from ..float64 import training_step
        from ..float64.precision import Precision

        precision = Precision(request.precision)
        with self._models(request.state, request.seed, precision) as models, self._masked(models, request.masks):
            batch = self._batch(request.inputs, request.case)
            loss = self.state.framework.loss
            found = training_step.gradient_changes(models, batch[:-1], batch[-1], request.times, loss)
        npz.save_file(found, Path(request.path))

    def replay(self, request: messages.ReplayTraining) -> tuple[ReplayReport, ReplayReport]:
        """Replay a captured step, forward and then backward."""
        from ..explain.replay import replayed
        from ..float64.precision import Precision
        from ..replay import backward
        from ..replay.tensors import Capture

        folder = Path(request.folder)
        records = {(record.name, record.call): record for record in request.records}
        captured = Capture(folder, request.channels_last, records, mapped=True)
        arrays = npz.load_file(folder / "outputs.npz")
        outputs = {name: arrays.get(case_key(0, name)) for name in self.state.outputs}
        precision = Precision.of(request.precision, request.records, request.loss_scale)
        with self._models(request.state, request.seed, precision) as models:
            batch = self._batch(request.inputs, 0)
            replay = replayed(models, captured, batch[:-1], outputs)
            forward_report, captured = replay.report(), replay.capture_in_order()
            del replay  # its tensors are no longer needed
            self._write(models, request.state)
            gradients = npz.load_file(folder / "gradients.npz")
            rounded = {name: found for name, found in forward_report.explained.items() if found.rounding}
            loss = self.state.framework.loss
            backward_report = backward.replay_backward(
                models, captured, batch[:-1], batch[-1], gradients, rounded, loss
            )
        return forward_report, backward_report

    def _batch(self, path: str, case: int) -> tuple[Any, ...]:
        """A batch as the reference's own tensors; see framework.training.Batch."""
        return native_batch(self.state, labelled_batches(self.state, path)[case])

    @contextmanager
    def _masked(self, models: Any, masks: str) -> Iterator[None]:
        """A context in which both models are given dropout masks. masks: their file; "" without dropout."""
        from ..float64.masked import masked

        given = npz.load_file(Path(masks)) if masks else {}
        with masked(models.float64_model, given), masked(models.float32_model, given):
            yield

    @contextmanager
    def _models(self, begin: TrainingState, seed: int, precision: Any) -> Iterator[Any]:
        """The replayed models in training mode and in this state. At the end their weights are set to this state again.

        precision: float64.precision.Precision of the frameworks that are compared.
        """
        from ..float64.parametrized import without_iterations
        from ..float64.replaced import replaced

        models = self.state.replayed_models(begin.weights, seed, training=True)
        both = (models.float64_model, models.float32_model)
        for model in both:
            self.state.framework.disable_dropout(model)
            model.train()
        with replaced(models, precision=precision), without_iterations(*both), _unfrozen(*both):
            self._write(models, begin)
            try:
                yield models
            finally:
                for model in both:
                    self.state.write_weights(model, npz.OnDisk(Path(begin.weights)))

    def _write(self, models: Any, begin: TrainingState) -> None:
        """Load the weights of the state, because a pass in training mode changes running statistics.

        The first pass of a step makes one iteration of every spectral norm. It is made here, because a replay has several passes.
        """
        from ..float64.parametrized import iterate

        arrays = npz.load_file(Path(begin.weights))
        for model in (models.float64_model, models.float32_model):
            self.state.write_weights(model, arrays)
            iterate(model)


@contextmanager
def _unfrozen(*models: Any) -> Iterator[None]:
    """A context in which every parameter of these models has a gradient, also one that a recipe or the model file has frozen."""
    parameters = (each for model in models for each in model.parameters())
    frozen = [each for each in parameters if not each.requires_grad and each.is_floating_point()]
    for each in frozen:
        each.requires_grad_(True)
    try:
        yield
    finally:
        for each in frozen:
            each.requires_grad_(False)
