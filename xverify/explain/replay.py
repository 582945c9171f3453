"""Replays a forward pass, and searches for the causes of what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from ..float64.stepping import Models
from ..replay import forward
from ..replay.tensors import Capture
from ..verdict.findings import ReplayReport
from ..weights.canonical import Array
from .explanation import Explainer


def replay_forward(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, Array | None],
    planted: tuple[str, int] | None = None,
) -> ReplayReport:
    """Replay a capture. The arguments are those of ``forward.replayed``, and ``planted`` as in Explainer."""
    return replayed(models, capture, inputs, outputs, planted).report()


def replayed(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, Array | None],
    planted: tuple[str, int] | None = None,
) -> forward.Replay:
    """The finished replay; the arguments are those of ``replay_forward``."""
    return forward.replayed(models, capture, inputs, outputs, partial(Explainer, planted=planted))
