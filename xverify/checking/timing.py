"""Times the files of a check after their verdicts, with the process runs of the engine.

All files that could be computed are timed on the first input case. A reference that is a model or a file comes first, and is the
baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import methodcaller
from typing import TYPE_CHECKING

from .. import host
from ..engine.process_runs import ProcessRuns
from ..framework.modelfile import Tensor
from ..processes import allocator
from ..results.records import Result, Row, Settings, overall
from ..results.verdicts import Outcome
from ..timing.noise import Seen
from ..workload.options import ALLOCATORS, EFFORTS
from .figures import unmet
from .judge import CONVERSION, RUNTIME, conversion
from .timed import TimedFile, TimedModel, TimedRow

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
        self.model = self._timed_model()
        self.rows = [*self._reference_row(), *result.rows]
        self.files = self._files()
        self.background = ThreadPoolExecutor(max_workers=min(2, host.cores()))
        self.runs = ProcessRuns(
            self.files,
            self.request,
            check.clock,
            check.listener,
            self.notes,
            Seen(),
            self.background,
            methodcaller("next_worker"),
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

    def _timed_model(self) -> TimedModel | None:
        """The reference as a row, when it is a model whose outputs are known."""
        source, target = self.check.source, self.check.target
        if source is None or target is None:
            return None
        batch, _ = batch_and_item(target.cases.tensors)
        return TimedModel(
            self.check, replace(self.request, batch=batch), source, target, self.check.space / "timed.npz"
        )

    def _reference_row(self) -> list[Row]:
        """The row of a reference that can be timed: a model, or a file, whose runtime is compared with its own exact outputs."""
        against, target = self.check.against, self.check.target
        if self.model is not None:
            return [self.model.row()]
        if against is None or against.computed is None or target is None:
            return []
        judged = against.judged or conversion(against.computed, target.meaning, None, target.cases.count)
        return [self.check.row(against, self.asked, judged)]

    def _files(self) -> list[TimedRow]:
        """All that is timed, also files that failed, in the order of the rows."""
        check, rows = self.check, iter(self.rows)
        first = [check.against] if len(self.rows) > len(self.result.rows) and check.against is not None else []
        subjects = [*first, *check.candidates]
        found = [file.cases.tensors for file in subjects if file.cases is not None]
        items = {batch_and_item(tensors)[1] for tensors in found}
        self.item = "image" if items == {"image"} else "call"
        files: list[TimedRow] = []
        if self.model is not None:
            next(rows)
            self.model.request = replace(self.model.request, batch=self._items(self.model.request.batch))
            files.append(self.model)
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
        return self._items(batch_and_item(file.cases.tensors)[0]) if file.cases is not None else 1

    def _items(self, images: int) -> int:
        """Items of a call. images: in a call, where there are some."""
        return images if self.item == "image" else 1

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

    def _open(self, file: TimedRow) -> None:
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
