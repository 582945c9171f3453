"""Are these outputs those of the reference? Pure functions over arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from . import protocol
from .records import Error, TensorError
from .spec import ModelSpec

UNIT = 2.0**-24  # half a unit in the last place of 1.0 in float32
EQUAL_RATIO = 10.0

RULE = (
    f"EQUAL: every expected output is there with its shape, dtype and NaN pattern, and rms(y - y_ref) is at most {EQUAL_RATIO:g} x "
    "the reference framework's own float32 error on the same weights and inputs (or the rounding of y itself where that is more). "
    "DIFFERENT: above it. INVALID: weights, coverage, shape, dtype or NaN pattern wrong. UNTESTED: a constant reference output."
)


def compare(
    outputs: Mapping[str, np.ndarray],
    truth: Mapping[str, np.ndarray],
    float32: Mapping[str, np.ndarray],
    spec: ModelSpec,
    cases: int,
) -> Error:
    """Judge one row's outputs.

    outputs: "case/name" -> what the subject computed, in canonical layout. truth: the same in float64 (or the best there
    is); float32: what stands for the reference framework's own float32 result.
    """
    expected = [(case, name) for case in range(cases) for name in spec.outputs]
    keys = {protocol.key(case, name) for case, name in expected}
    tensors = [_tensor(case, name, outputs, truth, float32, spec) for case, name in expected]
    compared = [tensor for tensor in tensors if tensor.mean_abs is not None]
    reasons = [tensor.reason for tensor in tensors if tensor.reason]
    strange = sorted({key.split("/", 1)[1] for key in set(outputs) - keys})
    if strange:
        reasons.insert(
            0, f"returns {', '.join(strange)}, which spec.py does not name (it names {', '.join(spec.outputs)})"
        )
    worst = max((tensor.float32_ratio or 0.0 for tensor in compared), default=math.inf)
    if reasons:
        verdict, reason = "INVALID", reasons[0]
    elif _constant(truth, expected):
        verdict, reason = "UNTESTED", "an output of the reference is constant: no fault could show in it"
    elif worst <= EQUAL_RATIO:
        verdict, reason = "EQUAL", None
    else:
        where = max(compared, key=lambda tensor: tensor.float32_ratio or 0.0)
        verdict = "DIFFERENT"
        reason = f"{where.output}, case {where.case}: error is {worst:.3g} x float32's own (limit {EQUAL_RATIO:g})"
    return Error(
        verdict=verdict,
        reason=reason,
        mean_abs=_mean([tensor.mean_abs for tensor in compared]),
        max_abs=max((tensor.max_abs or 0.0 for tensor in compared), default=None),
        rel_rms=max((tensor.rel_rms or 0.0 for tensor in compared), default=None),
        float32_ratio=worst if compared else None,
        compared=len(compared),
        expected=len(expected),
        tensors=tuple(tensors),
    )


def _tensor(
    case: int,
    name: str,
    outputs: Mapping[str, np.ndarray],
    truth: Mapping[str, np.ndarray],
    float32: Mapping[str, np.ndarray],
    spec: ModelSpec,
) -> TensorError:
    key = protocol.key(case, name)
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
        return TensorError(case, name, share, float(different > 0), share, math.inf if different else 0.0)
    finite = np.isfinite(theirs)
    if not np.array_equal(finite, np.isfinite(ours)) or not np.array_equal(np.isnan(theirs), np.isnan(ours)):
        return TensorError(
            case,
            name,
            reason=f"output {name!r} has {_count(ours)}, the reference {_count(theirs)}",
        )
    if not finite.any():
        return TensorError(case, name, reason=f"output {name!r} has no finite value, in the reference neither")
    reference = theirs[finite].astype(np.float64)
    delta = np.abs(ours[finite] - reference)
    size = _rms(reference)
    floor = max(_rms(single[finite] - reference), UNIT / math.sqrt(3) * size)
    error = _rms(delta)
    return TensorError(
        case,
        name,
        mean_abs=float(delta.mean()),
        max_abs=float(delta.max()),
        rel_rms=error / size if size else error,
        float32_ratio=error / floor if floor else (0.0 if error == 0 else math.inf),
    )


def _constant(truth: Mapping[str, np.ndarray], expected: list[tuple[int, str]]) -> bool:
    names = {name for _, name in expected}
    for name in names:
        values = [truth[protocol.key(case, name)] for case, other in expected if other == name]
        if all(np.array_equal(value, np.full_like(value, values[0].flat[0]), equal_nan=True) for value in values):
            return True
    return False


def _count(array: np.ndarray) -> str:
    return f"{int(np.isnan(array).sum())} NaN and {int(np.isinf(array).sum())} infinite values"


def _rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
