"""The reference: the canonical weights, the input cases, the ONNX export, and the outputs everything is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import frameworks, probe, weights
from .errors import SpecError, SubjectError, Unsupported, WeightsError
from .process import Worker
from .request import Request
from .spec import ModelFolder
from .weights import npz
from .weights import onnx as onnx_weights
from .weights import torch as torch_weights

Starter = Callable[[str, Path], Worker]


@dataclass
class Reference:
    """Files and arrays that subjects are fed with and judged by.

    weights, inputs: array files. onnx: the export with the canonical weights in it. onnx_weights: its initializers, for
    the frameworks that take their weights by way of ONNX. truth, float32: "case/name" -> outputs.
    """

    framework: str
    weights: Path
    inputs: Path
    digest: str
    tensors: int
    parameters: int
    inputs_digest: str
    source: str
    onnx: Path | None = None
    onnx_weights: Path | None = None
    onnx_problem: str | None = None
    truth: dict[str, np.ndarray] = field(default_factory=dict)
    float32: dict[str, np.ndarray] = field(default_factory=dict)
    precision: str = "float64"
    environment: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        floor = (
            f"{self.framework}'s own float32 error against it"
            if self.precision == "float64"
            else "the change of its outputs when every weight and input moves by one unit in the last place"
        )
        return {
            "framework": self.framework,
            "precision": self.precision,
            "floor": floor,
            "weights_source": self.source,
            "onnx": self.onnx_problem or ("exported" if self.onnx else "not needed"),
            "environment": self.environment,
        }


def build_arguments(folder: ModelFolder, framework: str, onnx: Path | None) -> dict[str, Any]:
    """The arguments of a worker's ``build``."""
    return {
        "folder": str(folder.path),
        "options": dict(folder.spec.options),
        "onnx": str(onnx) if onnx else None,
        "names": folder.names(framework),
        "inputs": {name: tensor.layout for name, tensor in folder.spec.inputs.items()},
        "outputs": {name: tensor.layout for name, tensor in folder.spec.outputs.items()},
    }


def prepare(
    request: Request, folder: ModelFolder, space: Path, start: Starter, phase: Callable[[str], None]
) -> Reference:
    """Build the reference model, settle the weights, export, and compute what is right.

    Raises SubjectError when the reference cannot run, WeightsError or SpecError when weights or spec do not fit it.
    """
    phase("importing")
    worker = start(request.reference, space)
    try:
        phase("building the model")
        shapes = worker.request("build", **build_arguments(folder, request.reference, None))["shapes"]
        inputs = probe.inputs(folder.spec, request.batch, request.seed, request.cases)
        npz.save_file(inputs, space / "inputs.npz")
        arrays, source = _weights(request, shapes, worker, space, phase)
        npz.save_file(arrays, space / "weights.npz")
        loaded = worker.request("load", path=str(space / "weights.npz"))
        digest = weights.digest(arrays)
        if loaded["digest"] != digest:
            raise WeightsError(
                f"{request.reference} holds other weights than it was given: {loaded['digest']}, not {digest}"
            )
        reference = Reference(
            framework=request.reference,
            weights=space / "weights.npz",
            inputs=space / "inputs.npz",
            digest=digest,
            tensors=len(arrays),
            parameters=sum(array.size for array in arrays.values()),
            inputs_digest=weights.digest(inputs),
            source=source,
        )
        _export(request, reference, worker, arrays, space, phase)
        _evaluate(request, folder, reference, worker, space, phase)
    finally:
        worker.close()
    return reference


def _weights(
    request: Request, shapes: dict[str, Any], worker: Worker, space: Path, phase: Callable[[str], None]
) -> tuple[dict[str, np.ndarray], str]:
    if request.weights is not None:
        phase(f"reading {request.weights}")
        arrays = read_weights(Path(request.weights), request.trust, worker, space)
        weights.check(arrays, {name: tuple(shape) for name, shape in shapes.items()}, source=request.weights)
        return arrays, request.weights
    arrays = probe.weights(shapes, request.seed)
    if any(name.rsplit(".", 1)[-1] in probe.STATISTICS for name in arrays):
        phase("calibrating batch norm")
        npz.save_file(arrays, space / "weights.npz")
        worker.request("load", path=str(space / "weights.npz"))
        worker.request("calibrate", path=str(space / "inputs.npz"))
        worker.request("save", path=str(space / "weights.npz"))
        arrays = probe.unsettle(npz.load_file(space / "weights.npz"), request.seed)
    return arrays, f"probe weights, seed {request.seed}"


def read_weights(path: Path, trust: bool, worker: Worker, space: Path) -> dict[str, np.ndarray]:
    """A weight file's canonical arrays. A checkpoint of torch is read by a torch worker, never in this process."""
    if path.suffix not in torch_weights.SUFFIXES or worker.adapter.name != "torch":
        return weights.load_file(path, trust)
    reply = worker.request("read_file", file=str(path.resolve()), path=str(space / "read.npz"), trust=trust)
    if "refused" in reply:
        raise WeightsError(reply["refused"])
    return npz.load_file(space / "read.npz")


def _export(
    request: Request,
    reference: Reference,
    worker: Worker,
    arrays: dict[str, np.ndarray],
    space: Path,
    phase: Callable[[str], None],
) -> None:
    adapters = [frameworks.parse_subject(subject)[0] for subject in request.subjects]
    if not any(adapter.runs_export or adapter.weights_route == "onnx" for adapter in adapters):
        return
    phase("exporting ONNX")
    try:
        worker.request("export", inputs=str(reference.inputs), path=str(space / "model.onnx"))
        import onnx

        model = onnx.load(space / "model.onnx")
        exported = onnx_weights.from_model(model)
        weights.check(
            exported, {name: array.shape for name, array in arrays.items()}, source="the ONNX export's initializers"
        )
        onnx_weights.to_model(model, arrays)
        onnx.save(model, space / "model.onnx")
        npz.save_file(weights.load_file(space / "model.onnx"), space / "onnx-weights.npz")
        reference.onnx, reference.onnx_weights = space / "model.onnx", space / "onnx-weights.npz"
    except ModuleNotFoundError as error:
        reference.onnx_problem = f"no export: {error.name} is not installed (pip install {error.name})"
    except (SubjectError, WeightsError) as error:
        reference.onnx_problem = f"no export: {error}"


def _evaluate(
    request: Request,
    folder: ModelFolder,
    reference: Reference,
    worker: Worker,
    space: Path,
    phase: Callable[[str], None],
) -> None:
    def outputs(inputs: Path, from_weights: Path, float64: bool) -> dict[str, np.ndarray]:
        worker.request(
            "evaluate", inputs=str(inputs), path=str(space / "outputs.npz"), weights=str(from_weights), float64=float64
        )
        return npz.load_file(space / "outputs.npz")

    phase("computing in float32")
    reference.float32 = outputs(reference.inputs, reference.weights, False)
    _check_outputs(request, folder, reference.float32)
    try:
        phase("computing in float64")
        reference.truth = outputs(reference.inputs, reference.weights, True)
    except Unsupported:
        phase("measuring the floor by perturbation")
        moved = [space / "moved-inputs.npz", space / "moved-weights.npz"]
        for source, target in zip((reference.inputs, reference.weights), moved):
            npz.save_file(probe.perturb(npz.load_file(source), request.seed), target)
        reference.truth = reference.float32
        reference.float32 = outputs(moved[0], moved[1], False)
        reference.precision = "float32"


def _check_outputs(request: Request, folder: ModelFolder, outputs: dict[str, np.ndarray]) -> None:
    spec = folder.spec
    names = {key.split("/", 1)[1] for key in outputs}
    if names != set(spec.outputs):
        raise SpecError(
            f"{folder.path / 'spec.py'} names the outputs {sorted(spec.outputs)}; {request.reference} returns {sorted(names)}"
        )
    for key, array in outputs.items():
        name = key.split("/", 1)[1]
        expected = spec.outputs[name].sized(request.batch)
        if array.shape != expected:
            raise SpecError(
                f"{folder.path / 'spec.py'} says output {name!r} is {spec.outputs[name].shape}, so {expected} at batch "
                f"{request.batch}; {request.reference} returns {array.shape}"
            )
