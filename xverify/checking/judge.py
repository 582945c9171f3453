"""The verdicts on a file: does the runtime compute what the file says, and does the file say what the reference says?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..results.figures import Figures
from ..results.layers import Layers
from ..results.records import Error
from ..results.verdicts import Verdict
from ..verdict.outputs import compare
from ..weights.canonical import Array
from .axes import swapped_axes
from .computing import Computed
from .diagnosis import diagnose
from .figures import figures
from .meaning import Meaning, joined

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
    """The answer to one question. figures: output -> its figures."""

    error: Error
    figures: Mapping[str, Figures]


def runtime(computed: Computed, own: Meaning | None, cases: int, layers: Layers | None, format: str) -> Judged:
    """Does the runtime compute what the file says?

    own: the file's meaning; None where the format has none. layers: the verdicts on its nodes; None without any.
    format: what a file of this format is called.
    """
    if own is None:
        reason = f"there is no evaluation of this {format} in float64: name a reference with --against"
        return Judged(Error(Verdict.UNTESTED, reason=reason), {})
    return _judged(computed.own, own, own.floors, cases, layers)


def conversion(computed: Computed, reference: Meaning, own: Meaning | None, cases: int) -> Judged:
    """Does the file say what the reference says? The noise floor is that of the reference and of the file together."""
    cases = min(cases, (own.cases if own else None) or cases)
    floors = joined([reference.floors, _renamed(own.floors if own else None, computed)])
    judged = _judged(computed.outputs, reference, floors or None, cases)
    if computed.missing and judged.error.verdict < Verdict.UNTESTED:
        reason = f"the file has no output for {', '.join(computed.missing)} of the reference"
        return replace(judged, error=replace(judged.error, verdict=Verdict.UNTESTED, reason=reason))
    return judged


def _renamed(floors: Mapping[str, float] | None, computed: Computed) -> dict[str, float]:
    """The floors of a file's outputs under the reference's names."""
    names = {own: reference for reference, own in computed.names.items()}
    found = {}
    for key, floor in (floors or {}).items():
        case, _, name = key.partition("/")
        if name in names:
            found[f"{case}/{names[name]}"] = floor
    return found


def _judged(
    outputs: Mapping[str, Array],
    meaning: Meaning,
    floors: Mapping[str, float] | None,
    cases: int,
    layers: Layers | None = None,
) -> Judged:
    """Compare outputs with their meaning, which has the same names and perhaps fewer cases."""
    cases = min(cases, meaning.cases or cases)
    outputs = {key: outputs[key] for key in outputs if int(key.partition("/")[0]) < cases}
    names = [key[2:] for key in meaning.outputs if key.startswith("0/") and key in outputs]
    # The file's own dtype is the expected one: another precision than the reference's is no fault of a file.
    expected = Outputs({name: Output(outputs[f"0/{name}"].dtype.name) for name in names})
    error = compare(outputs, meaning.outputs, meaning.float32, expected, range(cases), floors, layers)
    found = {
        name: figures((meaning.outputs[f"{case}/{name}"], outputs[f"{case}/{name}"]) for case in range(cases))
        for name in names
        if all(meaning.outputs[f"{case}/{name}"].shape == outputs[f"{case}/{name}"].shape for case in range(cases))
    }
    if error.verdict.fails:
        error = replace(error, reason=_explained(error, outputs, meaning, names, cases))
    return Judged(error, found)


def _explained(
    error: Error, outputs: Mapping[str, Array], meaning: Meaning, names: Sequence[str], cases: int
) -> str | None:
    """The reason of a wrong row, with what the outputs tell about its cause."""
    told = []
    for name in names:
        pairs = [(meaning.outputs[f"{case}/{name}"], outputs[f"{case}/{name}"]) for case in range(cases)]
        if all(right.dtype.kind == own.dtype.kind == "f" for right, own in pairs):
            same = all(right.shape == own.shape for right, own in pairs)
            says = (diagnose(pairs) if same else "") or swapped_axes(pairs)
            told += [f"{name}: {says}"] if says else []
    return "; ".join([*told, *([error.reason] if error.reason else [])]) or None
