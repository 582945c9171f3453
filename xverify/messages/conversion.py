"""Requests to a worker that converts a model; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from ..framework.converter import Layer
from .codec import Request


@dataclass(frozen=True)
class Convert(Request[str]):
    """Do one step of a conversion, and write its result to ``path``.

    The reply tells which converter did it, with its version and settings, as a phrase.

    to: the target, by the name of its file in xverify/converters/. method: the method of its class that does this step.
    inputs: an array file of input cases. names, outputs: the names of inputs and outputs, in the order of the spec.
    source: the file that is converted; None: the model that ``Build`` built, with the weights that were loaded.
    quantize, exporter, traces, keep: as in ``converter.Job``.
    """

    to: str
    method: str
    inputs: str
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    path: str
    source: str | None
    quantize: str | None
    exporter: str
    traces: bool
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class FindLayers(Request[tuple[Layer, ...]]):
    """Find the layers of a float32 file that can stay in float32 where the others get a lower precision.

    to, quantize: as in ``Convert``. source: the file.
    """

    to: str
    source: str
    quantize: str
