"""Operators that runtimes compute by an approximation with a fixed absolute precision: results near 0 have few digits.

ONNX Runtime's Sigmoid on x86 is one: its error is up to 3 units of 2^-24 whatever the result. Below an input of about -17 the
result is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....float64.operations import ENDS
from ....verdict.findings import APPROXIMATION, Explanation
from ....verdict.limits import UNIT
from ....verdict.sizes import rms
from ..model import Node
from ..operators.registry import MICROSOFT

# Operator -> the size that its error is relative to, of the same shape as its input.
SIZES: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("", "Sigmoid"): np.ones_like,
    ("", "Gelu"): np.abs,
    ("", "Swish"): np.abs,
    (MICROSOFT, "Gelu"): np.abs,
    (MICROSOFT, "FastGelu"): np.abs,
    (MICROSOFT, "QuickGelu"): np.abs,
}
# Recurrent operators whose gates are sigmoids, so that their outputs have that error. Measured on 96 LSTMs of up to 50 steps with
# large weights: values below 1e-4 were at most 3.6 units of 2^-24 away.
GATED = frozenset({"LSTM", "GRU"})
LIMIT = 4 * UNIT  # the largest error that counts as an approximation, of its size
ERROR = 2 * UNIT  # the error that an approximation is modelled with; every value has it, up or down
USUAL = UNIT  # the error that counts as rounding in every file, as in a model (see _torch_operations.APPROXIMATED)


def approximation(node: Node, x: Any, exact: Any, found: Any) -> Explanation | None:
    """The explanation of a result that differs from the exact one by an absolute precision; None where it does not fit.

    x: the first input. exact, found: of the same shape.
    """
    size = SIZES.get((node.domain, node.op))
    if size is None or np.shape(x) != np.shape(exact):
        return None
    error = np.abs(np.asarray(found, np.float64) - exact)
    return APPROXIMATION if bool(np.all(error <= LIMIT * size(x))) else None


def errors(node: Node, x: Any) -> Any:
    """The size of the error of an approximated operator, of the same shape as its input; to be multiplied with noise."""
    return ERROR * _size(node, x)


def usual_errors(node: Node, x: Any, outputs: Sequence[Any]) -> list[Any]:
    """The part of it that counts as rounding, which is small beside the outputs; [] for an operator that is not approximated."""
    if node.domain == "" and node.op in GATED:
        return [np.full_like(each, USUAL * min(1.0, rms(each))) for each in outputs]
    if (node.domain, node.op) not in SIZES:
        return []
    return [USUAL * np.minimum(_size(node, x), rms(outputs[0]))]


def _size(node: Node, x: Any) -> Any:
    return np.where(np.abs(x) < ENDS, SIZES[node.domain, node.op](x), 0.0)
