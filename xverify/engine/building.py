"""What subjects are built from, and the requests to a worker before timing: build, load the weights, make two steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from .. import messages
from ..errors import Absent, OtherWeights, Unsupported
from ..messages.own_step import PrepareOwnStep
from ..messages.training import PrepareTraining, TrainingPrepared
from ..processes.worker import Worker
from ..reference.build import Prepared, build_question
from ..reference.exporting import Export
from ..reference.folding import Folding, not_trained
from ..workload.objective import has_own_step
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .stages import Built, Subject


class Source(Protocol):
    """What a subject is built from: a model folder, a model file, or the model that a file was made of."""

    @property
    def building(self) -> str:
        """What ``build`` does, as a phrase for the progress listener."""

    def build(self, worker: Worker) -> Built:
        """Build the model in a worker that is started. Raises SubjectError."""

    def first_steps(self, worker: Worker) -> messages.Prepared | TrainingPrepared:
        """Make the callable, and call it twice. Raises SubjectError."""


@dataclass(frozen=True)
class FolderSource:
    """A subject of a model folder. prepared, export: the weights, the inputs and the ONNX export."""

    request: Request
    folder: ModelFolder
    subject: Subject
    prepared: Prepared
    export: Export | Absent | None = None
    building: str = "building the model, loading the weights"

    def build(self, worker: Worker) -> Built:
        """Build the model, load the weights, and read them back.

        Raises SubjectError when that fails, or when the subject needs an ONNX export and there is none.
        """
        subject, request, folder, prepared, export = self.subject, self.request, self.folder, self.prepared, self.export
        adapter, reference = subject.adapter, request.reference
        if adapter.runs_export and isinstance(export, Absent):
            raise Unsupported(export.reason)
        if adapter.has_own_weights():
            return self._of_file(worker)
        made = export if isinstance(export, Export) else None
        question = build_question(
            folder, adapter.reads(), made.onnx if made else None, subject.mode, request.trains, request.batch
        )
        folding = Folding.of_port(folder, adapter.reads(), prepared, reference)
        if request.trains and (why := not_trained(folding)):
            raise Unsupported(why)
        precision = request.optimizer.recipe.precision if request.optimizer else "float32"
        built = worker.ask(folding.question(replace(question, precision=precision), folder))
        folding.check(built.shapes)
        by_onnx = adapter.weights_route == "onnx" and made is not None
        weights = made.weights if by_onnx and made is not None else prepared.weights
        digest = other = ""
        try:
            digest = worker.ask(messages.Load(str(folding.file(weights, worker.folder)), prepared.buffers))
        except OtherWeights as error:
            other = str(error)
        route = f"canonical -> {adapter.name}"
        if adapter.runs_export:
            route = f"{reference} -> ONNX"
        elif by_onnx:
            route = f"{reference} -> ONNX -> {adapter.name}"
        own = folding.digest() if folding else ""
        found = Built(built.seconds, built.fused_parameters, route, digest, folding, own, built.stored, other)
        return self.in_normal_form(found, worker)

    def _of_file(self, worker: Worker) -> Built:
        """Open a file that keeps its own weights. They have no digest."""
        adapter, graph = self.subject.adapter, self.subject.graph
        question = build_question(self.folder, adapter.reads(), graph.absolute() if graph else None, self.subject.mode)
        built = worker.ask(replace(question, own_weights=True, cache=dict(self.folder.spec.cache)))
        return Built(built.seconds, {}, f"of {adapter.file_name()}", "", Folding((), self.prepared), "", ())

    def in_normal_form(self, built: Built, worker: Worker) -> Built:
        """The same with the digest of the weights' normal form."""
        fused = self.prepared.fused_parameters
        if not fused or not built.weights_digest:
            return built
        digest = worker.ask(messages.Digest(fused_parameters=dict(fused)))
        return replace(built, weights_digest=digest, folded_digest=self.folded_digest(built))

    def folded_digest(self, built: Built) -> str:
        """The digest that the weights must have where some have other values; "" otherwise."""
        return replace(built.folding, prepared=self.prepared).digest() if built.folding else ""

    def first_steps(self, worker: Worker) -> messages.Prepared | TrainingPrepared:
        """Make the callable of this mode, and call it twice. A call is a forward pass, or a whole training step."""
        request, mode, prepared = self.request, self.subject.mode, self.prepared
        if request.optimizer is None:
            return worker.ask(messages.Prepare(inputs=str(prepared.inputs), mode=mode))
        training = PrepareTraining(
            inputs=str(prepared.training),
            mode=mode,
            optimizer=request.optimizer,
            match=request.match_optimizer,
            time_input=request.time_input,
            dropout=request.dropout_masks,
        )
        return worker.ask(PrepareOwnStep(training) if has_own_step(self.folder) else training)
