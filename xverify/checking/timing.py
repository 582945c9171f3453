"""Times the files of a check after their verdicts, with the process runs of the engine.

All files that could be computed are timed on the first input case. A reference that is a file comes first, and is the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from ..verdict.steadiness import change
from ..weights import npz
from ..weights.canonical import Array
from ..worker import allocator, messages
from ..worker.process import Worker
from ..workload.keys import case_key
from ..workload.options import ALLOCATORS, EFFORTS
from ..workload.request import Request
from .computing import FIRST
from .figures import unmet
from .judge import CONVERSION, RUNTIME, conversion
from .subject import build, make_worker

if TYPE_CHECKING:
    from .candidate import Candidate
    from .run import Check

CHANNELS = {1, 3, 4}  # an input of four axes with so many channels is taken for images
SEVERITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL)


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

    file: what the check found out about it. error: of the row of the question that was asked; None when there is none.
    other: the error of the other question; None without one.
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
        error: Error | None,
        other: Error | None,
        accepts: bool,
        inputs: Path,
    ) -> None:
        super().__init__(label, request, _worker(check, file), check.listener, History())
        self.check, self.file, self.accepts, self.inputs = check, file, accepts, inputs
        self.asked, self.other = error, other
        self.outputs: dict[str, Array] = {}
        self.failure = file.failure
        computed, opened = file.computed, file.opened
        if computed is None or opened is None or error is None:
            self.failure = self.failure or Failed("nothing was computed")
            return
        self.error = self._worst(error)
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
        """Compare the outputs of the last timed calls, and of a call after them, with those that were judged before."""
        if not self.active or self.asked is None:
            return
        kept = [*self.timed.outputs.values()]
        if self.first_run and self.measured.repeated.second is not None:
            kept.append(self.measured.repeated.second)
        found = next((says for path in kept if (says := self._differs(path))), "")
        if found and (self.asked.verdict < Verdict.DIFFERENT or self.accepts):  # another wrong result keeps its reason
            reason = "; ".join(filter(None, (f"in process run {self.run + 1} {found}", self.asked.reason)))
            self.asked = replace(self.asked, verdict=Verdict.INVALID, reason=reason)
        self.error = self._worst(self.asked)

    def _differs(self, path: Path) -> str:
        """How the outputs in a file differ from those that were judged, by more than noise; "" when they do not."""
        own, outputs = self.file.own, npz.OnDisk(path)
        if _shapes(outputs) != _shapes(self.outputs):
            return f"the timed calls return {_shapes(outputs)}, and the call that was judged {_shapes(self.outputs)}"
        if own is None:  # the noise of a call is not known without an evaluation in float64
            found = change(self.outputs, outputs, self.outputs, self.outputs)
            differs, size = found.large, ""
        else:
            floors = None if own.floors is None else {key: own.floors.get(key, 0.0) for key in self.outputs}
            found = change(self.outputs, outputs, own.outputs, own.float32, floors)
            differs, size = found.random, f" ({found.ratio:.3g} x the noise floor, limit {found.limit:g})"
        says = f"the outputs of timed calls differ from those of the call that was judged by {found.share:.2g} of the result"
        return says + size if differs else ""

    def _worst(self, asked: Error) -> Error:
        """The error that decides whether its speed counts. asked: that of the question that was asked."""
        if self.accepts and asked.verdict == Verdict.DIFFERENT:
            asked = replace(asked, verdict=Verdict.DRIFT)
        return max((asked, *([self.other] if self.other else [])), key=lambda error: error.verdict.rank)

    def in_row(self, row: Row, speed: Speed | None) -> Row:
        """The row of the question that was asked, with the speed."""
        if self.asked is not None and self.timed.outputs:
            row = replace(row, error=replace(self.asked, timed_cases=len(self.timed.outputs)))
        if row.status == "ok" and self.failure is not None:
            row = replace(row, status=self.failure.status, reason=f"while it was timed: {self.failure}")
        return replace(row, speed=speed, memory=self.measured.memory, batch=self.request.batch)


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
        against, target = self.check.against, self.check.target
        if against is None or against.computed is None or target is None:
            return []
        judged = against.judged or conversion(against.computed, target.meaning, None, target.cases.count)
        return [self.check.row(against, self.asked, judged)]

    def _files(self) -> list[TimedFile]:
        """All files of the check, also those that failed, in the order of their rows."""
        check, rows = self.check, iter(self.rows)
        first = [check.against] if len(self.rows) > len(self.result.rows) and check.against is not None else []
        subjects = [*first, *check.candidates]
        items = [batch_and_item(file.cases.tensors) for file in subjects if file.cases is not None]
        self.item = "image" if items and all(item == "image" for _, item in items) else "call"
        files: list[TimedFile] = []
        for index, file in enumerate(subjects):
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
                    error=mine[-1].error,
                    other=max(
                        (row.error for row in mine[:-1] if row.error),
                        key=lambda error: error.verdict.rank,
                        default=None,
                    ),
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
        rows: list[Row] = []
        for row in self.rows:
            if row.task == self.asked:
                file, speed = next(timed)
                row = file.in_row(row, speed)
            rows.append(row)
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


def _shapes(outputs: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Name of an output -> its shape."""
    return {key.partition("/")[2]: outputs[key].shape for key in outputs}
