"""One run from a request to its result: reference -> candidates -> process runs -> verdicts -> result."""

from __future__ import annotations

import datetime
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .. import __version__, host
from ..errors import SubjectError
from ..framework import discovery
from ..framework.adapter import Framework
from ..progress import Listener
from ..receipts.keeping import Keeper
from ..reference import build, summary, truth
from ..reference.build import Export, Prepared, ReferenceProcess
from ..reference.layers import LayerReplay
from ..results import file as result_file
from ..results.records import Host, Result, WeightsSummary, overall
from ..verdict import outputs
from ..worker.process import Worker
from ..worker.space import temporary_folder
from ..workload.request import Request
from ..workload.spec import ModelFolder
from . import learning, memory, replaying
from .budget import Clock, overrun
from .candidate import Candidate
from .process_runs import ProcessRuns
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
        self.truth: truth.Truth | None = None
        self.parity: learning.Parity[Any] | None = None
        self.candidates: list[Candidate] = []
        self.workers: list[Worker] = []
        self.background = ThreadPoolExecutor(max_workers=min(2, host.cores()))
        self.process_runs = ProcessRuns(
            self.candidates, request, self.clock, listener, self.notes, self.background, self._next_worker
        )

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
        worker = self._worker(discovery.load(request.reference), space / "reference", "reference")
        self.process = ReferenceProcess(request, self.folder, worker, self.listener, inputs=self.inputs)
        histories = self.earlier.histories() if self.earlier else {}
        for index, text in enumerate(request.subjects):
            subject = Subject(*discovery.parse_subject(text))
            worker = self._worker(subject.adapter, space / f"subject-{index}", text)
            history = histories.get(subject.label, History())
            self.candidates.append(Candidate(request, self.folder, subject, worker, self.listener, history))
        if self.earlier is not None:
            self.process_runs.noise.restore(self.earlier.result.noise)

    def result(self) -> Result:
        """The result so far."""
        rows = tuple(each.row(speed) for each, speed in zip(self.candidates, self.process_runs.speeds()))
        timeline = self.clock.timeline()
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
            reference=summary.reference(self.request, self.prepared, self.export, self.truth, self._layers()),
            rule=outputs.RULE,
            notes=(*self.notes, *self.export.notes(), *overrun(self.budget, timeline)),
            timeline={**timeline, "unavoidable_seconds": unavoidable},
            item=self.folder.spec.item,
            noise=self.process_runs.noise.describe(),
            complete=self.complete,
        )

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
        """Start, time and judge all process runs. Work that is not timed runs in parallel; timed work runs alone on the machine."""
        with self.clock.doing("starting"):
            self._prepare()
        self._time()
        self.process_runs.begin_next()
        with self.clock.doing("judging"):
            self._judge()
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
            self._tell_memory(prepared)
            export = Export()

            def build_model(candidate: Candidate) -> None:
                started[candidate.label].result()
                candidate.use(prepared, export)
                candidate.build()

            by_onnx = [each for each in self.candidates if each.subject.needs_export]
            built = [self.background.submit(build_model, each) for each in self.candidates if each not in by_onnx]
            self.export = export = build.export(self.process, prepared, bool(by_onnx))
            built += [self.background.submit(build_model, each) for each in by_onnx]
            self.float32 = truth.compute_float32(self.process, prepared)
            for done in built:
                done.result()
        except BaseException as error:
            self.background.shutdown(wait=False, cancel_futures=True)
            self._abandon(error)
            raise
        fused = {
            name: parts for each in self.candidates if each.built for name, parts in each.built.fused_parameters.items()
        }
        self.prepared = prepared.in_normal_form(fused)
        if self.keeper is not None:
            inputs = prepared.training if self.request.trains else prepared.inputs
            self.keeper.keep(self.request.task, prepared.weights, inputs)
        if self.earlier is not None:
            check_weights(self.earlier, self._weights())
        for candidate in self.candidates:
            candidate.use_normal_form(self.prepared)

    def _tell_memory(self, prepared: Prepared) -> None:
        """Say how much memory the weights take, before the subjects build their models."""
        subjects = [each.subject.adapter for each in self.candidates]
        needed = memory.of_weights(prepared.shapes, subjects, self.request.optimizer)
        available = host.available_memory()
        if warning := memory.warning(needed, available):
            self.notes.append(warning)
            self.listener.note(warning)
        elif says := memory.says(needed, available):
            self.process.phase(says)

    def _time(self) -> None:
        """Time the processes that are ready, write the result so far, and report it."""
        self.process_runs.time()
        with self.clock.doing("judging"):
            self._write_so_far()
            self.process_runs.report()

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        assert self.prepared is not None
        if self.request.trains:
            self._judge_training(self.prepared)
            return
        found = self.truth = truth.evaluate(self.process, self.prepared, self.float32)
        replay = LayerReplay(self.process, self.prepared, found.layers)
        layers = replaying.replay_all(
            self.candidates, replay, found, lambda: self.clock.left is None or self.clock.left > 0
        )
        with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops release the interpreter's lock
            judged = [
                pool.submit(each.judge, self.prepared, found, layers.get(each.subject.build_key))
                for each in self.candidates
            ]
            for done in judged:
                done.result()

    def _judge_again(self) -> None:
        """Judge the later process run that was just timed."""
        assert self.prepared is not None
        for candidate in self.candidates:
            if self.parity is not None:
                candidate.judge_training_again(self.parity, self.prepared)
            elif self.truth is not None:
                candidate.judge_again(self.prepared, self.truth)

    def _judge_training(self, prepared: Prepared) -> None:
        """Judge the training of every candidate. During this, the next candidate captures its layers and makes its first step."""
        parity = self.parity = learning.parity(self.process, prepared)
        # A candidate that runs the reference's own code shows how long a step takes. Without one, the reference makes two steps.
        own = (self.request.reference, "eager")
        same = [
            each for each in self.candidates if each.active and (each.subject.adapter.name, each.subject.mode) == own
        ]
        seconds = max((each.seconds_per_call for each in same), default=0.0)
        parity.prepare(seconds=seconds, left=self.clock.left)
        parity.prepare_more(self.clock.left)

        def observe(candidate: Candidate | None) -> Future[Any] | None:
            if candidate is None or not candidate.alive:
                return None
            return self.background.submit(parity.observe, candidate.learner())

        observed = observe(self.candidates[0])
        for candidate, following in zip_longest(self.candidates, self.candidates[1:]):
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
            patient=reference,
            beat=lambda seconds, line: self.listener.beat(label, seconds, line),
            allocator=None if reference else request.allocator,  # nothing of the reference is timed
            memory=request.memory,
        )
        self.workers.append(worker)
        return worker
