"""Summarises the findings of a replay in one record for each layer, and matches layers that have different names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..results.records import LayerError, Layers
from ..results.verdicts import Verdict
from .findings import Explanation, Finding, ReplayReport


def summarise(
    report: ReplayReport, known: Sequence[str], subject: str, matched: Mapping[str, str] | None = None
) -> Layers:
    """Make one record of each layer, with the worst of its calls and tensors, in the order of computation.

    report: what the replay found.
    known: the names of all layers of the reference.
    subject: the subject that was captured.
    matched: canonical name -> the framework's own name, where layers were matched by order and shape; omitted when none were.
    """
    by_layer: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_layer.setdefault(finding.layer, []).append(finding)
    return Layers(
        layers=tuple(
            _layer(name, findings, report.compared.get(name, 0), report.explained.get(name))
            for name, findings in by_layer.items()
        ),
        compared=len(report.compared),
        known=len(known),
        missing=tuple(name for name in known if name not in report.compared),
        subject=subject,
        stopped=report.stopped,
        matched=dict(matched or {}),
        partial=tuple(name for name in known if name in report.missing and name in report.compared),
        uncalled=tuple(name for name in known if not (name in report.missing or name in report.compared)),
    )


def _layer(name: str, findings: Sequence[Finding], calls: int, explanation: Explanation | None) -> LayerError:
    worst = max(findings, key=lambda finding: (finding.counts_as, finding.ratio))
    away = [finding for finding in findings if finding.verdict != Verdict.EQUAL]
    if worst.rounding is not None or (explanation is not None and explanation.rounding):
        explanation = worst.rounding  # a rounding says nothing about a finding that it does not explain
    return LayerError(
        layer=name,
        kind=worst.kind,
        calls=calls,
        ratio=max((finding.ratio for finding in findings if finding.computed_by_layer), default=0.0),
        channel_ratio=max((finding.channel_ratio for finding in findings), default=0.0),
        input_ratio=max((finding.ratio for finding in findings if not finding.computed_by_layer), default=0.0),
        verdict=worst.counts_as,
        faulty=worst.what,
        terms=worst.terms,
        mean_abs=worst.mean_abs,
        max_abs=worst.max_abs,
        rel_rms=worst.rel_rms,
        reason=worst.reason,
        explanation=explanation.says if explanation is not None else None,
        rounding=bool(away) and all(finding.rounding is not None for finding in away),
        after=worst.after,
        source=worst.source,
        joined=next((finding.joined for finding in findings if finding.joined), ""),
    )


@dataclass(frozen=True)
class Place:
    """A layer in the order of computation.

    name, kind: its name and class.
    input_shape, output_shape: shapes of its first input and of its first output.
    """

    name: str
    kind: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


def match(mine: Sequence[Place], theirs: Sequence[Place], channels_last: bool) -> dict[str, str]:
    """Match the layers of the reference with those of a framework: canonical name -> own name, where the two differ.

    The match is the best common subsequence: both layers of a pair have the same shapes, and a pair is worth more when their kinds
    have similar names (Conv2d, Conv2D), and most when their own names are the same.

    mine, theirs: the layers of the reference and of the framework, in the order of computation.
    channels_last: whether the framework's images are N,H,W,C.
    """
    best = [[0.0] * (len(theirs) + 1) for _ in range(len(mine) + 1)]
    worth = [[_likeness(a, b, channels_last) for b in theirs] for a in mine]
    for i in range(len(mine) - 1, -1, -1):
        for j in range(len(theirs) - 1, -1, -1):
            pair = worth[i][j] + best[i + 1][j + 1] if worth[i][j] else 0.0
            best[i][j] = max(pair, best[i + 1][j], best[i][j + 1])
    found, i, j = {}, 0, 0
    while i < len(mine) and j < len(theirs):
        if worth[i][j] and best[i][j] == worth[i][j] + best[i + 1][j + 1]:
            found[mine[i].name] = theirs[j].name
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return {name: own for name, own in found.items() if name != own}


def _likeness(mine: Place, theirs: Place, channels_last: bool) -> float:
    if mine.name == theirs.name:
        return 10.0
    for own, other in ((mine.input_shape, theirs.input_shape), (mine.output_shape, theirs.output_shape)):
        turned = (other[0], other[-1], *other[1:-1]) if channels_last and len(other) > 2 else other
        if own not in (other, turned):
            return 0.0
    return 0.1 + difflib.SequenceMatcher(None, mine.kind.lower(), theirs.kind.lower()).ratio()
