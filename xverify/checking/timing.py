"""Times the files of a check after their verdicts, with the process runs of the engine.

All files that could be computed are timed on the first input case. A reference that is a file comes first, and is the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import host
from ..engine.process_runs import ProcessRuns
from ..engine.stages import Built, History
from ..engine.timed import TimedCandidate
from ..errors import Failed
from ..framework.modelfile import Tensor
from ..results.records import Error, Result, Row, Settings, Speed, overall
from ..results.verdicts import Outcome, Verdict
from ..weights import npz
from ..weights.canonical import Array
from ..worker import allocator, messages
from ..worker.process import Worker
from ..workload.keys import case_key
from ..workload.options import ALLOCATORS, EFFORTS
from ..workload.request import Request
from .computing import FIRST, Computed
from .figures import unmet
from .judge import CONVERSION, RUNTIME, Judged, conversion
from .subject import build, make_worker

if TYPE_CHECKING:
    from .candidate import Candidate
    from .run import Check

CHANNELS = {1, 3, 4}  # an input of four axes with so many channels is taken for images
SEVERITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL)

# Question -> its answer, for the outputs of a file.
Judge = Callable[[Computed], Mapping[str, Judged]]


def batch_and_item(tensors: Sequence[Tensor]) -> tuple[int, str]:
    """How many items a call has, and what one is: the images of the only input that is no vector. Otherwise the call itself.

    tensors: the inputs, with every size known.
    """
    large = [tensor.shape for tensor in tensors if tensor.shape is not None and len(tensor.shape) > 1]
    if len(large) == 1 and len(large[0]) == 4 and CHANNELS & {large[0][1], large[0][3]}:
        return int(large[0][0] or 1), "image"
    return 1, "call"


class TimedFile(TimedCandidate):
    """A file that is timed on the first input case.

    file: what the check found out about it. judge: judges its outputs. errors: question -> the error that was found.
    accepts: whether the conditions of --accept hold for it, so that a difference from the reference is no failure.
    inputs: where to write the first input case.
    """

    build_phase = "opening the file"

    def __init__(
        self,
        label: str,
        check: Check,
        request: Request,
        file: Candidate,
        judge: Judge,
        errors: Mapping[str, Error],
        accepts: bool,
        inputs: Path,
    ) -> None:
        super().__init__(label, request, _worker(check, file), check.listener, History())
        self.check, self.file, self.judge, self.accepts, self.inputs = check, file, judge, accepts, inputs
        self.errors = dict(errors)
        self.outputs: dict[str, Array] = {}
        self.failure = file.failure
        computed, opened = file.computed, file.opened
        if computed is None or opened is None or not errors:
            self.failure = self.failure or Failed("nothing was computed")
            return
        self.error = self._worst()
        names = {case_key(FIRST, tensor.name) for tensor in opened.signature.inputs}
        cases = npz.OnDisk(computed.inputs)
        npz.save_file({key: cases[key] for key in cases if key in names}, inputs)
        self.outputs = {key: computed.own[key] for key in computed.own if key.startswith(case_key(FIRST, ""))}
        self.room = sum(array.nbytes for array in self.outputs.values())

    def _build(self) -> Built:
        seconds, _ = build(self.file.path, self.worker, self.check.settings)
        return Built(seconds, {}, "", "")

    def _call_twice(self) -> messages.Prepared:
        form = self.file.form
        mode = form.implicit_mode or next(iter(form.modes))
        return self.worker.ask(messages.Prepare(inputs=str(self.inputs), mode=mode))

    def next_worker(self) -> Worker:
        """A worker for its next process run."""
        return _worker(self.check, self.file)

    def judge_timed(self) -> None:
        """Judge the outputs of the last timed calls, where they are not those that were judged before to the last bit."""
        computed = self.file.computed
        if not self.active or computed is None:
            return
        kept = [*self.timed.outputs.values()]
        if self.first_run and self.measured.repeated.second is not None:
            kept.append(self.measured.repeated.second)
        for path in kept:
            outputs = npz.load_file(path)
            if not _same(outputs, self.outputs):
                for question, judged in self.judge(computed.with_outputs(outputs)).items():
                    self._take(question, judged.error)
        self.error = self._worst()

    def _take(self, question: str, found: Error) -> None:
        """Take the error of timed outputs when it is worse than the known one."""
        known = self.errors.get(question)
        if known is not None and found.verdict > known.verdict:
            reason = f"in the timed calls of process run {self.run + 1}: {found.reason}"
            self.errors[question] = replace(found, reason=reason)

    def _worst(self) -> Error:
        """The error that decides whether its speed counts."""
        asked = list(self.errors)[-1]
        found = [
            replace(error, verdict=Verdict.DRIFT)
            if self.accepts and question == asked and error.verdict == Verdict.DIFFERENT
            else error
            for question, error in self.errors.items()
        ]
        return max(found, key=lambda error: error.verdict.rank)

    def in_row(self, row: Row, speed: Speed | None) -> Row:
        """The row of the question that was asked, with the speed."""
        row = self.judged_row(row)
        if row.error is not None and self.timed.outputs:
            row = replace(row, error=replace(row.error, timed_cases=len(self.timed.outputs)))
        if row.status == "ok" and self.failure is not None:
            row = replace(row, status=self.failure.status, reason=f"while it was timed: {self.failure}")
        return replace(row, speed=speed, memory=self.measured.memory, batch=self.request.batch)

    def judged_row(self, row: Row) -> Row:
        """The row of any question, with what the timed outputs showed."""
        return replace(row, error=self.errors.get(row.task, row.error))


class FileTiming:
    """Times the files of a check.

    check: the check, all of whose workers have ended. result: its result, without speeds.
    """

    def __init__(self, check: Check, result: Result) -> None:
        self.check, self.result = check, result
        self.asked = RUNTIME if check.settings.against is None else CONVERSION
        self.settings = self._settings()
        self.request = replace(self.settings, cases=1)
        self.notes = list(filter(None, [allocator.without_effect()]))
        self.rows = [*self._reference_row(), *result.rows]
        self.files = self._files()
        self.background = ThreadPoolExecutor(max_workers=min(2, host.cores()))
        self.runs = ProcessRuns(
            self.files, self.request, check.clock, check.listener, self.notes, self.background, TimedFile.next_worker
        )

    def _settings(self) -> Settings:
        """The settings of the check with those of the timing."""
        asked = self.check.settings
        return replace(
            self.result.settings,
            effort=asked.effort or EFFORTS[0],
            allocator=asked.allocator or ALLOCATORS[0],
            pin=tuple(asked.pin),
            warmup=asked.warmup,
            rerun=asked.rerun,
        )

    def _reference_row(self) -> list[Row]:
        """The row of a reference that is a file: its runtime, compared with its own exact outputs."""
        against = self.check.against
        if against is None or against.computed is None:
            return []
        return [self.check.row(against, self.asked, self._judge_reference(against.computed)[self.asked])]

    def _judge_reference(self, computed: Computed) -> dict[str, Judged]:
        check, target = self.check, self.check.target
        assert target is not None
        assert check.against is not None
        return {CONVERSION: conversion(computed, target.meaning, None, target.cases.count)}

    def _files(self) -> list[TimedFile]:
        """All files of the check, also those that failed, in the order of their rows."""
        check, rows = self.check, iter(self.rows)
        subjects: list[tuple[Candidate, Judge]] = []
        if len(self.rows) > len(self.result.rows) and check.against is not None:
            subjects.append((check.against, self._judge_reference))
        subjects += [(each, partial(check.judge, each)) for each in check.candidates]
        items = [batch_and_item(file.cases.tensors) for file, _ in subjects if file.cases is not None]
        self.item = "image" if items and all(item == "image" for _, item in items) else "call"
        files: list[TimedFile] = []
        for index, (file, judge) in enumerate(subjects):
            mine = []
            for row in rows:  # the rows of a file end with the question that was asked
                mine.append(row)
                if row.task == self.asked:
                    break
            known = any(file.label == each.label for each in files)  # the same file twice
            files.append(
                TimedFile(
                    label=f"{file.label} ({index + 1})" if known else file.label,
                    check=check,
                    request=replace(self.request, batch=self._batch(file)),
                    file=file,
                    judge=judge,
                    errors={row.task: row.error for row in mine if row.error is not None},
                    accepts=bool(check.wanted) and not unmet(check.wanted, mine[-1].figures),
                    inputs=check.space / f"timed-{index}.npz",
                )
            )
        return files

    def _batch(self, file: Candidate) -> int:
        """Items of a call of this file."""
        return batch_and_item(file.cases.tensors)[0] if file.cases is not None and self.item == "image" else 1

    # -- stages -------------------------------------------------------------------------------------------------------

    def execute(self) -> Result:
        """Time the files. Returns the result with their speeds."""
        complete = True
        try:
            with self.check.clock.doing("starting"):
                for done in [self.background.submit(self._open, each) for each in self.files]:
                    done.result()
            if any(each.active for each in self.files):
                self._measure()
        except KeyboardInterrupt:
            complete = False
            self.notes.append("interrupted: the result contains what was measured until then")
            for file in self.files:
                file.abandon("interrupted by the user")
        finally:
            self.background.shutdown(wait=False, cancel_futures=True)
            for worker in (*(each.worker for each in self.files), *(worker for worker, _ in self.runs.coming.values())):
                worker.close()
        return self._timed(complete)

    def _open(self, file: TimedFile) -> None:
        file.start()
        file.build()

    def _measure(self) -> None:
        going = True
        while going:
            self.runs.time()
            with self.check.clock.doing("judging"):
                for file in self.files:
                    file.judge_timed()
            self.runs.report()
            self.runs.begin_next()
            going = self.runs.take_next()

    # -- the result ---------------------------------------------------------------------------------------------------

    def _timed(self, complete: bool) -> Result:
        """The result with the speed of each file in the row of the question that was asked."""
        timed = iter(zip(self.files, self.runs.speeds()))
        file, speed = next(timed)
        rows: list[Row] = []
        for row in self.rows:
            asked = row.task == self.asked
            rows.append(file.in_row(row, speed) if asked else file.judged_row(row))
            if asked:
                file, speed = next(timed, (file, None))
        batches = {each.label: each.request.batch for each in self.files if each.alive}
        if len(set(batches.values())) > 1:
            says = ", ".join(f"{label} {batch}" for label, batch in batches.items())
            self.notes.append(
                f"the files take different numbers of items a call, and time ratios are those of calls: {says}; "
                "--shape gives all of them the same inputs"
            )
        unavoidable = sum(each.measurements().unavoidable_seconds for each in self.files)
        return replace(
            self.result,
            rows=tuple(rows),
            verdict=self._verdict(rows),
            settings=replace(self.settings, batch=self.files[0].request.batch),
            notes=(*self.result.notes, *self.notes),
            timeline={**self.result.timeline, "unavoidable_seconds": unavoidable},
            item=self.item,
            noise=self.runs.noise.describe(),
            complete=complete,
        )

    def _verdict(self, rows: Sequence[Row]) -> Outcome:
        """The verdict on the whole check, with what was found while the files were timed. It is never better than before."""
        first = len(rows) - len(self.result.rows)  # the row of the reference is new
        found = [*rows[:first]]
        for before, row in zip(self.result.rows, rows[first:]):
            worse = row.error is not None and before.error is not None and row.error.verdict > before.error.verdict
            found += [row] if worse or row.status != before.status else []
        outcome = overall(found, self.settings.strict) if found else Outcome.PASS
        return max(self.result.verdict, outcome, key=SEVERITY.index)


def _worker(check: Check, file: Candidate) -> Worker:
    return make_worker(file.label, file.form, check.space, check.settings, check.listener, timed=True)


def _same(outputs: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    """Whether these are the same outputs to the last bit."""
    return outputs.keys() == others.keys() and all(
        array.dtype == others[key].dtype
        and array.shape == others[key].shape
        and array.tobytes() == others[key].tobytes()
        for key, array in outputs.items()
    )
