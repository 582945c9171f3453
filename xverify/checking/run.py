"""One check from files to result: open -> input cases -> matching -> compute -> exact outputs -> comparison."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from .. import host
from ..engine.budget import Clock, overrun
from ..errors import Failed, SubjectError, UsageError
from ..framework import discovery, formats
from ..framework.modelfile import ModelFile
from ..messages.graph import DescribeGraph
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..progress import Listener
from ..results.records import Host, InputsSummary, ReferenceSummary, Result, Row, Settings, WeightsSummary, overall
from ..results.verdicts import Outcome, Verdict
from ..verdict.judgement import demanded
from ..verdict.outputs import RULE
from ..version import __version__
from ..workload.asked import Asked
from . import model, sequence
from .answers import Answers
from .candidate import REFERENCE, Candidate, Target
from .computing import Cases, Computed, compute_matched, sized
from .figures import conditions, decided, unmet
from .input_cases import guess_cases
from .judge import CONVERSION, RUNTIME, Judged, runtime
from .meaning import Meaning, own_meaning, perturbed_meaning
from .model_inputs import fixed_shapes
from .nodes import judge_nodes
from .options import CheckSettings
from .reference import is_recorded, read
from .steady import RandomReference, invalid, randomness
from .subject import Opened, make_worker, open_file
from .timed import ModelSource
from .timing import FileTiming

ONNX = "ONNX file"


class Check:
    """Checks some files. space: an empty folder for files of the check. Raises UsageError."""

    def __init__(self, files: Sequence[Path], settings: CheckSettings, listener: Listener, space: Path) -> None:
        self.files, self.settings, self.listener, self.space = files, settings, listener, space
        self.wanted = conditions(settings.accept) if settings.accept else ()
        runtimes = [name.strip() for name in settings.on.split(",")] if settings.on else [""]
        chosen = [(path, formats.examine(path, runtime, settings.trust)) for path in files for runtime in runtimes]
        self.created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.clock = Clock(settings.max_seconds)
        self.notes: list[str] = []
        names = [path.name for path, _ in chosen]
        self.candidates = []
        for path, form in chosen:
            label = path.name if names.count(path.name) == 1 else f"{path}:{form.runtime}"
            self.candidates.append(Candidate(label, path, form, self._worker(label, form)))
        self.target: Target | None = None
        self.random = ""  # why the reference cannot be compared with
        self.source: ModelSource | None = None  # of a reference that is a model, when its outputs are known
        self.model = model.find(settings, space, listener)
        self.against = self._against()
        self.graphs = self._graph_worker()
        self.answers = Answers(settings, self.graphs, self.against, self.model, listener, self.clock, self.notes)

    def _worker(self, label: str, form: type[ModelFile]) -> Worker:
        return make_worker(label, form, self.space, self.settings, self.listener)

    def _against(self) -> Candidate | None:
        """The reference, when it is a model file."""
        against = self.settings.against
        if against is None or self.model is not None or is_recorded(Path(against)):
            return None
        path = Path(against)
        try:
            form = formats.examine(path, "", self.settings.trust)
        except UsageError as error:
            raise UsageError(f"--against {error}") from None
        return Candidate(f"{path.name}{REFERENCE}", path, form, self._worker("reference", form))

    def _graph_worker(self) -> Worker | None:
        """The worker that evaluates ONNX graphs; None when there is no ONNX file, or no torch."""
        files = [*self.candidates, *([self.against] if self.against else [])]
        if not any(each.form.title == ONNX for each in files):
            return None
        torch = discovery.load("torch")
        if host.missing(torch):
            self.notes.append("ONNX files are not evaluated in float64, which needs torch: pip install torch")
            return None
        folder = self.space / "graphs"
        folder.mkdir()
        threads = self.settings.threads or host.cores()
        settings = self.settings
        return Worker(
            torch, interpreter(torch), folder, threads, "cpu", settings.timeout, patient=True, memory=settings.memory
        )

    # -- stages -------------------------------------------------------------------------------------------------------

    def execute(self) -> Result:
        """Check all files. A file that fails becomes a row; the other files go on."""
        try:
            with self.clock.doing("starting"):
                self._open()
            with self.clock.doing("judging"):
                rows = [row for each in self.candidates for row in self._rows(each)]
        finally:
            for worker in self._workers():
                worker.close()
        result = self._result(rows)
        if self.settings.time and not self.random:
            result = FileTiming(self, result).execute()
        timeline = {**result.timeline, **self.clock.timeline()}
        notes = (*result.notes, *overrun(self.settings.max_seconds, timeline))
        return replace(result, timeline=timeline, notes=notes)

    def _workers(self) -> Iterator[Worker]:
        yield from (each.worker for each in self.candidates)
        if self.against is not None:
            yield self.against.worker
        if self.model is not None:
            yield self.model.worker
        if self.graphs is not None:
            yield self.graphs

    def _open(self) -> None:
        """Start all workers and open all files, several at a time."""
        files = [*self.candidates, *([self.against] if self.against else [])]
        with ThreadPoolExecutor(max_workers=max(2, host.cores())) as pool:
            graphs = pool.submit(self.graphs.start) if self.graphs else None
            reference = pool.submit(self.model.open) if self.model else None
            for done in [pool.submit(self._open_one, each) for each in files]:
                done.result()
            if reference is not None:
                reference.result()
            if graphs is not None:
                graphs.result()

    def _open_one(self, candidate: Candidate) -> None:
        with candidate.stage(self.listener, "opening the file"):
            candidate.opened = open_file(candidate.label, candidate.path, candidate.worker, self.settings)

    # -- one candidate ------------------------------------------------------------------------------------------------

    def _rows(self, candidate: Candidate) -> list[Row]:
        """The rows of one candidate, one for each question."""
        answers: dict[str, Judged] = {}
        with candidate.stage(self.listener, "computing"):
            answers = self._answers(candidate)
        rows = [
            self.row(candidate, each, answers.get(each))
            for each in self._questions()
            if each in answers or candidate.failure
        ]
        for row in rows:
            self.listener.judged(row.subject, row.task, row.error.verdict if row.error else row.status)
        return rows

    def _answers(self, candidate: Candidate) -> dict[str, Judged]:
        """Question -> its answer."""
        if candidate.failure is not None:
            raise candidate.failure
        opened = candidate.opened
        assert opened is not None
        target = self._target(opened)
        if self.random:
            return {CONVERSION: invalid(self.random)}
        if target is None:
            cases, computed = self._cases(opened)
        else:
            cases = target.cases
            computed = compute_matched(opened, cases, target.meaning, self.settings)
        random = randomness(replace(opened, state=computed.state), computed.inputs, computed.own, self.graphs)
        if random:
            candidate.cases, candidate.computed = cases, computed
            return {question: invalid(random) for question in self._questions()}
        answers, self.target = self.answers.first(candidate, cases, computed, target)
        return answers

    def _questions(self) -> tuple[str, ...]:
        return (RUNTIME,) if self.settings.against is None else (RUNTIME, CONVERSION)

    def _cases(self, opened: Opened) -> tuple[Cases, Computed]:
        """The input cases for a file, whose graph may tell the range of ids, and what it computes on them."""
        vocabulary: Mapping[str, int] = {}
        counts: tuple[str, ...] = ()
        if opened.is_onnx and self.graphs is not None:
            with suppress(SubjectError):
                described = self.graphs.ask(DescribeGraph(str(opened.path.resolve())))
                vocabulary, counts = described.vocabulary, described.counts
        settings = self.settings
        if settings.against is not None:
            files = [each.opened.signature for each in self.candidates if each.opened]
            fixed = fixed_shapes(opened.signature.inputs, files)
            settings = replace(settings, shape={**fixed, **(settings.shape or {})})
        return guess_cases(opened.signature.inputs, vocabulary, settings, opened, counts)

    def _target(self, opened: Opened) -> Target | None:
        """The reference with its exact outputs; None without --against. It is computed once. opened: some file under test."""
        if self.settings.against is None or self.target is not None or self.random:
            return self.target
        try:
            self.target = self._reference_target(opened)
        except RandomReference as error:
            self.random = str(error)
        return self.target

    def _reference_target(self, opened: Opened) -> Target:
        """The reference with its exact outputs. Raises RandomReference."""
        if self.model is not None:
            files = [each.opened for each in self.candidates if each.opened]
            cases, meaning = self.model.evaluate(opened, files, lambda: self._cases(opened)[0])
            self.source = self.model.source()
        elif self.against is not None:
            cases, meaning = self._file_meaning(self.against)
        else:
            path = Path(str(self.settings.against))
            recorded = read(path, opened.signature.inputs, opened.signature.outputs)
            sequence.check_count(recorded.cases, self.settings, f"--against {path}")
            sequence.resolve(self.settings, recorded.tensors("input"), recorded.tensors("output"), path.name)
            kinds = (f"recorded in {path.name}",) * recorded.cases
            cases = Cases(recorded.inputs, recorded.cases, kinds, sized(recorded.inputs))
            meaning = Meaning(recorded.outputs, recorded.outputs, None, False, "recorded", f"recorded in {path.name}")
        return Target(cases, meaning)

    def _file_meaning(self, against: Candidate) -> tuple[Cases, Meaning]:
        """The input cases of a reference that is a file, and its exact outputs."""
        opened = against.opened
        if opened is None:
            raise UsageError(f"--against {against.path}: {against.failure}")
        try:
            cases, computed = self._cases(opened)
            opened = replace(opened, state=computed.state)
            random = randomness(opened, computed.inputs, computed.own, self.graphs)
            if random:
                raise RandomReference(f"the reference is random: {random}")
            self.listener.phase("reference", "evaluating it in float64")
            seed = self.settings.seed
            meaning = own_meaning(opened, computed.inputs, computed.own, self.graphs, seed, self.notes)
            against.cases, against.computed, against.own = cases, computed, meaning
            if self.settings.time and meaning is not None:
                # The reference is timed, and its speed counts when it is right.
                layers = judge_nodes(opened, computed.inputs, self.graphs, 0, seed, self.clock.left)
                against.judged = runtime(computed, meaning, cases.count, layers, opened.form.title)
            return cases, meaning or perturbed_meaning(opened, computed.inputs, computed.own, seed)
        except SubjectError as error:
            raise UsageError(f"--against {against.path}: {error}") from None

    # -- the result ---------------------------------------------------------------------------------------------------

    def row(self, candidate: Candidate, question: str, judged: Judged | None) -> Row:
        """The row of one question about a file. judged: the answer; None when there is none."""
        failure, opened, computed = candidate.failure, candidate.opened, candidate.computed
        if judged is None and failure is None:
            failure = Failed("nothing was computed")
        batch = next((each.shape[0] for each in (candidate.cases.tensors if candidate.cases else ()) if each.shape), 1)
        return Row(
            subject=candidate.label,
            framework=candidate.form.runtime,
            mode=candidate.form.name,
            task=question,
            device="cpu",
            batch=int(batch or 1),
            status="ok" if judged is not None else failure.status if failure else "failed",
            reason=None if judged is not None else str(failure),
            error=demanded(judged.error, self.settings.require, self.settings.strict) if judged else None,
            environment=dict(opened.environment) if opened else {},
            figures=dict(judged.figures) if judged else {},
            notes=(
                *(computed.notes if computed else ()),
                *(judged.notes if judged else ()),
                *self._decisions(question, judged),
            ),
            matched=computed.matched if computed else (),
            precision=candidate.precision,
            quantisation=candidate.quantisation if question == CONVERSION else None,
        )

    def _decisions(self, question: str, judged: Judged | None) -> Iterator[str]:
        """A note on the conditions of --accept, which decide on this row instead of its verdict."""
        asked = RUNTIME if self.settings.against is None else CONVERSION
        if self.wanted and question == asked and judged is not None:
            yield f"--accept decides: {decided(self.wanted, judged.figures)}"

    def _result(self, rows: Sequence[Row]) -> Result:
        """The result of the whole check."""
        first = next((each for each in self.candidates if each.cases is not None), None)
        cases = first.cases if first else None
        notes = [*self.notes, *(cases.notes if cases else ()), *sequence.note(self.settings)]
        notes += self.model.notes if self.model else ()
        verdict = overall(rows, self.settings.strict)
        if self.wanted:
            verdict, says = self._accepted(rows, verdict)
            notes += says
        return Result(
            model=", ".join(dict.fromkeys(each.path.name for each in self.candidates)),
            tasks=self._questions(),
            verdict=verdict,
            rows=tuple(rows),
            created=self.created,
            xverify=__version__,
            host=Host(**host.describe()),
            settings=self._settings(cases),
            weights=self.model.weights() if self.model else WeightsSummary(source="the weights of each file"),
            inputs=InputsSummary(
                digest=cases.digest if cases else None,
                cases=cases.count if cases else 0,
                kind=", ".join(dict.fromkeys(cases.kinds)) if cases else "",
            ),
            reference=self._reference(),
            rule=RULE,
            notes=tuple(notes),
        )

    def _reference(self) -> ReferenceSummary:
        if self.model is not None:
            return self.model.summary()
        meaning = self.target.meaning if self.target else None
        return ReferenceSummary(
            framework=str(self.settings.against or "each file's own meaning"),
            precision=meaning.precision if meaning else "float64",
            floor=meaning.says if meaning else "the rounding of every node, modelled and measured in float64",
        )

    def _settings(self, cases: Cases | None) -> Settings:
        asked = self.settings
        return Settings(
            model=", ".join(str(each.path) for each in self.candidates),
            task="check",
            subjects=tuple(each.label for each in self.candidates),
            reference=str(asked.against or ""),
            threads=asked.thread_count,
            max_seconds=asked.max_seconds,
            seed=asked.seed,
            cases=cases.count if cases else 0,
            strict=asked.strict,
            require=asked.require,
            trust=asked.trust,
            timeout=asked.timeout,
            asked=Asked.of("check", self.files, asked),
        )

    def _accepted(self, rows: Sequence[Row], verdict: Outcome) -> tuple[Outcome, list[str]]:
        """The outcome by the conditions of --accept, and a sentence about each that does not hold.

        The conditions take the place of the verdict on outputs that differ. A row that is INVALID or could not run stays so.
        """
        question = RUNTIME if self.settings.against is None else CONVERSION
        asked = [row for row in rows if row.task == question and row.error is not None]
        says = [f"{row.subject}: {text}" for row in asked for text in unmet(self.wanted, row.figures)]
        if says:
            return Outcome.FAIL, says
        rest = [row for row in rows if row not in asked or (row.error and row.error.verdict == Verdict.INVALID)]
        return (overall(rest, self.settings.strict) if rest else Outcome.PASS), says
