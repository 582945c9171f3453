"""The ONNX export that the reference makes for the subjects that need one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .. import host
from ..errors import Absent, Crashed, Refused, SubjectError, Unsupported, WeightsError
from ..framework import discovery
from ..messages import reference as messages_reference
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..weights import check, npz
from ..weights import onnx as onnx_weights
from ..weights.canonical import check_shapes
from ..workload import probe, sizes
from ..workload.request import Request
from ..workload.sizes import names_in
from ..workload.spec import BATCH, ModelFolder, ModelSpec
from .build import Prepared, ReferenceProcess, build_question

MOST_NAMED = 5  # weights that a note names
MOST_INSIDE = 2**26  # bytes of weights that an ONNX export holds; more are external data of it


@dataclass(frozen=True)
class Export:
    """The ONNX export.

    onnx: the file, with the canonical weights in it.
    weights: its initializers, for frameworks that read their weights from ONNX.
    unused: the weights that no node of the graph uses, and on which no output of the model depends.
    instead: why torch's older exporter could not make it, and the newer one did; "" otherwise.
    fixed: why it holds the sizes of the export alone, where it was to leave some open; "" where it need not or does.
    """

    onnx: Path
    weights: Path
    unused: tuple[str, ...] = ()
    instead: str = ""
    fixed: str = ""

    def notes(self) -> Iterator[str]:
        """Sentences for the report."""
        if self.instead:
            yield f"ONNX export by torch's newer exporter, because the older one cannot make it: {self.instead}"
        if self.unused:
            names = ", ".join(self.unused[:MOST_NAMED]) + (", …" if len(self.unused) > MOST_NAMED else "")
            yield (
                f"unused weights of the reference, on which no output depends: {len(self.unused)} ({names}); the ONNX export "
                "holds them, and no node uses them"
            )


def export(process: ReferenceProcess, prepared: Prepared) -> Export | Absent:
    """Export ONNX; Absent where that is not possible."""
    if process.folder.spec.no_export:
        return Absent(process.folder.spec.no_export)
    process.phase("exporting ONNX")
    try:
        return _export(process, prepared)
    except ModuleNotFoundError as error:
        return Absent(f"no ONNX export: {error.name} is not installed (pip install {error.name})")
    except Crashed:
        raise  # the process of the reference has ended
    except (SubjectError, WeightsError) as error:
        return Absent(f"no ONNX export: {error}")


def _export(process: ReferenceProcess, prepared: Prepared) -> Export:
    """Export the graph, and set the canonical weights in it by name."""
    import onnx

    path, outside = process.space / "model.onnx", 4 * prepared.sizes()[1] > MOST_INSIDE
    decoder = process.request.decodes
    question = messages_reference.Export(str(prepared.inputs), str(path), weights=not outside, decoder=decoder)
    axes = {} if decoder else open_axes(process.folder.spec, process.request)
    instead, fixed = _written(process, question, axes)
    model = onnx.load(path, load_external_data=False)
    weights = npz.OnDisk(prepared.weights)
    if outside:
        found = onnx_weights.shapes(model, prepared.shapes)
        unused = _unused(process, prepared, set(prepared.shapes) - set(found))
        found.update({name: prepared.shapes[name] for name in unused})
        check_shapes(found, prepared.shapes, source="the ONNX export's initializers")
        # The file of the canonical weights is itself the external data, so that no process has to copy them.
        onnx_weights.refer_to(model, {name: weights.place(name) for name in weights})
        onnx.save(model, path)
        return Export(path, prepared.weights, unused, instead, fixed)
    read_back = process.space / "onnx-weights.npz"
    unused = _unused(process, prepared, set(prepared.shapes) - set(onnx_weights.OfModel(model)))
    onnx_weights.add_unused(model, {name: weights[name] for name in unused})
    check(onnx_weights.OfModel(model), prepared.shapes, source="the ONNX export's initializers")
    onnx_weights.to_model(model, weights)
    onnx.save(model, path)
    npz.save_file(onnx_weights.OfModel(model), read_back)
    return Export(path, read_back, unused, instead, fixed)


def _written(
    process: ReferenceProcess, question: messages_reference.Export, axes: dict[str, tuple[str | None, ...]]
) -> tuple[str, str]:
    """Write the file, with open axes where that can be. Returns ``instead`` and ``fixed`` of ``Export``."""
    if not axes:
        return process.worker.ask(question), ""
    try:
        return process.worker.ask(replace(question, axes=axes)), ""
    except Refused as error:
        return process.worker.ask(question), str(error)


def open_axes(spec: ModelSpec, request: Request) -> dict[str, tuple[str | None, ...]]:
    """The axes of inputs and outputs whose sizes differ among those that a run asks for; see ``framework.reference.OpenAxes``."""
    varied = {name for size in request.other_sizes for name in size if size[name] != request.sizes[name]}

    def name(size: int | str) -> str | None:
        if isinstance(size, int):
            return None
        return size if (sizes.BATCH in varied if size == BATCH else names_in(size) & varied) else None

    tensors = {**spec.declared["inputs"], **spec.declared["outputs"]}
    found = {each: tuple(map(name, tensor.shape)) for each, tensor in tensors.items()}
    return {each: names for each, names in found.items() if any(names)}


def _unused(process: ReferenceProcess, prepared: Prepared, absent: Iterable[str]) -> tuple[str, ...]:
    """Which of the weights that are absent from the graph the model does not use. It may hold others as constants."""
    names = tuple(sorted(absent))
    if not names:
        return ()
    question = messages_reference.FindUnused(inputs=str(prepared.inputs), names=names)
    return process.worker.ask(question)


def export_onnx(folder: ModelFolder, space: Path, batch: int | None = None) -> Path:
    """Export a model's graph from torch, with placeholder weights. Returns the file, in ``space``.

    batch: the batch size of the graph; None: that of the model's spec.py.
    """
    if folder.spec.no_export:
        raise Unsupported(folder.spec.no_export)
    torch = discovery.load("torch")
    inputs, path = space / "inputs.npz", space / "model.onnx"
    with Worker(torch, interpreter(torch), space, host.cores(), "cpu", timeout=1800.0) as worker:
        worker.ask(build_question(folder, "torch", None))
        npz.save_file(probe.inputs(folder.spec, batch or folder.spec.items, seed=0, cases=1), inputs)
        worker.ask(messages_reference.Export(inputs=str(inputs), path=str(path)))
    return path
