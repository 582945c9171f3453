"""Searches the smallest piece of an ONNX file that a runtime computes wrong by itself."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import Failed, Refused
from ..messages.files import Compute
from ..messages.pieces import CutPiece, PieceCut, ReadNodes
from ..processes.worker import Worker
from ..results.layers import Layers
from ..results.verdicts import Verdict
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from .candidate import Context
from .nodes import CapturedNodes
from .precision import approximated
from .subject import Opened, build, make_worker

MOST = 8  # nodes that are tried alone
MOST_THINNED = 24  # nodes of a piece from which one after another is taken
SECONDS = 120.0  # of one search
ROUNDS = 4  # evaluations from which the limits of the piece are made that is written
STOPPED = "The search for a smaller piece ended for want of time."
# The modes of a format in which a piece is tried: as applications run it, and node by node.
MODES = {"onnxruntime": ("all", "none"), "openvino": ("float32",)}


@dataclass(frozen=True)
class Wrong:
    """A piece that the runtime computes wrong.

    cut: what it consists of. outputs: the wrong ones. mode: of the format. stopped: why it may not be the smallest one, or "".
    """

    cut: PieceCut
    outputs: tuple[str, ...]
    mode: str
    stopped: str = ""


class _OutOfTime(Exception):
    """The search has taken long enough."""


@contextmanager
def probing(context: Context, opened: Opened) -> Iterator[Worker]:
    """A worker of the runtime in which pieces are tried: the one of the file keeps the file open."""
    settings, listener = context.settings, context.listener
    worker = make_worker(opened.label, opened.form, context.space, settings, listener, python=opened.python)
    worker.until = context.clock.deadline
    with worker:
        yield worker


class Search:
    """The search for a piece of one file.

    nodes: the values of its nodes. layers: the verdicts on its nodes; None without any. probe: see ``probing``.
    """

    def __init__(
        self,
        context: Context,
        opened: Opened,
        graphs: Worker,
        nodes: CapturedNodes,
        layers: Layers | None,
        probe: Worker,
    ) -> None:
        self.context, self.opened, self.graphs = context, opened, graphs
        self.nodes, self.layers, self.probe = nodes, layers, probe
        left = context.clock.left
        self.until = time.monotonic() + (SECONDS if left is None else min(SECONDS, left))
        self.best: Wrong | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="piece-", dir=context.space))

    def find(self) -> Wrong | None:
        """The smallest piece that was found; None where no piece fails by itself. Raises SubjectError."""
        try:
            return self._find()
        except _OutOfTime:
            if self.best is None:
                raise Failed("the search for a piece that fails by itself ended for want of time") from None
            return replace(self.best, stopped=STOPPED)

    def _find(self) -> Wrong | None:
        names = self.graphs.ask(ReadNodes(self.nodes.file, self.nodes.data))
        modes = MODES[self.opened.form.runtime]
        different = [each.layer for each in (self.layers or Layers()).layers if each.verdict == Verdict.DIFFERENT]
        for place in [place for name in different for place, own in enumerate(names) if own == name][:MOST]:
            for mode in modes:
                found = self._try((place,), mode)
                if found is not None:
                    return found
        return next(filter(None, (self._window(len(names), mode) for mode in modes)), None)

    def _window(self, count: int, mode: str) -> Wrong | None:
        """The fewest nodes that follow one another, and of them those that count; None where they do not fail.

        The first nodes of the file fail from some number on, and of these the last ones do. A runtime joins nodes, so a fault may
        be in none of them.
        """
        right, end = 0, count
        while end - right > 1:
            middle = (right + end) // 2
            right, end = (right, middle) if self._try(range(middle), mode) else (middle, end)
        begin, right = 0, end
        while right - begin > 1:
            middle = (begin + right) // 2
            begin, right = (middle, right) if self._try(range(middle, end), mode) else (begin, middle)
        found = self._try(range(begin, end), mode)
        if found is None:
            return None
        return self._thinned(self._try(found.cut.places, mode, found.outputs) or found)

    def _thinned(self, found: Wrong) -> Wrong:
        """The piece without the nodes that it need not have. A piece of many nodes stays as it is."""
        index = 0
        while 1 < len(found.cut.places) <= MOST_THINNED and index < len(found.cut.places):
            rest = found.cut.places[:index] + found.cut.places[index + 1 :]
            again = self._try(rest, found.mode, found.outputs)
            found, index = (again, 0) if again is not None else (found, index + 1)
        return found

    def _try(self, places: Sequence[int], mode: str, outputs: Sequence[str] = ()) -> Wrong | None:
        """Compute a piece by itself. None where it is right, or cannot be computed."""
        if time.monotonic() > self.until:
            raise _OutOfTime
        count = f"{len(places)} node{'s' * (len(places) != 1)}"
        self.context.listener.phase(self.opened.label, f"looking for a piece that fails by itself: {count}")
        found = self.write(places, mode, self.folder, outputs)
        if found is not None and (self.best is None or len(found.cut.places) < len(self.best.cut.places)):
            self.best = found
        return found

    def write(
        self, places: Sequence[int], mode: str, folder: Path, outputs: Sequence[str] = (), rounds: int = 1
    ) -> Wrong | None:
        """Write a piece with its answer into a folder, and compute it. None where it is right, or cannot be computed."""
        nodes = self.nodes
        explained = [each.layer for each in (self.layers or Layers()).layers if approximated(each)]
        try:
            cut = self.graphs.ask(
                CutPiece(
                    nodes.file, nodes.data, nodes.inputs, nodes.case, str(nodes.folder), nodes.files, tuple(places),
                    str(folder), self.context.settings.seed, tuple(outputs), tuple(explained), rounds,
                )
            )  # fmt: skip
            computed = self._compute(folder, mode)
        except Refused:
            return None
        expected = npz.load_file(folder / "expected.npz")
        names = [key.removeprefix("exact/") for key in expected if key.startswith("exact/")]
        wrong = tuple(name for name in names if _is_wrong(computed.get(case_key(0, name)), expected, name))
        return Wrong(cut, wrong, mode) if wrong else None

    def _compute(self, folder: Path, mode: str) -> dict[str, Array]:
        """What the runtime computes of a piece: "0/NAME" -> array."""
        given, path = self.probe.folder / "given.npz", self.probe.folder / "computed.npz"
        inputs = npz.load_file(folder / "inputs.npz")
        npz.save_file({case_key(0, name): array for name, array in inputs.items()}, given)
        build(folder / "model.onnx", self.probe, self.context.settings)
        self.probe.ask(Compute(str(given), str(path), mode=mode))
        return dict(npz.load_file(path))

    def close(self) -> None:
        """Delete the pieces that were tried."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_wrong(found: Array | None, expected: dict[str, Array], name: str) -> bool:
    """Whether some value of an output is beyond its limit, by the rule of the script that is written."""
    exact, rounded, limit = (expected[f"{kind}/{name}"] for kind in ("exact", "rounded", "limit"))
    if found is None or found.shape != exact.shape or found.dtype != rounded.dtype:
        return True
    with np.errstate(all="ignore"):
        right = (found == rounded) | (np.isnan(found) & np.isnan(exact)) | (np.abs(found - exact) <= limit)
    return not bool(right.all())
