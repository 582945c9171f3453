"""One check from files to result: open -> input cases -> matching -> compute -> exact outputs -> comparison."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import host
from ..engine.budget import Clock, overrun
from ..errors import Absent, SubjectError
from ..framework import formats
from ..messages.graph import DescribeGraph, GraphDescribed
from ..processes.worker import Worker
from ..progress import Listener
from ..results.precision import Precision
from ..results.records import Result
from . import references
from .answers import Answers
from .candidate import Checked, Context, Evaluated, Known, Target, Tools, attempt
from .computing import Cases, Computed, compute_matched, misdeclared, sized
from .figures import conditions
from .graphs import graph_worker
from .input_cases import guess_cases
from .judge import CONVERSION
from .model_inputs import fixed_shapes
from .options import CheckSettings
from .precision import read_precision
from .references import Given, Reference
from .report import questions, result_of, rows_of
from .reproducer import reproduced, with_reproducers
from .steady import invalid, randomness
from .subject import File, Opened, in_real_numbers, make_worker, open_file
from .timing import time_files


def check_files(
    paths: Sequence[Path], settings: CheckSettings, listener: Listener, space: Path, given: Target | None = None
) -> Result:
    """Check files. A file that fails becomes a row; the other files go on. Raises UsageError.

    space: an empty folder for files of the check. given: outputs that are known already; None: those that --against names.
    """
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    context = Context(settings, listener, Clock(settings.max_seconds), space)
    wanted = conditions(settings.accept) if settings.accept else ()
    files = _files(paths, context)
    reference = Given(given) if given is not None else references.find(context)
    known_files = reference.files if reference is not None else ()
    graphs = _graph_worker(context, (*files, *known_files))
    checked, known = Check(context, files, reference, graphs).execute()
    result = replace(result_of(context, paths, checked, known, wanted), created=created)
    if settings.reproducer is not None:
        result = with_reproducers(result, checked, Path(settings.reproducer))
    if settings.time and not isinstance(known.target, Absent):
        result = time_files(context, result, checked, known.target, wanted)
    timeline = {**result.timeline, **context.clock.timeline()}
    return replace(result, timeline=timeline, notes=(*result.notes, *overrun(settings.max_seconds, timeline)))


def _files(paths: Sequence[Path], context: Context) -> list[File]:
    """Each file on each runtime, with a worker that is not started. Raises UsageError."""
    settings = context.settings
    runtimes = [name.strip() for name in settings.on.split(",")] if settings.on else [""]
    chosen = [(path, formats.examine(path, runtime, settings.trust)) for path in paths for runtime in runtimes]
    names = [path.name for path, _ in chosen]
    labels = [path.name if names.count(path.name) == 1 else f"{path}:{form.runtime}" for path, form in chosen]
    return [
        File(label, path, form, make_worker(label, form, context.space, settings, context.listener))
        for label, (path, form) in zip(labels, chosen)
    ]


def _graph_worker(context: Context, files: Sequence[File]) -> Worker | None:
    """The worker that evaluates ONNX graphs; None when there is no ONNX file, or no torch."""
    if not any(each.is_onnx for each in files):
        return None
    worker = graph_worker(context)
    if worker is None:
        context.notes.append("ONNX files are not evaluated in float64, which needs torch: pip install torch")
    return worker


@dataclass(frozen=True)
class Check:
    """The workers of a check, and what it asks them. graphs: the worker that evaluates ONNX graphs."""

    context: Context
    files: Sequence[File]
    reference: Reference[Any] | None
    graphs: Worker | None

    def execute(self) -> tuple[list[Checked], Known]:
        """Open all files, and check one after another. Returns the files, and what they were compared with."""
        clock = self.context.clock
        for worker in self._workers():
            worker.until = clock.deadline
        try:
            with clock.doing("starting"):
                opened, ready = self._open()
            with clock.doing("judging"):
                return self._judge(opened, ready)
        finally:
            for worker in self._workers():
                worker.close()

    def _workers(self) -> Iterator[Worker]:
        yield from (each.worker for each in self.files)
        if self.reference is not None:
            yield from self.reference.workers
        if self.graphs is not None:
            yield self.graphs

    def _open(self) -> tuple[list[Opened | SubjectError], Future[Any] | None]:
        """Start all workers and open all files, several at a time. Returns each file, and what the reference has opened."""
        context = self.context
        with ThreadPoolExecutor(max_workers=max(2, host.cores())) as pool:
            graphs = pool.submit(self.graphs.start) if self.graphs else None
            ready = pool.submit(self.reference.open) if self.reference else None
            opening = [
                pool.submit(attempt, context, each, "opening the file", partial(open_file, each, context.settings))
                for each in self.files
            ]
            opened = [each.result() for each in opening]
            wait([ready] if ready is not None else [])
            if graphs is not None:
                graphs.result()
        return opened, ready

    def _judge(self, opened: Sequence[Opened | SubjectError], ready: Future[Any] | None) -> tuple[list[Checked], Known]:
        """Check every file that could be opened."""
        files = [each for each in opened if isinstance(each, Opened)]
        tools = Tools(self.graphs, partial(self._guess, files))
        known, target = Known(None, references.own_summary("each file's own meaning")), None
        if self.reference is not None and ready is not None:
            known = self.reference.known(ready, files, tools)
            target = known.target
        checked = []
        for file, each in zip(self.files, opened):
            if self.graphs is not None:
                self.graphs.beat = partial(self.context.listener.beat, file.label)
            if isinstance(each, SubjectError):
                one = Checked(file, failure=each)
            else:
                one, target = self._checked(each, target, tools)
            checked.append(one)
            for row in rows_of(self.context, one):
                self.context.listener.judged(row.subject, row.task, row.error.verdict if row.error else row.status)
        return checked, known

    def _checked(
        self, opened: Opened, target: Target | Absent | None, tools: Tools
    ) -> tuple[Checked, Target | Absent | None]:
        """A file with its answers, and the reference, whose noise may have been measured again."""
        found = [(Checked(opened, opened.environment), target)]
        failure = attempt(self.context, opened, "computing", lambda: found.extend(self._stages(opened, target, tools)))
        one, target = found[-1]  # of the last stage that did not fail
        return (replace(one, failure=failure) if isinstance(failure, SubjectError) else one), target

    def _stages(
        self, opened: Opened, target: Target | Absent | None, tools: Tools
    ) -> Iterator[tuple[Checked, Target | Absent | None]]:
        """The file, and the reference, after each stage. Raises SubjectError."""
        context, settings = self.context, self.context.settings
        checked = Checked(opened, opened.environment)
        if isinstance(target, Absent):
            yield replace(checked, answers={CONVERSION: invalid(target.reason)}), target
            return
        if target is None:
            cases, computed = tools.guess(opened)
        else:
            cases, meaning = target.cases, target.meaning
            opened = in_real_numbers(opened, cases.tensors, sized(meaning.outputs), settings)
            computed = compute_matched(opened, cases, meaning, settings)
            checked = Checked(opened, opened.environment)
        opened = replace(opened, state=computed.state)
        wrong = misdeclared(opened, self._described(opened).declared, computed.own)
        computed = replace(computed, notes=(*computed.notes, *wrong))
        random = randomness(opened, computed.inputs, computed.own, self.graphs)
        evaluated = Evaluated(opened, cases, computed)
        if random:
            answers = {question: invalid(random) for question in questions(settings)}
            yield replace(checked, evaluated=evaluated, answers=answers), target
            return
        yield replace(checked, evaluated=evaluated), target
        context.listener.phase(opened.label, "evaluating it in float64")
        evaluated = replace(evaluated, precision=read_precision(opened, self.graphs))
        yield replace(checked, evaluated=evaluated), target
        answered = Answers(context, self.graphs).of(evaluated, target)
        found = Checked(opened, opened.environment, answered.evaluated, answered.quantisation, answered.answers)
        yield found, answered.target
        yield reproduced(context, self.graphs, found), answered.target

    def _guess(self, files: Sequence[Opened], opened: Opened) -> tuple[Cases, Computed]:
        """The input cases for a file, whose graph may tell the range of ids, and what it computes on them.

        files: those under test, which may fix shapes.
        """
        described = self._described(opened)
        settings = self.context.settings
        if settings.against is not None:
            fixed = fixed_shapes(opened.signature.inputs, [each.signature for each in files])
            settings = replace(settings, shape={**fixed, **(settings.shape or {})})
        return guess_cases(opened.signature.inputs, described.vocabulary, settings, opened, described.counts)

    def _described(self, opened: Opened) -> GraphDescribed:
        """What an ONNX graph tells about itself; nothing for another file, and for one that cannot be read."""
        if opened.is_onnx and self.graphs is not None:
            with suppress(SubjectError):
                return self.graphs.ask(DescribeGraph(str(opened.path.resolve())))
        return GraphDescribed({}, 0, Precision())
