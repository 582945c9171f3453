"""Runs the cells of a sweep on this machine, one at a time. It goes on where an earlier one ended, however that ended."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ..progress import Listener
from ..results.records import Result
from .cell import has_crashed, run_cell
from .planning import Planned
from .store import State, Store

Kind = tuple[str, str]  # model and task


class Watcher:
    """Is told how a sweep proceeds, and ignores it. A subclass overrides the methods that it needs."""

    def known(self, done: int, left: int) -> None:
        """The sweep begins. done: cells whose results the folder has. left: cells to run."""

    def unusable(self, planned: Planned, problem: str) -> None:
        """A file in the place of a cell's result is not its result, so the cell is run again."""

    def running(self, planned: Planned, place: str, seconds_left: float | None) -> AbstractContextManager[Listener]:
        """A cell begins. place: "3 of 60". seconds_left: for this and all later cells; None when it is not known.

        The listener that is returned receives the progress of the run.
        """
        return nullcontext(Listener())

    def sent(self, planned: Planned, place: str, seconds_left: float | None) -> None:
        """A cell is sent to a machine of the cluster. See ``running``."""

    def ran(self, planned: Planned, result: Result, seconds: float, machine: str = "") -> None:
        """A cell has ended. machine: where it ran, on a cluster."""


@dataclass(frozen=True)
class Swept:
    """What a sweep has done. ran: number of cells that it ran. stopped: why it ended early; "" when it did not."""

    ran: int
    stopped: str = ""


class Durations:
    """Estimates how long cells take that have not ended, from those that have. cells: all of them."""

    def __init__(self, cells: Iterable[Planned]) -> None:
        self.open = Counter(map(_kind, cells))
        self.counts = Counter[Kind]()  # of the cells that have ended
        self.seconds: defaultdict[Kind, float] = defaultdict(float)

    def ended(self, planned: Planned, seconds: float) -> None:
        """Note that a cell has ended, and what it took."""
        kind = _kind(planned)
        self.open[kind] -= 1
        self.counts[kind] += 1
        self.seconds[kind] += seconds

    def left(self) -> float | None:
        """The seconds that the others take: of the same model and task, where one has ended, else as all that have.

        None before the first has ended.
        """
        if not self.counts:
            return None
        mean = sum(self.seconds.values()) / self.counts.total()
        means = {kind: self.seconds[kind] / count for kind, count in self.counts.items()}
        return sum(count * means.get(kind, mean) for kind, count in self.open.items())


def _kind(planned: Planned) -> Kind:
    return planned.model, planned.settings.task


def to_run(cells: Sequence[Planned], store: Store, force: bool, watcher: Watcher) -> list[Planned]:
    """The cells whose results the folder lacks. The watcher is told of files that are not of their cell."""
    left = []
    for each in cells:
        found = store.found(each)
        if found.problem:
            watcher.unusable(each, found.problem)
        if force or found.state != State.DONE:
            left.append(each)
    return left


def sweep(
    cells: Sequence[Planned], store: Store, *, force: bool = False, retries: int = 1, watcher: Watcher | None = None
) -> Swept:
    """Run every cell whose result the folder lacks. Raises NotWritten when a result cannot be written.

    force: also run those whose results it has. retries: how often a cell is run again, after all others, when a process of it
    crashed.
    """
    watcher = watcher or Watcher()
    left = to_run(cells, store, force, watcher)
    watcher.known(len(cells) - len(left), len(left))
    ran = 0
    for attempt in range(retries + 1):
        again = []
        for planned, result in _run_all(left, store, watcher, fresh=force or attempt > 0):
            ran += 1
            if result.interrupted and not result.complete:
                return Swept(ran, "interrupted: the same command goes on where it was")
            if has_crashed(result):
                again.append(planned)
        left = again
    return Swept(ran)


def _run_all(cells: Sequence[Planned], store: Store, watcher: Watcher, fresh: bool) -> Iterator[tuple[Planned, Result]]:
    """Run these cells, one after another. fresh: begin each anew, also where its file holds the beginning of a run."""
    durations = Durations(cells)
    for index, planned in enumerate(cells):
        begun = time.monotonic()
        place = f"{index + 1} of {len(cells)}"
        with watcher.running(planned, place, durations.left()) as listener:
            resume = not fresh and store.state(planned) == State.PARTIAL
            result = run_cell(planned, store.path(planned), listener, resume=resume)
        seconds = time.monotonic() - begun
        durations.ended(planned, seconds)
        watcher.ran(planned, result, seconds)
        yield planned, result
