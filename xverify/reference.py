"""The reference: the canonical weights, the input cases, the ONNX export, and the outputs everything is compared with."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from . import frameworks, host, probe
from .errors import Crashed, SpecError, SubjectError, Unsupported, WeightsError
from .process import Worker
from .request import Request
from .spec import ModelFolder
from .watch import Watch
from .weights import check, digest, load_file, normal_form, npz
from .weights import onnx as onnx_weights
from .weights import torch as torch_weights


class Reference:
    """Files and arrays that subjects are fed with and judged by.

    weights, inputs: array files, there after ``settle``. onnx: the export, with the canonical weights in it; onnx_weights:
    its initializers, for frameworks that take their weights by way of ONNX; both there after ``export``. float32, truth:
    "case/name" -> outputs, there after ``check`` and ``evaluate``.
    """

    def __init__(self, request: Request, model: ModelFolder, worker: Worker, watch: Watch) -> None:
        self.request, self.model, self.worker, self.watch = request, model, worker, watch
        self.framework = request.reference
        self.space = worker.folder
        self.weights = self.space / "weights.npz"
        self.inputs = self.space / "inputs.npz"
        self.digest: str | None = None
        self.inputs_digest: str | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.merges: dict[str, tuple[str, ...]] = {}
        self.source = ""
        self.onnx: Path | None = None
        self.onnx_weights: Path | None = None
        self.onnx_problem: str | None = None
        self.truth: dict[str, np.ndarray] = {}
        self.float32: dict[str, np.ndarray] = {}
        self.precision = "float64"
        self.environment: dict[str, Any] = {}

    def settle(self) -> None:
        """Build the model, and write down the weights and inputs that every subject gets.

        Raises SubjectError when the reference cannot run, WeightsError when the given weights do not fit it.
        """
        self._phase("importing")
        self.environment = self.worker.start()["environment"]
        self._phase("building the model")
        built = self.worker.request("build", **build_arguments(self.model, self.framework, None))
        self.shapes = {name: tuple(shape) for name, shape in built["shapes"].items()}
        inputs = probe.inputs(self.model.spec, self.request.batch, self.request.seed, self.request.cases)
        npz.save_file(inputs, self.inputs)
        self.inputs_digest = digest(inputs)
        arrays = self._settle_weights()
        npz.save_file(arrays, self.weights)
        self.digest = digest(arrays)

    def export(self) -> None:
        """Export ONNX for the subjects that need it; what prevents it is kept in ``onnx_problem``."""
        adapters = [frameworks.parse_subject(subject)[0] for subject in self.request.subjects]
        if not any(adapter.runs_export or adapter.weights_route == "onnx" for adapter in adapters):
            return
        if self.model.spec.control_flow:
            self.onnx_problem = f"no ONNX export: {self.model.spec.control_flow}, which a trace cannot hold"
            return
        self._phase("exporting ONNX")
        try:
            self._export()
        except ModuleNotFoundError as error:
            self.onnx_problem = f"no ONNX export: {error.name} is not installed (pip install {error.name})"
        except Crashed:
            raise  # the reference itself is gone
        except (SubjectError, WeightsError) as error:
            self.onnx_problem = f"no ONNX export: {error}"

    def check(self) -> None:
        """Compute in float32, and see that the spec describes what the model returns. Raises SpecError."""
        self._phase("computing in float32")
        self.float32 = self._outputs(self.inputs, self.weights, float64=False)
        self._check_outputs()

    def take_normal_form(self, merges: dict[str, tuple[str, ...]]) -> None:
        """Take the digest in a form that every framework of the run can hold: see weights.normal_form."""
        self.merges = merges
        if merges:
            self.digest = digest(normal_form(npz.load_file(self.weights), merges))

    def evaluate(self) -> None:
        """Compute what is right: in float64, or, where the framework cannot, measure the floor by perturbation."""
        self._phase("computing in float64")
        try:
            self.truth = self._outputs(self.inputs, self.weights, float64=True)
        except Unsupported:
            self._phase("measuring the floor by perturbation")
            moved = self.space / "moved-inputs.npz", self.space / "moved-weights.npz"
            for source, target in zip((self.inputs, self.weights), moved):
                npz.save_file(probe.perturb(npz.load_file(source), self.request.seed), target)
            self.truth, self.float32 = self.float32, self._outputs(*moved, float64=False)
            self.precision = "float32"

    # -- for the result file ------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        floor = f"{self.framework}'s own float32 error"
        if self.precision != "float64":
            floor = "the change of its outputs when every weight and input moves to a neighbouring float32"
        return {
            "framework": self.framework,
            "precision": self.precision,
            "floor": floor,
            "onnx": self.onnx_problem or ("exported" if self.onnx else "not needed"),
            "environment": self.environment,
        }

    def describe_weights(self) -> dict[str, Any]:
        """Parameters and running statistics apart; the digest covers both."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        statistics = {name for name in sizes if name.rsplit(".", 1)[-1] in probe.STATISTICS}
        return {
            "digest": self.digest,
            "tensors": len(sizes) - len(statistics),
            "parameters": sum(size for name, size in sizes.items() if name not in statistics),
            "statistics": len(statistics),
            "source": self.source,
            "normal_form": self.merges,
        }

    def describe_inputs(self) -> dict[str, Any]:
        return {
            "digest": self.inputs_digest,
            "cases": self.request.cases,
            "kind": f"synthetic, seed {self.request.seed}",
        }

    # -- steps --------------------------------------------------------------------------------------------------------

    def _phase(self, doing: str) -> None:
        self.watch.phase("reference", doing)

    def _settle_weights(self) -> dict[str, np.ndarray]:
        path = self.request.weights
        if path is not None:
            self._phase(f"reading {path}")
            arrays = self._read_file(Path(path))
            check(arrays, self.shapes, source=path)
            self.source = path
            return arrays
        self.source = f"probe weights, seed {self.request.seed}"
        arrays = probe.weights(self.shapes, self.request.seed)
        if not any(name.rsplit(".", 1)[-1] in probe.STATISTICS for name in arrays):
            return arrays
        self._phase("calibrating batch norm")
        npz.save_file(arrays, self.weights)
        self.worker.request("load", path=str(self.weights))
        self.worker.request("calibrate", path=str(self.inputs), batch=self.request.batch)
        self.worker.request("save", path=str(self.weights))
        return probe.unsettle(npz.load_file(self.weights), self.request.seed)

    def _read_file(self, path: Path) -> dict[str, np.ndarray]:
        """A weight file's canonical arrays. A checkpoint of torch is read by a torch worker, never in this process."""
        if path.suffix not in torch_weights.SUFFIXES or self.framework != "torch":
            return load_file(path, self.request.trust)
        target = self.space / "read.npz"
        reply = self.worker.request("read_file", file=str(path.resolve()), path=str(target), trust=self.request.trust)
        if "refused" in reply:
            raise WeightsError(reply["refused"])
        return npz.load_file(target)

    def _export(self) -> None:
        """The graph, then the canonical weights set in it by name, then its initializers read back out of it."""
        import onnx

        path, read_back = self.space / "model.onnx", self.space / "onnx-weights.npz"
        self.worker.request("export", inputs=str(self.inputs), path=str(path))
        model = onnx.load(path)
        check(onnx_weights.from_model(model), self.shapes, source="the ONNX export's initializers")
        onnx_weights.to_model(model, npz.load_file(self.weights))
        onnx.save(model, path)
        npz.save_file(onnx_weights.from_model(model), read_back)
        self.onnx, self.onnx_weights = path, read_back

    def _outputs(self, inputs: Path, from_weights: Path, float64: bool) -> dict[str, np.ndarray]:
        path = self.space / "outputs.npz"
        self.worker.request("evaluate", inputs=str(inputs), path=str(path), weights=str(from_weights), float64=float64)
        return npz.load_file(path)

    def _check_outputs(self) -> None:
        spec, file, name = self.model.spec, self.model.path / "spec.py", self.framework
        found = {key.split("/", 1)[1]: array.shape for key, array in self.float32.items()}
        if set(found) != set(spec.outputs):
            raise SpecError(f"{file} names the outputs {sorted(spec.outputs)}; {name} returns {sorted(found)}")
        for output, shape in found.items():
            expected = spec.outputs[output].sized(self.request.batch)
            if shape != expected:
                raise SpecError(
                    f"{file} says output {output!r} is {spec.outputs[output].shape}, so {expected} at batch "
                    f"{self.request.batch}; {name} returns {shape}"
                )


def build_arguments(folder: ModelFolder, framework: str, onnx: Path | None) -> dict[str, Any]:
    """The arguments of a worker's ``build``."""
    return {
        "folder": str(folder.code),
        "options": dict(folder.spec.options),
        "onnx": str(onnx) if onnx else None,
        "names": folder.names(framework),
        "control_flow": folder.spec.control_flow,
        "inputs": {name: tensor.layout for name, tensor in folder.spec.inputs.items()},
        "outputs": {name: tensor.layout for name, tensor in folder.spec.outputs.items()},
    }


def export_onnx(folder: ModelFolder, space: Path) -> Path:
    """Export a model's graph from torch at its own batch size, with placeholder weights; returns the file, in ``space``."""
    if folder.spec.control_flow:
        raise Unsupported(f"no ONNX export: {folder.spec.control_flow}, which a trace cannot hold")
    worker = Worker(frameworks.load("torch"), sys.executable, space, host.cores(), "cpu", timeout=1800.0)
    try:
        worker.start()
        worker.request("build", **build_arguments(folder, "torch", None))
        npz.save_file(probe.inputs(folder.spec, folder.spec.batch, seed=0, cases=1), space / "inputs.npz")
        worker.request("export", inputs=str(space / "inputs.npz"), path=str(space / "model.onnx"))
    finally:
        worker.close()
    return space / "model.onnx"
