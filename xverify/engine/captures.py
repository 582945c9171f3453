"""Judges captures: calls of a model that were recorded on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import outputs
from ..errors import UsageError
from ..framework import reads
from ..frameworks.capture.dumps import as_capture
from ..frameworks.capture.file import Capture, read
from ..frameworks.capture.joining import joined
from ..processes.space import owned_folder
from ..progress import Listener
from ..reference.request import resolve
from ..results.records import Result
from ..weights import npz
from ..workload import code
from ..workload.asked import Asked
from ..workload.declaration import build, declared
from ..workload.keys import case_key
from ..workload.options import RunSettings
from ..workload.sizes import BATCH as BATCH_SIZE
from ..workload.spec import BATCH, ModelFolder, find_model
from .api import Part, run_parts

SUBJECT = "recorded"  # how the row of a capture is called
SETTINGS = declared(RunSettings)
SPEED = "a capture has no speed: it holds what was computed, and not how long it took"
UNPROVEN = "the capture has no weights, so that they are those of the reference is not proven"
ONCE = "every call was recorded once, so whether two calls on one input agree is not known"


def judge(
    captures: Sequence[str | Path],
    reference: str,
    *,
    names: str | None = None,
    json: str | Path | None = None,
    force: bool = False,
    listener: Listener | None = None,
    **settings: Any,  # fields of RunSettings
) -> Result:
    """Judge what was recorded as ``xverify judge`` does, and return the records of the result file.

    Raises UsageError for captures that cannot be judged, and NotWritten as ``xverify.run`` does.

    captures: the file of one process, or those of all ranks of one run, each of which computed other items of the batch; or a dump
        of another tool, see ``as_capture``.
    reference: a model folder, a name of the zoo, or code in torch: ``torch=FILE.py:FUNCTION``.
    names: the table of names.toml that has the names of its layers and weights.
    settings: ``weights`` is a file with the weights that the model had; None takes those of the capture, or the folder's own.
    """
    asked = build(
        RunSettings, SETTINGS, settings, "judge", ("captures", "reference", "names", "json", "force", "listener")
    )
    file = Path(json) if json is not None else None
    made = [outputs.Output("--json", file, "json")] if file is not None else []
    files = [*(reads.of_file("CAPTURE", each) for each in captures), *reads.of_run([reference], SETTINGS, vars(asked))]
    outputs.check(made, files, force)
    typed = Asked.of("judge", captures, asked, reference=reference, names=names)
    with owned_folder() as space:
        parts = [read(as_capture(Path(each), space)) for each in captures]
        for part in parts:
            part.check()
        whole = len(parts) == 1 and parts[0].manifest["ranks"] == 1
        capture = parts[0] if whole else joined(parts, space / "joined.safetensors")
        folder = _folder(reference, capture, space)
        asked = replace(
            asked,
            no_timing=True,
            cases=len(capture.alike()),
            sizes={name: (size,) for name, size in _sizes(capture, folder).items()} or None,
            weights=asked.weights or _weights(capture, parts[0].path, folder),
        )
        request, found = resolve(folder.path, [f"{SUBJECT}={capture.path.absolute()}"], asked)
        inputs = _inputs(capture, found, space / "inputs" / parts[0].path.name)
        ports = {each: replace(port, table=names or port.table) for each, port in found.ports.items()}
        others = [case for case in range(capture.cases) if case not in capture.alike()]
        left = [
            f"left out, as their inputs have other shapes than those of the first call: calls {', '.join(map(str, others))}"
        ]
        unproven = [] if capture.manifest["weights"] else [UNPROVEN]
        notes = (
            *(each.described() for each in parts),
            *(left if others else ()),
            *unproven,
            SPEED,
            *([] if _twice(capture) else [ONCE]),
        )
        request = replace(request, asked=typed, notes=(*request.notes, *notes))
        task = Part(request, replace(found, ports=ports), inputs)
        return run_parts([task], file, listener or Listener(), asked.max_seconds)


def _twice(capture: Capture) -> bool:
    """Whether two calls were recorded on one input. Equal arrays have one name."""
    inputs = [tuple(each["inputs"].values()) for each in capture.manifest["cases"]]
    return len(set(inputs)) < len(inputs)


def _folder(reference: str, capture: Capture, space: Path) -> ModelFolder:
    """The model folder of the reference. That of code is made, with a spec of the recorded inputs and outputs."""
    given = code.parse(reference)
    if given is None:
        return find_model(reference)
    if given.framework != "torch":
        raise UsageError(
            f"--reference {reference}: a reference is in torch: write torch=FILE.py:FUNCTION, or name a model folder"
        )
    folder = space / given.file.stem
    folder.mkdir()
    given.write(folder, given.framework)
    tensors = {kind: ", ".join(_tensors(capture, kind)) for kind in ("inputs", "outputs")}
    text = f"SPEC = ModelSpec(inputs={{{tensors['inputs']}}}, outputs={{{tensors['outputs']}}}, batch=None)\n"
    (folder / "spec.py").write_text(f"from xverify import ModelSpec, TensorSpec\n\n{text}", encoding="utf-8")
    return find_model(folder)


def _tensors(capture: Capture, kind: str) -> Iterator[str]:
    """The entries of a spec for the recorded inputs, or outputs. kind: "inputs" or "outputs"."""
    for index, (path, array) in enumerate(capture.arrays(0, kind).items()):
        limits = (
            f", low={int(array.min())}, high={int(array.max()) + 1}" if array.dtype.kind in "iu" and array.size else ""
        )
        name = path or f"output{index}"
        # Nothing else tells which arrays are images.
        layout = {4: "NCHW", 5: "NCDHW"}.get(array.ndim) if capture.channels_last else None
        shape = capture.canonical(array, layout).shape
        yield f"{name!r}: TensorSpec({shape!r}, {array.dtype.name!r}{limits}, layout={layout!r})"


def _sizes(capture: Capture, folder: ModelFolder) -> dict[str, int]:
    """Name of an axis of the spec -> its recorded size. Raises UsageError for inputs that the reference does not take."""
    declared_inputs = folder.spec.declared["inputs"]
    sizes: dict[str, int] = {}
    for name, array in zip(declared_inputs, capture.ordered(0, tuple(declared_inputs))):
        written, recorded = declared_inputs[name].shape, np.broadcast_to(np.float32(0), capture.shape(array))
        shape = capture.canonical(recorded, declared_inputs[name].layout).shape if recorded.ndim == len(written) else ()
        fits = len(written) == len(shape) and all(
            not isinstance(size, int) or size == has for size, has in zip(written, shape)
        )
        if not fits:
            raise UsageError(
                f"{capture.path}: the input {name} has the shape {recorded.shape}, and {folder.name} takes {written}: this is a "
                "capture of another model, or its axes are in another order"
            )
        named = ((BATCH_SIZE if size == BATCH else str(size), has) for size, has in zip(written, shape))
        sizes |= {size: has for size, has in named if size == BATCH_SIZE or size in folder.spec.sizes}
    return sizes


def _weights(capture: Capture, path: Path, folder: ModelFolder) -> str | None:
    """The capture, where it has the weights; None where the folder has weights of its own. Raises UsageError without any.

    path: of the file that the message names.
    """
    if capture.keeps_weights:
        return str(capture.path)
    if folder.weights is None:
        has = "has the digests of its weights, and not the weights" if capture.manifest["weights"] else "has no weights"
        raise UsageError(
            f"{path} {has}: give those that the model had with --weights FILE (own: as build() makes them), or record a "
            "model of torch with keep_weights=True"
        )
    return None


def _inputs(capture: Capture, folder: ModelFolder, path: Path) -> Path:
    """Write the recorded inputs as the input cases of a run."""
    spec, arrays = folder.spec.inputs, {}
    path.parent.mkdir()
    for index, case in enumerate(capture.alike()):
        for (name, tensor), array in zip(spec.items(), capture.ordered(case, tuple(spec))):
            arrays[case_key(index, name)] = capture.canonical(capture.array(array), tensor.layout).astype(tensor.dtype)
    npz.save_file(arrays, path)
    return path
