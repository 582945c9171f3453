"""The first node of a file that computes something else than the reference."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..messages.files import TraceNodes
from ..messages.graph import FindDivergence, GraphSide
from ..processes.worker import Worker
from .candidate import Context
from .graph_worker import graph_worker
from .subject import Opened


@dataclass(frozen=True)
class Side:
    """A file with its input cases. inputs: the array file."""

    opened: Opened
    inputs: Path


def divergence(
    context: Context,
    file: Side,
    reference: Side,
    outputs: Mapping[str, str],
    case: int,
    any_order: bool,
    coarse: float,
    general: bool,
    graphs: Worker | None,
) -> list[str]:
    """Sentences on where a file begins to compute something else than a reference; [] where that is not found.

    outputs, case, any_order, coarse, general: see ``FindDivergence``.
    graphs: the worker that evaluates graphs, where one is started.
    """
    with _started(context, graphs) as worker, _folders(file, reference) as folders:
        if worker is None:
            return []
        mine, theirs = (_graph(side, case, folder) for side, folder in zip((file, reference), folders))
        found = worker.ask(FindDivergence(mine, theirs, case, dict(outputs), any_order, coarse, general))
        return list(found)


def _graph(side: Side, case: int, folder: Path) -> GraphSide:
    """The graph of a file with its values. Raises SubjectError when the format does not show them."""
    opened = side.opened
    if opened.is_onnx:
        return GraphSide(str(opened.path.resolve()), str(side.inputs))
    traced = opened.worker.ask(TraceNodes(str(side.inputs), case, str(folder)))
    return GraphSide(traced=traced, folder=str(folder))


@contextmanager
def _started(context: Context, graphs: Worker | None) -> Iterator[Worker | None]:
    """The worker that evaluates graphs, or one that lives for the ``with`` statement."""
    worker = graphs or graph_worker(context.settings, context.space)
    try:
        if worker is not None and graphs is None:
            worker.until = context.clock.deadline
            worker.start()
        yield worker
    finally:
        if worker is not None and graphs is None:
            worker.close()


@contextmanager
def _folders(*sides: Side) -> Iterator[list[Path]]:
    """An empty folder for the values of each file, which is deleted in the end."""
    folders = [Path(tempfile.mkdtemp(prefix="nodes-", dir=each.opened.worker.folder)) for each in sides]
    try:
        yield folders
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
