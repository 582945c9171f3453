"""Times candidates in one process run after another, until their intervals are narrow enough.

How the candidates are prepared and judged is left to the caller, between two process runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from .. import messages
from ..processes.worker import Worker
from ..progress import Listener
from ..results.records import Speed
from ..timing import plan
from ..timing.noise import Seen
from ..timing.speed import speeds
from ..workload.request import Request
from . import rounds
from .budget import Clock
from .repeat import another_run_helps, faultless, process_runs_done
from .timed import TimedCandidate

Timed = TypeVar("Timed", bound=TimedCandidate)


class ProcessRuns(Generic[Timed]):
    """The process runs of some candidates.

    candidates: the first one is the baseline of time ratios.
    noise: what was seen of the noise of the machine, which is added to it.
    notes: gets a sentence about each thing that --max-seconds cuts short.
    background: runs what is not timed.
    new_worker: makes the worker of a candidate's next process.
    """

    def __init__(
        self,
        candidates: Sequence[Timed],
        request: Request,
        clock: Clock,
        listener: Listener,
        notes: list[str],
        noise: Seen,
        background: Executor,
        new_worker: Callable[[Timed], Worker],
    ) -> None:
        self.candidates, self.request, self.clock, self.listener = candidates, request, clock, listener
        self.notes, self.noise, self.background, self.new_worker = notes, noise, background, new_worker
        self.effort = plan.EFFORTS[request.effort]
        self.seconds: list[float] = []  # of each process run so far
        self.coming: dict[str, tuple[Worker, Future[messages.Started]]] = {}  # processes of the next process run

    def speeds(self) -> list[Speed | None]:
        """The speed of every candidate so far."""
        return speeds([each.measurements() for each in self.candidates], self.noise.refusal())

    def time(self) -> None:
        """Warm up and time the processes that are ready. Nothing else may run on the machine.

        With --no-timing, every process makes its first steps and one call on each input.
        """
        begun = time.monotonic()
        with self.clock.doing("warming"):
            self._warm()
        with self.clock.doing("timing"):
            active, noisy = [each for each in self.candidates if each.active], False
            if active and not self.request.no_timing:
                timed = rounds.interleave(active, self.request, self.effort, self.clock.left, self.listener)
                self.noise.add(timed.gate)
                noisy = timed.gate.noisy and self.clock.left is None
                if timed.gate.rounds < timed.planned:
                    self._cut(f"the timing after {timed.gate.rounds} of {timed.planned} rounds")
        with self.clock.doing("judging"):
            for candidate in self.candidates:
                candidate.finish(noisy)
            self.seconds.append(time.monotonic() - begun)

    def _warm(self) -> None:
        active = [each for each in self.candidates if each.active]
        # In the first process run, half of the rest is for timing, and a quarter for judging. A later one was begun because it
        # fits, so its warm-up is not shortened to save time.
        parts = 1 if self.seconds else 4
        for candidate in active:
            candidate.warm(self.clock.share(parts * len(active)))
            if candidate.warmed is not None and candidate.warmed.cut:
                self._cut(f"the warm-up of {candidate.label} after {candidate.warmed.calls} calls")

    def _cut(self, what: str) -> None:
        """Note that --max-seconds ended something early."""
        self._note(f"--max-seconds {self.request.max_seconds:g} ended {what}")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def report(self) -> None:
        """Tell the listener about the process run that was just timed."""
        done = process_runs_done(self.candidates)
        if done and not self.request.no_timing:
            self.listener.process_run_done(done, self.effort.least, "; ".join(self._figures()))

    def _figures(self) -> Iterator[str]:
        """The speed of every candidate so far, in words."""
        for candidate, speed in zip(self.candidates, self.speeds()):
            if speed is not None:
                yield f"{candidate.label} {figure(candidate, speed, candidate is self.candidates[0])}"

    # -- one process run after another --------------------------------------------------------------------------------

    def begin_next(self) -> None:
        """When another process run is wanted, start its processes in the background."""
        self.coming = {}
        candidates = [each for each in self.candidates if each.active and (not each.judged or faultless(each))]
        if not self._wants_more(candidates):
            return
        for candidate in candidates:
            worker = self.new_worker(candidate)
            self.coming[candidate.label] = worker, self.background.submit(worker.start)

    def _wants_more(self, candidates: list[Timed]) -> bool:
        """Whether another process run of these candidates is useful, and there is time for it."""
        if self.request.no_timing:
            return False
        if not another_run_helps(candidates, self.candidates, self.effort, self.noise.refusal()):
            return False
        latest = [each.process_runs[-1] for each in candidates]
        starts = sum(run.import_seconds + run.build_seconds for run in latest)
        left, needed = self.clock.left, max(self.seconds, default=0.0) + starts
        if left is None or left > needed:
            return True
        done = process_runs_done(self.candidates)
        self._note(
            f"--max-seconds {self.request.max_seconds:g} ended the run after {done} of at least {self.effort.least} process runs"
        )
        return False

    def take_next(self) -> bool:
        """Give the started processes to their candidates, and build their models. Returns whether another process run follows."""
        with self.clock.doing("starting"):
            coming, self.coming = self.coming, {}
            going = [each for each in self.candidates if each.label in coming and faultless(each)]
            if not self._wants_more(going):
                going = []
            labels = {each.label for each in going}
            for label, (worker, started) in coming.items():
                if label not in labels:
                    started.cancel()
                    worker.close()
            for candidate in self.candidates:
                candidate.pause(candidate.label not in labels)
            for candidate in going:
                candidate.renew(*coming[candidate.label])
            for built in [self.background.submit(each.build) for each in going]:
                built.result()
            return bool(going)


def figure(candidate: TimedCandidate, speed: Speed, baseline: bool) -> str:
    """The speed of a candidate so far, in words. baseline: whether it is the one that others are compared with."""
    times = f" ({speed.ratio:.3f} x)" if speed.ratio is not None and not baseline else ""
    # Before the first comparison, every speed is refused because nothing was compared.
    doubt = f", not counted: {speed.not_counted}" if candidate.judged and not speed.counted else ""
    return f"{speed.fps:,.4g} a second{times}{doubt}"
