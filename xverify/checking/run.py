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
from ..environments import versions
from ..errors import Absent, Refused, SubjectError
from ..framework import formats
from ..framework.modelfile import Tensor
from ..messages.graph import DescribeGraph, GraphDescribed
from ..processes.worker import Worker
from ..progress import Listener
from ..results.precision import Precision
from ..results.records import Result
from ..weights import npz
from ..workload.sizes import Size, combinations, naming, said
from . import decoder_cases, references, sequence, sizes
from .answers import Answers
from .candidate import Checked, Context, Evaluated, Known, ReferenceFailed, Target, Tools, attempt
from .cases import told_by_graph
from .computing import Cases, Computed, compute_matched, misdeclared, sized
from .figures import conditions
from .firsts import told, untested, with_refusals
from .graph_worker import GraphWorker, graph_worker
from .graphs import with_graph
from .input_cases import guess_cases
from .judge import CONVERSION
from .model_inputs import fitting_ranges, with_fixed_sizes
from .nodes import LARGE, Capture, may_have
from .options import CheckSettings
from .precision import read_precision
from .references import Given, Reference
from .report import questions, result_of, rows_of
from .reproducer import reproduced, with_reproducers
from .steady import in_sequence, invalid, randomness
from .subject import File, Opened, in_real_numbers, make_worker, open_file
from .timing import time_files

NOTHING_DESCRIBED = GraphDescribed({}, 0, Precision())


def check_files(
    paths: Sequence[Path],
    settings: CheckSettings,
    listener: Listener,
    space: Path,
    given: Target | None = None,
    begun: GraphWorker | None = None,
) -> Result:
    """Check files. A file that fails becomes a row; the other files go on. Raises UsageError.

    space: an empty folder for files of the check. given: outputs that are known already; None: those that --against names.
    begun: the worker that evaluates graphs, where its start has begun; the caller closes it.
    """
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    context = Context(settings, listener, Clock(settings.max_seconds), space)
    wanted = conditions(settings.accept) if settings.accept else ()
    files = _files(paths, context)
    reference = Given(given) if given is not None else references.find(context)
    known_files = reference.files if reference is not None else ()
    graphs = _graph_worker(context, (*files, *known_files), begun)
    checked, known = Check(context, files, reference, graphs).execute()
    plan = given.plan if given is not None else None
    result = replace(result_of(context, paths, checked, known, wanted), created=created, plan=plan)
    if settings.reproducer is not None:
        result = with_reproducers(result, checked, Path(settings.reproducer))
    if settings.time and not isinstance(known.target, Absent):
        result = time_files(context, result, checked, known.target, wanted)
    timeline = {**result.timeline, **context.clock.timeline()}
    return replace(result, timeline=timeline, notes=(*result.notes, *overrun(settings.max_seconds, timeline)))


def _files(paths: Sequence[Path], context: Context) -> list[File]:
    """Each file on each runtime, with a worker that is not started. Raises UsageError."""
    settings = context.settings
    asked = [versions.parse(each) for each in settings.on.split(",")] if settings.on else [("", "")]
    chosen = [
        (path, formats.examine(path, runtime, settings.trust), version) for path in paths for runtime, version in asked
    ]
    names = [path.name for path, _, _ in chosen]
    files = []
    for path, form, version in chosen:
        several, runtime = names.count(path.name) > 1, f"{form.runtime}=={version}" if version else form.runtime
        label = f"{path if several else path.name}:{runtime}" if several or version else path.name
        python = versions.interpreter(form, version, context.listener) if version else ""
        worker = make_worker(label, form, context.space, settings, context.listener, python=python)
        files.append(File(label, path, form, worker, version=version, python=python))
    return files


def _graph_worker(context: Context, files: Sequence[File], begun: GraphWorker | None) -> GraphWorker | None:
    """The worker that evaluates ONNX graphs; None when no file has such a graph, or there is no torch."""
    titles = {each.form.title for each in files if each.is_onnx or each.form.writes_onnx}
    if not titles:
        return None
    worker = begun or graph_worker(context.settings, context.space)
    if worker is None:
        for title in sorted(titles):
            context.notes.append(f"{title}s are not evaluated in float64, which needs torch: pip install torch")
    return worker


REAL = (Tensor("real numbers", None, "float32"),)


@dataclass(frozen=True)
class Check:
    """The workers of a check, and what it asks them. graphs: the worker that evaluates ONNX graphs."""

    context: Context
    files: Sequence[File]
    reference: Reference[Any] | None
    graphs: GraphWorker | None

    def execute(self) -> tuple[list[Checked], Known]:
        """Open all files, and check one after another. Returns the files, and what they were compared with."""
        clock = self.context.clock
        for worker in self._workers():
            worker.until = clock.deadline
        try:
            with clock.doing("starting"):
                opened, ready = self._open()
            with clock.doing("judging"):
                return self._at_every_size(opened, ready)
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
        if self.graphs is not None:
            self.graphs.begin()
            known = self.reference.files if self.reference is not None else ()
            every = [each for each in (*known, *self.files) if each.is_onnx]
            self.graphs.read_early([each.path for each in every if each.path.stat().st_size <= LARGE])
        with ThreadPoolExecutor(max_workers=max(2, host.cores())) as pool:
            ready = pool.submit(self.reference.open) if self.reference else None
            opening = [
                pool.submit(attempt, context, each, "opening the file", partial(open_file, each, context.settings))
                for each in self.files
            ]
            opened = [each.result() for each in opening]
            wait([ready] if ready is not None else [])
        return opened, ready

    def _at_every_size(
        self, opened: Sequence[Opened | SubjectError], ready: Future[Any] | None
    ) -> tuple[list[Checked], Known]:
        """Check every file at every size that is asked for. Returns each file at each size, and the reference."""
        context, asked = self.context, self.context.settings.sizes or {}
        if asked:
            opened = [
                sizes.named(each, self._described(each).taken) if isinstance(each, Opened) else each for each in opened
            ]
        for each in opened:
            if isinstance(each, Opened):
                sizes.check_names(each.label, each.signature.inputs, context.settings)
                context.notes.extend(f"{each.label}: {note}" for note in each.signature.notes)
        chosen: dict[Path, dict[str, int]] = {}
        rounds: list[list[Checked]] = []
        known: Known | ReferenceFailed | None = None
        for size in combinations(asked):
            if rounds:
                opened = [self._opened_again(*each) for each in zip(self.files, opened, rounds[-1])]
            checked, found = self._judge(opened, ready, size, chosen, self._late(size) if rounds else "")
            rounds.append(checked)
            known = found if known is None or isinstance(known, ReferenceFailed) else known
        if isinstance(known, ReferenceFailed):  # at every size
            raise known
        assert known is not None
        by_file = [with_refusals(every, questions(context.settings)[-1]) for every in zip(*rounds)]
        context.notes.extend(told(self.files, by_file, asked))
        return [each for every in by_file for each in every], known

    def _opened_again(self, file: File, opened: Opened | SubjectError, before: Checked) -> Opened | SubjectError:
        """The file with a new process when the process of the size before has ended; otherwise the file as it is."""
        if isinstance(opened, SubjectError) or before.failure is None or isinstance(before.failure, Refused):
            return opened
        return attempt(self.context, file, "opening it again", partial(open_file, file, self.context.settings))

    def _judge(
        self,
        opened: Sequence[Opened | SubjectError],
        ready: Future[Any] | None,
        size: Size,
        chosen: dict[Path, dict[str, int]],
        late: str,
    ) -> tuple[list[Checked], Known | ReferenceFailed]:
        """Check every file that could be opened, at one size. Returns instead why the reference cannot be computed at this size.

        chosen: path -> the sizes of its other open axes, which the first size that could be computed sets.
        late: why there is no time for this size; "" where there is.
        """
        sized_files = [sizes.at_size(each, size) if isinstance(each, Opened) else each for each in opened]
        files = [each for each in sized_files if isinstance(each, Opened)]
        tools = Tools(self.graphs, partial(self._guess, files, size, chosen))
        known, skipped = self._known(ready, files, size, tools) if not late else (Known(None), late)
        target = known.target if isinstance(known, Known) else None
        checked = []
        for file, each in zip(self.files, sized_files):
            if self.graphs is not None:
                self.graphs.beat = partial(self.context.listener.beat, file.label)
            if isinstance(each, SubjectError):
                one = Checked(file, failure=each)
            elif skipped:
                one = untested(each, questions(self.context.settings)[-1], skipped)
            else:
                with naming(size):
                    one, target = self._checked(each, target, tools)
                if self.graphs is not None:
                    self.graphs.check_started()
            checked.append(replace(one, size=size))
            for row in rows_of(self.context, checked[-1]):
                self.context.listener.judged(row.subject, row.task, row.error.verdict if row.error else row.status)
        return checked, known

    def _late(self, size: Size) -> str:
        """Why there is no time to check a size; "" where there is."""
        left = self.context.clock.left
        over = left is not None and left <= 0
        return f"--max-seconds was over before the size {said(size)}" if over else ""

    def _known(
        self, ready: Future[Any] | None, files: Sequence[Opened], size: Size, tools: Tools
    ) -> tuple[Known | ReferenceFailed, str]:
        """(the reference at a size, why the files are not checked at it; "" where they are). Raises UsageError."""
        if self.reference is None or ready is None:
            return Known(None, references.own_summary("each file's own meaning")), ""
        try:
            with naming(size):
                return self.reference.known(ready, files, tools), ""
        except ReferenceFailed as error:
            if not size:
                raise
            return error, f"the reference cannot be computed at this size: {error}"

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
            if opened.form.writes_onnx and settings.inputs is None:
                opened = in_real_numbers(opened, REAL, REAL, settings)
                checked = Checked(opened, opened.environment)
            cases, computed = tools.guess(opened)
        else:
            cases, meaning = target.cases, target.meaning
            opened = in_real_numbers(opened, cases.tensors, sized(meaning.outputs), settings)
            computed = compute_matched(opened, cases, meaning, settings)
            checked = Checked(opened, opened.environment)
        if settings.sizes:
            sizes.check_reached(opened.label, opened.signature.inputs, sized(npz.OnDisk(computed.inputs)))
        opened = with_graph(replace(opened, state=computed.state), computed.inputs, self.graphs, context.notes)
        random = randomness(opened, computed.inputs, computed.own, self.graphs)
        if random:
            opened, computed = in_sequence(opened, computed, self.graphs)
            random = "" if opened.keeps else random
        if target is not None and not random:
            sequence.check_kept(opened, settings)
        capture = None if random else Capture.begin(opened, computed.inputs, self.graphs)
        wrong = misdeclared(opened, self._described(opened).declared, computed.own)
        computed = replace(computed, notes=(*computed.notes, *wrong))
        evaluated = Evaluated(opened, cases, computed, capture=capture)
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
        yield reproduced(context, self.graphs, found, answered.target), answered.target

    def _guess(
        self, files: Sequence[Opened], size: Size, chosen: dict[Path, dict[str, int]], opened: Opened
    ) -> tuple[Cases, Computed]:
        """The input cases for a file, whose graph may tell the range of ids, and what it computes on them.

        files: those under test, which may fix shapes, and the ranges of quantised inputs. size, chosen: see ``_judge``.
        """
        described = self._described_inputs(opened)
        settings, inputs = self.context.settings, opened.signature.inputs
        tensors = sizes.at(decoder_cases.widened(inputs, described.widths), size)
        if settings.against is not None:
            tensors = with_fixed_sizes(tensors, [each.signature for each in files], settings.shape or {})
        if size:
            tensors = sizes.at(tensors, {**chosen.get(opened.path, {}), **size})
        ranges = None
        if settings.inputs is None and settings.input_range is None:
            theirs = [(each.signature, self._described_inputs(each).ranges) for each in files]
            ranges = described.ranges if settings.against is None else fitting_ranges(inputs, theirs)
        found = guess_cases(tensors, described.vocabulary, settings, opened, described.wholes, ranges)
        if size:
            chosen.setdefault(opened.path, sizes.of(inputs, found[0].tensors))
        return found

    def _described_inputs(self, opened: Opened) -> GraphDescribed:
        """What the input cases depend on. Where this is nothing, the worker that evaluates graphs is not waited for."""
        told = any(map(told_by_graph, opened.signature.inputs))
        if not told and not (opened.is_onnx and may_have(opened.path, "QuantizeLinear")):
            return NOTHING_DESCRIBED
        return self._described(opened)

    def _described(self, opened: Opened) -> GraphDescribed:
        """What an ONNX graph tells about itself; nothing for another file, and for one that cannot be read."""
        if opened.is_onnx and self.graphs is not None:
            with suppress(SubjectError):
                return self.graphs.ask(DescribeGraph(str(opened.path.resolve())))
        return NOTHING_DESCRIBED
