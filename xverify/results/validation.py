"""Checks what the types of the records cannot say: numbers that are possible, and parts of a result that fit each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from ..workload.declaration import LARGEST
from ..workload.options import EFFORTS
from .records import Result, Row, overall
from .verdicts import SEVERITY, Outcome, Verdict

REFERENCE = " (reference)"  # what the subject of a reference ends with that was timed
FREE = ("environment",)  # values of frameworks, of any kind
# Endings of the names of numbers that cannot be negative.
POSITIVE = ("seconds", "_mib", "_gib", "ratio", "rms", "_abs", "fps", "per_call", "limit")


def problems(result: Result) -> Iterator[str]:
    """What is wrong with a result that was read, each with its place."""
    yield from _numbers(result, "$")
    if not result.tasks or not result.rows:
        yield "it has no task or no row - at `$.rows`"
    for index, row in enumerate(result.rows):
        if row.task not in result.tasks:
            yield f"the task {row.task[:60]!r} is not one of the tasks of the result - at `$.rows[{index}].task`"
        yield from _timed(row, f"$.rows[{index}].speed")
    if result.settings.effort not in EFFORTS:
        effort = result.settings.effort[:60]
        yield f"the effort {effort!r} is none of {', '.join(EFFORTS)} - at `$.settings.effort`"
    for task in result.receipts:
        if task not in result.tasks or not any(row.task == task for row in result.rows):
            yield f"there is no row of the task {task[:60]!r} - at `$.receipts`"
    if any(not math.isfinite(seconds) or seconds <= 0 for seconds in result.noise.canary_seconds):
        yield "seconds must be above 0 - at `$.noise.canary_seconds`"
    yield from _verdict(result)


def _verdict(result: Result) -> Iterator[str]:
    """What is wrong with the verdict: that of a run is the one of its rows, and that of a check of files is no better."""
    check = result.settings.task == "check"
    rows, strict = result.rows, result.settings.strict
    follows = overall(rows, strict, result.settings.reference) if not check else _best_of_check(result)
    if not check and result.verdict == overall(rows, strict):  # also of a version in which the reference alone passed
        return
    better = SEVERITY.index(result.verdict) < SEVERITY.index(follows)
    if better or (result.verdict != follows and not check):
        yield f"the verdict is {result.verdict}, and that of its rows is {follows}: make the file again - at `$.verdict`"


def _best_of_check(result: Result) -> Outcome:
    """The best verdict that the rows of a check allow.

    A condition of --accept decides in place of DIFFERENT. After a conversion, the comparison with the model may decide alone.
    """
    if any(row.misses_gate for row in result.rows if not row.subject.endswith(REFERENCE)):
        return Outcome.FAIL
    left = [row for row in result.rows if not row.accepted]
    compared = [row for row in result.rows if row.task != result.tasks[0] or len(result.tasks) == 1]
    known = compared and all(row.error is not None and row.error.verdict != Verdict.UNTESTED for row in compared)
    if known:
        left = [row for row in left if row.status != "ok" or row.error is None or row.error.verdict != Verdict.UNTESTED]
    return overall(left, result.settings.strict) if left else Outcome.PASS


def _timed(row: Row, place: str) -> Iterator[str]:
    """What is wrong with the timing of a row. A number that was null in the file is NaN or infinite."""
    if row.speed is None:
        return
    samples = (*row.speed.samples, *(sample for run in row.speed.launches for sample in run.repeated_blocks))
    for index, sample in enumerate(samples):
        if sample.calls < 1 or not math.isfinite(sample.seconds) or sample.seconds <= 0:
            block = f"{sample.calls} calls and {sample.seconds!r} seconds"
            yield f"a block has {block}: both must be above 0 - at `{place}.samples[{index}]`"
    for name, value in (("fps", row.speed.fps), ("seconds_per_step", row.speed.seconds_per_step)):
        if not math.isfinite(value) or value <= 0:
            yield f"{value!r} must be above 0 - at `{place}.{name}`"


def _numbers(value: object, place: str, name: str = "") -> Iterator[str]:
    """Whole numbers and floats that are out of range, in all records below this one. name: of the field."""
    if is_dataclass(value):
        for each in fields(value):
            if each.name not in FREE:
                yield from _numbers(getattr(value, each.name), f"{place}.{each.name}", each.name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, f"{place}[{str(key)[:60]!r}]", str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{place}[{index}]", name)
    elif isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= LARGEST:
        yield f"a whole number must be between 0 and 2**53 - at `{place}`"
    elif isinstance(value, float) and value < 0 and name.endswith(POSITIVE):
        yield f"{value!r} must not be negative - at `{place}`"
