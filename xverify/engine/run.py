"""One run from a request to its result: reference -> candidates -> process runs -> verdicts -> result."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from .. import host
from ..errors import Absent, SubjectError
from ..framework import discovery
from ..processes import forking
from ..processes.ranks import worker_of
from ..processes.space import temporary_folder
from ..processes.worker import Worker
from ..progress import Listener
from ..receipts.keeping import Keeper
from ..reference import activations, build, exporting, summary, truth
from ..reference.build import Prepared, ReferenceProcess
from ..reference.exporting import Export
from ..results import file as result_file
from ..results.records import INTERRUPTED, NOT_JUDGED, NOT_RUN, Host, Result, Row, Speed, WeightsSummary, overall, shows
from ..timing.noise import Seen
from ..timing.speed import speeds
from ..verdict import outputs
from ..version import __version__
from ..workload.request import Request
from ..workload.spec import ModelFolder
from . import memory, other_sizes
from .budget import Clock, overrun
from .candidate import Candidate
from .process_runs import ProcessRuns, figure
from .repeat import faultless
from .resume import Earlier, check_weights
from .stages import History, Subject, subjects_of
from .verdicts import TrainingVerdicts, Verdicts, of_outputs

Sized = Sequence[other_sizes.SizedReference]  # the reference at each of the other sizes


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
        self.settings = summary.settings(request, folder)  # digests of the files before anything is measured
        self.created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.notes = [*request.notes, *(keeper.notes if keeper is not None else ())]
        self.told = ""  # the end of a sentence that every row has as its reason
        self.clock = clock or Clock(request.max_seconds)
        self.budget = request.max_seconds if clock is None else None
        self.earlier = earlier
        self.complete = False
        self.process: ReferenceProcess
        self.prepared: Prepared | None = None
        self.export: Export | Absent | None = None
        self.verdicts: Verdicts | None = None  # from when the reference is prepared
        self.candidates: list[Candidate] = []
        self.workers: list[Worker] = []
        self.background = ThreadPoolExecutor(max_workers=min(2, host.cores()))
        self.imports = ThreadPoolExecutor(max_workers=max(2, host.cores()))  # only before the first process is timed
        self.noise = Seen()
        self.turns: list[list[Candidate]] = []

    def execute(self, stopped: bool = False) -> Result:
        """Run the request to its result. stopped: the user has interrupted it before."""
        for note in self.notes:
            self.listener.note(note)
        with temporary_folder() as space, forking.templates(space) as self.templates:
            self._set_up(space)
            try:
                if stopped:
                    raise KeyboardInterrupt
                self._measure()
                self.complete = True
            except SubjectError as error:
                self._abandon(error)
            except KeyboardInterrupt as error:
                self.notes.append("interrupted: the result contains what was measured until then")
                self._abandon(error)
            finally:
                self._stop_background()
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
        worker = self._worker(space / "reference")
        self.process = ReferenceProcess(request, self.folder, worker, self.listener, inputs=self.inputs)
        histories = self.earlier.histories() if self.earlier else {}
        for index, subject in enumerate(subjects_of(request)):
            worker = self._worker(space / f"subject-{index}", subject)
            history = histories.get(subject.label, History())
            self.candidates.append(Candidate(request, self.folder, subject, worker, self.listener, history))
        if self.earlier is not None:
            self.noise.restore(self.earlier.result.noise)

    def result(self) -> Result:
        """The result so far."""
        found = (row for each, speed in zip(self.candidates, self._speeds()) for row in each.rows(speed))
        rows = tuple(
            row
            if row.status != "ok" or row.error or self.complete
            else replace(row, status="failed", reason=NOT_JUDGED)
            for row in found
        )
        sizes = [text for each in self.candidates for text in each.first_size()]
        timeline = self.clock.timeline()
        exact, layers = (self.verdicts.truth, self.verdicts.layers) if self.verdicts else (None, ())
        reference = summary.reference(self.request, self.prepared, self.export, exact, layers)
        unavoidable = sum(each.measurements().unavoidable_seconds for each in self.candidates)
        return Result(
            model=self.folder.name,
            tasks=(self.request.task,),
            verdict=overall(rows, self.request.strict, self.request.reference),
            rows=rows,
            created=self.created,
            xverify=__version__,
            host=Host(**host.describe()),
            settings=self.settings,
            weights=self._weights(),
            inputs=summary.inputs(self.request, self.prepared),
            reference=summary.without_found(reference, rows),
            rule=outputs.RULE,
            notes=(
                *self.notes,
                *self._alone(rows),
                *sizes,
                *self._notes_of_the_export(),
                *overrun(self.budget, timeline),
            ),
            timeline={**timeline, "unavoidable_seconds": unavoidable},
            item=self.folder.spec.item,
            noise=self.noise.describe(),
            complete=self.complete,
        )

    def _alone(self, rows: Sequence[Row]) -> Iterator[str]:
        """A sentence where only the reference was run."""
        if self.complete and rows and all(row.error and not shows(row, self.request.reference) for row in rows):
            yield (
                f"only the reference was run, so no port was compared: name another subject as well, such as --subjects "
                f"{rows[0].subject},onnxruntime (xverify list has them all)"
            )

    def _speeds(self) -> list[Speed | None]:
        return speeds([each.measurements() for each in self.candidates], self.noise.refusal())

    def _judged_so_far(self) -> Iterator[str]:
        """A line on every subject that is judged: its verdict, and its speed."""
        for candidate, speed in zip(self.candidates, self._speeds()):
            if candidate.error is not None:
                rate = figure(candidate, speed, candidate is self.candidates[0]) if speed is not None else ""
                yield f"{candidate.label} is {candidate.error.verdict.name}{rate and ', '}{rate}"

    def _weights(self) -> WeightsSummary:
        """The weights of the run, and what the subjects hold instead."""
        built = [(each.label, each.built) for each in self.candidates if each.built is not None]
        given = [(subject, each.folding, each.folded_digest) for subject, each in built if each.folding]
        return replace(
            summary.weights(self.prepared),
            folded={subject: folding.names for subject, folding, _ in given if folding.names},
            folded_digests={subject: digest for subject, _, digest in given},
            stored={subject: each.stored for subject, each in built if each.stored},
            changed={
                subject: tuple(each.says for each in folding.changes)
                for subject, folding, _ in given
                if folding.changes
            },
            absent={subject: folding.absent for subject, folding, _ in given if folding.absent},
        )

    def _notes_of_the_export(self) -> Iterator[str]:
        """What is said of the export, unless it failed as the reference itself did, which the rows say."""
        if isinstance(self.export, Absent):
            return iter([self.export.reason] if not self.told or not self.export.reason.endswith(self.told) else [])
        return self.export.notes() if self.export else iter(())

    def _write(self, result: Result) -> None:
        if self.file is not None:
            result_file.write(result, self.file)

    def _write_so_far(self) -> None:
        """Write the result so far. When that fails, a note says so, and the run goes on to the last write."""
        problem = result_file.write_so_far(self.result(), self.file) if self.file is not None else ""
        if problem and problem not in self.notes:
            self.notes.append(problem)
            self.listener.note(problem)

    # -- stages -------------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Start, time and judge the subjects, those that fit into memory at once in a turn of their own."""
        with self.clock.doing("starting"):
            prepared, verdicts = self._prepare()
        for number, turn in enumerate(self.turns):
            if number:
                self.listener.so_far(list(self._judged_so_far()))
                with self.clock.doing("starting"):
                    prepared = self._begin_turn(turn, prepared)
            self._measure_turn(number, prepared, verdicts)

    def _measure_turn(self, number: int, prepared: Prepared, verdicts: Verdicts) -> None:
        """Time and judge the process runs of a turn. Only what is not timed runs in parallel."""
        turn = self.turns[number]
        runs = ProcessRuns(
            turn,
            self.request,
            self.clock.part(len(self.turns) - number),
            self.listener,
            self.notes,
            self.noise,
            self.background,
            self._next_worker,
        )
        self._time(runs)
        runs.begin_next()
        with self.clock.doing("judging"):
            verdicts.judge_again(self.candidates, prepared)
            verdicts.judge([each for each in turn if not each.judged], self.candidates, prepared, runs.clock)
        while runs.take_next():
            begun = time.monotonic()
            self._time(runs)
            with self.clock.doing("judging"):
                verdicts.judge_again(self.candidates, prepared)
            runs.seconds.append(time.monotonic() - begun)
            runs.begin_next()

    def _prepare(self) -> tuple[Prepared, Verdicts]:
        """Prepare the weights and inputs of every subject, and build the models of the first process run.

        Returns them, with the weights in normal form, and what judges the subjects.
        """
        try:
            prepared, float32, sized = self._build_all()
        except BaseException as error:
            self._stop_background()
            self._abandon(error)
            raise
        prepared = self._use_normal_form(prepared)
        if self.keeper is not None:
            inputs = prepared.training if self.request.trains else prepared.inputs
            self.keeper.keep(self.request.task, prepared.weights, inputs)
        self.verdicts = verdicts = self._verdicts(prepared, float32, sized)
        return prepared, verdicts

    def _build_all(self) -> tuple[Prepared, truth.Outputs, Sized]:
        """Build all of the first turn: weights and inputs, the reference's float32 outputs, and the reference at other sizes."""
        late = {
            index: slow for index, each in enumerate(self.candidates) if (slow := each.subject.adapter.slow_start())
        }
        early = [each for index, each in enumerate(self.candidates) if 0 in late or index not in late]
        started = {each.label: self.imports.submit(each.start) for each in early}
        self.prepared = prepared = build.prepare(self.process)
        self.turns = self._fitting(prepared, late)
        started |= {each.label: self.imports.submit(each.start) for each in self.turns[0] if each not in early}
        for candidate in self.candidates:
            candidate.use(prepared, None)

        def build_model(candidate: Candidate) -> None:
            started[candidate.label].result()
            candidate.build()

        first = self.turns[0]
        by_onnx = [each for each in first if each.subject.needs_export]
        built = [self.background.submit(build_model, each) for each in first if each not in by_onnx]
        wanted = any(each.subject.needs_export for each in self.candidates)
        self.export = exporting.export(self.process, prepared) if wanted else None
        for candidate in by_onnx:
            candidate.use(prepared, self.export)
        built += [self.background.submit(build_model, each) for each in by_onnx]
        float32 = other_sizes.compute_float32(self.process, prepared)
        sized = other_sizes.prepare(self.process, prepared)
        for done in built:
            done.result()
        for each in started.values():  # a later turn has the processes of its subjects already
            each.result()
        return prepared, float32, sized

    def _verdicts(self, prepared: Prepared, float32: truth.Outputs, sized: Sized) -> Verdicts:
        """What judges the subjects. Where nothing is timed, the reference computes in float64 while they run."""
        if self.request.trains:
            return TrainingVerdicts(self.process, self.background)
        verdicts = of_outputs(self.process, float32, sized, self.background)
        if self.request.no_timing:
            verdicts.begin_early(prepared)
        return verdicts

    def _use_normal_form(self, prepared: Prepared) -> Prepared:
        """Give every candidate the weights in the normal form of all models that were built, and return them."""
        fused = {
            name: parts for each in self.candidates if each.built for name, parts in each.built.fused_parameters.items()
        }
        self.prepared = prepared = prepared.in_normal_form(fused)
        if self.earlier is not None:
            check_weights(self.earlier, self._weights())
        for candidate in self.candidates:
            candidate.use_normal_form(prepared)
        return prepared

    def _fitting(self, prepared: Prepared, late: Mapping[int, str]) -> list[list[Candidate]]:
        """The turns of candidates, which the user is told before any model is built. Arguments: see ``memory.plan``."""
        subjects, timed = [each.subject for each in self.candidates], not self.request.no_timing
        plan = memory.plan(self._work(prepared), subjects, self.available, timed, late)
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

    def _begin_turn(self, turn: list[Candidate], prepared: Prepared) -> Prepared:
        """Build the models of a later turn, and return the weights. The baseline goes on in a new process."""
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
            candidate.use(prepared, self.export)

        def build_model(candidate: Candidate) -> None:
            if candidate.started is None:  # it is slow to start, and nothing was to wait for it
                candidate.start()
            candidate.build()

        for built in [self.background.submit(build_model, each) for each in turn]:
            built.result()
        return self._use_normal_form(prepared)

    def _time(self, runs: ProcessRuns[Candidate]) -> None:
        """Time the processes that are ready, write the result so far, and report it."""
        runs.time()
        with self.clock.doing("judging"):
            self._write_so_far()
            runs.report()

    # -- processes ----------------------------------------------------------------------------------------------------

    def _stop_background(self) -> None:
        for each in (self.imports, self.background):
            each.shutdown(wait=False, cancel_futures=True)

    def _abandon(self, error: BaseException) -> None:
        reason, done = INTERRUPTED, list[Candidate]()
        if isinstance(error, KeyboardInterrupt):
            if self.verdicts is not None and self.prepared is not None:
                self.verdicts.judge_so_far(self.candidates, self.prepared)
            done = [each for each in self.candidates if each.finished]
            done = done if len(done) < len(self.candidates) else []  # what was interrupted is not the run of a subject
        else:
            status = f"{error.status}: " if isinstance(error, SubjectError) else ""
            reason = f"the reference {self.request.reference} could not run: {status}{error}"
            self.told = f": {error}"
        for candidate in self.candidates:
            if candidate not in done:
                candidate.abandon(NOT_RUN if reason == INTERRUPTED and candidate.warmed is None else reason)

    def _next_worker(self, candidate: Candidate) -> Worker:
        """The worker of a candidate's next process run."""
        place = f"subject-{self.candidates.index(candidate)}-launch-{candidate.run + 1}"
        return self._worker(self.space / place, candidate.subject)

    def _worker(self, place: Path, subject: Subject | None = None) -> Worker:
        """A worker in a new folder. subject: None makes that of the reference."""
        place.mkdir()
        request, timed = self.request, not (subject is None or self.request.no_timing)
        adapter = subject.adapter if subject is not None else discovery.named(request.reference)
        label, ranks = (subject.label, subject.ranks) if subject is not None else ("reference", None)
        worker = worker_of(
            ranks,
            adapter,
            request.python.get(adapter.name, sys.executable),
            place,
            request.threads,
            "cpu" if subject is None else request.device,  # the reference computes on the CPU, which has float64
            request.timeout,
            request.pin,
            patient=not timed,
            beat=lambda seconds, line: self.listener.beat(label, seconds, line),
            allocator=request.allocator if timed else None,
            memory=request.memory,
            templates=self.templates if request.no_timing else None,
        )
        self.workers.append(worker)
        return worker
