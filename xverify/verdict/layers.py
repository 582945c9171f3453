"""Summarises the findings of a replay in one record for each layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..results.records import LayerError, Layers
from ..results.verdicts import Verdict
from .findings import INPUT, OUTPUT, Explanation, Finding, ReplayReport
from .limits import EQUAL_C


def summarise(
    report: ReplayReport,
    known: Sequence[str],
    subject: str,
    matched: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Layers:
    """Make one record of each layer, with the worst of its calls and tensors, in the order of computation.

    A layer that is called several times stands where its first wrong call is, so the first layer that differs is told first.

    report: what the replay found.
    known: the names of all layers of the reference; the passive ones of the report do not count.
    subject: the subject that was captured.
    matched: canonical name -> the framework's own name, where layers were matched by order and shape; omitted when none were.
    notes: sentences on the matching; those of the replay follow.
    """
    known = [name for name in known if name not in report.passive]
    by_layer: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_layer.setdefault(finding.layer, []).append(finding)
    # A layer stands at its first wrong finding, or at its first finding when none is wrong. Later items replace earlier ones here.
    numbered = sorted(enumerate(report.findings), key=lambda pair: (pair[1].verdict != Verdict.EQUAL, -pair[0]))
    place = {finding.layer: index for index, finding in numbered}
    by_layer = {name: by_layer[name] for name in sorted(by_layer, key=place.__getitem__)}
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
        notes=(*notes, *report.notes),
    )


def merged(judged: Sequence[Layers]) -> Layers:
    """One record of layers that were judged in several input cases, with the worst finding on each layer.

    They stand in the order of the first case with the worst verdict; a layer that is not called there follows the one before it.

    judged: the record of each case.
    """
    base = max(judged, key=lambda each: each.verdict.rank)
    order = [layer.layer for layer in base.layers]
    for each in judged:
        before = ""
        for layer in each.layers:
            if layer.layer not in order:
                order.insert(order.index(before) + 1 if before else 0, layer.layer)
            before = layer.layer
    found: dict[str, list[LayerError]] = {name: [] for name in order}
    for each in judged:
        for layer in each.layers:
            found[layer.layer].append(layer)
    first = judged[0]
    missing = tuple(name for name in first.missing if all(name in each.missing for each in judged))
    return replace(
        first,
        layers=tuple(_worst(layers) for layers in found.values()),
        compared=first.compared + len(first.missing) - len(missing),
        missing=missing,
        stopped=next((each.stopped for each in judged if each.stopped), ""),
        matched={own: name for each in judged for own, name in each.matched.items()},
        partial=tuple(dict.fromkeys(name for each in judged for name in each.partial)),
        uncalled=tuple(name for name in first.uncalled if all(name in each.uncalled for each in judged)),
        notes=tuple(dict.fromkeys(note for each in judged for note in each.notes)),
        cases=tuple(case for each in judged for case in each.cases),
        equal_cases=tuple(case for each in judged for case in each.equal_in),
    )


def _worst(layers: Sequence[LayerError]) -> LayerError:
    """The worst record of a layer, with the largest ratios and detection limits of all, and the first case with its verdict."""
    worst = max(layers, key=lambda each: (each.verdict.rank, max(each.ratio, each.input_ratio)))
    return replace(
        worst,
        case=next(each.case for each in layers if each.verdict == worst.verdict),
        ratio=max(each.ratio for each in layers),
        channel_ratio=max(each.channel_ratio for each in layers),
        input_ratio=max(each.input_ratio for each in layers),
        detection_limit=max(each.detection_limit or 0.0 for each in layers),
        detection_limit_worst=max(each.detection_limit_worst or 0.0 for each in layers),
        detection_limit_index=max(each.detection_limit_index or 0.0 for each in layers),
        detection_limit_value=max(each.detection_limit_value or 0.0 for each in layers),
        undetermined=max(each.undetermined for each in layers),
    )


def _layer(name: str, findings: Sequence[Finding], calls: int, explanation: Explanation | None) -> LayerError:
    worst = max(findings, key=lambda finding: (finding.counts_as, finding.ratio))
    away = [finding for finding in findings if finding.verdict != Verdict.EQUAL]
    # The first wrong call says where the fault is; later calls are given what it returned.
    first = next((finding for finding in away if finding.what == worst.what), worst)
    if worst.rounding is not None or (explanation is not None and explanation.rounding):
        explanation = worst.rounding  # a rounding says nothing about a finding that it does not explain
    mistake = worst.mistake or (worst.what == OUTPUT and explanation is not None and explanation.mistake)
    small = mistake and worst.verdict == Verdict.DRIFT and worst.rounding is None
    glue = first.glue or worst.glue or next((finding.glue for finding in findings if finding.glue), "")
    if explanation is not None and explanation.earlier and worst.what == INPUT:
        glue, explanation = explanation.says, None  # it tells what the layer is given
    verdict = _verdict(worst, findings, small)
    vague = next((finding for finding in findings if not finding.judged), worst)
    return LayerError(
        layer=name,
        kind=worst.kind,
        calls=calls,
        ratio=max((finding.ratio for finding in findings if finding.computed_by_layer), default=0.0),
        channel_ratio=max((finding.channel_ratio for finding in findings), default=0.0),
        input_ratio=max((finding.ratio for finding in findings if not finding.computed_by_layer), default=0.0),
        verdict=verdict,
        faulty=vague.what if verdict == Verdict.UNTESTED else worst.what,
        terms=worst.terms,
        mean_abs=worst.mean_abs,
        max_abs=worst.max_abs,
        rel_rms=worst.rel_rms,
        reason=worst.reason,
        explanation=explanation.says if explanation is not None else None,
        rounding=bool(away) and all(finding.rounding is not None for finding in away),
        after=first.after,
        source=first.source,
        joined=next((finding.joined for finding in findings if finding.joined), ""),
        glue=glue,
        small=small,
        detection_limit=_limit(finding.floor_share for finding in findings),
        detection_limit_worst=_limit(finding.worst_share for finding in findings),
        detection_limit_index=_limit(finding.index_share for finding in findings),
        detection_limit_value=_limit(finding.value_share for finding in findings),
        undetermined=max(finding.undetermined for finding in findings),
    )


def _verdict(worst: Finding, findings: Sequence[Finding], small: bool) -> Verdict:
    """The verdict on a layer. small: whether a named mistake explains its worst finding, which is a DRIFT by the limits."""
    if small:
        return Verdict.DIFFERENT
    if worst.counts_as <= Verdict.EQUAL and not all(finding.judged for finding in findings):
        return Verdict.UNTESTED
    return worst.counts_as


def _limit(shares: Iterable[float]) -> float | None:
    """The largest detection limit of these shares of noise; None where none was measured."""
    return EQUAL_C * max(shares) or None
