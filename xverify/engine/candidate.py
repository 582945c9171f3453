"""One subject during a run. The failure of a candidate ends that candidate only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from ..errors import Crashed, Failed, SubjectError, Unsupported
from ..progress import Listener
from ..reference.build import Export, Prepared
from ..reference.layers import LayerReplay
from ..reference.replayed import ReplayedLayers, replay_layers
from ..reference.truth import Truth
from ..results.records import Error, ProcessRun, Row, Speed, Training
from ..results.verdicts import Verdict
from ..timing.noise import Gate
from ..timing.speed import Measurements
from ..training.parity import Learner, Observed, TrainingParity
from ..worker import messages
from ..worker.messages_training import TrainingPrepared
from ..worker.process import Worker
from ..workload.request import Request
from ..workload.spec import ModelFolder
from . import building, checking, judging, learning, measuring
from .again import Again, measure_again
from .stages import Built, History, Measured, Subject, Timed, TimedBlock, Warmed


class Candidate:
    """A subject of a run, with its worker and the records of its stages so far.

    worker: the process of the current process run.
    history: the process runs of an earlier run that is resumed; empty when none is.
    """

    def __init__(
        self,
        request: Request,
        folder: ModelFolder,
        subject: Subject,
        worker: Worker,
        listener: Listener,
        history: History = History(),  # noqa: B008  frozen
    ) -> None:
        self.request, self.folder, self.subject, self.listener = request, folder, subject, listener
        self.worker = worker
        self.history = history
        self.run = history.next_run
        self.process_runs, self.samples = history.process_runs, history.samples
        self.failure: SubjectError | None = None
        self.paused = False
        self.started: messages.Started | None = None
        self.built: Built | None = None
        self.warmed: Warmed | None = None
        self.timed = Timed()
        self.measured = Measured()
        self.replayed: ReplayedLayers | None = None
        self.again = Again()
        self.error: Error | None = None
        self.training: Training | None = None

    @property
    def label(self) -> str:
        """The subject as the user writes it."""
        return self.subject.label

    @property
    def alive(self) -> bool:
        """Whether it has not failed."""
        return self.failure is None

    @property
    def active(self) -> bool:
        """Whether it takes part in the current process run."""
        return self.alive and not self.paused

    @property
    def first_run(self) -> bool:
        """Whether this is the first process run of this invocation, so that nothing has been judged yet."""
        return self.error is None

    @property
    def seconds_per_call(self) -> float:
        """The seconds of a call at the end of the warm-up."""
        assert self.warmed is not None
        return self.warmed.seconds_per_call

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
        shutil.rmtree(self.worker.folder, ignore_errors=True)  # its outputs have been compared
        self.worker, self.run = worker, self.run + 1
        self.samples, self.timed = self.samples + self.timed.samples, Timed()
        with self._stage():
            self.started = started.result()

    def pause(self, paused: bool) -> None:
        """Leave the candidate out of the next process run, or let it take part again."""
        self.paused = paused

    def start(self) -> None:
        """Start the process and import the framework, unless its mode cannot hold the model."""
        adapter = self.subject.adapter
        refused = adapter.refuses(self.folder, self.subject.mode)
        if self.request.device not in adapter.devices:
            refused = f"xverify runs this framework on {' or '.join(adapter.devices)} only"
        if refused:
            self.failure = Unsupported(refused)
            return
        slow = adapter.slow_start()
        with self._stage("importing" + (f" ({slow})" if slow else "")):
            self.started = self.worker.start()
            self._check_environment(self.started)

    def _check_environment(self, started: messages.Started) -> None:
        """Raise Failed when the framework is not the one of the earlier process runs."""
        for name, value in self.history.environment.items():
            if started.environment.get(name) != value:
                found = started.environment.get(name)
                raise Failed(f"--resume: the earlier process runs had {name} {value}, this process has {found}")

    def build(self, prepared: Prepared, export: Export) -> None:
        """Build the model, load the weights, and read them back."""
        if self.active:
            with self._stage("building the model, loading the weights"):
                self.built = building.build(self.worker, self.subject, self.request, self.folder, prepared, export)

    def take_normal_digest(self, fused_parameters: Mapping[str, tuple[str, ...]]) -> None:
        """Replace the digest of the weights by that of their normal form, which is the same in every framework of the run.

        See weights.normal_form.
        """
        if not (self.active and fused_parameters and self.built is not None):
            return
        with self._stage():
            digest = self.worker.ask(messages.Digest(fused_parameters=dict(fused_parameters))).digest
            self.built = replace(self.built, weights_digest=digest)

    def warm(self, prepared: Prepared, export: Export, most: float | None = None) -> None:
        """Make the first two steps and warm up. Both are timed, so nothing else may run on the machine.

        most: greatest number of seconds of the warm-up; None without a limit.
        """
        if not self.active:
            return
        with self._stage("first step, warming up"):
            steps = self._first_steps(prepared, export)
            trained = steps if isinstance(steps, TrainingPrepared) else None
            found = measuring.warm_up(self.worker, self.request, steps.second_step_seconds, self.first_run, most)
            self.warmed = Warmed(
                first_step_seconds=steps.first_step_seconds,
                second_step_seconds=steps.second_step_seconds,
                calls=found.calls,
                seconds=found.seconds,
                seconds_per_call=found.seconds_per_call,
                steady=found.steady,
                graph_count=self.worker.ask(messages.GraphCount()).graph_count,
                page_faults=self.worker.page_faults(),
                rss_mib=found.rss_mib,
                cut=found.cut,
                optimizer=trained.optimizer if trained else None,
                dropout_disabled=trained.dropout_disabled if trained else (),
            )
            self.listener.warm(self.label, self.request.batch / self.seconds_per_call)

    def _first_steps(self, prepared: Prepared, export: Export) -> messages.Prepared | TrainingPrepared:
        """Make the first two steps. When the framework's compiler crashes and asks for a restart, repeat them in a new process."""
        try:
            return building.first_steps(self.worker, self.request, self.subject.mode, prepared)
        except Crashed:
            if not self.worker.wants_restart():
                raise
        self.listener.phase(self.label, "its compiler crashed: starting its process again")
        self.worker.close()
        self.started = self.worker.start()
        self.built = building.build(self.worker, self.subject, self.request, self.folder, prepared, export)
        self.take_normal_digest(prepared.fused_parameters)
        return building.first_steps(self.worker, self.request, self.subject.mode, prepared)

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
        with self._stage():
            return measuring.time_block(
                self.worker,
                gate,
                run=self.run,
                index=index,
                case=case,
                calls=calls,
                keep=self.worker.folder / f"outputs-{case}.npz" if keep else None,
                room=measuring.output_bytes(self.folder.spec, self.request.batch),
                first_kept=first_kept,
            )
        return None

    def take(self, timed: Timed) -> None:
        """Take the timed blocks of this process run."""
        if self.alive or not self.process_runs:
            self.timed = timed

    def finish(self) -> None:
        """After timing: measure memory, compute the input cases that no timed call computed, and record the process run."""
        if not self.active:
            return
        with self._stage("measuring memory" if self.first_run else ""):
            assert self.warmed is not None
            faults = self.worker.page_faults()
            graphs = self.warmed.graph_count
            retraces = None if graphs is None else (self.worker.ask(messages.GraphCount()).graph_count or 0) - graphs
            if self.first_run:
                self._measure(self.warmed)
            calls = sum(sample.calls for sample in self.timed.samples)
            before = self.warmed.page_faults
            per_call = (faults - before) / calls if faults is not None and before is not None else None
            run = self.process_run()
            assert run is not None
            again = measure_again(self.worker, self.measurements(), self.run)
            self.again = replace(again, pairs=again.pairs or self.again.pairs)
            run = replace(run, retraces=retraces, faults_per_call=per_call, repeated_blocks=again.blocks)
            self.process_runs += (run,)

    def _measure(self, warmed: Warmed) -> None:
        """Measure what is measured only in the first process run: memory, and a second call on every input case."""
        timed, peak = self.timed, self.timed.peak_rss_mib or self.worker.peak_rss_mib()
        self.measured = Measured(timed_cases=len(timed.outputs))
        if not self.request.trains:  # a training step cannot be repeated, because it changes the weights
            again = measuring.call_again(self.worker, self.request.cases, timed.samples[-1].case, set(timed.outputs))
            self.measured = replace(self.measured, repeated=again)
            self.timed = replace(timed, outputs={**timed.outputs, **again.outputs})
        memory = measuring.memory(self.worker, peak, warmed.rss_mib, self.request.device)
        self.measured = replace(self.measured, memory=memory)
        self.worker.ask(messages.ReleaseMemory())

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

    # -- judging ------------------------------------------------------------------------------------------------------

    def replay(self, replay: LayerReplay, truth: Truth, borrowed: bool) -> ReplayedLayers:
        """Judge the layers. Raises SubjectError when the replay fails; the timed outputs are valid nevertheless.

        borrowed: whether a callable that is not the captured one will be judged by these layers.
        """
        self.listener.phase(self.label, "capturing its layers")
        return replay_layers(replay, truth, self.worker, self.label, borrowed)

    def call_differently(self, prepared: Prepared, truth: Truth) -> None:
        """Find out where two calls on one input differ, if they do, and call the model as its users do.

        It is the last use of the process, because a user's call may change running statistics.
        """
        if self.active and not truth.random:
            with self._stage():
                case, second = self.timed.samples[-1].case, self.measured.repeated.second
                calls = checking.further_calls(self.worker, self.timed.outputs, case, second, prepared, truth)
                self.measured = replace(self.measured, calls=calls)

    def judge(self, prepared: Prepared, truth: Truth, replayed: ReplayedLayers | None) -> None:
        """Compare the outputs of the last timed calls with the reference. replayed: its replay, or None."""
        self.replayed = replayed
        if not self.alive:
            return
        error = self._wrong_weights(prepared)
        if error is None:
            error = judging.outputs(
                self.timed.outputs,
                truth,
                self.folder.spec,
                self.request.cases,
                self.subject,
                replayed,
                self.measured.calls,
            )
            error = replace(error, timed_cases=self.measured.timed_cases)
        self.error = error

    def judge_again(self, prepared: Prepared, truth: Truth) -> None:
        """Compare the weights and the last timed outputs of a later process run with the reference."""
        if not self.active or self.error is None or not self.timed.outputs:
            return
        found = self._wrong_weights(prepared)
        if found is None:
            found = judging.later_outputs(self.timed.outputs, truth, self.folder.spec, self.subject, self.replayed)
        if found.verdict > self.error.verdict:
            reason = f"in process run {self.run + 1}: {found.reason}"
            self.error = replace(found, reason=reason, timed_cases=self.error.timed_cases)

    def _wrong_weights(self, prepared: Prepared) -> Error | None:
        assert self.built is not None
        return judging.wrong_weights(self.built, prepared)

    def learner(self) -> Learner:
        """The record of this candidate for the training-parity checks. Its warm-up must be complete."""
        assert self.built is not None
        assert self.warmed is not None
        return learning.learner(self.subject, self.worker, self.built, self.warmed, self.request.match_optimizer)

    def judge_training(self, parity: TrainingParity, prepared: Prepared, observed: Future[Observed] | None) -> None:
        """Run the training-parity checks. When they cannot be run, the candidate fails, because its speed counts only with them."""
        if not self.alive or observed is None:
            return
        wrong = self._wrong_weights(prepared)
        if wrong is not None:
            self.error, self.training = wrong, parity.wrong_weights(wrong)
            return
        with self._stage("training-parity checks"):
            self.error, self.training = parity.judge(self.learner(), observed.result())

    def judge_training_again(self, parity: TrainingParity, prepared: Prepared) -> None:
        """Judge the weights and one training step of a later process run."""
        if not self.active or self.error is None:
            return
        with self._stage():
            if self._wrong_weights(prepared) is not None:
                reason = "other weights after loading in a later process run"
                self.error = replace(self.error, verdict=Verdict.INVALID, reason=reason)
            else:
                self.error = parity.judge_again(self.learner(), self.error)

    # -- results ------------------------------------------------------------------------------------------------------

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

    def row(self, speed: Speed | None) -> Row:
        """The row of the report."""
        return Row(
            subject=self.label,
            framework=self.subject.adapter.name,
            mode=self.subject.mode,
            task=self.request.task,
            device=self.request.device,
            batch=self.request.batch,
            status=self.failure.status if self.failure else "ok",
            reason=str(self.failure) if self.failure else None,
            weights_digest=self.built.weights_digest if self.built else None,
            weights_route=self.built.route if self.built else None,
            error=self.error,
            speed=speed,
            memory=self.measured.memory,
            environment=dict(self.started.environment) if self.started else {},
            training=self.training,
        )
