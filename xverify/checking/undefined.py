"""Input cases in which nothing can be compared: an output has no value at all, or rounding decides what is selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..results.records import Error, TensorError
from ..results.verdicts import Verdict
from ..weights.canonical import Array

FEW = 4096  # values that are looked at first; most outputs have a finite one among them


def undefined_cases(outputs: Mapping[str, Array], exact: Mapping[str, Array], cases: Sequence[int]) -> dict[int, str]:
    """Case -> the first output that is NaN or infinite everywhere, in the file and in what it is compared with.

    outputs, exact: "case/name" -> array. cases: those that are compared.
    """
    found: dict[int, str] = {}
    for key in exact:
        case, _, name = key.partition("/")
        if int(case) in cases and int(case) not in found and key in outputs and _nowhere(exact[key], outputs[key]):
            found[int(case)] = name
    return found


def told(found: Mapping[int, str]) -> list[str]:
    """A sentence on the cases that are left out; [] when there are none."""
    if not found:
        return []
    names = ", ".join(f"{case} (output {name})" for case, name in sorted(found.items()))
    which = f"input case {names} is" if len(found) == 1 else f"input cases {names} are"
    return [f"{which} left out: no value is finite, in the file and in what it is compared with"]


def _nowhere(exact: Array, own: Array) -> bool:
    """Whether neither of two arrays has a finite value."""
    return all(each.dtype.kind == "f" and each.size > 0 and not _somewhere(each) for each in (exact, own))


def _somewhere(array: Array) -> bool:
    flat = array.reshape(-1)
    return bool(np.isfinite(flat[:FEW]).any() or np.isfinite(flat).any())


def undecided_cases(
    error: Error, undecided: Mapping[str, str], outputs: Mapping[str, Array], exact: Mapping[str, Array]
) -> dict[int, str]:
    """Case -> the decision that explains all that differs in it, and the output; only cases in which something differs.

    undecided: "case/output" -> a decision that rounding may change. It does not explain NaN in outputs whose meaning has none.
    outputs, exact: "case/output" -> array.
    """
    found: dict[int, str] = {}
    for case in {each.case for each in error.tensors}:
        away = [each for each in error.tensors if each.case == case and _differs(each)]
        keys = [f"{case}/{each.output}" for each in away]
        if keys and all(key in undecided and not _only_nan_in(outputs.get(key), exact[key]) for key in keys):
            found[case] = f"{undecided[keys[0]]} (output {away[0].output})"
    return dict(sorted(found.items()))


def _only_nan_in(own: Array | None, exact: Array) -> bool:
    """Whether the first of two arrays has NaN, and the other has none."""
    if own is None or own.dtype.kind != "f" or exact.dtype.kind != "f":
        return False
    return bool(np.isnan(own).any()) and not bool(np.isnan(exact).any())


def told_undecided(found: Mapping[int, str]) -> list[str]:
    """A sentence on each case that is left out because rounding may decide otherwise."""
    return [f"input case {case} is left out: rounding may change {says} there" for case, says in found.items()]


def _differs(tensor: TensorError) -> bool:
    return tensor.verdict is None or tensor.verdict not in (Verdict.IDENTICAL, Verdict.EQUAL, Verdict.UNTESTED)
