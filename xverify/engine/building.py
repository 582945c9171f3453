"""The requests to a worker before timing: build the model, load the weights, and make the first two steps."""

from __future__ import annotations

from dataclasses import replace

from .. import messages
from ..errors import Unsupported
from ..messages.own_step import PrepareOwnStep
from ..messages.training import PrepareTraining, TrainingPrepared
from ..processes.worker import Worker
from ..reference.build import Export, Prepared, build_question
from ..reference.folding import Folding
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .stages import Built, Subject


def build(
    worker: Worker, subject: Subject, request: Request, folder: ModelFolder, prepared: Prepared, export: Export
) -> Built:
    """Build the model of a subject, load the weights, and read them back.

    Raises SubjectError when that fails, or when the subject needs an ONNX export and there is none.
    """
    adapter, reference = subject.adapter, request.reference
    if adapter.runs_export and export.problem:
        raise Unsupported(export.problem)
    question = build_question(folder, adapter.name, export.onnx, subject.mode, request.trains, request.batch)
    # Only torch computes weights from others, so that with another reference nothing is folded.
    entries = folder.folded(adapter.reads()) if reference == "torch" else ()
    folding = Folding.of(entries, prepared, adapter.reads())
    if folding.names and request.trains:
        raise Unsupported(
            f"{adapter.reads()}.py holds the computed weight {folding.names[0]}, as names.toml says, and training changes what the "
            "reference computes it from: compare inference, or give the port what the reference computes it from"
        )
    precision = request.optimizer.recipe.precision if request.optimizer else "float32"
    built = worker.ask(replace(question, expected=folding.shapes(), precision=precision))
    folding.check(built.shapes)
    by_onnx = adapter.weights_route == "onnx" and export.weights is not None
    weights = export.weights if by_onnx and export.weights is not None else prepared.weights
    digest = worker.ask(messages.Load(str(folding.file(weights, worker.folder)), prepared.buffers))
    route = f"canonical -> {adapter.name}"
    if adapter.runs_export:
        route = f"{reference} -> ONNX"
    elif by_onnx:
        route = f"{reference} -> ONNX -> {adapter.name}"
    own = folding.digest() if folding.names else ""
    return Built(built.seconds, built.fused_parameters, route, digest, folding.names, own)


def first_steps(
    worker: Worker, request: Request, mode: str, prepared: Prepared, own_step: bool = False
) -> messages.Prepared | TrainingPrepared:
    """Make the callable of this mode, and call it twice. A call is a forward pass, or a whole training step.

    own_step: whether the step is ``train_step`` of the model file.
    """
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
    return worker.ask(PrepareOwnStep(training) if own_step else training)
