"""One run from a request to its result: reference -> candidates -> process runs -> verdicts -> result."""

from __future__ import annotations

import datetime
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .. import host
from ..errors import SubjectError
from ..framework import discovery
from ..framework.adapter import Framework
from ..processes.space import temporary_folder
from ..processes.worker import Worker
from ..progress import Listener
from ..receipts.keeping import Keeper
from ..reference import activations, build, summary, truth
from ..reference.build import Export, Prepared, ReferenceProcess
from ..reference.layers import LayerReplay
from ..reference.replayed import ReplayedLayers
from ..results import file as result_file
from ..results.records import Host, Result, Speed, WeightsSummary, overall
from ..timing.noise import Seen
from ..timing.speed import speeds
from ..verdict import outputs
from ..version import __version__
from ..workload.request import Request
from ..workload.spec import ModelFolder
from . import learning, memory, replaying
from .budget import Clock, overrun
from .candidate import Candidate
from .process_runs import ProcessRuns
from .repeat import faultless
from .resume import Earlier, check_weights
from .stages import History, Subject


class Run:
    """Runs one request. When a subject fails or the user interrupts the run, the result contains what was measured until then.

    file: where the result is written after every process run, and at the end; None writes nothing.
    earlier: the result of a run that this one resumes.
    clock: when this run is one of several that share a budget: the clock of its part. The caller notes when the whole is exceeded.
    keeper: writes the receipt of the run; None writes none.
    inputs: a file of input cases, of training with their labels, that takes the place of drawn ones; None draws them.
    """

    def __init__(
        self,
        request: Request,
        folder: ModelFolder,
        listener: Listener,
        file: Path | None,
        earlier: Earlier | None = None,
        clock: Clock | None = None,
        keeper: Keeper | None = None,
        inputs: Path | None = None,
    ) -> None:
        self.keeper, self.inputs = keeper, inputs
        self.request, self.folder, self.listener, self.file = request, folder, listener, file
        self.settings = summary.settings(
            request, folder
        )  # digests of the files as they are before anything is measured
        self.created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.notes = list(request.notes)
        self.clock = clock or Clock(request.max_seconds)
        self.budget = request.max_seconds if clock is None else None
        self.earlier = earlier
        self.complete = False
        self.process: ReferenceProcess
        self.prepared: Prepared | None = None
        self.export = Export()
        self.layers: tuple[str, ...] = ()  # of the reference, which may turn out to be none that can be judged
        self.truth: truth.Truth | None = None
        self.evaluated: Future[truth.Truth] | None = None  # where nothing is timed, while the subjects run
        self.parity: learning.Parity[Any] | None = None
        self.candidates: list[Candidate] = []
        self.workers: list[Worker] = []
        self.background = ThreadPoolExecutor(max_workers=min(2, host.cores()))
        self.noise = Seen()
        self.turns: list[list[Candidate]] = []
        self.process_runs: ProcessRuns[Candidate]
        self.layer_replay: LayerReplay | None = None
        self.replayed: dict[replaying.BuildKey, ReplayedLayers] = {}

    def execute(self) -> Result:
        """Run the request to its result."""
        for note in self.notes:
            self.listener.note(note)
        with temporary_folder() as space:
            self._set_up(space)
            try:
                self._measure()
                self.complete = True
            except SubjectError as error:
                self._abandon(error)
            except KeyboardInterrupt as error:
                self.notes.append("interrupted: the result contains what was measured until then")
                self._abandon(error)
            finally:
                self.background.shutdown(wait=False, cancel_futures=True)
                for worker in self.workers:
                    worker.close()
        result = self.result()
        self._write(result)
        return result

    def _set_up(self, space: Path) -> None:
        """Make the reference and the candidates, without starting any process."""
        request = self.request
        self.space = space
        total = request.total_memory
        self.available = host.available_memory() if total is None else int(1e9 * total)  # before any process takes some
        worker = self._worker(discovery.load(request.reference), space / "reference", "reference")
        self.process = ReferenceProcess(request, self.folder, worker, self.listener, inputs=self.inputs)
        histories = self.earlier.histories() if self.earlier else {}
        for index, text in enumerate(request.subjects):
            subject = Subject(*discovery.parse_subject(text))
            worker = self._worker(subject.adapter, space / f"subject-{index}", text)
            history = histories.get(subject.label, History())
            self.candidates.append(Candidate(request, self.folder, subject, worker, self.listener, history))
        if self.earlier is not None:
            self.noise.restore(self.earlier.result.noise)

    def result(self) -> Result:
        """The result so far."""
        rows = tuple(each.row(speed) for each, speed in zip(self.candidates, self._speeds()))
        timeline = self.clock.timeline()
        reference = summary.reference(self.request, self.prepared, self.export, self.truth, self._layers())
        unavoidable = sum(each.measurements().unavoidable_seconds for each in self.candidates)
        return Result(
            model=self.folder.name,
            tasks=(self.request.task,),
            verdict=overall(rows, self.request.strict),
            rows=rows,
            created=self.created,
            xverify=__version__,
            host=Host(**host.describe()),
            settings=self.settings,
            weights=self._weights(),
            inputs=summary.inputs(self.request, self.prepared),
            reference=summary.without_found(reference, rows),
            rule=outputs.RULE,
            notes=(*self.notes, *self.export.notes(), *overrun(self.budget, timeline)),
            timeline={**timeline, "unavoidable_seconds": unavoidable},
            item=self.folder.spec.item,
            noise=self.noise.describe(),
            complete=self.complete,
        )

    def _speeds(self) -> list[Speed | None]:
        return speeds([each.measurements() for each in self.candidates], self.noise.refusal())

    def _weights(self) -> WeightsSummary:
        """The weights of the run, and what the subjects hold instead."""
        folded = [(each.label, each.built) for each in self.candidates if each.built is not None and each.built.folded]
        return replace(
            summary.weights(self.prepared),
            folded={subject: built.folded for subject, built in folded},
            folded_digests={subject: built.folded_digest for subject, built in folded},
        )

    def _write(self, result: Result) -> None:
        if self.file is not None:
            result_file.write(result, self.file)

    def _write_so_far(self) -> None:
        """Write the result so far. When that fails, a note says so, and the run goes on to the last write."""
        problem = result_file.write_so_far(self.result(), self.file) if self.file is not None else ""
        if problem and problem not in self.notes:
            self.notes.append(problem)
            self.listener.note(problem)

    def _layers(self) -> tuple[str, ...]:
        """The layers that the reference judges."""
        if self.parity is not None:
            return tuple(self.parity.layers)
        return self.truth.layers if self.truth else ()

    # -- stages -------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Start, time and judge the subjects, those that fit into memory at once in a turn of their own."""
        with self.clock.doing("starting"):
            self._prepare()
        if not self.request.trains:
            self.layers = self.process.layers()
            if self.request.no_timing:
                self.evaluated = self.background.submit(self._evaluate)
        self._measure_turn(0)
        for number in range(1, len(self.turns)):
            with self.clock.doing("starting"):
                self._begin_turn(self.turns[number])
            self._measure_turn(number)

    def _measure_turn(self, number: int) -> None:
        """Time and judge the process runs of a turn. Only what is not timed runs in parallel."""
        self.process_runs = ProcessRuns(
            self.turns[number],
            self.request,
            self.clock.part(len(self.turns) - number),
            self.listener,
            self.notes,
            self.noise,
            self.background,
            self._next_worker,
        )
        self._time()
        self.process_runs.begin_next()
        with self.clock.doing("judging"):
            self._judge(self.turns[number])
        while self.process_runs.take_next():
            begun = time.monotonic()
            self._time()
            with self.clock.doing("judging"):
                self._judge_again()
            self.process_runs.seconds.append(time.monotonic() - begun)
            self.process_runs.begin_next()

    def _prepare(self) -> None:
        """Prepare the weights and inputs of every subject, and build the models of the first process run."""
        try:
            started = {each.label: self.background.submit(each.start) for each in self.candidates}
            self.prepared = prepared = build.prepare(self.process)
            self.turns = self._fitting(prepared)
            for candidate in self.candidates:
                candidate.use(prepared, Export())

            def build_model(candidate: Candidate) -> None:
                started[candidate.label].result()
                candidate.build()

            first = self.turns[0]
            by_onnx = [each for each in first if each.subject.needs_export]
            built = [self.background.submit(build_model, each) for each in first if each not in by_onnx]
            wanted = any(each.subject.needs_export for each in self.candidates)
            self.export = build.export(self.process, prepared, wanted)
            for candidate in by_onnx:
                candidate.use(prepared, self.export)
            built += [self.background.submit(build_model, each) for each in by_onnx]
            self.float32 = truth.compute_float32(self.process, prepared)
            for done in built:
                done.result()
            for each in started.values():  # a later turn has the processes of its subjects already
                each.result()
        except BaseException as error:
            self.background.shutdown(wait=False, cancel_futures=True)
            self._abandon(error)
            raise
        self._use_normal_form(prepared)
        if self.keeper is not None:
            inputs = prepared.training if self.request.trains else prepared.inputs
            self.keeper.keep(self.request.task, prepared.weights, inputs)

    def _use_normal_form(self, prepared: Prepared) -> None:
        """Give every candidate the weights in the normal form of all models that were built."""
        fused = {
            name: parts for each in self.candidates if each.built for name, parts in each.built.fused_parameters.items()
        }
        self.prepared = prepared.in_normal_form(fused)
        if self.earlier is not None:
            check_weights(self.earlier, self._weights())
        for candidate in self.candidates:
            candidate.use_normal_form(self.prepared)

    def _fitting(self, prepared: Prepared) -> list[list[Candidate]]:
        """The turns of candidates that fit into memory at once, which the user is told before any model is built."""
        subjects = [each.subject for each in self.candidates]
        timed = not self.request.no_timing
        plan = memory.plan(self._work(prepared), subjects, self.available, timed)
        for note in plan.notes:
            self.notes.append(note)
            self.listener.note(note)
        if plan.says:
            self.process.phase(plan.says)
        return [[self.candidates[index] for index in turn] for turn in plan.turns]

    def _work(self, prepared: Prepared) -> memory.Work:
        """What the memory of the run depends on."""
        judged = activations.of_items(self.process, prepared)
        whole = judged.times(max(1.0, self.request.batch / build.JUDGED_ITEMS)) if judged else None
        return memory.Work(prepared.shapes, self.request.optimizer, whole, judged)

    def _begin_turn(self, turn: list[Candidate]) -> None:
        """Build the models of a later turn. The baseline goes on in a new process."""
        assert self.prepared is not None
        baseline, run = self.candidates[0], 1 + max(each.run for each in self.candidates)
        for candidate in self.candidates:
            candidate.pause(candidate not in turn)
            if candidate.judged:
                candidate.worker.close()
        if baseline in turn and baseline.active and faultless(baseline):
            worker = self._next_worker(baseline)
            baseline.renew(worker, self.background.submit(worker.start))
        else:
            baseline.pause(True)
        for candidate in turn:
            candidate.run = run
            candidate.use(self.prepared, self.export)
        for built in [self.background.submit(each.build) for each in turn]:
            built.result()
        self._use_normal_form(self.prepared)

    def _time(self) -> None:
        """Time the processes that are ready, write the result so far, and report it."""
        self.process_runs.time()
        with self.clock.doing("judging"):
            self._write_so_far()
            self.process_runs.report()

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def _judge(self, turn: list[Candidate]) -> None:
        """Judge the first process run of a turn."""
        assert self.prepared is not None
        self._judge_again()
        new = [each for each in turn if not each.judged]
        if self.request.trains:
            self._judge_training(self.prepared, new)
            return
        if self.truth is None or self.layer_replay is None:
            self.truth = self.evaluated.result() if self.evaluated else self._evaluate()
            self.layer_replay = LayerReplay(self.process, self.prepared, self.truth.layers)
        counts = Counter(each.subject.build_key for each in self.candidates if each.alive)
        self.replayed = replaying.replay_all(
            new,
            self.layer_replay,
            self.truth,
            self.process_runs.clock,
            counts,
            self.replayed,
            self.background,
        )
        self._judge_outputs(new)
        cases = sorted({case for each in new for case in each.doubtful_cases})
        if cases:
            self.truth = truth.measured_again(self.process, self.prepared, self.truth, tuple(cases))
            self._judge_outputs([each for each in new if each.doubtful_cases])

    def _evaluate(self) -> truth.Truth:
        """What the candidates are compared with."""
        assert self.prepared is not None
        return truth.evaluate(self.process, self.prepared, self.float32)

    def _judge_outputs(self, candidates: Sequence[Candidate]) -> None:
        """Compare the outputs of some candidates with the reference."""
        assert self.prepared is not None
        assert self.truth is not None
        with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops release the interpreter's lock
            judged = [
                pool.submit(each.judge, self.prepared, self.truth, self.replayed.get(each.subject.build_key))
                for each in candidates
            ]
            for done in judged:
                done.result()

    def _judge_again(self) -> None:
        """Judge the process run that was just timed of candidates that were judged before."""
        assert self.prepared is not None
        for candidate in self.candidates:
            if self.parity is not None:
                candidate.judge_training_again(self.parity, self.prepared)
            elif self.truth is not None:
                candidate.judge_again(self.prepared, self.truth)

    def _judge_training(self, prepared: Prepared, new: list[Candidate]) -> None:
        """Judge the training of new candidates. During this, the next candidate captures its layers and makes its first step."""
        if self.parity is None:
            self.parity = learning.parity(self.process, prepared)
            # A candidate that runs the reference's own code shows how long a step takes. Else the reference makes two steps.
            own = (self.request.reference, "eager")
            same = [each for each in new if each.active and (each.subject.adapter.name, each.subject.mode) == own]
            seconds = max((each.seconds_per_call for each in same), default=0.0)
            left = self.process_runs.clock.left
            self.parity.prepare(seconds=seconds, left=left)
            self.parity.prepare_more(self.process_runs.clock.left)
        parity = self.parity

        def observe(candidate: Candidate | None) -> Future[Any] | None:
            if candidate is None or not candidate.alive:
                return None
            return self.background.submit(parity.observe, candidate.learner())

        observed = observe(new[0]) if new else None
        for candidate, following in zip_longest(new, new[1:]):
            if observed is not None:
                wait([observed])
            coming = observe(following)
            candidate.judge_training(parity, prepared, observed)
            candidate.worker.close()
            observed = coming

    # -- processes ----------------------------------------------------------------------------------------------------

    def _abandon(self, error: BaseException) -> None:
        reason = "interrupted by the user"
        if not isinstance(error, KeyboardInterrupt):
            status = f"{error.status}: " if isinstance(error, SubjectError) else ""
            reason = f"the reference {self.request.reference} could not run: {status}{error}"
        for candidate in self.candidates:
            candidate.abandon(reason)

    def _next_worker(self, candidate: Candidate) -> Worker:
        """The worker of a candidate's next process run."""
        place = self.space / f"subject-{self.candidates.index(candidate)}-launch-{candidate.run + 1}"
        return self._worker(candidate.subject.adapter, place, candidate.label)

    def _worker(self, adapter: type[Framework], place: Path, label: str) -> Worker:
        place.mkdir()
        request = self.request
        reference = label == "reference"
        worker = Worker(
            adapter,
            request.python.get(adapter.name, sys.executable),
            place,
            request.threads,
            "cpu" if reference else request.device,  # the reference computes on the CPU, which has float64
            request.timeout,
            request.pin,
            patient=reference or request.no_timing,
            beat=lambda seconds, line: self.listener.beat(label, seconds, line),
            allocator=None if reference else request.allocator,  # nothing of the reference is timed
            memory=request.memory,
        )
        self.workers.append(worker)
        return worker
