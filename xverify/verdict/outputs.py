"""The comparison of outputs with the reference's: pure functions over arrays.

Copies of all outputs may not fit into memory, so each array is read when it is needed, and processed in parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from ..results.records import Error, Layers, TensorError
from ..results.verdicts import Verdict
from ..weights.canonical import Array
from ..workload.keys import case_key
from . import limits as rule
from . import ratios
from .indices import Indices, shown
from .judgement import Context, conclusion, judged, measure
from .local import TOLD, Local, quotient
from .ratios import Floor, in_range, noise_ratios, own_ratios, parts
from .sizes import rms
from .swapped import swapped_outputs

Arrays = Mapping[str, Array]


class DescribedOutput(Protocol):
    """An output, as far as its comparison needs it; a TensorSpec is one."""

    @property
    def dtype(self) -> str:
        """numpy's name of its dtype."""
        ...


class Described(Protocol):
    """What says which outputs are expected; a ModelSpec is one."""

    @property
    def outputs(self) -> Mapping[str, DescribedOutput]:
        """The outputs by name."""
        ...


NO_FINITE_VALUE = "has no finite value, and neither has the reference's"  # the end of a reason
UNSTEADY = 1e-3  # relative change; another order of the terms in a parallel sum changes an output far less

RULE = (
    "Every layer is computed again in float64 from the inputs that the framework gave it. R is its residual / its noise floor, "
    "which is measured there; C is the same for its worst group of values (a decade of sizes, and in it an item or an index). "
    "rho is the residual of the model's outputs / the noise of all layers. Every output and every layer has its own "
    "verdict, and the worst counts. "
    "IDENTICAL: the same as the reference's float32 outputs to the last bit. "
    f"EQUAL: R <= {rule.EQUAL_R:g}, C <= {rule.EQUAL_C:g} and rho <= {rule.EQUAL_RHO:g} "
    f"(up to {rule.COHERENT_RHO:g} when every layer was compared and is EQUAL; in a callable that was not captured itself, only "
    f"where its outputs are within {rule.EQUAL_RHO:g} x this noise of what the captured one returned). "
    f"DRIFT, a warning: R <= {rule.DRIFT_R:g}, C <= {rule.DRIFT_C:g}, rho <= {rule.DRIFT_RHO:g}; or findings that another "
    f"precision reproduces, with rho <= {rule.EQUAL_RHO:g} against the noise with that precision in place. "
    "DIFFERENT: more than that, or a named mistake of the port, however small. "
    "INVALID: weights, coverage, shape, dtype or NaN pattern are wrong. UNTESTED: an output of the reference has one value, "
    f"or a relative error of {rule.CAP:g} would not have shown in it, or less than {rule.LEAST_JUDGED:.0%} of outputs or layers "
    "were judged. Without a float64 replay the noise floor is the error of one float32 run, and the limits on the outputs are "
    f"{rule.OWN_EQUAL:g} and {rule.OWN_DRIFT:g}."
)


def compare(
    outputs: Arrays,
    truth: Arrays,
    float32: Arrays,
    spec: Described,
    cases: Sequence[int],
    floors: Mapping[str, Floor] | None = None,
    layers: Layers | None = None,
    constant: Collection[str] | None = None,
    returned: Arrays | None = None,
    rounding_floors: Mapping[str, Floor] | None = None,
    file: str = "",
    cap: float = rule.CAP,
    growth: str = "",
) -> Error:
    """Judge the outputs of one subject. All arrays are named "case/output".

    outputs: what the subject computed, in canonical layout.
    truth: the exact outputs, in float64 (or in the best precision that is available).
    float32: the reference framework's own float32 outputs, or the outputs that are used in their place.
    spec: gives the names and dtypes of the outputs.
    cases: the input cases to compare.
    floors: the noise of all layers in each output; when omitted, the error of ``float32`` is the noise floor.
    layers: what a replay of the subject's framework found; omitted when there was none.
    constant: the result of ``constant_outputs``; computed when omitted.
    returned: what the captured callable returned, when it is another than the one that computed ``outputs``.
    rounding_floors: ``floors`` with the roundings that explain some layers; omitted when none does.
    file: the model file that returned the outputs, for messages; "" where there is none.
    cap: the largest detection limit of an output that counts as judged.
    growth: where the noise grows too large, as a clause.
    """
    expected = [(case, name) for case in cases for name in spec.outputs]
    context = Context(
        modelled=floors is not None,
        layers=layers if layers is not None and layers.compared else None,
        constant=frozenset(constant_outputs(truth, spec, cases) if constant is None else constant),
        borrowed=returned is not None,
        away=_distances(outputs, returned or {}, truth, floors or {}),
        cap=cap,
        growth=growth,
    )
    found = [
        _tensor(case, name, outputs, truth, float32, spec, floors, rounding_floors, file, cap, len(cases))
        for case, name in expected
    ]
    limit = rule.EQUAL_RHO if context.modelled else rule.OWN_EQUAL * rule.EQUAL_C / rule.OWN_GROUP
    tensors = [judged(tensor, context) for tensor in _over_cases(found, limit, cap)]
    strange = _strange(outputs, expected, spec, file)
    judged_tensors, left_out = _without_empty(tensors)
    deciding = [tensor for tensor in judged_tensors if tensor.reason is None or tensor.verdict != Verdict.UNTESTED]
    verdict, reason, share = (Verdict.INVALID, strange[0], None) if strange else conclusion(deciding, context)
    reason = "; ".join(filter(None, (reason, left_out))) or None
    if verdict.fails and len(spec.outputs) > 1:
        swapped = swapped_outputs(outputs, truth, list(spec.outputs), cases)
        reason = f"{swapped}; {reason}" if swapped else reason
    error = _summary(judged_tensors, [each for each in tensors if each.mean_abs is not None], context.modelled)
    return replace(error, verdict=verdict, reason=reason, expected=len(expected), layers=layers, judged=share)


def _summary(tensors: Sequence[TensorError], compared: Sequence[TensorError], modelled: bool) -> Error:
    """The figures of all outputs together. compared: those that have figures. modelled: whether the noise is."""
    return Error(
        verdict=Verdict.EQUAL,
        mean_abs=_mean([tensor.mean_abs for tensor in compared]),
        max_abs=max((tensor.max_abs or 0.0 for tensor in compared), default=None),
        rel_rms=max((tensor.rel_rms or 0.0 for tensor in compared), default=None),
        float32_ratio=max((tensor.float32_ratio or 0.0 for tensor in compared), default=None),
        noise_ratio=max(map(measure, compared)) if compared and modelled else None,
        compared=len(compared),
        tensors=tuple(tensors),
        detection_limit=_detection_limit(tensors, "detection_limit"),
        detection_limit_index=_detection_limit(tensors, "detection_limit_index"),
        detection_limit_value=_detection_limit(tensors, "detection_limit_value"),
    )


def _detection_limit(tensors: Sequence[TensorError], name: str) -> float | None:
    """The largest of this detection limit of the outputs that were judged, or of all where none was; None where none is known."""
    known = [tensor for tensor in tensors if getattr(tensor, name) is not None]
    judged_ones = [tensor for tensor in known if tensor.verdict != Verdict.UNTESTED]
    return max((getattr(tensor, name) for tensor in judged_ones or known), default=None)


def _over_cases(
    found: Sequence[tuple[TensorError, Local | None]], whole_limit: float, cap: float
) -> Iterator[TensorError]:
    """The errors, each with what the indices of its output show in all input cases together.

    The ratio of an index counts in the input case whose own groups differ most, so that it is not taken for that of every case.
    found: the error of each output in each case, and its groups; None where it has none. whole_limit, cap: see ``indices.shown``.
    """
    parts: dict[str, list[Indices]] = {}
    for tensor, groups in found:
        of_cases = [each for each in groups.indices if each.axis] if groups is not None else []
        parts.setdefault(tensor.output, []).extend(of_cases)
    of_output = {name: shown(each, whole_limit, cap) for name, each in parts.items()}
    largest: dict[str, tuple[float, int]] = {}  # of each output: the largest ratio of a case by itself, and the case
    for tensor, groups in found:
        if groups is not None:
            largest[tensor.output] = max(largest.get(tensor.output, (-1.0, 0)), (groups.ratio, tensor.case))
    for tensor, groups in found:
        if groups is None:
            yield tensor
            continue
        every = of_output[tensor.output]
        if largest[tensor.output][1] != tensor.case:
            every = replace(every, ratio=0.0, at="")
        items = shown([each for each in groups.indices if not each.axis], whole_limit, cap)
        worst = max((groups.shown, every), key=lambda each: each.ratio)
        ratio = max(groups.ratio, every.ratio)
        both = (items, every) if groups.indices else (groups.shown,)
        shares = [each.share for each in both if each.share is not None and not groups.partial]
        of_values = [each.value_share for each in both if each.value_share is not None]
        yield replace(
            tensor, local_ratio=ratio, local_at=worst.at if worst.ratio == ratio > 0 else "",
            detection_limit_index=rule.EQUAL_C * max(shares) if shares else None,
            detection_limit_value=rule.EQUAL_C * min(of_values) if of_values else None,
            not_judged=every.not_judged, rounding_alone=every.rounding,
        )  # fmt: skip


def _without_empty(tensors: Sequence[TensorError]) -> tuple[list[TensorError], str]:
    """The same, where outputs without a finite value on both sides are UNTESTED; and a clause that names them, "" for none.

    An output that has no finite value in any input case stays INVALID.
    """
    known = {tensor.output for tensor in tensors if not (tensor.reason or "").endswith(NO_FINITE_VALUE)}
    empty = [each for each in tensors if each.output in known and (each.reason or "").endswith(NO_FINITE_VALUE)]
    if not empty:
        return list(tensors), ""
    names = ", ".join(f"output {each.output!r} of input case {each.case}" for each in empty)
    marked = [replace(each, verdict=Verdict.UNTESTED) if each in empty else each for each in tensors]
    return marked, f"left out, because the reference has no finite value there, and neither has this one: {names}"


def _distances(outputs: Arrays, returned: Arrays, truth: Arrays, floors: Mapping[str, Floor]) -> dict[str, float]:
    """Output -> largest rms distance from what the captured callable returned, / the noise of all layers.

    An output that is missing, has another shape, or is not finite in the same places is infinitely far away.
    """
    found: dict[str, float] = {}
    for key in returned:
        name = key.split("/", 1)[1]
        if key in floors and key in outputs:
            distance = _distance(outputs[key], returned[key], truth[key], floors[key])
            found[name] = max(found.get(name, 0.0), distance)
    return found


def _distance(ours: Array, theirs: Array, exact: Array, floor: Floor) -> float:
    if not ours.shape == theirs.shape == exact.shape:
        return math.inf
    if ours.dtype.kind != "f":
        return 0.0 if np.array_equal(ours, theirs) else math.inf
    if not np.array_equal(np.where(np.isfinite(ours), 0.0, ours), np.where(np.isfinite(theirs), 0.0, theirs), True):
        return math.inf
    found = noise_ratios(ours, theirs, exact, floor)
    return max(found.whole, found.ratio * rule.EQUAL_RHO / rule.EQUAL_C)


def _strange(outputs: Arrays, expected: Iterable[tuple[int, str]], spec: Described, file: str) -> list[str]:
    """A message about outputs that the spec does not name; [] when there are none."""
    keys = {case_key(case, name) for case, name in expected}
    names = sorted({key.split("/", 1)[1] for key in set(outputs) - keys})
    if not names:
        return []
    says = f"returns {', '.join(names)}, which spec.py does not name (it names {', '.join(spec.outputs)})"
    return [f"{file} {says}" if file else says]


def _tensor(
    case: int,
    name: str,
    outputs: Arrays,
    truth: Arrays,
    float32: Arrays,
    spec: Described,
    floors: Mapping[str, Floor] | None,
    rounding_floors: Mapping[str, Floor] | None,
    file: str,
    cap: float,
    cases: int,
) -> tuple[TensorError, Local | None]:
    """Compare one output of one input case, and its groups of values; None where it has none.

    The arguments are those of ``compare``; cases: their number.
    """
    key = case_key(case, name)
    if key not in outputs:
        missing = f"output {name!r} is missing" + (f" from what {file} returns" if file else "")
        return TensorError(
            case, name, reason=f"{missing}: spec.py names {', '.join(spec.outputs)}; None is no output"
        ), None
    ours = outputs[key]
    theirs = in_range(truth[key], ours.dtype)
    if ours.dtype == np.float64:  # what a file of another type says, in float64
        kind = float32[key].dtype
        ours, theirs = in_range(ours, kind), in_range(theirs, kind)
    if ours.shape != theirs.shape:
        reason = f"output {name!r} has shape {ours.shape}, the reference {theirs.shape}"
        return TensorError(case, name, reason=reason), None
    if ours.dtype.name != spec.outputs[name].dtype:
        reason = f"output {name!r} is {ours.dtype.name}, spec.py says {spec.outputs[name].dtype}"
        return TensorError(case, name, reason=reason), None
    if not ours.size:
        known = 0.0 if floors is not None else None
        return TensorError(case, name, 0.0, 0.0, 0.0, 0.0, noise_ratio=known, identical=True), None
    floor, rounding_floor = (None if each is None else each[key] for each in (floors, rounding_floors))
    if ours.dtype.kind != "f":
        return _whole_numbers(case, name, ours, theirs, floor, rounding_floor), None
    return _floating(case, name, ours, theirs, float32[key], floor, rounding_floor, cap, cases)


def _whole_numbers(
    case: int, name: str, ours: Array, theirs: Array, floor: Floor | None, rounding_floor: Floor | None
) -> TensorError:
    """Compare integers or booleans, which have no rounding. mean_abs and rel_rms are the share of values that differ.

    floor: infinite where rounding may change the decision; these values are left out.
    rounding_floor: the share that differs when the explained roundings are in place; None when there are none.
    """
    vague = np.isinf(floor) if isinstance(floor, np.ndarray) else np.zeros(ours.shape, bool)
    differ = (ours != theirs) & ~vague
    different, open_to_rounding = int(np.count_nonzero(differ)), int(np.count_nonzero(vague))
    share = different / ours.size
    ratio = math.inf if different else 0.0
    rounding = None if rounding_floor is None else quotient(share, float(np.mean(rounding_floor)))
    where = np.argwhere(vague)[:TOLD] if vague.ndim else ()
    return TensorError(
        case, name, share, float(different > 0), share, ratio, identical=not different and not open_to_rounding,
        noise_ratio=None if floor is None else ratio, rounding_ratio=rounding, undetermined=open_to_rounding / ours.size,
        undetermined_at=tuple(tuple(int(i) for i in index) for index in where),
    )  # fmt: skip


def _floating(
    case: int,
    name: str,
    ours: Array,
    theirs: Array,
    single: Array,
    floor: Floor | None,
    rounding_floor: Floor | None,
    cap: float,
    cases: int,
) -> tuple[TensorError, Local | None]:
    """Compare floating-point numbers of one shape.

    theirs: the exact values. single: the reference's own float32 values. floor: the noise; None when it is not modelled.
    rounding_floor: the same with the explained roundings in place; None when there are none.
    """
    differences = _differences(ours, theirs, single)
    if differences is None:
        reason = f"output {name!r} has {_count(ours)}, the reference {_count(theirs)}"
        return TensorError(case, name, reason=reason), None
    if not differences.values:
        return TensorError(case, name, reason=f"output {name!r} {NO_FINITE_VALUE}"), None
    beyond = np.isinf(theirs) & np.isfinite(single)
    if beyond.any():
        most = f"{np.abs(single[beyond]).max():.3g}"
        reason = f"output {name!r} is {ours.dtype}, and the reference's values, up to {most}, are beyond its range"
        return TensorError(case, name, reason=reason), None
    size, noise, error = rms(theirs), rms(single, theirs), rms(ours, theirs)
    if not math.isfinite(noise):
        reason = f"output {name!r} of the reference has {_count(single)} in float32, {_count(theirs)} in float64"
        return TensorError(case, name, reason=reason), None
    own = max(noise, rule.UNIT / math.sqrt(3) * size)
    groups = (
        own_ratios(ours, theirs, single, cases)
        if floor is None
        else noise_ratios(ours, theirs, theirs, floor, cap, cases)
    )
    error_of = TensorError(
        case,
        name,
        mean_abs=differences.mean,
        max_abs=differences.largest,
        rel_rms=error / size if size else error,
        float32_ratio=quotient(error, own),
        noise_ratio=None if floor is None else groups.whole,
        identical=differences.identical,
        rounding_ratio=None
        if rounding_floor is None
        else _worst(noise_ratios(ours, theirs, theirs, rounding_floor, cap)),
        local_ratio=groups.ratio,
        detection_limit=rule.EQUAL_C * groups.floor_share,
        detection_limit_worst=rule.EQUAL_C * groups.worst_share,
        undetermined=groups.undetermined_share,
        undetermined_at=groups.where,
    )
    return error_of, groups


class _Differences(NamedTuple):
    """The absolute differences of finite values. identical: whether all values are the float32 ones to the last bit."""

    values: int
    mean: float
    largest: float
    identical: bool


def _differences(ours: Array, theirs: Array, single: Array) -> _Differences | None:
    """Compare values part by part. None where other values are finite, or where an infinite one is another one."""
    values, absolute, largest, identical = 0, [], 0.0, True
    for part in parts(ours, theirs, single):
        identical = identical and np.array_equal(part[0], part[2], equal_nan=True)
        y, right = (array.astype(np.float64) for array in part[:2])
        finite, alike = np.isfinite(right), np.isfinite(y)
        if not (finite.all() and alike.all()):  # rare, and selecting values takes as long as all the rest
            if not np.array_equal(finite, alike) or not np.array_equal(y[~finite], right[~finite], equal_nan=True):
                return None
            y, right = y[finite], right[finite]
        delta = np.abs(y - right)
        values += delta.size
        absolute.append(float(delta.sum()))
        largest = max(largest, float(delta.max(initial=0.0)))
    return _Differences(values, math.fsum(absolute) / max(1, values), largest, identical)


def _worst(groups: Local) -> float:
    """The ratio of all values, or that of the worst group in units of its own limit."""
    return max(groups.whole, groups.ratio * rule.EQUAL_RHO / rule.EQUAL_C)


def constant_outputs(truth: Arrays, spec: Described, cases: Sequence[int]) -> tuple[str, ...]:
    """The outputs that have one value everywhere; all of them where each is the same in all cases. No fault could show in them.

    Beside an output that depends on the inputs, a constant such as a grid is a result like any other.
    """
    keys = {name: [case_key(case, name) for case in cases] for name in spec.outputs}
    single = tuple(name for name, own in keys.items() if _all_same(truth[key] for key in own))
    return tuple(keys) if all(name in single or _is_constant(truth, own) for name, own in keys.items()) else single


def _is_constant(truth: Arrays, keys: Sequence[str]) -> bool:
    return len(keys) > 1 and all(_alike(truth, keys, values) for values in (ratios.PART, None))


def _alike(truth: Arrays, keys: Sequence[str], values: int | None) -> bool:
    """Whether the first values of these arrays are the same. Only one array is in memory at a time.

    values: how many are compared; None for all.
    """
    digests = {hashlib.blake2b(np.ascontiguousarray(truth[key].reshape(-1)[:values]).data).digest() for key in keys}
    return len(digests) == 1


def _all_same(arrays: Iterable[Array]) -> bool:
    """Whether all values of these arrays are the same. It stops at the first value that differs."""
    first = None
    for array in arrays:
        if not array.size:
            continue
        first = array.flat[0] if first is None else first
        if not all(np.array_equal(part, np.full_like(part, first), equal_nan=True) for (part,) in parts(array)):
            return False
    return True


def _count(array: Array) -> str:
    up, down = int(np.isposinf(array).sum()), int(np.isneginf(array).sum())
    return f"{int(np.isnan(array).sum())} NaN, {up} infinite and {down} negative infinite values"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
