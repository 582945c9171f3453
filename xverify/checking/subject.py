"""A model file in a worker process: opening it, reading its signature, computing its outputs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import messages
from ..environments import store as environments
from ..errors import Failed
from ..framework.modelfile import ModelFile, Signature, Tensor
from ..messages.files import Compute, ReadSignature
from ..processes.worker import Worker
from ..progress import Listener
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.options import ALLOCATORS
from .matching import Matching, turn, turn_back
from .options import CheckSettings

LONGEST_NAME = 50_000  # bytes; a zip archive has names of 65,535 at most


@dataclass(frozen=True)
class File:
    """A model file on one runtime.

    label: the name of its row. worker: the process that opens it.
    version: that of the runtime which --on names; "" for the one that is installed. python: an interpreter that has it.
    """

    label: str
    path: Path
    form: type[ModelFile]
    worker: Worker
    version: str = field(default="", kw_only=True)
    python: str = field(default="", kw_only=True)

    @property
    def is_onnx(self) -> bool:
        """Whether the file is an ONNX graph, whose own meaning can be computed node by node."""
        return self.form.title == "ONNX file"


@dataclass(frozen=True)
class Opened(File):
    """A file that its worker has opened.

    signature: its inputs and outputs. environment: versions and settings of the runtime.
    state: in a sequence, input -> the output of the step before that it is given.
    keeps: whether it keeps something from call to call. Its input cases are then the steps of one sequence.
    real: whether it takes and returns real numbers where the file has quantised ones.
    written: an ONNX file of the same meaning as a file of another format; None without one.
    kinds: the nodes of ``written`` that are operators of the file: name -> operator.
    """

    signature: Signature
    environment: Mapping[str, object]
    state: Mapping[str, str] = field(default_factory=dict)
    keeps: bool = False
    real: bool = False
    written: Path | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def graph(self) -> Path | None:
        """The ONNX file that is evaluated in float64: the file itself, or one of the same meaning; None without one."""
        return self.path.resolve() if self.is_onnx else self.written


def make_worker(
    label: str,
    form: type[ModelFile],
    space: Path,
    settings: CheckSettings,
    listener: Listener,
    timed: bool = False,
    python: str = "",
) -> Worker:
    """A worker for a format; it is not started.

    timed: whether its calls are timed, with --pin and --allocator. python: its interpreter; "": the usual one of the format.
    """
    folder = Path(tempfile.mkdtemp(prefix="worker-", dir=space))
    chosen = environments.chosen(form)
    return Worker(
        form,
        python or (chosen.interpreter if chosen else sys.executable),
        folder,
        settings.thread_count,
        "cpu",
        settings.timeout,
        settings.pin if timed else (),
        beat=lambda seconds, line: listener.beat(label, seconds, line),
        allocator=settings.allocator or ALLOCATORS[0] if timed else None,
        memory=settings.memory,
    )


def open_file(file: File, settings: CheckSettings) -> Opened:
    """Start the worker and open the file. Raises SubjectError."""
    started = file.worker.start()
    _, signature = build(file.path, file.worker, settings)
    _check_names(signature)
    return Opened(**vars(file), signature=signature, environment=started.environment)


def _check_names(signature: Signature) -> None:
    """Raise Failed for a name that no file of arrays can hold."""
    for tensor in (*signature.inputs, *signature.outputs):
        if len(tensor.name.encode(errors="replace")) > LONGEST_NAME:
            raise Failed(
                f"the name {tensor.name[:20]!r}... has {len(tensor.name):,} letters; at most {LONGEST_NAME:,} are read"
            )


def in_real_numbers(
    opened: Opened, inputs: Sequence[Tensor], outputs: Sequence[Tensor], settings: CheckSettings
) -> Opened:
    """The file with real numbers in the place of quantised ones, where the reference has those. Raises SubjectError.

    inputs, outputs: of the reference.
    """
    signature = opened.signature
    sides = ((signature.inputs, inputs), (signature.outputs, outputs))
    if not any(
        any(each.quantised for each in mine) and all("int" not in each.dtype for each in theirs)
        for mine, theirs in sides
    ):
        return opened
    _, signature = build(opened.path, opened.worker, settings, real=True)
    return replace(opened, signature=signature, real=True)


def build(path: Path, worker: Worker, settings: CheckSettings, real: bool = False) -> tuple[float, Signature]:
    """Open a file in a worker that is started: (seconds, its signature). real: see ``Opened``. Raises SubjectError."""
    options: dict[str, object] = {"trust": settings.trust, **({"real": True} if real else {})}
    if settings.signature:
        options["signature"] = settings.signature
    built = worker.ask(messages.Build(str(path.resolve()), options, None, {}, {}, {}))
    return built.seconds, worker.ask(ReadSignature())


def write_inputs(cases: Mapping[str, Array], matching: Matching, path: Path) -> None:
    """Write the input cases as a file takes them: under its names, and with its order of axes.

    cases: "case/name" -> array, with the reference's names.
    """
    own = {}
    for key, array in cases.items():
        case, _, name = key.partition("/")
        for pair in matching.pairs:
            if pair.reference == name:
                own[case_key(int(case), pair.own)] = turn(array, pair.order)
    npz.save_file(own, path)


def compute(
    opened: Opened,
    inputs: Path,
    name: str,
    float64: bool = False,
    perturb: int | None = None,
    again: bool = False,
) -> Mapping[str, Array]:
    """The outputs of every case, "case/name" -> array with the file's own names; read from disk when they are looked up.

    perturb, again: see ``Compute``.
    """
    path = opened.worker.folder / f"{name}.npz"
    state = dict(opened.state)
    question = Compute(str(inputs), str(path), float64=float64, state=state, perturb=perturb, again=again)
    opened.worker.ask(replace(question, anew=opened.keeps))
    return npz.OnDisk(path)


def compute_redrawn(opened: Opened, inputs: Path, seed: int) -> Mapping[str, Array] | None:
    """The same with all weights drawn anew, in the file's own precision; None where its weights cannot be changed."""
    path = opened.worker.folder / "redrawn.npz"
    reply = opened.worker.ask(Compute(str(inputs), str(path), state=dict(opened.state), redraw=seed, anew=opened.keeps))
    return npz.OnDisk(path) if reply.redrawn else None


def as_reference(outputs: Mapping[str, Array], matching: Matching, cases: int) -> dict[str, Array]:
    """The outputs under the reference's names and with its order of axes. Outputs without a partner are left out."""
    return {
        case_key(case, pair.reference): turn_back(outputs[case_key(case, pair.own)], pair.order)
        for case in range(cases)
        for pair in matching.pairs
        if case_key(case, pair.own) in outputs
    }


def computed_tensors(outputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
    """The outputs of case 0 as a signature with every size known."""
    found = []
    for key in outputs:
        case, _, name = key.partition("/")
        if case == "0":
            array = outputs[key]
            found.append(Tensor(name, array.shape, array.dtype.name))
    return tuple(found)
