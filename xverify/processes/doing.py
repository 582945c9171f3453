"""What a worker does for a request, as a phrase for messages."""

from __future__ import annotations

from typing import Any

from ..messages.codec import Request

_DOING = {
    "Start": "importing",
    "Compute": "computing the file",
    "EvaluateGraph": "evaluating the graph in float64",
    "ReplayGraph": "evaluating every node in float64",
    "EvaluateRounding": "evaluating the graph at its precision",
    "Build": "building the model",
    "Load": "loading the weights",
    "Export": "exporting ONNX",
    "Evaluate": "computing the reference",
    "Prepare": "making its first step",
    "PrepareTraining": "making its first training step",
    "Warm": "warming up",
    "Block": "running a timed block",
    "CallOn": "computing another size",
    "ReadFile": "reading the weight file",
    "ReadGraph": "reading the weight file",
    "ReadQuantised": "reading the weight file",
    "WriteFile": "writing the weight file",
}


def doing_for(request: Request[Any]) -> str:
    """What a worker does for this request, as a phrase for messages."""
    name = type(request).__name__
    return _DOING.get(name, f"answering the request {name}")
