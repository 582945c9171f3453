"""The rows of a check that are timed: files, and a reference that is a model. All are called on the first input case."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import messages
from ..engine.stages import Built, History
from ..engine.timed import TimedCandidate
from ..errors import Failed
from ..framework import discovery
from ..framework.adapter import Framework
from ..framework.runner import Runner
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..reference.build import Prepared, build_question
from ..results.records import Error, Row, Speed
from ..results.verdicts import Verdict
from ..verdict.steadiness import change
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.options import ALLOCATORS
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .candidate import REFERENCE, Candidate, Target
from .computing import FIRST
from .judge import CONVERSION, exact_conversion
from .meaning import Meaning
from .subject import build, make_worker

if TYPE_CHECKING:
    from .run import Check


class TimedRow(TimedCandidate):
    """A row of a check. Its outputs in timed calls are compared with those of the call that was judged before.

    asked: the error of the question that was asked; None when there is none. other: that of the other question.
    accepts: whether the conditions of --accept hold for it, so that a difference from the reference is no failure.
    meaning: what its outputs were compared with. outputs: "case/name" -> output of the call that was judged.
    """

    def __init__(self, label: str, check: Check, request: Request, worker: Worker) -> None:
        super().__init__(label, request, worker, check.listener, History())
        self.check = check
        self.asked: Error | None = None
        self.other: Error | None = None
        self.accepts = False
        self.meaning: Meaning | None = None
        self.outputs: dict[str, Array] = {}

    def next_worker(self) -> Worker:
        """A worker for its next process run."""
        raise NotImplementedError

    def _judged(self, outputs: Mapping[str, Array], meaning: Meaning | None) -> None:
        """Take what was judged before. outputs: of all cases."""
        assert self.asked is not None
        self.error, self.meaning = self._worst(self.asked), meaning
        self.outputs = {key: outputs[key] for key in outputs if key.startswith(case_key(FIRST, ""))}
        self.room = sum(array.nbytes for array in self.outputs.values())

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
        own, outputs = self.meaning, npz.OnDisk(path)
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


class TimedFile(TimedRow):
    """A file. file: what the check found out about it. inputs: where to write the first input case."""

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
        self.file, self.inputs = file, inputs
        super().__init__(label, check, request, _file_worker(check, file))
        self.asked, self.other, self.accepts = error, other, accepts
        self.failure = file.failure
        computed, opened = file.computed, file.opened
        if computed is None or opened is None or error is None:
            self.failure = self.failure or Failed("nothing was computed")
            return
        names = {case_key(FIRST, tensor.name) for tensor in opened.signature.inputs}
        cases = npz.OnDisk(computed.inputs)
        npz.save_file({key: cases[key] for key in cases if key in names}, inputs)
        self._judged(computed.own, file.own)

    def _build(self) -> Built:
        seconds, _ = build(self.file.path, self.worker, self.check.settings)
        return Built(seconds, {}, "", "")

    def _call_twice(self) -> messages.Prepared:
        return self.worker.ask(messages.Prepare(inputs=str(self.inputs), mode=_mode(self.file.form)))

    def next_worker(self) -> Worker:
        return _file_worker(self.check, self.file)


@dataclass(frozen=True)
class ModelSource:
    """What a reference that is a model is built from when it is timed. request: has its framework, and how it is started."""

    folder: ModelFolder
    request: Request
    prepared: Prepared

    @property
    def adapter(self) -> type[Framework]:
        """Its framework."""
        return discovery.load(self.request.reference)


class TimedModel(TimedRow):
    """A reference that is a model, in its framework's first mode. inputs: where to write the first input case."""

    def __init__(self, check: Check, request: Request, source: ModelSource, target: Target, inputs: Path) -> None:
        self.source, self.inputs = source, inputs
        super().__init__(f"{source.folder.name}{REFERENCE}", check, request, _model_worker(check, source))
        first = {key: array for key, array in target.cases.arrays.items() if key.startswith(case_key(FIRST, ""))}
        npz.save_file(first, inputs)
        meaning = target.meaning
        self.asked = exact_conversion(meaning.float32, meaning, {}, range(target.cases.count)).error
        self._judged(meaning.float32, meaning)

    def row(self) -> Row:
        """Its row, without a speed."""
        adapter = self.source.adapter
        return Row(
            subject=self.label,
            framework=adapter.name,
            mode=_mode(adapter),
            task=CONVERSION,
            device="cpu",
            batch=self.request.batch,
            status="ok",
            error=self.asked,
            environment=dict(self.source.prepared.environment),
        )

    def _build(self) -> Built:
        adapter, prepared = self.source.adapter, self.source.prepared
        built = self.worker.ask(
            build_question(self.source.folder, adapter.name, None, _mode(adapter), batch=self.request.batch)
        )
        digest = self.worker.ask(messages.Load(path=str(prepared.weights)))
        return Built(built.seconds, built.fused_parameters, "", digest)

    def _call_twice(self) -> messages.Prepared:
        return self.worker.ask(messages.Prepare(inputs=str(self.inputs), mode=_mode(self.source.adapter)))

    def next_worker(self) -> Worker:
        return _model_worker(self.check, self.source)


def _mode(adapter: type[Runner]) -> str:
    """The mode that is timed."""
    return adapter.implicit_mode or next(iter(adapter.modes))


def _file_worker(check: Check, file: Candidate) -> Worker:
    return make_worker(file.label, file.form, check.space, check.settings, check.listener, timed=True)


def _model_worker(check: Check, source: ModelSource) -> Worker:
    settings, adapter = check.settings, source.adapter
    return Worker(
        adapter,
        interpreter(adapter),
        Path(tempfile.mkdtemp(prefix="worker-", dir=check.space)),
        settings.thread_count,
        "cpu",
        settings.timeout,
        settings.pin,
        beat=lambda seconds, line: check.listener.beat("reference", seconds, line),
        allocator=settings.allocator or ALLOCATORS[0],
        memory=settings.memory,
    )


def _shapes(outputs: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Name of an output -> its shape."""
    return {key.partition("/")[2]: outputs[key].shape for key in outputs}
