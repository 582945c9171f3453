"""Explains a node that differs by the precision of its products: TF32, bfloat16 or float16 in the place of float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from ....float64.precision import ROUNDED
from ....results.verdicts import Verdict
from ....verdict.findings import Explanation, Finding
from ...tensors import Floors, Place, judge
from ..layers import WEIGHTS
from ..model import Node
from ..operators.registry import Call
from ..operators.table import find
from ..values import Value, exact_of, is_float, tensor

FACTORS = (0, 1)  # the inputs that are multiplied


def explained(
    finding: Finding, place: Place, node: Node, inputs: Sequence[Value | None], found: Tensor, floors: Floors, axis: int
) -> Finding:
    """The finding on the first output of a node, with the precision that reproduces it when there is one.

    found: what the runtime returned. floors: the exact value with its noise.
    """
    plain = all(value is None or not value.is_float or value.dtype == np.float32 for value in inputs)
    implementation = find(node) if node.op in WEIGHTS and len(inputs) >= len(FACTORS) else None
    if finding.verdict == Verdict.EQUAL or finding.reason is not None or implementation is None or not plain:
        return finding
    names = []
    for name, rounded in ROUNDED.items():
        arguments = exact_of(inputs)
        # The factors are rounded; a bias is added to the products in float32.
        for index in FACTORS:
            if is_float(arguments[index]):
                arguments[index] = rounded(tensor(arguments[index])).numpy()
        exact = tensor(Call.of(node, inputs).outputs(implementation, arguments)[place.index])
        if judge(place, found, floors.of(exact), finding.terms, axis).verdict == Verdict.EQUAL:
            names.append(name)
    if not names:
        return finding
    # Numbers of the size of 1 are the same in float16 and in TF32.
    text = " or ".join(names)
    says = f"rounds its weights and inputs to {text}, and the file says float32"
    return replace(finding, rounding=Explanation(f"{text} arithmetic", says, rounding=True))
