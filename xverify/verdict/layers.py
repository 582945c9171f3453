"""From the findings of a replay to one record a layer."""

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
    """One record a layer, the worst of its calls and tensors, in the order of computation.

    report: what the replay found. known: every layer of the reference. subject: whose capture it was.
    matched: canonical name -> the framework's own, for layers that were matched by order and shape.
    """
    findings: dict[str, list[Finding]] = {}
    for finding in report.findings:
        findings.setdefault(finding.layer, []).append(finding)
    layers = tuple(
        _layer(name, found, report.compared.get(name, 0), report.explained.get(name))
        for name, found in findings.items()
    )
    return Layers(
        layers=layers,
        compared=len(report.compared),
        known=len(known),
        missing=tuple(name for name in known if name not in report.compared),
        subject=subject,
        stopped=report.stopped,
        matched=dict(matched or {}),
    )


def _layer(name: str, findings: list[Finding], calls: int, explained: Explanation | None) -> LayerError:
    """The record of one layer, from all comparisons of its calls."""
    worst = max(findings, key=lambda finding: (finding.verdict, finding.ratio))
    own = [finding for finding in findings if finding.computed_by_layer]
    rounding = explained is not None and explained.rounding
    return LayerError(
        layer=name,
        kind=worst.kind,
        calls=calls,
        ratio=max((finding.ratio for finding in own), default=0.0),
        channel_ratio=max((finding.channel_ratio for finding in findings), default=0.0),
        input_ratio=max((finding.ratio for finding in findings if not finding.computed_by_layer), default=0.0),
        verdict=Verdict.DRIFT if rounding else worst.verdict,
        faulty=worst.what,
        terms=worst.terms,
        mean_abs=worst.mean_abs,
        max_abs=worst.max_abs,
        rel_rms=worst.rel_rms,
        reason=worst.reason,
        explanation=explained.says if explained else None,
        rounding=rounding,
    )


@dataclass(frozen=True)
class Place:
    """A layer as it stands in the order of computation. taken, given: the shapes of its first input and output."""

    name: str
    kind: str
    taken: tuple[int, ...]
    given: tuple[int, ...]


def match(mine: Sequence[Place], theirs: Sequence[Place], channels_last: bool) -> dict[str, str]:
    """The reference's layers and a framework's, matched in order, by shape and likeness of kind: canonical name -> own name.

    The longest common sequence, in which a pair counts the more the more alike its kinds are called (Conv2d, Conv2D), and most
    when it has one name already. Pairs of one name are left out of the result.
    channels_last: their images are N,H,W,C.
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
    for own, other in ((mine.taken, theirs.taken), (mine.given, theirs.given)):
        turned = (other[0], other[-1], *other[1:-1]) if channels_last and len(other) > 2 else other
        if own not in (other, turned):
            return 0.0
    return 0.1 + difflib.SequenceMatcher(None, mine.kind.lower(), theirs.kind.lower()).ratio()
