"""Requests by operation names and plain dicts, as before ``messages``: deleted when nothing calls ``Worker.request`` any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from . import messages, messages_reference, messages_training
from .codec import Reply, Request, from_plain

REQUESTS: Mapping[str, type[Request[Any]]] = {
    "start": messages.Start,
    "build": messages.Build,
    "load": messages.Load,
    "digest": messages.Digest,
    "save": messages.Save,
    "device_memory": messages.DeviceMemory,
    "release_memory": messages.ReleaseMemory,
    "prepare": messages.Prepare,
    "warm": messages.Warm,
    "block": messages.Block,
    "graph_count": messages.GraphCount,
    "capture": messages.Capture,
    "read_file": messages_reference.ReadFile,
    "calibrate": messages_reference.Calibrate,
    "export": messages_reference.Export,
    "evaluate": messages_reference.Evaluate,
    "layers": messages_reference.ListLayers,
    "order": messages_reference.LayerOrder,
    "floors": messages_reference.NoiseFloors,
    "replay": messages_reference.Replay,
    "faults": messages_reference.ListFaults,
    "plant": messages_reference.PlantFault,
    "uproot": messages_reference.RemoveFault,
    "learn": messages_training.PrepareTraining,
    "sync": messages_training.SetState,
    "state": messages_training.SaveState,
    "training_step": messages_training.TrainingStep,
    "apply": messages_training.ApplyGradients,
    "mistake": messages_training.PlantMistake,
    "curve": messages_training.LossCurve,
    "trajectory": messages_training.Trajectory,
    "learn_capture": messages_training.CaptureTraining,
    "learn_truth": messages_training.TrainingTruth,
    "learn_widened": messages_training.GradientFloors,
    "learn_replay": messages_training.ReplayTraining,
}


def to_request(operation: str, arguments: Mapping[str, Any]) -> Request[Any]:
    """The request of an operation and its arguments."""
    kind = REQUESTS[operation]
    plain = {name: _plain(each) for name, each in arguments.items()}
    if "records" in plain:
        plain["records"] = [_plain(each) for each in plain["records"]]
    return from_plain(kind, plain)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def from_reply(reply: Reply) -> dict[str, Any]:
    """A reply under the earlier names."""
    if isinstance(reply, messages_reference.LayersOrdered):
        return {"order": [(place.name, place.kind, place.taken, place.given) for place in reply.order]}
    if isinstance(reply, messages_reference.Replayed):
        return asdict(reply.report)
    if isinstance(reply, messages_training.StateSaved):
        return asdict(reply.state)
    plain = asdict(reply)  # type: ignore[call-overload]
    if isinstance(reply, (messages.Timed, messages.DeviceMemoryRead, messages_reference.FileRead)):
        plain = {name: value for name, value in plain.items() if value is not None}
    if isinstance(reply, messages_training.TrainingPrepared):
        plain["held"] = plain.pop("dropout_disabled")
    if "records" in plain:
        plain["records"] = list(plain["records"])
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
