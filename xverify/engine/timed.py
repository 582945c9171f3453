"""One subject of which process runs are timed. Its failure ends this subject only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from .. import messages
from ..errors import Crashed, Failed, SubjectError
from ..messages.training import TrainingPrepared
from ..processes.worker import Worker
from ..progress import Listener
from ..results.records import Error, ProcessRun
from ..timing.noise import Gate
from ..timing.speed import Measurements
from ..workload.request import Request
from . import measuring
from .again import Again, measure_again
from .building import Source
from .stages import Built, History, Measured, Repeated, Timed, TimedBlock, Warmed


class TimedCandidate:
    """A subject that is timed, with its worker and the records of its stages so far.

    A subclass sets ``error`` when its outputs have been compared, ``room``, and ``source`` before it is built.

    label: the name of its row.
    source: what it is built from.
    worker: the process of the current process run.
    history: the process runs of an earlier run that is resumed; empty when none is.
    """

    source: Source

    def __init__(self, label: str, request: Request, worker: Worker, listener: Listener, history: History) -> None:
        self.label, self.request, self.worker, self.listener = label, request, worker, listener
        self.history = history
        self.run = history.next_run
        self.process_runs, self.samples = history.process_runs, history.samples
        self.room = 0  # bytes of the outputs of one call
        self.failure: SubjectError | None = None
        self.paused = False
        self.started: messages.Started | None = None
        self.built: Built | None = None
        self.warmed: Warmed | None = None
        self.timed = Timed()
        self.measured = Measured()
        self.again = Again()
        self.error: Error | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not failed."""
        return self.failure is None

    @property
    def active(self) -> bool:
        """Whether it takes part in the current process run."""
        return self.alive and not self.paused

    @property
    def judged(self) -> bool:
        """Whether its outputs have been compared."""
        return self.error is not None

    @property
    def first_run(self) -> bool:
        """Whether this is the first process run of this invocation."""
        return len(self.process_runs) == len(self.history.process_runs)

    @property
    def last_case(self) -> int:
        """The input case of the last timed block; the last case of all when nothing was timed."""
        return self.timed.samples[-1].case if self.timed.samples else self.request.cases - 1

    @property
    def seconds_per_call(self) -> float:
        """The seconds of a call at the end of the warm-up; 0.0 before it."""
        return self.warmed.seconds_per_call if self.warmed is not None else 0.0

    # -- failing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _stage(self, doing: str = "") -> Iterator[None]:
        """Report a stage to the listener. When the stage raises SubjectError, the candidate has failed."""
        if doing:
            self.listener.phase(self.label, doing)
        try:
            yield
        except SubjectError as error:
            self._fail(error)
            self.listener.ended(self.label, error.status)
        else:
            if doing:
                self.listener.ended(self.label, "")

    def _fail(self, error: SubjectError) -> None:
        self.failure = self.failure or error
        if self.process_runs:  # the blocks of an incomplete later process run cannot be paired
            self.timed = Timed()
        self.worker.close()

    def abandon(self, reason: str) -> None:
        """End the candidate because the whole run ends. reason: why; a candidate that failed earlier keeps its own reason."""
        self.failure = self.failure or Failed(reason)
        self.worker.kill()

    # -- process runs -------------------------------------------------------------------------------------------------

    def renew(self, worker: Worker, started: Future[messages.Started]) -> None:
        """Continue with the process of the next process run. worker, started: this process and the result of its start."""
        self.worker.close()
        for folder in self.worker.folders:
            shutil.rmtree(folder, ignore_errors=True)  # its outputs have been compared
        self.worker, self.run = worker, self.run + 1
        self.samples, self.timed = self.samples + self.timed.samples, Timed()
        with self._stage():
            self.started = started.result()

    def pause(self, paused: bool) -> None:
        """Leave the candidate out of the next process run, or let it take part again."""
        self.paused = paused

    def start(self) -> None:
        """Start the process and import the framework."""
        if not self.active:
            return
        slow = self.worker.adapter.slow_start()
        with self._stage("importing" + (f" ({slow})" if slow else "")):
            self.started = self.worker.start()
            self._check_environment(self.started)

    def _check_environment(self, started: messages.Started) -> None:
        """Raise Failed when the framework is not the one of the earlier process runs."""
        for name, value in self.history.environment.items():
            if started.environment.get(name) != value:
                found = started.environment.get(name)
                raise Failed(f"--resume: the earlier process runs had {name} {value}, this process has {found}")

    def build(self) -> None:
        """Build the model."""
        if self.active:
            with self._stage(self.source.building):
                self.built = self.source.build(self.worker)

    def warm(self, most: float | None = None) -> None:
        """Make the first two steps and warm up. Both are timed, so nothing else may run on the machine.

        most: greatest number of seconds of the warm-up; None without a limit.
        """
        if not self.active:
            return
        with self._stage("first step" if self.request.no_timing else "first step, warming up"):
            steps = self._first_steps()
            trained = steps if isinstance(steps, TrainingPrepared) else None
            warmed = measuring.warm_up(self.worker, self.request, steps.second_step_seconds, self.first_run, most)
            self.warmed = Warmed(
                first_step_seconds=steps.first_step_seconds,
                second_step_seconds=steps.second_step_seconds,
                calls=warmed.calls,
                seconds=warmed.seconds,
                seconds_per_call=warmed.seconds_per_call,
                steady=warmed.steady,
                graph_count=self.worker.ask(messages.GraphCount()),
                page_faults=self.worker.page_faults(),
                rss_mib=warmed.rss_mib,
                cut=warmed.cut,
                optimizer=trained.optimizer if trained else None,
                dropout_disabled=trained.dropout_disabled if trained else (),
                apart=trained.apart if trained else (),
            )
            if not self.request.no_timing:
                self.listener.warm(self.label, self.request.batch / self.seconds_per_call)

    def _first_steps(self) -> messages.Prepared | TrainingPrepared:
        """Make the first two steps. When the framework's compiler crashes and asks for a restart, repeat them in a new process."""
        try:
            return self.source.first_steps(self.worker)
        except Crashed:
            if not self.worker.wants_restart():
                raise
        self.listener.phase(self.label, "its compiler crashed: starting its process again")
        self.worker.close()
        self.started = self.worker.start()
        self.built = self.source.build(self.worker)
        return self.source.first_steps(self.worker)

    def time_block(
        self, gate: Gate, index: int, case: int, calls: int, keep: bool, first_kept: bool
    ) -> TimedBlock | None:
        """One timed block; None when the candidate has failed.

        index: the number of the round.
        keep: whether to save the outputs of the last call, so that they can be compared with the reference.
        first_kept: whether no earlier block of this process run has kept its outputs.
        """
        if not self.active:
            return None
        # The outputs of a training step are not compared, because every subject has other weights after its own steps.
        keep = keep and not self.request.trains
        # Blocks on one input write to two files in turn, so that the outputs of the last two blocks are kept.
        cycle = index // self.request.cases
        with self._stage():
            return measuring.time_block(
                self.worker,
                gate,
                run=self.run,
                index=index,
                case=case,
                calls=calls,
                keep=self.worker.folder / f"outputs-{case}-{cycle % 2}.npz" if keep else None,
                room=self.room,
                first_kept=first_kept,
            )
        return None

    def take(self, timed: Timed) -> None:
        """Take the timed blocks of this process run."""
        if self.alive or not self.process_runs:
            self.timed = timed

    def finish(self, noisy: bool = False) -> None:
        """After timing: measure memory, compute the input cases that no timed call computed, and record the process run.

        noisy: whether the machine was too busy for its blocks, so that its speed is bounded by short pieces.
        """
        warmed, run = self.warmed, self.process_run()
        if not self.active or warmed is None or run is None:
            return
        doing = "calling it on every input" if self.request.no_timing else "measuring memory"
        with self._stage(doing if self.first_run else ""):
            faults, before = self.worker.page_faults(), warmed.page_faults
            graphs = warmed.graph_count
            retraces = None if graphs is None else (self.worker.ask(messages.GraphCount()) or 0) - graphs
            if self.first_run:
                self._measure(warmed)
            calls = sum(sample.calls for sample in self.timed.samples)
            per_call = (faults - before) / calls if calls and faults is not None and before is not None else None
            again = measure_again(self.worker, self.measurements(), self.run)
            self.again = replace(again, pairs=again.pairs or self.again.pairs)
            run = replace(run, retraces=retraces, faults_per_call=per_call, repeated_blocks=again.blocks)
            if noisy and not self.request.trains:
                found = measuring.bounds(self.worker, self.seconds_per_call)
                run = replace(run, fastest_seconds=found.fastest, least_seconds=found.least)
            self.process_runs += (run,)

    def _measure(self, warmed: Warmed) -> None:
        """Measure what is measured only in the first process run: memory, and a second call on every input case."""
        timed, peak = self.timed, self.timed.peak_rss_mib or self.worker.peak_rss_mib()
        self.measured = Measured(timed_cases=len(timed.outputs))
        if not self.request.trains:  # a training step cannot be repeated, because it changes the weights
            again = self._timed_twice() or measuring.call_again(
                self.worker, self.request.cases, self.last_case, set(timed.outputs)
            )
            self.measured = replace(self.measured, repeated=again)
            self.timed = replace(timed, outputs={**timed.outputs, **again.outputs})
        if not self.request.no_timing:
            memory = measuring.memory(self.worker, peak, warmed.rss_mib, self.request.device)
            self.measured = replace(self.measured, memory=memory)
        self.worker.ask(messages.ReleaseMemory())

    def _timed_twice(self) -> Repeated | None:
        """The timed blocks as calls on inputs again, so that none has to be made after them; None where they do not suffice.

        Blocks of one call are calls on another input than the call before, because every round has the next input case.
        """
        cases, earlier = self.request.cases, self.timed.earlier
        alone = [sample.seconds for sample in self.timed.samples if sample.calls == 1]
        if len(self.timed.outputs) < cases or not earlier or (cases > 1 and not alone):
            return None
        case = max(earlier)
        return Repeated({}, case, earlier[case], min(alone) if cases > 1 else 0.0)

    # -- results ------------------------------------------------------------------------------------------------------

    def process_run(self) -> ProcessRun | None:
        """The record of the current process run; None before its warm-up is complete."""
        if self.started is None or self.built is None or self.warmed is None:
            return None
        return ProcessRun(
            launch=self.run,
            import_seconds=self.started.seconds,
            build_seconds=self.built.seconds,
            first_step_seconds=self.warmed.first_step_seconds,
            second_step_seconds=self.warmed.second_step_seconds,
            warmup_calls=self.warmed.calls,
            warmup_seconds=self.warmed.seconds,
            steady=self.warmed.steady,
        )

    def measurements(self) -> Measurements:
        """The measurements that its speed is computed from."""
        finished = self.run in {run.launch for run in self.process_runs}
        return Measurements(
            subject=self.label,
            batch=self.request.batch,
            cases=self.request.cases,
            samples=self.samples + self.timed.samples,
            process_runs=self.process_runs,
            current=None if finished else self.process_run(),
            verdict=self.error.verdict if self.error else None,
            ended=None if self.alive else f"it ended in process run {self.run + 1}: {self.failure}",
            unfinished=self.timed.unfinished + self.again.unfinished,
            new_input_seconds=self.measured.repeated.new_input_seconds,
            new_input_pairs=self.again.pairs,
        )
