"""The values of all nodes of an ONNX file, and the verdict on every node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Refused, SubjectError
from ..messages.graph import CaptureNodes, ReplayGraph, TakeBranches
from ..messages.pieces import ComputeValues
from ..processes.worker import Worker
from ..results.layers import Layers
from ..verdict.layers import summarise
from .subject import Opened

CASE = 0  # the case on which nodes are always judged


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
    opened: Opened, inputs: Path, graphs: Worker, case: int, computed: bool = False
) -> Iterator[CapturedNodes]:
    """The values of all nodes, as the runtime computes them one by one. They are deleted in the end. Raises SubjectError.

    computed: whether they are computed in float64 where the runtime does not show them.
    """
    folder = opened.worker.folder / "nodes"
    folder.mkdir()
    file, flat = opened.path.resolve(), folder / "branches-taken.onnx"
    try:
        taken = graphs.ask(TakeBranches(str(file), str(inputs), case, str(flat)))
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
) -> Layers | None:
    """Compute every node again in float64 from the values that the runtime gave it. None for a file that is no ONNX graph.

    inputs: the input cases. graphs: the worker that evaluates graphs. nodes: number of nodes.
    left: seconds until --max-seconds is over; None without a limit. case: the input case.
    """
    if not opened.is_onnx or graphs is None:
        return None
    if left is not None and left <= 0:
        return Layers(known=nodes, subject=opened.label, stopped="--max-seconds left no time to check the nodes")
    try:
        with captured_nodes(opened, inputs, graphs, case) as found:
            question = ReplayGraph(found.file, str(inputs), case, str(found.folder), found.files, seed, found.data)
            report = graphs.ask(question)
    except SubjectError as error:
        return Layers(known=nodes, subject=opened.label, stopped=f"the nodes could not be checked: {error}")
    known = list(dict.fromkeys([*report.compared, *report.missing]))
    found_layers = summarise(report, known, opened.label)
    return replace(
        found_layers, layers=tuple(replace(layer, case=case) for layer in found_layers.layers), cases=(case,)
    )
