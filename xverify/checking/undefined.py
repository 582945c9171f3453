"""Input cases for which an output has no value at all, such as 0/0 for zeros: nothing can be compared there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

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
