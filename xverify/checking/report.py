"""The rows and the result of a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import host
from ..results.records import DECIDES, Host, InputsSummary, Result, Row, Settings, overall
from ..results.verdicts import Outcome, Verdict
from ..verdict.judgement import demanded
from ..verdict.outputs import RULE
from ..version import __version__
from ..workload.asked import Asked
from . import sequence
from .candidate import Checked, Context, Known
from .computing import Cases
from .figures import Condition, conditions, decided, unmet
from .judge import CONVERSION, RUNTIME, Judged
from .options import CheckSettings


def questions(settings: CheckSettings) -> tuple[str, ...]:
    """The questions that a check answers; the last one is the one that the user asked."""
    return (RUNTIME,) if settings.against is None else (RUNTIME, CONVERSION)


def rows_of(context: Context, checked: Checked) -> list[Row]:
    """The rows of a file, one for each question. A file that failed has a row for each, too."""
    return [
        row_of(context, checked, question, checked.answers.get(question))
        for question in questions(context.settings)
        if question in checked.answers or checked.failure
    ]


def row_of(context: Context, checked: Checked, question: str, judged: Judged | None) -> Row:
    """The row of one question about a file. judged: the answer; None when there is none."""
    file, failure, evaluated, settings = checked.file, checked.failure, checked.evaluated, context.settings
    sizes = [each.shape[0] for each in (evaluated.cases.tensors if evaluated else ()) if each.shape]
    return Row(
        subject=file.label,
        framework=file.form.runtime,
        mode=file.form.name,
        task=question,
        device="cpu",
        batch=int((sizes[0] if sizes else 1) or 1),
        status="ok" if judged is not None else failure.status if failure else "failed",
        reason=None if judged is not None else str(failure or "nothing was computed"),
        error=demanded(judged.error, settings.require, settings.strict) if judged else None,
        environment=dict(checked.environment),
        figures=dict(judged.figures) if judged else {},
        notes=(
            *(evaluated.computed.notes if evaluated else ()),
            *(judged.notes if judged else ()),
            *_decisions(settings, question, judged),
        ),
        matched=evaluated.computed.matched if evaluated else (),
        precision=evaluated.precision if evaluated else None,
        quantisation=checked.quantisation if question == CONVERSION else None,
        sizes=dict(checked.size),
    )


def _decisions(settings: CheckSettings, question: str, judged: Judged | None) -> Iterator[str]:
    """A note on the conditions of --accept, which decide on this row instead of its verdict."""
    if settings.accept and question == questions(settings)[-1] and judged is not None:
        yield f"{DECIDES}{decided(conditions(settings.accept), judged.figures)}"


def result_of(
    context: Context, paths: Sequence[Path], checked: Sequence[Checked], known: Known, wanted: Sequence[Condition]
) -> Result:
    """The result of a whole check. paths: the files as the user named them. wanted: the conditions of --accept."""
    settings = context.settings
    rows = tuple(row for each in checked for row in rows_of(context, each))
    cases = next((each.evaluated.cases for each in checked if each.evaluated is not None), None)
    notes = [*context.notes, *(cases.notes if cases else ()), *sequence.note(settings), *known.notes]
    verdict = overall(rows, settings.strict)
    if wanted:
        verdict, says = _accepted(rows, verdict, settings, wanted)
        notes += says
    return Result(
        model=", ".join(dict.fromkeys(each.file.path.name for each in checked)),
        tasks=questions(settings),
        verdict=verdict,
        rows=rows,
        created="",
        xverify=__version__,
        host=Host(**host.describe()),
        settings=_settings(settings, paths, checked, cases),
        weights=known.weights,
        inputs=InputsSummary(
            digest=cases.digest if cases else None,
            cases=cases.count if cases else 0,
            kind=", ".join(dict.fromkeys(cases.kinds)) if cases else "",
        ),
        reference=known.summary,
        rule=RULE,
        notes=tuple(notes),
    )


def _settings(asked: CheckSettings, paths: Sequence[Path], checked: Sequence[Checked], cases: Cases | None) -> Settings:
    return Settings(
        model=", ".join(dict.fromkeys(str(each.file.path) for each in checked)),
        task="check",
        subjects=tuple(each.file.label for each in checked),
        reference=str(asked.against or ""),
        threads=asked.thread_count,
        max_seconds=asked.max_seconds,
        seed=asked.seed,
        cases=cases.count if cases else 0,
        strict=asked.strict,
        require=asked.require,
        trust=asked.trust,
        timeout=asked.timeout,
        asked=Asked.of("check", paths, asked),
    )


def _accepted(
    rows: Sequence[Row], verdict: Outcome, settings: CheckSettings, wanted: Sequence[Condition]
) -> tuple[Outcome, list[str]]:
    """The outcome by the conditions of --accept, and a sentence about each that does not hold.

    The conditions take the place of the verdict on outputs that differ. A row that is INVALID or could not run stays so.
    """
    asked = [row for row in rows if row.task == questions(settings)[-1] and row.error is not None]
    says = [f"{row.subject}: {text}" for row in asked for text in unmet(wanted, row.figures)]
    if says:
        return Outcome.FAIL, says
    rest = [row for row in rows if row not in asked or (row.error and row.error.verdict == Verdict.INVALID)]
    return (overall(rest, settings.strict) if rest else Outcome.PASS), says
