"""The work on ONNX graphs: the values of every node in a runtime, and the evaluation of a graph in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Failed
from ..weights import npz
from ..workload.keys import case_key
from .messages_graph import (
    CaptureNodes,
    DescribeGraph,
    EvaluateGraph,
    GraphDescribed,
    GraphEvaluated,
    NodesCaptured,
    ReplayGraph,
)
from .messages_reference import OutputFloor, Replayed
from .state import Handlers, State


class GraphWork:
    """Handlers of requests about an ONNX graph."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.graphs: dict[str, Any] = {}

    def handlers(self) -> Handlers:
        """Class of request -> the method that answers it."""
        return {
            CaptureNodes: self.capture,
            DescribeGraph: self.describe,
            EvaluateGraph: self.evaluate,
            ReplayGraph: self.replay,
        }
