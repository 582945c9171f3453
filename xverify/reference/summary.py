"""The parts of a result that describe the settings, the reference, the weights and the inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import Absent, UsageError
from ..framework import ports
from ..results.records import InputsSummary, LayerError, ReferenceSummary, Row, Settings, WeightsSummary
from ..weights import sharded
from ..workload.code import Code
from ..workload.digests import file_digest, files_digest
from ..workload.options import OWN_WEIGHTS
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .build import Prepared
from .exporting import Export
from .truth import Truth


def settings(request: Request, folder: ModelFolder) -> Settings:
    """The settings of the request, with digests of the model folder's files and of the weight file. Raises UsageError."""
    digests = {name: _digest_of_port(code) for name, code in folder.ports.items()}
    return Settings.of(request, folder.digest(), _file_digest(request.weights), digests)


def _digest_of_port(code: Code) -> str:
    """The digest of a file outside of the folder, and of those that it imports. Raises UsageError."""
    try:
        return files_digest(ports.files_of(code.file))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None


def _file_digest(path: str | None) -> str:
    """The digest of a weight file, or of all files of weights in several; "" without one. Raises UsageError."""
    if path is None or path == OWN_WEIGHTS:
        return ""
    try:
        return files_digest(sharded.files(Path(path))) if sharded.is_sharded(Path(path)) else file_digest(Path(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def weights(prepared: Prepared | None) -> WeightsSummary:
    """The weights. Parameters and running statistics are counted separately; the digest covers both."""
    if prepared is None:
        return WeightsSummary()
    tensors, parameters, statistics = prepared.sizes()
    return WeightsSummary(
        digest=prepared.weights_digest,
        tensors=tensors,
        parameters=parameters,
        statistics=statistics,
        source=prepared.weights_source,
        replaced=prepared.replaced_weights,
        normal_form=dict(prepared.fused_parameters),
    )


def inputs(request: Request, prepared: Prepared | None) -> InputsSummary:
    """The input cases. prepared: None: not yet made."""
    kind = prepared.inputs_kind if prepared else f"synthetic, seed {request.seed}"
    return InputsSummary(digest=prepared.inputs_digest if prepared else None, cases=request.cases, kind=kind)


def reference(
    request: Request,
    prepared: Prepared | None,
    export: Export | Absent | None,
    truth: Truth | None,
    layers: Sequence[str],
) -> ReferenceSummary:
    """The reference and its noise floor, as far as they are known. layers: the layers that it judges.

    export: None where no subject needs one.
    """
    floor = f"{request.reference}'s own float32 error"
    if truth is not None and truth.noise_floors is not None:
        floor = "the rounding of every layer, modelled and measured in float64"
    if truth is not None and truth.precision == "float32":
        floor = "the change of its outputs when every weight and input is changed to a neighbouring float32 value"
    return ReferenceSummary(
        framework=request.reference,
        precision=truth.precision if truth else "float64",
        floor=floor,
        onnx=export.reason if isinstance(export, Absent) else "exported" if export else "not needed",
        environment=dict(prepared.environment) if prepared else {},
        layers=len(layers),
        tested=len(truth.tested) if truth else 0,
        untested=truth.untested if truth else (),
        replay_problem=truth.replay_problem if truth else "",
        precision_problem=truth.precision_problem if truth else "",
        random=truth.random if truth else "",
        inconsistent=truth.inconsistent if truth else "",
    )


def without_found(reference: ReferenceSummary, rows: Iterable[Row]) -> ReferenceSummary:
    """The reference without the untested weights and constants in which a row has a fault: such a fault does show."""
    every = [
        layer
        for row in rows
        for found in (row.error.layers if row.error else None, row.training.layers if row.training else None)
        for layer in (found.layers if found is not None else ())
    ]
    found = [name for name in reference.untested if any(_explains(layer, name) for layer in every)]
    rest = tuple(name for name in reference.untested if name not in found)
    return replace(reference, untested=rest, tested=reference.tested + len(found))


def _explains(layer: LayerError, name: str) -> bool:
    """Whether the explanation of a layer names a weight or constant of it. name: ``layer.attribute``."""
    owner, _, attribute = name.rpartition(".")
    words = re.escape(attribute.replace("_", " "))
    says = (layer.explanation or "").replace("_", " ")
    return layer.layer == owner and re.search(rf"\b{words}\b", says) is not None
