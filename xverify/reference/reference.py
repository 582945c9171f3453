"""The reference: the canonical weights, the input cases, the ONNX export, and the outputs everything is compared with."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import host
from ..environments import store as environments
from ..errors import Crashed, SpecError, SubjectError, TimedOut, Unsupported, WeightsError
from ..framework import discovery as frameworks
from ..progress import Listener
from ..results.records import InputsSummary, Layers, ReferenceSummary, WeightsSummary
from ..verdict import outputs as compare
from ..verdict.layers import Place, match, summarise
from ..weights import check, digest, load_file, normal_form, npz
from ..weights import onnx as onnx_weights
from ..weights import torch as torch_weights
from ..worker.process import Worker
from ..workload import datasets as data
from ..workload import probe
from ..workload.keys import case_key
from ..workload.spec import ModelFolder
from .request import Request

CAPTURED_CASE = 0  # the input case whose layers are compared; outputs are compared in every case
# Of a batch, in the replay of layers: a layer's values are thousands an item, and floors are means over them.
JUDGED_ITEMS = 4


class Reference:
    """Files and arrays that subjects are fed with and judged by.

    weights, inputs: array files, there after ``settle``; few: the inputs with JUDGED_ITEMS items a batch. onnx: the export,
    with the canonical weights in it; onnx_weights: its initializers, for frameworks that take their weights by way of ONNX;
    both there after ``export``. float32, truth: "case/name" -> outputs, there after ``check`` and ``evaluate``, and read from
    their files one by one.
    """

    def __init__(self, request: Request, model: ModelFolder, worker: Worker, listener: Listener) -> None:
        self.request, self.model, self.worker, self.listener = request, model, worker, listener
        self.framework = request.reference
        self.space = worker.folder
        self.weights = self.space / "weights.npz"
        self.inputs = self.space / "inputs.npz"
        self.few = self.inputs
        self.training = self.space / "training.npz"
        self.few_training = self.training
        self.kind = f"synthetic, seed {request.seed}"
        self.digest: str | None = None
        self.inputs_digest: str | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.fused_parameters: dict[str, tuple[str, ...]] = {}
        self.source = ""
        self.onnx: Path | None = None
        self.onnx_weights: Path | None = None
        self.onnx_problem: str | None = None
        self.truth: Mapping[str, np.ndarray] = {}
        self.constant = False
        self.float32: Mapping[str, np.ndarray] = {}
        self.output_shapes: dict[str, tuple[int, ...]] = {}
        self.precision = "float64"
        self.environment: dict[str, Any] = {}
        self.layers: list[str] = []
        self.replay_problem = ""
        self.floors: dict[str, float] | None = None
        self.untested: list[str] = []
        self.tested: list[str] = []

    def settle(self) -> None:
        """Build the model, and write down the weights and inputs that every subject gets.

        Raises SubjectError when the reference cannot run, WeightsError when the given weights do not fit it.
        """
        self._phase("importing")
        self.environment = self.worker.start()["environment"]
        self._phase("building the model")
        built = self.worker.request("build", **build_arguments(self.model, self.framework, None))
        self.shapes = {name: tuple(shape) for name, shape in built["shapes"].items()}
        inputs = self._inputs()
        npz.save_file(inputs, self.inputs)
        if self.request.batch > JUDGED_ITEMS:
            self.few = self.space / "few-inputs.npz"
            npz.save_file(probe.first_items(inputs, self.model.spec, JUDGED_ITEMS), self.few)
        self.inputs_digest = digest(inputs)
        arrays = self._settle_weights()
        npz.save_file(arrays, self.weights)
        self.digest = digest(arrays)

    def _inputs(self) -> dict[str, np.ndarray]:
        """The input cases; of training also their labels, which stay in files of their own."""
        request, spec = self.request, self.model.spec
        if not request.trains:
            return probe.inputs(spec, request.batch, request.seed, request.cases)
        if request.data is None:
            batches = data.synthetic(spec, request.batch, request.seed, request.cases)
        else:
            self._phase(f"reading {request.data}")
            batches = data.read(Path(request.data), spec, request.batch, request.seed, request.cases)
        self.kind = batches.kind
        npz.save_file(batches.arrays, self.training)
        inputs = {key: array for key, array in batches.arrays.items() if key.split("/", 1)[1] != data.TARGET}
        if request.batch > JUDGED_ITEMS:
            self.few_training = self.fewer_training(JUDGED_ITEMS)
        return inputs

    def fewer_training(self, items: int) -> Path:
        """The file of the first items of every batch, with their labels."""
        if items >= self.request.batch:
            return self.training
        path = self.space / f"training-{items}-items.npz"
        arrays = npz.load_file(self.training)
        labels = {key: array[:items] for key, array in arrays.items() if key.split("/", 1)[1] == data.TARGET}
        inputs = {key: array for key, array in arrays.items() if key not in labels}
        npz.save_file({**probe.first_items(inputs, self.model.spec, items), **labels}, path)
        return path

    def export(self) -> None:
        """Export ONNX for the subjects that need it; what prevents it is kept in ``onnx_problem``."""
        adapters = [frameworks.parse_subject(subject)[0] for subject in self.request.subjects]
        if not any(adapter.runs_export or adapter.weights_route == "onnx" for adapter in adapters):
            return
        if self.model.spec.no_export:
            self.onnx_problem = self.model.spec.no_export
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
        self.float32 = self._outputs("float32", self.inputs, self.weights)
        self._check_outputs()

    def take_normal_form(self, fused_parameters: dict[str, tuple[str, ...]]) -> None:
        """Take the digest in a form that every framework of the run can hold: see weights.normal_form."""
        self.fused_parameters = fused_parameters
        if fused_parameters:
            self.digest = digest(normal_form(npz.load_file(self.weights), fused_parameters))

    def evaluate(self) -> None:
        """Compute what is right: in float64, or, where the framework cannot, measure the floor by perturbation."""
        self._phase("computing in float64, and the noise of every layer")
        try:
            if not self.replays or not self._arbitrate():
                self.truth = self._outputs("float64", self.inputs, self.weights)
        except Unsupported:
            self._phase("measuring the floor by perturbation")
            moved = self.space / "moved-inputs.npz", self.space / "moved-weights.npz"
            for source, target in zip((self.inputs, self.weights), moved):
                npz.save_file(probe.perturb(npz.load_file(source), self.request.seed), target)
            self.truth, self.float32 = self.float32, self._outputs("moved", *moved)
            self.precision = "float32"
        self.constant = compare.is_constant(self.truth, self.model.spec, range(self.request.cases))

    @property
    def replays(self) -> bool:
        """Whether this reference judges layers: torch does, whose modules are the canonical layers."""
        return self.framework == "torch"

    def list_layers(self) -> list[str]:
        """The canonical layers; [] when this reference judges none."""
        if self.replays and not self.replay_problem and not self.layers:
            self.layers = self.worker.request("layers")["layers"]
        return self.layers

    def match(self, captured: dict[str, Any], folder: Path) -> dict[str, str]:
        """Canonical -> own names of a capture under a framework's own names: see layers.match."""
        reply = self.worker.request("order", **self._replayed(captured["inputs"]))
        mine = [Place(name, kind, tuple(taken), tuple(given)) for name, kind, taken, given in reply["order"]]

        def shape(files: list[str]) -> tuple[int, ...]:
            found: tuple[int, ...] = np.load(folder / files[0], mmap_mode="r").shape
            return found

        theirs = [
            Place(record["name"], captured["kinds"][record["name"]], shape(record["inputs"]), shape(record["outputs"]))
            for record in captured["records"]
            if record["call"] == 0 and record["inputs"] and record["outputs"]
        ]
        return match(mine, theirs, captured["channels_last"])

    def replay(self, captured: dict[str, Any], folder: Path, subject: str, matched: Mapping[str, str]) -> Layers:
        """Judge every layer of a capture: the reply and the folder of a worker's ``capture``."""
        self._phase(f"replaying the layers of {subject}")
        return summarise(self.ask_replay(captured, folder), self.list_layers(), subject, matched)

    def ask_replay(
        self, captured: dict[str, Any], folder: Path, planted: tuple[str, int] | None = None
    ) -> dict[str, Any]:
        """What replay.Replay.report says of a capture."""
        return self.worker.request(
            "replay",
            folder=str(folder),
            records=captured["records"],
            channels_last=captured["channels_last"],
            case=CAPTURED_CASE,
            planted=planted,
            **self._replayed(captured["inputs"]),
        )

    def ask_capture(self, worker: Worker, folder: Path, wanted: list[str] | None) -> dict[str, Any]:
        """A worker's ``capture`` into a new folder, with ``inputs``: the file of those that it computed on."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        inputs = str(self.inputs if worker.adapter.runs_export else self.few)  # the export's batch is fixed
        arguments = {"inputs": inputs, "case": CAPTURED_CASE, "folder": str(folder), "wanted": wanted}
        return {**worker.request("capture", **arguments), "inputs": inputs}

    def _replayed(self, inputs: Path | str) -> dict[str, Any]:
        return {"inputs": str(inputs), "weights": str(self.weights), "seed": self.request.seed}

    def _arbitrate(self) -> bool:
        """The float64 outputs, and the noise of all layers in them, relative to their size alike in every case.

        False, with the reason in ``replay_problem``, when the model's layers cannot be replayed.
        """
        path = self.space / "float64-outputs.npz"
        try:
            reply = self.worker.request("floors", path=str(path), **self._replayed(self.few))
        except (Crashed, TimedOut, Unsupported):
            raise
        except SubjectError as error:
            self.replay_problem = str(error)
            return False
        self.list_layers()
        self.truth = (
            npz.OnDisk(path) if self.few == self.inputs else self._outputs("float64", self.inputs, self.weights)
        )
        self.untested, self.tested = reply["untested"], reply["tested"]
        self.floors = {}
        for name in self.model.spec.outputs:
            cases = [key for case in range(self.request.cases) if (key := case_key(case, name)) in reply["floors"]]
            shares = [reply["floors"][key] for key in cases]
            relative = [share["floor"] / share["size"] if share["size"] else 0.0 for share in shares]
            pooled = math.sqrt(sum(value**2 for value in relative) / len(relative)) if relative else 0.0
            self.floors.update({key: pooled * share["size"] for key, share in zip(cases, shares)})
        return True

    # -- for the result file ------------------------------------------------------------------------------------------

    def describe(self) -> ReferenceSummary:
        floor = f"{self.framework}'s own float32 error"
        if self.floors is not None:
            floor = "the rounding of every layer, modelled and measured in float64"
        if self.precision != "float64":
            floor = "the change of its outputs when every weight and input moves to a neighbouring float32"
        return ReferenceSummary(
            framework=self.framework,
            precision=self.precision,
            floor=floor,
            onnx=self.onnx_problem or ("exported" if self.onnx else "not needed"),
            environment=self.environment,
            layers=len(self.layers),
            tested=len(self.tested),
            untested=tuple(self.untested),
            replay_problem=self.replay_problem,
        )

    def describe_weights(self) -> WeightsSummary:
        """Parameters and running statistics apart; the digest covers both."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        statistics = {name for name in sizes if name.rsplit(".", 1)[-1] in probe.STATISTICS}
        return WeightsSummary(
            digest=self.digest,
            tensors=len(sizes) - len(statistics),
            parameters=sum(size for name, size in sizes.items() if name not in statistics),
            statistics=len(statistics),
            source=self.source,
            normal_form=self.fused_parameters,
        )

    def describe_inputs(self) -> InputsSummary:
        return InputsSummary(digest=self.inputs_digest, cases=self.request.cases, kind=self.kind)

    # -- steps --------------------------------------------------------------------------------------------------------

    def _phase(self, doing: str) -> None:
        self.listener.phase("reference", doing)

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

    def _outputs(self, name: str, inputs: Path, weights: Path) -> Mapping[str, np.ndarray]:
        """The outputs from these inputs and weights, kept in a file of this name; in float64 when that is the name."""
        path = self.space / f"{name}-outputs.npz"
        reply = self.worker.request(
            "evaluate", inputs=str(inputs), path=str(path), weights=str(weights), float64=name == "float64"
        )
        self.output_shapes = {key: tuple(shape) for key, shape in reply["shapes"].items()}
        return npz.OnDisk(path)

    def _check_outputs(self) -> None:
        spec, file, name = self.model.spec, self.model.path / "spec.py", self.framework
        found = {key.split("/", 1)[1]: shape for key, shape in self.output_shapes.items()}
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
        "names": folder.names(frameworks.load(framework).reads()),
        "inputs": {name: tensor.layout for name, tensor in folder.spec.inputs.items()},
        "outputs": {name: tensor.layout for name, tensor in folder.spec.outputs.items()},
    }


def export_onnx(folder: ModelFolder, space: Path, batch: int | None = None) -> Path:
    """Export a model's graph from torch, with placeholder weights; returns the file, in ``space``. batch: None for its own."""
    if folder.spec.no_export:
        raise Unsupported(folder.spec.no_export)
    torch = frameworks.load("torch")
    environment = environments.chosen(torch)
    python = environment.interpreter if environment else sys.executable
    worker = Worker(torch, str(python), space, host.cores(), "cpu", timeout=1800.0)
    try:
        worker.start()
        worker.request("build", **build_arguments(folder, "torch", None))
        npz.save_file(probe.inputs(folder.spec, batch or folder.spec.batch, seed=0, cases=1), space / "inputs.npz")
        worker.request("export", inputs=str(space / "inputs.npz"), path=str(space / "model.onnx"))
    finally:
        worker.close()
    return space / "model.onnx"
