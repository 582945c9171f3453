"""The first node of a file that computes something else than the reference."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Refused, Unsupported
from ..messages.files import NodesTraced, TraceNodes
from ..messages.graph import FindDivergence, GraphSide, WriteGraph
from ..processes.worker import Worker
from .candidate import Context
from .graph_worker import graph_worker
from .subject import Opened

# Captures the calls of the layers of a model in one case: (the case, an empty folder for arrays) -> the calls as nodes.
Calls = Callable[[int, Path], NodesTraced]


@dataclass(frozen=True)
class Side:
    """A file with its input cases. inputs: the array file."""

    opened: Opened
    inputs: Path


def with_graph(opened: Opened, inputs: Path, graphs: Worker | None, notes: list[str]) -> Opened:
    """The file with an ONNX graph of the same meaning, where its format can write one.

    inputs: its input cases. graphs: the worker that evaluates graphs. notes: gets a sentence where writing failed.
    """
    if graphs is None or not opened.form.writes_onnx:
        return opened
    path = opened.worker.folder / "graph.onnx"
    try:
        kinds: dict[str, str] = opened.worker.ask(WriteGraph(str(inputs), str(path)))
        return replace(opened, written=path, kinds=kinds)
    except Unsupported:  # its rows say that there is no evaluation
        return opened
    except Refused as error:
        notes.append(f"{opened.label} is not evaluated in float64: {error}")
        return opened


def divergence(
    context: Context,
    file: Side,
    reference: Side | Calls,
    outputs: Mapping[str, str],
    case: int,
    any_order: bool,
    coarse: float,
    general: bool,
    graphs: Worker | None,
) -> list[str]:
    """Sentences on where a file begins to compute something else than a reference; [] where that is not found.

    reference: another file, or the calls of a model. outputs, case, any_order, coarse, general: see ``FindDivergence``.
    graphs: the worker that evaluates graphs, where one is started.
    """
    with _started(context, graphs) as worker, _folders(context) as folders:
        if worker is None:
            return []

        def found(shown: bool) -> list[str]:
            mine, theirs = (_graph(side, case, folder, shown) for side, folder in zip((file, reference), folders))
            says = worker.ask(FindDivergence(mine, theirs, case, dict(outputs), any_order, coarse, general))
            return list(says)

        try:
            return found(shown=False)
        except Refused:  # a graph of another format may lack the definition of an operator
            return found(shown=True)


def _graph(side: Side | Calls, case: int, folder: Path, shown: bool) -> GraphSide:
    """The graph of a file with its values, or the calls of a model. Raises SubjectError for a format that does not show them.

    shown: whether the values of a format other than ONNX are those that its runtime shows.
    """
    if not isinstance(side, Side):
        return GraphSide(traced=side(case, folder), folder=str(folder), layers=True)
    opened = side.opened
    if opened.is_onnx or (opened.graph is not None and not opened.form.channels_last and not shown):
        return GraphSide(str(opened.graph), str(side.inputs))
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
def _folders(context: Context) -> Iterator[list[Path]]:
    """An empty folder for the values of each of two sides, which is deleted in the end."""
    folders = [Path(tempfile.mkdtemp(prefix="nodes-", dir=context.space)) for _ in range(2)]
    try:
        yield folders
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
