"""Tells where a file has values beyond the largest number of float16, which becomes infinity in a runtime that stores them so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .judge import Judged

STEP = "keep this node in float32"


def told_overflow(judged: Judged, overflows: Mapping[str, str]) -> Judged:
    """The answer with the first node that overflows: in its reason where it is wrong, and else in a note.

    overflows: case -> a sentence on the first node that overflows in it.
    """
    away = {str(each.case) for each in judged.error.tensors if each.verdict is None or each.verdict.fails}
    case = next((case for case in overflows if case in away), next(iter(overflows), None))
    if case is None:
        return judged
    where = f"{overflows[case]} (input case {case})"
    if not judged.error.verdict.fails:
        note = f"{where}; a runtime that stores them in float16 has infinity there: {STEP}"
        return replace(judged, notes=(*judged.notes, note))
    reason = "; ".join(filter(None, (where, STEP, judged.error.reason)))
    return replace(judged, error=replace(judged.error, reason=reason))
