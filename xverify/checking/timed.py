"""The rows of a check that are timed: files, and a reference that is a model. All are called on the first input case."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .. import messages
from ..engine.building import Source
from ..engine.stages import Built, History
from ..engine.timed import TimedCandidate
from ..errors import SubjectError
from ..framework import discovery
from ..framework.adapter import Framework
from ..framework.runner import Runner
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..reference.build import build_question
from ..results.figures import shown_ratio
from ..results.records import Error, Row, Speed
from ..results.verdicts import Verdict
from ..verdict.steadiness import change
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.options import ALLOCATORS
from ..workload.request import Request
from .candidate import REFERENCE, Context, ModelSource
from .computing import FIRST
from .judge import CONVERSION
from .meaning import Meaning
from .subject import File, Opened, build, make_worker


@dataclass(frozen=True)
class FileSource:
    """A model file. inputs: the array file of the first input case."""

    context: Context
    file: File
    inputs: Path
    building: str = "opening the file"

    def worker(self) -> Worker:
        """A worker for a process run."""
        settings, listener = self.context.settings, self.context.listener
        file, space = self.file, self.context.space
        return make_worker(file.label, file.form, space, settings, listener, timed=True, python=file.python)

    def build(self, worker: Worker) -> Built:
        """Open the file."""
        real = isinstance(self.file, Opened) and self.file.real
        return Built(build(self.file.path, worker, self.context.settings, real)[0], {}, "", "")

    def first_steps(self, worker: Worker) -> messages.Prepared:
        """Call the subject twice, and return how long each call took."""
        return worker.ask(messages.Prepare(inputs=str(self.inputs), mode=_mode(self.file.form)))


@dataclass(frozen=True)
class ReferenceSource:
    """A reference that is a model, in its framework's first mode. batch: items of a call. inputs: as in ``FileSource``."""

    context: Context
    model: ModelSource
    batch: int
    inputs: Path
    building: str = "building the model"

    @property
    def adapter(self) -> type[Framework]:
        """Return the adapter of the framework of the model."""
        return discovery.load(self.model.request.reference)

    def worker(self) -> Worker:
        """A worker for a process run."""
        settings, listener = self.context.settings, self.context.listener
        return Worker(
            self.adapter,
            interpreter(self.adapter),
            Path(tempfile.mkdtemp(prefix="worker-", dir=self.context.space)),
            settings.thread_count,
            "cpu",
            settings.timeout,
            settings.pin,
            beat=lambda seconds, line: listener.beat("reference", seconds, line),
            allocator=settings.allocator or ALLOCATORS[0],
            memory=settings.memory,
        )

    def build(self, worker: Worker) -> Built:
        """Build the model, and load its weights."""
        adapter = self.adapter
        built = worker.ask(build_question(self.model.folder, adapter.reads(), None, _mode(adapter), batch=self.batch))
        digest = worker.ask(messages.Load(path=str(self.model.prepared.weights)))
        return Built(built.seconds, built.fused_parameters, "", digest)

    def first_steps(self, worker: Worker) -> messages.Prepared:
        """Call the subject twice, and return how long each call took."""
        return worker.ask(messages.Prepare(inputs=str(self.inputs), mode=_mode(self.adapter)))

    def row(self, error: Error) -> Row:
        """Return the row of the reference, without a speed. error: that of its outputs in float32."""
        return Row(
            subject=f"{self.model.folder.name}{REFERENCE}",
            framework=self.adapter.name,
            mode=_mode(self.adapter),
            task=CONVERSION,
            device="cpu",
            batch=self.batch,
            status="ok",
            error=error,
            environment=dict(self.model.prepared.environment),
        )


def _mode(adapter: type[Runner]) -> str:
    """The mode that is timed."""
    return adapter.implicit_mode or next(iter(adapter.modes))


@dataclass(frozen=True)
class Before:
    """What was judged before a row is timed.

    asked: the error of the question that was asked. other: that of the other question; None without one.
    accepts: whether the conditions of --accept hold for it, so that a difference from the reference is no failure.
    meaning: what its outputs were compared with. outputs: "case/name" -> output of the call that was judged, of the first case.
    """

    asked: Error
    meaning: Meaning | None
    outputs: Mapping[str, Array]
    other: Error | None = None
    accepts: bool = False

    @property
    def worst(self) -> Error:
        """The error that decides whether its speed counts."""
        asked = self.asked
        if self.accepts and asked.verdict == Verdict.DIFFERENT:
            asked = replace(asked, verdict=Verdict.DRIFT)
        return max((asked, *([self.other] if self.other else [])), key=lambda error: error.verdict.rank)

    def differs(self, path: Path) -> str:
        """How the outputs in a file differ from those that were judged, by more than noise; "" when they do not."""
        own, outputs = self.meaning, npz.OnDisk(path)
        if _shapes(outputs) != _shapes(self.outputs):
            return f"the timed calls return {_shapes(outputs)}, and the call that was judged {_shapes(self.outputs)}"
        if own is None:  # the noise of a call is not known without an evaluation in float64
            moved = change(self.outputs, outputs, self.outputs, self.outputs)
            differs, size = moved.large, ""
        else:
            floors = None if own.floors is None else {key: own.floors.get(key, 0.0) for key in self.outputs}
            moved = change(self.outputs, outputs, own.outputs, own.float32, floors)
            differs, size = (
                moved.random,
                f" ({shown_ratio(moved.ratio, 3)} x the noise floor, limit {moved.limit:g})",
            )
        says = f"the outputs of timed calls differ from those of the call that was judged by {moved.share:.2g} of the result"
        return says + size if differs else ""


def first_case(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Those of the first case."""
    return {key: outputs[key] for key in outputs if key.startswith(case_key(FIRST, ""))}


def _shapes(outputs: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Name of an output -> its shape."""
    return {key.partition("/")[2]: outputs[key].shape for key in outputs}


class TimedRow(TimedCandidate):
    """A row of a check. Its outputs in timed calls are compared with those of the call that was judged before.

    make_worker: makes the worker of a process run. before: what was judged; the reason that nothing was, for a row that failed.
    """

    def __init__(
        self,
        label: str,
        context: Context,
        request: Request,
        source: Source,
        make_worker: Callable[[], Worker],
        before: Before | SubjectError,
    ) -> None:
        super().__init__(label, request, make_worker(), context.listener, History())
        self.source, self.next_worker, self.before = source, make_worker, before
        if isinstance(before, SubjectError):
            self.failure = before
        else:
            self.error = before.worst
            self.room = sum(array.nbytes for array in before.outputs.values())

    def judge_timed(self) -> None:
        """Compare the outputs of the last timed calls, and of a call after them, with those that were judged before."""
        before = self.before
        if not self.active or isinstance(before, SubjectError):
            return
        kept = [*self.timed.outputs.values()]
        if self.first_run and self.measured.repeated.second is not None:
            kept.append(self.measured.repeated.second)
        found, asked = next((says for path in kept if (says := before.differs(path))), ""), before.asked
        if found and (asked.verdict < Verdict.DIFFERENT or before.accepts):  # another wrong result keeps its reason
            reason = "; ".join(filter(None, (f"in process run {self.run + 1} {found}", asked.reason)))
            self.before = before = replace(before, asked=replace(asked, verdict=Verdict.INVALID, reason=reason))
        self.error = before.worst

    def in_row(self, row: Row, speed: Speed | None) -> Row:
        """The row of the question that was asked, with the speed."""
        if isinstance(self.before, Before) and self.timed.outputs:
            row = replace(row, error=replace(self.before.asked, timed_cases=len(self.timed.outputs)))
        if row.status == "ok" and self.failure is not None:
            row = replace(row, status=self.failure.status, reason=f"while it was timed: {self.failure}")
        return replace(row, speed=speed, memory=self.measured.memory, batch=self.request.batch)
