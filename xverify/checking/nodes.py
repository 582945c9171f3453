"""The values of all nodes of an ONNX graph, and the verdict on every node, or on every operator that was written as such nodes."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Refused, SubjectError
from ..messages.graph import CaptureNodes, NodesCaptured, ReplayGraph, TakeBranches
from ..messages.pieces import ComputeValues
from ..processes.worker import Worker
from ..results.layers import Layers
from ..verdict.layers import summarise
from ..verdict.limits import INTEGER_STEP, MEAN_STEP
from .graph_worker import in_background
from .subject import Opened

CASE = 0  # the case on which nodes are always judged
LARGE = 2**28  # bytes of a file; of a larger one, the values of the nodes are computed when nothing else needs memory


@dataclass(frozen=True)
class Capture:
    """The values of all nodes in one case, which the runtime computes in the background.

    inputs: the input cases. folder: where the values are written. reply: the answer of the runtime.
    """

    inputs: Path
    folder: Path
    reply: Future[NodesCaptured]

    @classmethod
    def begin(cls, opened: Opened, inputs: Path, graphs: Worker | None) -> Capture | None:
        """Begin with CASE. None where the nodes are not judged, or need the branches that are taken, which another worker finds."""
        if not opened.is_onnx or graphs is None or opened.state or opened.path.stat().st_size > LARGE:
            return None
        if may_have(opened.path, "If"):
            return None
        folder = _folder(opened)
        question = CaptureNodes(inputs=str(inputs), case=CASE, folder=str(folder))
        return cls(inputs, folder, in_background(opened.worker.ask, question))


def may_have(path: Path, operator: str) -> bool:
    """Whether an ONNX file has the bytes of a node with this operator: the field NodeProto.op_type. They may also be others."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(bytes([0x22, len(operator)]) + operator.encode()) >= 0


@dataclass(frozen=True)
class CapturedNodes:
    """The values of the nodes of a graph in one case.

    file: the graph, in which each If is the branch that the case takes. data: the folder of its external data; "": its own.
    inputs, case: the input cases, and the case. folder, files: of the values, as in ``NodesCaptured``.
    """

    file: str
    data: str
    inputs: str
    case: int
    folder: Path
    files: dict[str, str]


@contextmanager
def captured_nodes(
    opened: Opened, inputs: Path, graphs: Worker, case: int, computed: bool = False, begun: Capture | None = None
) -> Iterator[CapturedNodes]:
    """The values of all nodes, as the runtime computes them one by one. They are deleted in the end. Raises SubjectError.

    opened: a file that has an ONNX graph. computed: whether they are computed in float64 where the runtime does not show them.
    begun: the same as ``judge_nodes``.
    """
    if begun is not None and (begun.inputs, CASE) != (inputs, case):
        begun = None
    folder = _folder(opened) if begun is None else begun.folder
    file, flat = opened.graph or opened.path, folder / "branches-taken.onnx"
    try:
        if begun is not None:
            yield CapturedNodes(str(file), "", str(inputs), case, folder, begun.reply.result().files)
            return
        taken = opened.is_onnx and graphs.ask(TakeBranches(str(file), str(inputs), case, str(flat)))
        graph, data = (str(flat), str(file.parent)) if taken else ("", "")
        question = CaptureNodes(inputs=str(inputs), case=case, folder=str(folder), graph=graph)
        try:
            captured = opened.worker.ask(question)
        except Refused:
            if not computed:
                raise
            captured = graphs.ask(ComputeValues(graph or str(file), data, str(inputs), case, str(folder)))
        yield CapturedNodes(graph or str(file), data, str(inputs), case, folder, captured.files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge_nodes(
    opened: Opened,
    inputs: Path,
    graphs: Worker | None,
    nodes: int,
    seed: int,
    left: float | None = None,
    case: int = CASE,
    begun: Capture | None = None,
) -> Layers | None:
    """Compute every node again in float64 from the values that the runtime gave it. None for a file without an ONNX graph.

    inputs: the input cases. graphs: the worker that evaluates graphs. nodes: number of nodes.
    left: seconds until --max-seconds is over; None without a limit. case: the input case.
    begun: the values of the nodes, where the runtime computes them already.
    """
    if opened.graph is None or graphs is None:
        return None
    if left is not None and left <= 0:
        return Layers(known=nodes, subject=opened.label, stopped="--max-seconds left no time to check the nodes")
    kinds = opened.kinds
    steps = {name: MEAN_STEP if kind == "MEAN" else INTEGER_STEP for name, kind in kinds.items()}
    try:
        with captured_nodes(opened, inputs, graphs, case, begun=begun) as found:
            values = found.file, str(inputs), case, str(found.folder), found.files
            report = graphs.ask(ReplayGraph(*values, seed, found.data, opened.form.channels_last, steps))
    except SubjectError as error:
        return Layers(known=nodes, subject=opened.label, stopped=f"the nodes could not be checked: {error}")
    if kinds:  # other nodes of the graph are no operators of the file
        report = replace(
            report,
            findings=tuple(each for each in report.findings if each.layer in kinds),
            compared={name: calls for name, calls in report.compared.items() if name in kinds},
        )
    every = dict.fromkeys([*report.compared, *report.missing])
    layers = summarise(report, [name for name in every if not kinds or name in kinds], opened.label)
    judged = [replace(each, case=case, kind=kinds.get(each.layer, each.kind)) for each in layers.layers]
    return replace(layers, layers=tuple(judged), cases=(case,))


def _folder(opened: Opened) -> Path:
    """A new folder for the values of the nodes."""
    return Path(tempfile.mkdtemp(prefix="nodes-", dir=opened.worker.folder))
