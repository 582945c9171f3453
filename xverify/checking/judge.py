"""The verdicts on a file: does the runtime compute what the file says, and does the file say what the reference says?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..results.figures import Figures
from ..results.layers import Layers
from ..results.precision import Precision
from ..results.records import Error
from ..results.verdicts import Verdict
from ..verdict.judgement import without_witness
from ..verdict.limits import CAP, NARROW_CAP, UNIT
from ..verdict.outputs import compare
from ..verdict.ratios import Floor
from ..weights.canonical import Array
from ..workload.keys import case_key
from .axes import swapped_axes
from .cases import EXTREME
from .computing import Computed
from .diagnosis import diagnose
from .figures import figures
from .matching import turn_back
from .meaning import Floors, Meaning, joined
from .undefined import told, told_undecided, undecided_cases, undefined_cases

RUNTIME, CONVERSION = "runtime", "conversion"  # the two questions; the rows of a result file have them as tasks


@dataclass(frozen=True)
class Output:
    """An output of a file. dtype: numpy's name of its dtype."""

    dtype: str


@dataclass(frozen=True)
class Outputs:
    """The outputs that are compared, by name."""

    outputs: Mapping[str, Output]


@dataclass(frozen=True)
class Judged:
    """The answer to one question. figures: output -> its figures. notes: on the input cases that are left out.

    unmodelled: whether rounding may explain what differs, because no model tells what rounding may come to.
    selected: the cases that are left out because something differs there, and rounding decides what is selected.
    """

    error: Error
    figures: Mapping[str, Figures]
    notes: tuple[str, ...] = ()
    unmodelled: bool = False
    selected: tuple[int, ...] = ()


def runtime(
    computed: Computed,
    own: Meaning | None,
    cases: int,
    layers: Layers | None,
    format: str,
    precision: Precision | None = None,
    late: str = "",
) -> Judged:
    """Does the runtime compute what the file says?

    own: the file's meaning; None where the format has none. layers: the verdicts on its nodes; None without any.
    format: what a file of this format is called. precision: of the file; None for float32.
    late: see ``Evaluated``.
    """
    if own is None:
        return Judged(_nodes_alone(layers, late or f"{no_evaluation(format)}: name a reference with --against"), {})
    narrow = precision is not None and precision.is_narrow
    return _judged(computed.own, own, own.floors, cases, layers, own.rounding_floors, NARROW_CAP if narrow else CAP)


def no_evaluation(format: str) -> str:
    """The clause about a file that cannot be evaluated in float64. format: see ``runtime``."""
    return f"there is no evaluation of this {format} in float64"


def _nodes_alone(layers: Layers | None, reason: str) -> Error:
    """The verdict where the outputs have no meaning to compare with. Nodes that could be compared still count."""
    if layers is None or not layers.compared:
        return Error(Verdict.UNTESTED, reason=reason)
    reason = f"{layers.compared} of {layers.known} nodes were compared, and the outputs were not, because {reason}"
    if layers.verdict > Verdict.EQUAL and layers.first is not None:
        reason = f"{layers.describe(layers.first)}; {reason}"
        return Error(max(layers.verdict, Verdict.UNTESTED), reason=reason, layers=layers)
    return Error(Verdict.UNTESTED, reason=reason, layers=layers)


def conversion(
    computed: Computed,
    reference: Meaning,
    own: Meaning | None,
    cases: int | Sequence[int],
    more: Floors | None = None,
    cap: float = CAP,
) -> Judged:
    """Does the file say what the reference says? The noise floor is that of the reference and of the file together.

    A reference in float32 rounds, too. A file whose noise is not known is taken to round as much as that reference.

    cases: the number of cases, or the cases to compare. more: noise that a lower precision adds, under the reference's names.
    cap: see ``compare``.
    """
    cases = _within(cases, own.cases if own else None)
    mine = renamed(own.floors, computed) if own else reference.floors if reference.precision == "float32" else None
    floors = joined([reference.floors, mine, more])
    rounding = own.rounding_floors if own else None
    rounding_floors = joined([reference.floors, renamed(rounding, computed), more]) if rounding else None
    cap = CAP if more is None else NARROW_CAP
    undecided = renamed_keys(own.undecided, computed) if own else {}
    judged = _judged(computed.outputs, reference, floors or None, cases, None, rounding_floors, cap, undecided)
    lacks = {name: Figures(says="the file has no such output") for name in computed.missing}
    judged = replace(judged, figures={**judged.figures, **lacks})
    says = _tied_otherwise(reference, own, computed, cases) if own else ""
    if says:
        verdict, reason = (
            max(judged.error.verdict, Verdict.DIFFERENT),
            "; ".join(filter(None, [says, judged.error.reason])),
        )
        judged = replace(judged, error=replace(judged.error, verdict=verdict, reason=reason))
    if computed.missing and judged.error.verdict < Verdict.UNTESTED:
        reason = f"the file has no output for {', '.join(computed.missing)} of the reference"
        return replace(judged, error=replace(judged.error, verdict=Verdict.UNTESTED, reason=reason))
    return judged


def _tied_otherwise(reference: Meaning, own: Meaning, computed: Computed, cases: Sequence[int]) -> str:
    """Where the file selects another one of exactly equal values than the reference, in words; "" where it does not.

    Which of them a runtime selects, rounding may decide. Which one the file says, it does not.
    """
    for key, known in reference.ties.items():
        case, _, name = key.partition("/")
        mine = case_key(int(case), computed.names.get(name, ""))
        if int(case) in cases and name not in computed.orders and mine in own.ties:
            for place, *_ in sorted(set(own.ties[mine]) & set(known)):
                ours, right = (float(array.reshape(-1)[place]) for array in (own.outputs[mine], reference.outputs[key]))
                if ours != right:
                    where = list(map(int, np.unravel_index(place, reference.outputs[key].shape)))
                    says = f"the file selects index {ours:g}, and the reference {right:g}"
                    return f"{name}, case {case}: of equal values at {where}, {says}"
    return ""


def _within(cases: int | Sequence[int], known: int | None) -> Sequence[int]:
    """The cases to compare. cases: their number, or the cases. known: number of cases, the first ones, that were evaluated."""
    chosen = range(cases) if isinstance(cases, int) else cases
    return [case for case in chosen if known is None or case < known]


def exact_conversion(
    outputs: Mapping[str, Array],
    reference: Meaning,
    floors: Floors,
    cases: Sequence[int],
    narrow: bool = False,
) -> Judged:
    """Does the file say what the reference says, both in float64?

    outputs: what the file says, under the reference's names. narrow: whether the floors are those of a precision below float32.
    """
    cap = NARROW_CAP if narrow else CAP
    return _judged(outputs, reference, joined([reference.floors, floors]), cases, cap=cap)


def without_model(judged: Judged, precision: str, why: str) -> Judged:
    """The answer by the rounding of float32 where nothing tells what rounding at a lower precision may come to.

    A difference in values is then UNTESTED. What no rounding can do, such as another shape, stays INVALID.

    precision: name of that precision. why: why nothing tells it, a clause.
    """
    error = judged.error
    if error.verdict not in (Verdict.DRIFT, Verdict.DIFFERENT):
        return judged
    away = "" if error.rel_rms is None else f"the outputs are {error.rel_rms:.2g} (rms) away from the reference's; "
    reason = (
        f"what rounding at {precision} may change is not known: {why}; {away}--accept can decide, e.g. --accept "
        f"'sqnr>=20'; beside the rounding of float32 alone: {error.reason}"
    )
    tensors = [replace(each, verdict=_open_to_rounding(each.verdict)) for each in error.tensors]
    share = sum(each.verdict != Verdict.UNTESTED for each in tensors) / max(1, len(tensors))
    error = replace(error, verdict=Verdict.UNTESTED, reason=reason, tensors=tuple(tensors), judged=share)
    return replace(judged, error=error, unmodelled=True)


def _open_to_rounding(verdict: Verdict | None) -> Verdict | None:
    return Verdict.UNTESTED if verdict in (Verdict.DRIFT, Verdict.DIFFERENT) else verdict


def renamed(floors: Floors | None, computed: Computed) -> dict[str, Floor]:
    """The floors of a file's outputs under the reference's names."""
    names = {own: reference for reference, own in computed.names.items()}
    found: dict[str, Floor] = {}
    for key in floors or {}:
        case, _, name = key.partition("/")
        if name in names:
            floor = (floors or {})[key]
            if isinstance(floor, np.ndarray) and floor.ndim:
                floor = turn_back(floor, computed.orders.get(names[name]))
            found[f"{case}/{names[name]}"] = floor
    return found


def renamed_keys(found: Mapping[str, str], computed: Computed) -> dict[str, str]:
    """What is known about a file's outputs, by "case/output", under the reference's names."""
    names = {own: reference for reference, own in computed.names.items()}
    keys = ((key.partition("/"), says) for key, says in found.items())
    return {f"{case}/{names[name]}": says for (case, _, name), says in keys if name in names}


def _judged(
    outputs: Mapping[str, Array],
    meaning: Meaning,
    floors: Floors | None,
    cases: int | Sequence[int],
    layers: Layers | None = None,
    rounding_floors: Floors | None = None,
    cap: float = CAP,
    undecided: Mapping[str, str] | None = None,
) -> Judged:
    """Compare outputs with their meaning, which has the same names and perhaps fewer cases.

    undecided: decisions of the file that rounding may change, beside those of the meaning.
    """
    cases = _within(cases, meaning.cases)
    undefined = undefined_cases(outputs, meaning.outputs, cases)
    cases = [case for case in cases if case not in undefined]
    if not cases:
        says = "no input case is left to compare" + "".join(f": {each}" for each in told(undefined))
        return Judged(Error(Verdict.INVALID, reason=f"{says}; give inputs with --inputs or --input-range"), {})
    floors, rounding = (_complete(each, meaning.outputs) for each in (floors, rounding_floors))

    def compared(cases: Sequence[int]) -> Judged:
        return _compared(outputs, meaning, floors, cases, layers, rounding, cap)

    judged = compared(cases)
    undecided = {**(undecided or {}), **meaning.undecided}
    selected = undecided_cases(judged.error, undecided, outputs, meaning.outputs)
    if selected:
        kept = [case for case in cases if case not in selected]
        judged = compared(kept) if kept else _nothing_left(judged, selected)
        if judged.error.verdict == Verdict.IDENTICAL:  # not in the cases that are left out
            judged = replace(judged, error=replace(judged.error, verdict=Verdict.EQUAL))
    return replace(judged, notes=(*told(undefined), *told_undecided(selected)), selected=tuple(selected))


def with_a_general_case(judged: Judged, kinds: Sequence[str]) -> Judged:
    """The answer, which is UNTESTED where every case in which a wrong weight would show differs and is left out.

    Where all nodes were judged, they decide. kinds: what each input case is.
    """
    error = judged.error
    left = {each.case for each in error.tensors}
    by_nodes = error.layers is not None and error.layers.complete
    if (
        not judged.selected
        or error.verdict >= Verdict.UNTESTED
        or by_nodes
        or any(each >= len(kinds) or kinds[each] not in EXTREME for each in left)
    ):
        return judged
    reason = (
        "rounding may decide otherwise in every random input case, and something differs there; in the other cases, a wrong "
        "weight may not show; give other inputs with --inputs or --seed"
    )
    return replace(judged, error=replace(error, verdict=Verdict.UNTESTED, reason=reason))


def _nothing_left(judged: Judged, selected: Mapping[int, str]) -> Judged:
    """The answer where rounding may decide otherwise in every case that differs, and none is left."""
    reason = f"no input case is left to compare: {'; '.join(told_undecided(selected))}; give others with --inputs"
    tensors = tuple(replace(each, verdict=Verdict.UNTESTED) for each in judged.error.tensors)
    layers = judged.error.layers
    verdict = max(Verdict.UNTESTED, layers.verdict if layers is not None else Verdict.UNTESTED)
    if verdict.fails:  # a node is wrong
        reason = "; ".join(filter(None, (judged.error.reason, reason)))
    error = replace(judged.error, verdict=verdict, reason=reason, tensors=tensors, judged=0.0)
    return replace(judged, error=error)


def _compared(
    outputs: Mapping[str, Array],
    meaning: Meaning,
    floors: Floors | None,
    cases: Sequence[int],
    layers: Layers | None,
    rounding_floors: Floors | None,
    cap: float,
) -> Judged:
    """Compare the outputs of some cases with their meaning."""
    outputs = {key: outputs[key] for key in outputs if int(key.partition("/")[0]) in cases}
    first = case_key(cases[0], "")
    names = [key.removeprefix(first) for key in meaning.outputs if key.startswith(first) and key in outputs]
    # The file's own dtype is the expected one: another precision than the reference's is no fault of a file.
    expected = Outputs({name: Output(outputs[first + name].dtype.name) for name in names})
    exact, single = meaning.outputs, meaning.float32
    error = compare(outputs, exact, single, expected, cases, floors, layers, rounding_floors=rounding_floors, cap=cap)
    if meaning.unmoved:
        error = without_witness(error)
    if error.verdict.fails:
        error = replace(error, reason=_explained(error, outputs, meaning, names, cases))

    def pairs(name: str) -> Iterator[tuple[Array, Array]]:
        return ((exact[f"{case}/{name}"], outputs[f"{case}/{name}"]) for case in cases)

    alike = [name for name in names if all(right.shape == own.shape for right, own in pairs(name))]
    return Judged(error, {name: figures(pairs(name), cases) for name in alike})


def _complete(floors: Floors | None, outputs: Mapping[str, Array]) -> Floors | None:
    """The floors of all outputs. An output without a measured floor gets the least one."""
    if floors is None:
        return None
    return {key: floors[key] if key in floors else _least(outputs[key]) for key in outputs}


def _least(exact: Array) -> Floor:
    """The noise of an output without one: the rounding of its values to float32; 0 for whole numbers."""
    return UNIT / math.sqrt(3) * np.abs(exact) if exact.dtype.kind == "f" else 0.0


def _explained(
    error: Error, outputs: Mapping[str, Array], meaning: Meaning, names: Sequence[str], cases: Sequence[int]
) -> str | None:
    """The reason of a wrong row, with what the outputs tell about its cause."""
    told = []
    for name in names:
        pairs = [(meaning.outputs[f"{case}/{name}"], outputs[f"{case}/{name}"]) for case in cases]
        if all(right.dtype.kind == own.dtype.kind == "f" for right, own in pairs):
            same = all(right.shape == own.shape for right, own in pairs)
            says = (diagnose(pairs) if same else "") or swapped_axes(pairs)
            told += [f"{name}: {says}"] if says else []
    return "; ".join([*told, *([error.reason] if error.reason else [])]) or None
