"""The comparison of outputs with the reference's: pure functions over arrays.

Copies of all outputs may not fit into memory, so each array is read when it is needed, and processed in parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..results.records import Error, Layers, TensorError
from ..results.verdicts import Verdict
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.spec import ModelSpec
from . import limits as rule
from .swapped import swapped_outputs

Arrays = Mapping[str, Array]

PART = 2**18  # values that are processed at a time: their float64 copies stay in the processor's cache
UNSTEADY = 1e-3  # relative change; another order of the terms in a parallel sum changes an output far less
OWN_EQUAL, OWN_DRIFT = 10.0, 30.0  # limits where the noise floor is the error of one float32 run

RULE = (
    "Every layer is computed again in float64 from the inputs that the framework gave it. R is its residual / its noise floor, "
    "which is measured there; C is the same for its worst channel. rho is the residual of the model's outputs / the noise of all "
    "layers. "
    "IDENTICAL: the same as the reference's float32 outputs to the last bit. "
    f"EQUAL: R <= {rule.EQUAL_R:g}, C <= {rule.EQUAL_C:g} and rho <= {rule.EQUAL_RHO:g} "
    f"(up to {rule.COHERENT_RHO:g} when every layer is EQUAL). "
    f"DRIFT, a warning: R <= {rule.DRIFT_R:g}, C <= {rule.DRIFT_C:g}, rho <= {rule.DRIFT_RHO:g}. DIFFERENT: more than that. "
    "INVALID: weights, coverage, shape, dtype or NaN pattern are wrong. UNTESTED: an output of the reference is constant. Without "
    "a float64 replay the noise floor is the error of one float32 run, and the limits on the outputs are "
    f"{OWN_EQUAL:g} and {OWN_DRIFT:g}."
)


def compare(
    outputs: Arrays,
    truth: Arrays,
    float32: Arrays,
    spec: ModelSpec,
    cases: Sequence[int],
    floors: Mapping[str, float] | None = None,
    layers: Layers | None = None,
    constant: bool | None = None,
) -> Error:
    """Judge the outputs of one subject. All arrays are named "case/output".

    outputs: what the subject computed, in canonical layout.
    truth: the exact outputs, in float64 (or in the best precision that is available).
    float32: the reference framework's own float32 outputs, or the outputs that are used in their place.
    spec: gives the names and dtypes of the outputs.
    cases: the input cases to compare.
    floors: rms of the noise of all layers in each output; when omitted, the error of ``float32`` is the noise floor.
    layers: what a replay of the subject's framework found; omitted when there was none.
    constant: the result of ``is_constant``; computed when omitted.
    """
    expected = [(case, name) for case in cases for name in spec.outputs]
    tensors = [_tensor(case, name, outputs, truth, float32, spec, floors) for case, name in expected]
    compared = [tensor for tensor in tensors if tensor.mean_abs is not None]
    worst = max(compared, key=_measure, default=None)
    rho = math.inf if worst is None else _measure(worst)
    problems = [*_strange(outputs, expected, spec), *(tensor.reason for tensor in tensors if tensor.reason)]
    verdict: Verdict
    reason: str | None
    if problems:
        verdict, reason = Verdict.INVALID, problems[0]
    elif is_constant(truth, spec, cases) if constant is None else constant:
        verdict = Verdict.UNTESTED
        reason = "an output of the reference is the same for every input: no fault could show in it"
    elif all(tensor.identical for tensor in compared):
        verdict, reason = Verdict.IDENTICAL, None
    elif floors is None:
        verdict, reason = _without_noise_model(rho, worst)
    else:
        verdict, reason = _with_layers(rho, worst, layers)
    if verdict.fails and len(spec.outputs) > 1:
        swapped = swapped_outputs(outputs, truth, list(spec.outputs), cases)
        reason = f"{swapped}; {reason}" if swapped else reason
    return Error(
        verdict=verdict,
        reason=reason,
        mean_abs=_mean([tensor.mean_abs for tensor in compared]),
        max_abs=max((tensor.max_abs or 0.0 for tensor in compared), default=None),
        rel_rms=max((tensor.rel_rms or 0.0 for tensor in compared), default=None),
        float32_ratio=max((tensor.float32_ratio or 0.0 for tensor in compared), default=None),
        noise_ratio=rho if compared and floors is not None else None,
        compared=len(compared),
        expected=len(expected),
        tensors=tuple(tensors),
        layers=layers,
    )


def unsteady(outputs: Arrays, again: Arrays) -> float:
    """The largest relative difference, in rms, between the outputs of two calls on the same input.

    outputs, again: the outputs of the two calls, by name. Only floating-point outputs that both have in one shape are compared.
    """
    worst = 0.0
    for key in again:
        if key not in outputs or outputs[key].shape != again[key].shape or outputs[key].dtype.kind != "f":
            continue
        squares = [
            (float(np.square(a.astype(np.float64) - b).sum()), float(np.square(b, dtype=np.float64).sum()))
            for a, b in _parts(outputs[key], again[key])
        ]
        change, size = (math.fsum(column) for column in zip(*squares))
        if size and math.isfinite(change):
            worst = max(worst, math.sqrt(change / size))
    return worst


def _strange(outputs: Arrays, expected: Iterable[tuple[int, str]], spec: ModelSpec) -> list[str]:
    """A message about outputs that the spec does not name; [] when there are none."""
    keys = {case_key(case, name) for case, name in expected}
    names = sorted({key.split("/", 1)[1] for key in set(outputs) - keys})
    if not names:
        return []
    return [f"returns {', '.join(names)}, which spec.py does not name (it names {', '.join(spec.outputs)})"]


def _without_noise_model(ratio: float, worst: TensorError | None) -> tuple[Verdict, str | None]:
    """The verdict where the error of one float32 run is the noise floor, and its reason unless it is EQUAL."""
    if ratio <= OWN_EQUAL:
        return Verdict.EQUAL, None
    verdict = Verdict.DRIFT if ratio <= OWN_DRIFT else Verdict.DIFFERENT
    return verdict, f"{_place(worst)} is {ratio:.3g} x float32's own (limit {OWN_EQUAL:g})"


def _with_layers(rho: float, worst: TensorError | None, layers: Layers | None) -> tuple[Verdict, str | None]:
    """The verdict on the layers and the outputs together, and its reason unless it is EQUAL."""
    first = layers.first if layers is not None and layers.compared else None
    verdict = rule.classify_output(rho, None if layers is None or not layers.compared else layers.verdict)
    if layers is not None and layers.rounding:
        verdict = Verdict.DRIFT  # another precision is a warning, however much it changes the outputs
    if verdict == Verdict.EQUAL:
        return verdict, None
    if first is not None and first.verdict == verdict:
        assert layers is not None
        others = [layers.describe(layer) for layer in layers.layers if layer is not first and layer.explanation]
        return verdict, "; ".join([layers.describe(first), *others[:2]])
    limit = rule.EQUAL_RHO if verdict == Verdict.DRIFT else rule.DRIFT_RHO
    reason = f"{_place(worst)} is {rho:.3g} x the noise of all layers (limit {limit:g})"
    if layers is not None and layers.compared and first is None:
        reason += "; every layer that was compared is EQUAL"
    return verdict, reason


def _place(tensor: TensorError | None) -> str:
    return f"{tensor.output}, case {tensor.case}: error" if tensor is not None else "error"


def _measure(tensor: TensorError) -> float:
    ratio = tensor.float32_ratio if tensor.noise_ratio is None else tensor.noise_ratio
    return math.inf if ratio is None else ratio


def _tensor(
    case: int,
    name: str,
    outputs: Arrays,
    truth: Arrays,
    float32: Arrays,
    spec: ModelSpec,
    floors: Mapping[str, float] | None,
) -> TensorError:
    """Compare one output of one input case."""
    key = case_key(case, name)
    if key not in outputs:
        return TensorError(case, name, reason=f"output {name!r} is missing: spec.py names {', '.join(spec.outputs)}")
    ours, theirs = outputs[key], truth[key]
    if ours.shape != theirs.shape:
        return TensorError(case, name, reason=f"output {name!r} has shape {ours.shape}, the reference {theirs.shape}")
    if ours.dtype.name != spec.outputs[name].dtype:
        reason = f"output {name!r} is {ours.dtype.name}, spec.py says {spec.outputs[name].dtype}"
        return TensorError(case, name, reason=reason)
    if ours.dtype.kind != "f":
        return _whole_numbers(case, name, ours, theirs)
    return _floating(case, name, ours, theirs, float32[key], None if floors is None else floors[key])


def _whole_numbers(case: int, name: str, ours: Array, theirs: Array) -> TensorError:
    """Compare integers or booleans, which have no rounding. mean_abs and rel_rms are the share of values that differ."""
    different = int(np.count_nonzero(ours != theirs))
    share = different / ours.size
    ratio = math.inf if different else 0.0
    return TensorError(case, name, share, float(different > 0), share, ratio, identical=not different)


def _floating(case: int, name: str, ours: Array, theirs: Array, single: Array, floor: float | None) -> TensorError:
    """Compare floating-point numbers of one shape.

    theirs: the exact values. single: the reference's own float32 values. floor: rms of the noise; None when it is not modelled.
    """
    values, absolute, largest, identical = 0, [], 0.0, True
    squares: list[tuple[float, ...]] = []  # sums for each part: of the exact values, of float32's error, of our error
    for part in _parts(ours, theirs, single):
        identical = identical and np.array_equal(part[0], part[2], equal_nan=True)
        y, right, rounded = (array.astype(np.float64) for array in part)
        finite, alike = np.isfinite(right), np.isfinite(y)
        if not (finite.all() and alike.all()):  # rare, and selecting values takes as long as all the rest
            if not np.array_equal(finite, alike) or not np.array_equal(y[~finite], right[~finite], equal_nan=True):
                reason = f"output {name!r} has {_count(ours)}, the reference {_count(theirs)}"
                return TensorError(case, name, reason=reason)
            y, right, rounded = y[finite], right[finite], rounded[finite]
        delta = np.abs(y - right)
        values += delta.size
        absolute.append(float(delta.sum()))
        largest = max(largest, float(delta.max(initial=0.0)))
        squares.append(tuple(float(np.square(array).sum()) for array in (right, rounded - right, delta)))
    if not values:
        return TensorError(case, name, reason=f"output {name!r} has no finite value, and neither has the reference's")
    size, noise, error = (math.sqrt(math.fsum(column) / values) for column in zip(*squares))
    if not math.isfinite(noise):
        reason = f"output {name!r} of the reference has {_count(single)} in float32, {_count(theirs)} in float64"
        return TensorError(case, name, reason=reason)
    own = max(noise, rule.UNIT / math.sqrt(3) * size)
    return TensorError(
        case,
        name,
        mean_abs=math.fsum(absolute) / values,
        max_abs=largest,
        rel_rms=error / size if size else error,
        float32_ratio=_quotient(error, own),
        noise_ratio=None if floor is None else _quotient(error, floor),
        identical=identical,
    )


def _quotient(error: float, floor: float) -> float:
    return error / floor if floor else (0.0 if error == 0 else math.inf)


def is_constant(truth: Arrays, spec: ModelSpec, cases: Sequence[int]) -> bool:
    """Whether an output has one value everywhere, or is the same in all cases, so that no fault could show in it."""
    for name in spec.outputs:
        keys = [case_key(case, name) for case in cases]
        if _all_same(truth[key] for key in keys):
            return True
        if len(keys) > 1 and all(_alike(truth, keys, values) for values in (PART, None)):
            return True
    return False


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
        first = array.flat[0] if first is None else first
        if not all(np.array_equal(part, np.full_like(part, first), equal_nan=True) for (part,) in _parts(array)):
            return False
    return True


def _parts(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """The next ``PART`` values of every array; the arrays have one shape."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PART):
        yield tuple(array[start : start + PART] for array in flat)


def _count(array: Array) -> str:
    up, down = int(np.isposinf(array).sum()), int(np.isneginf(array).sum())
    return f"{int(np.isnan(array).sum())} NaN, {up} infinite and {down} negative infinite values"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
