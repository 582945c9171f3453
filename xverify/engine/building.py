"""The requests to a worker before timing: build the model, load the weights, and make the first two steps."""

from __future__ import annotations

from dataclasses import replace

from ..errors import Unsupported
from ..reference.build import Export, Prepared, build_question
from ..worker import messages
from ..worker.messages_training import PrepareTraining, TrainingPrepared
from ..worker.process import Worker
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
    question = build_question(folder, adapter.name, export.onnx, subject.mode)
    built = worker.ask(replace(question, expected=dict(prepared.shapes)))
    by_onnx = adapter.weights_route == "onnx" and export.weights is not None
    weights = export.weights if by_onnx else prepared.weights
    loaded = worker.ask(messages.Load(path=str(weights)))
    route = f"canonical -> {adapter.name}"
    if adapter.runs_export:
        route = f"{reference} -> ONNX"
    elif by_onnx:
        route = f"{reference} -> ONNX -> {adapter.name}"
    return Built(built.seconds, built.fused_parameters, route, loaded.digest)


def first_steps(
    worker: Worker, request: Request, mode: str, prepared: Prepared
) -> messages.Prepared | TrainingPrepared:
    """Make the callable of this mode, and call it twice. A call is a forward pass, or a whole training step."""
    if request.optimizer is None:
        return worker.ask(messages.Prepare(inputs=str(prepared.inputs), mode=mode))
    return worker.ask(
        PrepareTraining(
            inputs=str(prepared.training),
            mode=mode,
            optimizer=request.optimizer,
            match=request.match_optimizer,
            time_input=request.time_input,
        )
    )
