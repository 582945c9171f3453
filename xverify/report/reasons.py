"""Why rows are not EQUAL, and why speeds have no verdict."""

from __future__ import annotations

from collections.abc import Iterator

from ..results.records import Result, Row
from ..results.verdicts import Verdict
from . import detection, layers
from .rows import why_not_counted
from .style import STYLES, Reason


def of_run(result: Result, by_layer: bool = False) -> Iterator[Reason]:
    """Why each row is not EQUAL, or why its speed has no verdict.

    by_layer: leave out what is told with the layers of the row.
    """
    for of_task in result.by_task():
        task = f", {of_task.tasks[0]}" if len(result.tasks) > 1 else ""
        for row in of_task.rows:
            for style, text in _of_row(row, of_task.noise.refusal, by_layer):
                yield Reason(style, row.subject + task, text)


def _of_row(row: Row, too_noisy: str | None, by_layer: bool) -> Iterator[tuple[str, str]]:
    """Why the row is not EQUAL, or why its speed has no verdict: a style and a sentence.

    too_noisy: why the machine is too noisy; this is printed once for all rows, and not here.
    """
    causes = row.error.causes(where="; --layers shows all") if row.error and row.training is None else []
    reasons = [row.reason] if row.reason else causes
    drifts = row.error is not None and row.error.verdict == Verdict.DRIFT
    equal = row.error is not None and row.error.verdict <= Verdict.EQUAL and row.reason is None
    if not (by_layer and layers.told(row)):
        yield from (("dim" if equal else "yellow" if drifts else "red", reason) for reason in reasons)
    yield from ((STYLES[Verdict.UNTESTED], says) for says in detection.undetermined(row))
    why = _of_speed(row, too_noisy)
    if why is not None and (drifts or equal or not reasons):
        yield why


def _of_speed(row: Row, too_noisy: str | None) -> tuple[str, str] | None:
    """Why the speed of a row is REFUSED or AMBIGUOUS: a style and a sentence; None when no reason is needed.

    too_noisy: why the machine is too noisy; this is printed once for all rows, and not here.
    """
    speed = row.speed
    if speed is None or speed.reason is None or speed.reason == too_noisy:
        return None
    return (STYLES[speed.verdict], speed.reason) if speed.verdict in ("REFUSED", "AMBIGUOUS") else None


def of_files(result: Result, by_node: bool = False) -> Iterator[Reason]:
    """Why each row is not EQUAL, or why its speed has no verdict.

    by_node: leave out what is told with the nodes of the row.
    """
    for row in result.rows:
        differs = STYLES.get(row.error.verdict, "red") if row.error else "red"
        causes = row.error.causes(where="; --nodes shows all") if row.error else []
        for style, reason in (("red", row.reason), *((differs, cause) for cause in causes)):
            if reason and not (by_node and layers.told(row)):
                yield Reason(style, f"{row.subject}, {row.task}", reason)
        for says in detection.undetermined(row):
            yield Reason(STYLES[Verdict.UNTESTED], f"{row.subject}, {row.task}", says)
        slow = _of_speed(row, result.noise.refusal)
        if slow is not None and why_not_counted(row) != "":
            yield Reason(slow[0], f"{row.subject}, speed", slow[1])
