"""Times the files of a check after their verdicts, with the process runs of the engine.

All files that could be computed are timed on the first input case. A reference that is a model or a file comes first, and is the
baseline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import methodcaller
from pathlib import Path

from .. import host
from ..engine.process_runs import ProcessRuns
from ..errors import Failed, SubjectError
from ..framework.modelfile import Tensor
from ..processes import allocator
from ..results.plan import Plan
from ..results.records import INTERRUPTED, Error, Result, Row, Settings, Speed, overall
from ..results.verdicts import SEVERITY, Outcome, Verdict
from ..timing.noise import Seen
from ..weights import npz
from ..workload.keys import case_key
from ..workload.options import ALLOCATORS, EFFORTS
from ..workload.request import Request
from .candidate import REFERENCE, Beside, Checked, Context, Evaluated, ModelSource, Target
from .computing import FIRST
from .figures import Condition, unmet
from .judge import conversion, exact_conversion
from .report import questions, row_of
from .subject import File
from .timed import Before, FileSource, ReferenceSource, TimedRow, first_case

CHANNELS = {1, 3, 4}  # an input of four axes with so many channels is taken for images


def batch_and_item(tensors: Sequence[Tensor]) -> tuple[int, str]:
    """How many items a call has, and what one is: the images of the only input that is no vector. Otherwise the call itself.

    tensors: the inputs, with every size known.
    """
    large = [tensor.shape for tensor in tensors if tensor.shape is not None and len(tensor.shape) > 1]
    if len(large) == 1 and len(large[0]) == 4 and CHANNELS & {large[0][1], large[0][3]}:
        return int(large[0][0] or 1), "image"
    return 1, "call"


def time_files(
    context: Context, result: Result, checked: Sequence[Checked], target: Target | None, wanted: Sequence[Condition]
) -> Result:
    """Time the files of a check, all of whose workers have ended. Returns the result with their speeds.

    result: without speeds. target: the reference; None without one. wanted: the conditions of --accept.
    """
    settings = _settings(context, result)
    rows = (*_reference_row(context, target), *result.rows)
    one = _one_item(checked, target)
    request = replace(settings, cases=1)
    timed = _timed_rows(context, request, rows, checked, target, wanted, one)
    timed += _timed_beside(context, request, checked[0], target, one)
    notes = list(filter(None, [allocator.without_effect()]))
    result = replace(result, settings=settings, item=one)
    beside = target.beside if target is not None else ()
    return FileTiming(context, result, rows, timed, notes, beside).execute()


def _settings(context: Context, result: Result) -> Settings:
    """The settings of the check with those of the timing."""
    asked = context.settings
    return replace(
        result.settings,
        effort=asked.effort or EFFORTS[0],
        allocator=asked.allocator or ALLOCATORS[0],
        pin=tuple(asked.pin),
        warmup=asked.warmup,
        rerun=asked.rerun,
    )


def _one_item(checked: Sequence[Checked], target: Target | None) -> str:
    """What one item of all files is called."""
    files = [*([target.file] if target and target.file else []), *(each.evaluated for each in checked)]
    items = {batch_and_item(each.cases.tensors)[1] for each in files if each is not None}
    return "image" if items == {"image"} else "call"


def _reference_row(context: Context, target: Target | None) -> Iterator[Row]:
    """The row of a reference that can be timed: a model, or a file, whose runtime is compared with its own exact outputs."""
    if target is not None and target.source is not None:
        batch, _ = batch_and_item(target.cases.tensors)
        yield ReferenceSource(context, target.source, batch, context.space).row(_of_model(target))
    elif target is not None and target.file is not None:
        file = target.file
        judged = target.judged or conversion(file.computed, target.meaning, None, target.cases.count)
        reference = Checked(file.opened, file.opened.environment, file)
        yield row_of(context, reference, questions(context.settings)[-1], judged)


def _of_model(target: Target) -> Error:
    """The error of the outputs of a model in float32."""
    meaning = target.meaning
    return exact_conversion(meaning.float32, meaning, {}, range(target.cases.count)).error


def _timed_rows(
    context: Context,
    request: Request,
    rows: Sequence[Row],
    checked: Sequence[Checked],
    target: Target | None,
    wanted: Sequence[Condition],
    one: str,
) -> list[TimedRow]:
    """All that is timed, also files that failed, in the order of the rows. one: what one item is called."""
    asked, remaining = questions(context.settings)[-1], iter(rows)
    timed: list[TimedRow] = []
    if target is not None and target.source is not None:
        next(remaining)
        timed.append(_timed_model(context, request, target, target.source, one))
    reference = [Checked(target.file.opened, evaluated=target.file)] if target and target.file else []
    for index, each in enumerate([*reference, *checked]):
        mine: list[Row] = []
        while not mine or mine[-1].task != asked:  # the rows of a file end with the question that was asked
            mine.append(next(remaining))
        label = each.file.label
        if any(label == other.label for other in timed):  # the same file twice
            label = f"{label} ({index + 1})"
        source = FileSource(context, each.file, context.space / f"timed-{index}.npz")
        tensors = each.evaluated.cases.tensors if each.evaluated else ()
        mine_asked = replace(request, batch=_batch(tensors, one))
        before = _before(each, mine, wanted, source.inputs)
        timed.append(TimedRow(label, context, mine_asked, source, source.worker, before))
    return timed


def _timed_model(context: Context, request: Request, target: Target, model: ModelSource, one: str) -> TimedRow:
    """The reference, when it is a model."""
    batch, _ = batch_and_item(target.cases.tensors)
    source = ReferenceSource(context, model, batch if one == "image" else 1, context.space / "timed.npz")
    npz.save_file(first_case(target.cases.arrays), source.inputs)
    before = Before(_of_model(target), target.meaning, first_case(target.meaning.float32))
    request = replace(request, batch=source.batch)
    return TimedRow(f"{model.folder.name}{REFERENCE}", context, request, source, source.worker, before)


def _before(checked: Checked, rows: Sequence[Row], wanted: Sequence[Condition], inputs: Path) -> Before | SubjectError:
    """What was judged of a file, or why it cannot be timed. rows: its rows. inputs: where to write the first input case."""
    evaluated, error = checked.evaluated, rows[-1].error
    if checked.failure is not None or evaluated is None or error is None:
        return checked.failure or Failed("nothing was computed")
    _write_first_case(evaluated, inputs)
    others = [row.error for row in rows[:-1] if row.error]
    return Before(
        error,
        evaluated.own,
        first_case(evaluated.computed.own),
        other=max(others, key=lambda each: each.verdict.rank, default=None),
        accepts=bool(wanted) and not unmet(wanted, rows[-1].figures),
    )


def _write_first_case(evaluated: Evaluated, path: Path) -> None:
    """Write the first input case, under the names of the file."""
    names = {case_key(FIRST, tensor.name) for tensor in evaluated.opened.signature.inputs}
    cases = npz.OnDisk(evaluated.computed.inputs)
    npz.save_file({key: cases[key] for key in cases if key in names}, path)


def _timed_beside(
    context: Context, request: Request, checked: Checked, target: Target | None, one: str
) -> Iterator[TimedRow]:
    """The other files of a plan, on the runtime of the file that is checked. Their speeds count whatever their errors are."""
    evaluated, inputs = checked.evaluated, context.space / "timed-beside.npz"
    if target is None or evaluated is None or not any(target.beside):
        return
    _write_first_case(evaluated, inputs)
    request = replace(request, batch=_batch(evaluated.cases.tensors, one))
    for each in filter(None, target.beside):
        file = File(each.label, each.path, checked.file.form, checked.file.worker)
        source = FileSource(context, file, inputs)
        before = Before(Error(Verdict.EQUAL), None, each.outputs)
        yield TimedRow(each.label, context, request, source, source.worker, before)


def _batch(tensors: Sequence[Tensor], one: str) -> int:
    """Items of a call. one: what one item is called."""
    return batch_and_item(tensors)[0] if one == "image" else 1


class FileTiming:
    """Times the rows of a check.

    result: without speeds. rows: with that of the reference. files: of all rows, then those of ``beside``. notes: of the timing.
    beside: see ``Target``.
    """

    def __init__(
        self,
        context: Context,
        result: Result,
        rows: Sequence[Row],
        files: Sequence[TimedRow],
        notes: list[str],
        beside: Sequence[Beside | None] = (),
    ) -> None:
        self.beside = beside
        self.context, self.result, self.rows, self.files, self.notes = context, result, rows, files, notes
        self.background = ThreadPoolExecutor(max_workers=min(2, host.cores()))
        request = replace(result.settings, cases=1)
        clock, listener = context.clock, context.listener
        next_worker = methodcaller("next_worker")
        self.runs = ProcessRuns(files, request, clock, listener, notes, Seen(), self.background, next_worker)

    # -- stages -------------------------------------------------------------------------------------------------------

    def execute(self) -> Result:
        """Time the files. Returns the result with their speeds."""
        complete = True
        try:
            with self.context.clock.doing("starting"):
                for done in [self.background.submit(self._open, each) for each in self.files]:
                    done.result()
            if any(each.active for each in self.files):
                self._measure()
        except KeyboardInterrupt:
            complete = False
            self.notes.append("interrupted: the result contains what was measured until then")
            for file in self.files:
                file.abandon(INTERRUPTED)
        finally:
            self.background.shutdown(wait=False, cancel_futures=True)
            for worker in (*(each.worker for each in self.files), *(worker for worker, _ in self.runs.coming.values())):
                worker.close()
        return self._timed(complete)

    def _open(self, file: TimedRow) -> None:
        file.start()
        file.build()

    def _measure(self) -> None:
        going = True
        while going:
            self.runs.time()
            with self.context.clock.doing("judging"):
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
            if row.task == self.result.tasks[-1]:
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
            plan=self._plan(rows, (speed for _, speed in timed)),
            settings=replace(self.result.settings, batch=self.files[0].request.batch),
            notes=(*self.result.notes, *self.notes),
            timeline={**self.result.timeline, "unavoidable_seconds": unavoidable},
            noise=self.runs.noise.describe(),
            complete=complete,
        )

    def _plan(self, rows: Sequence[Row], speeds: Iterator[Speed | None]) -> Plan | None:
        """The plan with the speed of each file. rows: with speeds. speeds: of the files beside the chosen one, in order."""
        plan, asked = self.result.plan, self.result.tasks[-1]
        if plan is None:
            return None
        first = self.result.rows[0].subject
        own = next((row.speed for row in rows if (row.subject, row.task) == (first, asked)), None)
        files = (
            replace(file, speed=own if file.chosen else next(speeds, None) if beside else None)
            for file, beside in zip(plan.files, self.beside)
        )
        return replace(plan, files=tuple(files))

    def _verdict(self, rows: Sequence[Row]) -> Outcome:
        """The verdict on the whole check, with what was found while the files were timed. It is never better than before."""
        first = len(rows) - len(self.result.rows)  # the row of the reference is new
        found = [*rows[:first]]
        for before, row in zip(self.result.rows, rows[first:]):
            worse = row.error is not None and before.error is not None and row.error.verdict > before.error.verdict
            found += [row] if worse or row.status != before.status else []
        outcome = overall(found, self.result.settings.strict) if found else Outcome.PASS
        return max(self.result.verdict, outcome, key=SEVERITY.index)
