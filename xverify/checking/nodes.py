"""The verdict on every node of an ONNX file."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from ..errors import SubjectError
from ..messages.graph import CaptureNodes, ReplayGraph, TakeBranches
from ..processes.worker import Worker
from ..results.layers import Layers
from ..verdict.layers import summarise
from .subject import Opened

CASE = 0  # the case on which nodes are always judged


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
    folder = opened.worker.folder / "nodes"
    folder.mkdir()
    file, flat = opened.path.resolve(), folder / "branches-taken.onnx"
    try:
        taken = graphs.ask(TakeBranches(str(file), str(inputs), case, str(flat)))
        graph, data = (str(flat), str(file.parent)) if taken else ("", "")
        captured = opened.worker.ask(CaptureNodes(inputs=str(inputs), case=case, folder=str(folder), graph=graph))
        question = ReplayGraph(graph or str(file), str(inputs), case, str(folder), captured.files, seed, data)
        report = graphs.ask(question)
    except SubjectError as error:
        return Layers(known=nodes, subject=opened.label, stopped=f"the nodes could not be checked: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    known = list(dict.fromkeys([*report.compared, *report.missing]))
    found = summarise(report, known, opened.label)
    return replace(found, layers=tuple(replace(layer, case=case) for layer in found.layers), cases=(case,))
