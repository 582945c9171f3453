"""Chooses the layers of a converted file that stay in float32: each choice is a file, whose outputs a runtime computes."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ..checking.candidate import Beside, Target
from ..checking.computing import Computed, compute_matched
from ..checking.figures import conditions, unmet
from ..checking.judge import conversion
from ..checking.options import CheckSettings
from ..checking.subject import File, Opened, build, make_worker, open_file
from ..checking.timed import first_case
from ..errors import Refused
from ..framework import formats
from ..framework.converter import Layer
from ..messages.conversion import Convert
from ..processes.worker import Worker
from ..progress import Listener
from ..results.figures import Figures
from ..results.plan import Plan, PlannedFile, PlannedLayer
from ..results.verdicts import Verdict
from .search import Kept, Search, Tried, relative_error


@dataclass(frozen=True)
class Mixing:
    """How a file with some layers in float32 is made.

    worker: the converter, in a process that is started. question: (names of these layers, path of the file) -> the request to it.
    source: the file with all layers in float32. layers: its layers. precision: of all other layers.
    """

    worker: Worker
    question: Callable[[Sequence[str], Path], Convert]
    source: Path
    layers: tuple[Layer, ...]
    precision: str

    def make(self, kept: Kept, path: Path) -> str:
        """Make a file. Returns a phrase that says how."""
        if self.layers and len(kept) == len(self.layers):
            shutil.copy(self.source, path)
            return f"no conversion to {self.precision}, because all layers stay in float32"
        return self.worker.ask(self.question(self.names(kept), path))

    def names(self, kept: Kept) -> tuple[str, ...]:
        """The names of these layers, in the order of computation."""
        return tuple(layer.name for index, layer in enumerate(self.layers) if index in kept)


@dataclass(frozen=True)
class Planned:
    """The plan of a file that was made. says: how it was made, a phrase.

    beside: the files of the plan, in order; None for the chosen one, and for one that is not to be timed.
    """

    plan: Plan
    says: str
    beside: tuple[Beside | None, ...] = ()


class Planner:
    """Plans one file. target: the reference, with its input cases. label: the name of the file. space: an empty folder."""

    def __init__(
        self, mixing: Mixing, target: Target, settings: CheckSettings, listener: Listener, label: str, space: Path
    ) -> None:
        self.mixing, self.target, self.settings = mixing, target, settings
        self.listener, self.label, self.space = listener, label, space
        self.wanted = conditions(settings.accept or "")
        self.begun = time.monotonic()
        self.runtimes: list[Opened] = []
        self.search = Search(len(mixing.layers), self._tried, self._is_late, self._doing)

    def execute(self, path: Path) -> Planned:
        """Choose the layers, and write the file."""
        with ExitStack() as stack:
            for file in self._files():
                stack.callback(file.worker.close)
                self.runtimes.append(open_file(file, self.settings))
            chosen = self.search.execute()
            says = self.mixing.make(chosen, path)
            shown = self.search.shown(chosen)
            beside = tuple(None if kept == chosen else self._beside(place, kept) for place, kept in enumerate(shown))
        return Planned(self._plan(chosen, shown), says, beside)

    def _files(self) -> Iterator[File]:
        """The float32 file on each runtime."""
        settings, source = self.settings, self.mixing.source
        for name in settings.on.split(",") if settings.on else [""]:
            form = formats.examine(source, name.strip(), settings.trust)
            yield File(self.label, source, form, make_worker(self.label, form, self.space, settings, self.listener))

    def _is_late(self) -> bool:
        budget = self.settings.max_seconds
        return budget is not None and time.monotonic() - self.begun >= budget

    def _doing(self, what: str) -> None:
        self.listener.phase(self.label, what)

    # -- one file -----------------------------------------------------------------------------------------------------

    def _tried(self, kept: Kept) -> Tried:
        """Make a file, and compare its outputs with the reference, on every runtime. The figures are those of the first one."""
        path = self.space / "tried.onnx"
        self.mixing.make(kept, path)
        each = [self._on(opened, path) for opened in self.runtimes]
        says = dict.fromkeys(text for tried in each for text in tried.unmet)
        return replace(each[0], unmet=tuple(says), error=max(tried.error for tried in each))

    def _on(self, opened: Opened, path: Path) -> Tried:
        """What one runtime makes of a file. A file that it refuses meets no condition."""
        size = path.stat().st_size
        meaning, count = self.target.meaning, self.target.cases.count
        try:
            computed = self._computed(opened, path)
            judged = conversion(computed, meaning, None, count)
        except Refused as error:
            return Tried(size, {}, (f"{opened.form.runtime} cannot compute it: {error}",), math.inf)
        figures, invalid = dict(judged.figures), judged.error.verdict == Verdict.INVALID
        says = unmet(self.wanted, figures)
        if invalid:
            says.append(judged.error.reason or "its outputs cannot be compared")
        for first in range(1, 1 if says else count):  # the check may have time for fewer cases
            fewer = unmet(self.wanted, conversion(computed, meaning, None, first).figures)
            says += [f"{text} in the first {first} of {count} input cases" for text in fewer]
        return Tried(size, figures, tuple(says), relative_error(figures.values(), not invalid))

    def _computed(self, opened: Opened, path: Path) -> Computed:
        opened = replace(opened, path=path)
        build(path, opened.worker, self.settings)
        return compute_matched(opened, self.target.cases, self.target.meaning, self.settings)

    def _beside(self, place: int, kept: Kept) -> Beside | None:
        """A file of the plan that is to be timed; None without --time, and where the runtime refuses it. place: in the plan."""
        if not self.settings.time or not self.search.tried[kept].figures:
            return None
        path = self.space / f"timed-{place}.onnx"
        self.listener.phase(self.label, "making the files that are timed beside it")
        self.mixing.make(kept, path)
        label = f"{place + 1}: {len(kept)} of {len(self.search.every)} in float32"
        return Beside(label, path, first_case(self._computed(self.runtimes[0], path).own))

    # -- the plan -----------------------------------------------------------------------------------------------------

    def _plan(self, chosen: Kept, shown: Sequence[Kept]) -> Plan:
        search, mixing = self.search, self.mixing
        return Plan(
            precision=mixing.precision,
            accept=self.settings.accept or "",
            layers=tuple(self._layer(index, chosen) for index in search.order()),
            files=tuple(self._file(kept, chosen) for kept in shown),
            tried=len(search.tried),
            seconds=time.monotonic() - self.begun,
            stopped=self._stopped(),
        )

    def _file(self, kept: Kept, chosen: Kept) -> PlannedFile:
        tried = self.search.tried[kept]
        return PlannedFile(self.mixing.names(kept), tried.bytes, dict(tried.figures), tried.unmet, kept == chosen)

    def _layer(self, index: int, chosen: Kept) -> PlannedLayer:
        layer, alone = self.mixing.layers[index], self.search.alone(index)
        error = None if alone is None else alone.error
        known = error is not None and 0 < error < math.inf
        sqnr = -20 * math.log10(error) if error is not None and known else None
        return PlannedLayer(layer.name, layer.kind, sqnr, error == math.inf, index in chosen)

    def _stopped(self) -> str:
        """Why the search ended early, or what it could not reach; "" otherwise."""
        search = self.search
        every = search.tried.get(search.every)
        if every is not None and every.unmet:
            says = f"even with all {len(search.every)} layers in float32, {'; '.join(every.unmet)}"
            return "; ".join(filter(None, [says, self._worst()]))
        if search.late:
            return (
                f"--max-seconds {self.settings.max_seconds:g} ended the search after {len(search.tried)} files; fewer layers in "
                "float32 may do"
            )
        return ""

    def _worst(self) -> str:
        """The layer that costs most, as a clause; "" where no cost was measured."""
        index = next(iter(self.search.order()), None)
        alone = None if index is None else self.search.alone(index)
        if index is None or alone is None:
            return ""
        said = ", ".join(_sqnr(name, each) for name, each in alone.figures.items() if each.sqnr is not None)
        name, precision = self.mixing.layers[index].name, self.mixing.precision
        if alone.error == math.inf:
            return f"{name} costs most: alone in {precision} it makes outputs that are infinite or missing"
        return f"{name} costs most: alone in {precision} it leaves {said}" if said else ""


def _sqnr(name: str, figures: Figures) -> str:
    return f"{figures.sqnr:.4g} dB of {name}"
