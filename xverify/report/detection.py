"""What the verdicts could have shown: detection limits, and values that no digit determines, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..results.layers import named
from ..results.records import Result, Row, TensorError
from ..results.verdicts import Verdict
from ..verdict.judgement import detection
from .notes import few

FEW = 0.01  # share of the values of an output; most outputs have a few that are nearly zero


def sentences(result: Result) -> Iterator[str]:
    """What rounding explains of the outputs of each row, and what would have been seen. Rows of which the same holds share one."""
    subjects: dict[str, list[str]] = {}
    for row in result.rows:
        said = "; ".join(filter(None, map(detection, _worst(row))))
        if said:
            subjects.setdefault(said, []).append(row.subject)
    yield from (f"Detection limit: {', '.join(dict.fromkeys(names))}: {said}" for said, names in subjects.items())


def _worst(row: Row) -> Iterable[TensorError]:
    """The case of each output in which its detection limit is largest."""
    worst: dict[str, TensorError] = {}
    for tensor in row.error.tensors if row.error is not None else ():
        known = worst.get(tensor.output)
        if known is None or (tensor.detection_limit or 0.0) > (known.detection_limit or 0.0):
            worst[tensor.output] = tensor
    return worst.values()


def undetermined(row: Row) -> Iterator[str]:
    """The values of each output that have no detection limit, because they have no digit that the precision determines.

    Fewer than FEW of an output are left to the result file, except where they are decisions.
    """
    precision = row.precision.name if row.precision is not None and row.precision.is_narrow else "float32"
    cases: dict[tuple[str, str], list[str]] = {}
    for tensor in row.error.tensors if row.error is not None else ():
        decides = tensor.local_ratio is None  # a whole number, such as the best class
        if tensor.undetermined >= FEW or (tensor.undetermined and decides):
            where = _where(tensor.undetermined_at)
            share = _percent(tensor.undetermined)
            says = f"{share} of the values have no digit that {precision} determines; they are compared with their own noise alone"
            if decides:
                says = f"rounding decides {share} of the whole numbers, such as ties, and they have no verdict"
            cases.setdefault((tensor.output, says + (f" ({where})" if where else "")), []).append(str(tensor.case))
    of_outputs = {each.output: each for each in row.error.tensors if each.not_judged} if row.error is not None else {}
    for name, tensor in of_outputs.items():
        if tensor.verdict not in (Verdict.IDENTICAL, Verdict.UNTESTED):  # of the latter, the reason names them
            parts = named(f"{name}{each}" for each in tensor.not_judged)
            yield f"not judged, because an error of their size could be rounding: {parts}"
    for (output, says), found in cases.items():
        yield f"{output}, case{'s' * (len(found) > 1)} {few(found)}: {says}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 1e-3 else f"{100 * share:.1g}%"


def _where(places: tuple[tuple[int, ...], ...]) -> str:
    """The items of some values, and their rows where they are of one item."""
    if not places or not places[0]:
        return ""
    items = list(dict.fromkeys(place[0] for place in places))
    text = f"the first in item {few([str(item) for item in items])}"
    if len(items) == 1 and len(places[0]) > 2:
        text += f", row {few([str(row) for row in dict.fromkeys(place[1] for place in places)])}"
    return f"{text}: {list(places[0])}"
