"""Are these outputs those of the reference? Pure functions over arrays.

Outputs may be larger than memory has room for copies of: each is looked up when its turn comes, and worked on in parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..results.records import Error, Layers, TensorError
from ..workload.keys import case_key
from ..workload.spec import ModelSpec
from . import limits as rule

PART = 2**18  # values worked on at a time: their float64 copies stay in the processor's cache
UNSTEADY = 1e-3  # far above what the order of a parallel sum does
OWN_EQUAL, OWN_DRIFT = 10.0, 30.0  # where the floor is one float32 run's error alone, not modelled noise

RULE = (
    "Every layer is computed again in float64 from what the framework gave it, and its residual divided by a floor of rounding "
    "measured there: R of the layer, C of its worst channel. rho is the same for the model's outputs, over the noise of all "
    "layers. IDENTICAL: bit for bit the reference's float32 outputs. "
    f"EQUAL: R <= {rule.EQUAL_R:g}, C <= {rule.EQUAL_C:g} and rho <= {rule.EQUAL_RHO:g} "
    f"(up to {rule.COHERENT_RHO:g} when every layer is EQUAL). "
    f"DRIFT, a warning: R <= {rule.DRIFT_R:g}, C <= {rule.DRIFT_C:g}, rho <= {rule.DRIFT_RHO:g}. DIFFERENT: more. "
    "INVALID: weights, coverage, shape, dtype or NaN pattern wrong. UNTESTED: a constant reference output. Without a float64 "
    f"replay the floor is one float32 run's own error, and the limits are {OWN_EQUAL:g} and {OWN_DRIFT:g}."
)


def compare(
    outputs: Mapping[str, np.ndarray],
    truth: Mapping[str, np.ndarray],
    float32: Mapping[str, np.ndarray],
    spec: ModelSpec,
    cases: Sequence[int],
    floors: Mapping[str, float] | None = None,
    layers: Layers | None = None,
    constant: bool | None = None,
) -> Error:
    """Judge one row.

    outputs: "case/name" -> what the subject computed on these cases, in canonical layout. truth: the same in float64 (or the
    best there is). float32: what stands for the reference framework's own float32 result. floors: "case/name" -> rms of the
    noise of all layers; None: it was not modelled, and the error of ``float32`` is the floor. layers: what a replay of the
    subject's framework found. constant: what ``is_constant`` says of the truth, where that is known.
    """
    expected = [(case, name) for case in cases for name in spec.outputs]
    keys = {case_key(case, name) for case, name in expected}
    tensors = [_tensor(case, name, outputs, truth, float32, spec, floors) for case, name in expected]
    compared = [tensor for tensor in tensors if tensor.mean_abs is not None]
    reasons = [tensor.reason for tensor in tensors if tensor.reason]
    strange = sorted({key.split("/", 1)[1] for key in set(outputs) - keys})
    if strange:
        reasons.insert(
            0, f"returns {', '.join(strange)}, which spec.py does not name (it names {', '.join(spec.outputs)})"
        )
    worst = max(compared, key=_measure, default=None)
    rho = math.inf if worst is None else _measure(worst)
    if reasons:
        verdict, reason = "INVALID", reasons[0]
    elif is_constant(truth, spec, cases) if constant is None else constant:
        verdict, reason = (
            "UNTESTED",
            "an output of the reference is the same for every input: no fault could show in it",
        )
    elif all(tensor.identical for tensor in compared):
        verdict, reason = "IDENTICAL", None
    elif floors is None:
        verdict = "EQUAL" if rho <= OWN_EQUAL else "DRIFT" if rho <= OWN_DRIFT else "DIFFERENT"
        reason = None if verdict == "EQUAL" else f"{_place(worst)} is {rho:.3g} x float32's own (limit {OWN_EQUAL:g})"
    else:
        verdict, reason = _with_layers(rho, worst, layers)
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


def unsteady(outputs: Mapping[str, np.ndarray], again: Mapping[str, np.ndarray]) -> float:
    """By which part of its size an output differs from that of another call on the same input, at most."""
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


def _with_layers(rho: float, worst: TensorError | None, layers: Layers | None) -> tuple[str, str | None]:
    """The verdict of a replay and of the outputs together, and the reason of any but EQUAL."""
    first = layers.first if layers is not None and layers.compared else None
    verdict = rule.classify_output(rho, None if layers is None or not layers.compared else layers.verdict)
    if layers is not None and layers.rounding:
        verdict = "DRIFT"  # however far it moves the outputs
    if verdict == "EQUAL":
        return verdict, None
    if first is not None and first.verdict == verdict:
        assert layers is not None
        others = [layer.says() for layer in layers.layers if layer is not first and layer.explanation]
        return verdict, "; ".join([first.says(), *others[:2]])
    limit = rule.EQUAL_RHO if verdict == "DRIFT" else rule.DRIFT_RHO
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
    outputs: Mapping[str, np.ndarray],
    truth: Mapping[str, np.ndarray],
    float32: Mapping[str, np.ndarray],
    spec: ModelSpec,
    floors: Mapping[str, float] | None,
) -> TensorError:
    key = case_key(case, name)
    if key not in outputs:
        return TensorError(case, name, reason=f"output {name!r} is missing: spec.py names {', '.join(spec.outputs)}")
    ours, theirs, single = outputs[key], truth[key], float32[key]
    if ours.shape != theirs.shape:
        return TensorError(case, name, reason=f"output {name!r} has shape {ours.shape}, the reference {theirs.shape}")
    if ours.dtype.name != spec.outputs[name].dtype:
        return TensorError(
            case, name, reason=f"output {name!r} is {ours.dtype.name}, spec.py says {spec.outputs[name].dtype}"
        )
    if ours.dtype.kind != "f":
        different = int(np.count_nonzero(ours != theirs))
        share = different / ours.size
        ratio = math.inf if different else 0.0
        return TensorError(case, name, share, float(different > 0), share, ratio, identical=not different)
    values, absolute, largest, identical = 0, [], 0.0, True
    squares: list[tuple[float, ...]] = []  # of the reference, of its float32 error, of ours
    for part in _parts(ours, theirs, single):
        identical = identical and np.array_equal(part[0], part[2], equal_nan=True)
        y, right, rounded = (array.astype(np.float64) for array in part)
        finite, alike = np.isfinite(right), np.isfinite(y)
        if not (finite.all() and alike.all()):  # rare, and picking values takes as long as all the rest
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
        return TensorError(case, name, reason=f"output {name!r} has no finite value, in the reference neither")
    size, noise, error = (math.sqrt(math.fsum(column) / values) for column in zip(*squares))
    if not math.isfinite(noise):
        return TensorError(
            case,
            name,
            reason=f"output {name!r} of the reference has {_count(single)} in float32, {_count(theirs)} in float64",
        )
    own = max(noise, rule.UNIT / math.sqrt(3) * size)
    return TensorError(
        case,
        name,
        mean_abs=math.fsum(absolute) / values,
        max_abs=largest,
        rel_rms=error / size if size else error,
        float32_ratio=_quotient(error, own),
        noise_ratio=None if floors is None else _quotient(error, floors[key]),
        identical=identical,
    )


def _quotient(error: float, floor: float) -> float:
    return error / floor if floor else (0.0 if error == 0 else math.inf)


def is_constant(truth: Mapping[str, np.ndarray], spec: ModelSpec, cases: Sequence[int]) -> bool:
    """Whether an output is one value, or the same on every one of several cases: no fault could show in it."""
    for name in spec.outputs:
        keys = [case_key(case, name) for case in cases]
        if _all_same(truth[key] for key in keys):
            return True
        if len(keys) > 1 and all(_alike(truth, keys, values) for values in (PART, None)):
            return True
    return False


def _alike(truth: Mapping[str, np.ndarray], keys: Sequence[str], values: int | None) -> bool:
    """Whether so many first values of these arrays, None for all, are the same. No two arrays are held at once."""
    digests = {hashlib.blake2b(np.ascontiguousarray(truth[key].reshape(-1)[:values]).data).digest() for key in keys}
    return len(digests) == 1


def _all_same(arrays: Iterable[np.ndarray]) -> bool:
    """Whether one value is all that these arrays hold. Looks no further than the first other one."""
    first = None
    for array in arrays:
        first = array.flat[0] if first is None else first
        if not all(np.array_equal(part, np.full_like(part, first), equal_nan=True) for (part,) in _parts(array)):
            return False
    return True


def _parts(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Arrays of one shape, ``PART`` values of each at a time."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PART):
        yield tuple(array[start : start + PART] for array in flat)


def _count(array: np.ndarray) -> str:
    up, down = int(np.isposinf(array).sum()), int(np.isneginf(array).sum())
    return f"{int(np.isnan(array).sum())} NaN, {up} infinite and {down} negative infinite values"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
