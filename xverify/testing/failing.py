"""What is wrong with a result, as the message of a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import host
from ..environments import store as environments
from ..errors import UsageError, nearest, shown
from ..framework import discovery
from ..reference.subjects import offered
from ..report.conditions import command
from ..report.notes import tally
from ..results.figures import shown_ratio
from ..results.records import Error, LayerError, Result, Row, shows
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.limits import OWN_EQUAL
from ..workload.spec import load_folder

ALLOWED = ("UNTESTED", "unsupported", "not-installed")
LONGEST = 600  # characters of a reason
MOST_CAUSES = 12  # faults of a row that are told


def check_allowed(allow: Sequence[str]) -> None:
    """Raise UsageError for what cannot be allowed."""
    for name in [allow] if isinstance(allow, str) else allow:
        if name not in ALLOWED:
            raise UsageError(f"allow is {name!r}{nearest(name, ALLOWED)} Known: {', '.join(ALLOWED)}")


def failures(result: Result, allow: Sequence[str] = (), named: bool = True) -> str:
    """Why a test of this result fails; "" when it passes.

    allow: what does not fail, of ALLOWED. named: whether the user named the subjects.
    """
    wrong = [row for row in result.rows if not _passes(row, result, allow)]
    told = [line for row in wrong for line in _row(row)]
    if not named and "not-installed" not in allow:
        told += [f"  {says}" for says in _not_covered(result)]
    if not any(shows(row, result.settings.reference) for row in result.rows):
        told.append(
            f"  nothing was compared: no row other than the reference {result.settings.reference} itself has a verdict; "
            "name another subject, or install its framework"
        )
    if not told:
        return ""
    # First the cause: pytest's summary of a test run has the first line alone.
    head = _headline(wrong[0]) if wrong else told[0].strip()
    count = f"  {result.model}: {tally(result.rows, 'subjects')}"
    return "\n".join(map(shown, [head, count, *told, f"  The same with every layer: {command(result)} --layers"]))


def drifts(result: Result) -> Iterator[str]:
    """A sentence about each row that is DRIFT."""
    for row in result.rows:
        if row.error is not None and row.error.verdict == Verdict.DRIFT:
            yield shown(f"{result.model}: {row.subject}, {row.task}: DRIFT: {_reason(row)}")


def _passes(row: Row, result: Result, allow: Sequence[str]) -> bool:
    if row.status != "ok":
        return row.status in allow and row.error is None
    if row.error is None:
        return False
    verdict = row.error.verdict
    return (
        verdict <= Verdict.EQUAL
        or (verdict == Verdict.DRIFT and not result.settings.strict)
        or (verdict == Verdict.UNTESTED and verdict in allow)
    )


def _not_covered(result: Result) -> Iterator[str]:
    """A sentence about each framework that has a file in the folder, and no row."""
    folder = load_folder(Path(result.settings.model))
    covered = {row.framework for row in result.rows}
    for name, adapter in sorted(discovery.load_all().items()):
        own = adapter.default_modes and not adapter.runs_export and adapter.reads() == name
        if own and offered(folder, adapter) and name not in covered and host.missing(adapter):
            yield f"{name}.py was not compared: {name} has no row, because it is not installed ({environments.remedy(adapter)})"


def _headline(row: Row) -> str:
    """The cause of a row that is wrong, and which row it is; its first wrong layer when no cause is known."""
    layer = row.layers.first if row.layers is not None else None
    causes = _causes(row) or ([] if layer is None else [f"first wrong layer {_layer(layer)}"])
    outcome = "no verdict" if row.outcome == "ok" else row.outcome
    return f"{causes[0]} ({row.subject}, {outcome})" if causes else f"{row.subject}, {row.task}: {outcome}"


def _row(row: Row) -> Iterator[str]:
    """The lines about one row."""
    yield f"  {row.subject}, {row.task}: {'no verdict' if row.outcome == 'ok' else row.outcome}"
    yield from (f"    cause: {_shortened(cause)}" for cause in _causes(row))
    if row.error is None:
        return
    check = row.training.first if row.training is not None else None
    if check is not None:
        ratio = f": {shown_ratio(check.ratio, 3)} x its noise floor" if check.ratio is not None else ""
        yield f"    first wrong check: {check.label}{ratio}"
    if row.layers is not None and row.layers.first is not None:
        yield f"    first wrong layer: {_layer(row.layers.first)}"
    if row.training is None:
        yield from _outputs(row.error)


def _reason(row: Row) -> str:
    """Why a row is not EQUAL, in one line."""
    check = row.training.first if row.training is not None else None
    said = row.why or (check.says if check else "") or ""
    return _shortened(said)


def _causes(row: Row) -> list[str]:
    """Why a row is not EQUAL: every fault that was found, the largest first."""
    if row.reason or row.training is not None or row.error is None:
        reason = _reason(row)
        return [reason] if reason else []
    return row.error.causes(MOST_CAUSES, "; --layers shows all")


def _shortened(said: str) -> str:
    text = " ".join(said.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def _layer(layer: LayerError) -> str:
    """The name of a layer, and its worst figure beside the limit."""
    name, what = f"{layer.layer} ({layer.kind})", ""
    figures = (
        ("R of its input", layer.input_ratio, limits.EQUAL_R),
        ("R", layer.ratio, limits.EQUAL_R),
        ("C", layer.channel_ratio, limits.EQUAL_C),
    )
    beyond = [(symbol, value, limit) for symbol, value, limit in figures if not value <= limit]
    if beyond:
        symbol, value, limit = max(beyond, key=lambda each: each[1] / each[2])
        what = f": {symbol} is {shown_ratio(value, 3)}, and EQUAL is up to {limit:g}"
    if layer.max_abs is not None:
        what += f"; max |Δ| {layer.max_abs:.3g}"
    return name + what


def _outputs(error: Error) -> Iterator[str]:
    """The output with the largest error, and the limit."""
    known = [each for each in error.tensors if each.rel_rms is not None and each.max_abs is not None]
    if not known:
        return
    worst = max(known, key=lambda each: each.rel_rms or 0.0)
    text = (
        f"    output {worst.output}, case {worst.case}: max |Δ| {worst.max_abs:.3g}, relative error {worst.rel_rms:.3g}"
    )
    if worst.noise_ratio is not None:
        text += (
            f", {shown_ratio(worst.noise_ratio, 3)} x the noise of all layers, and EQUAL is up to {limits.EQUAL_RHO:g}"
        )
    elif worst.float32_ratio is not None:
        text += f", {shown_ratio(worst.float32_ratio, 3)} x the reference's own float32 error, and EQUAL is up to {OWN_EQUAL:g}"
    yield text
