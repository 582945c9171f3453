"""Finds the implementation of an operator. It imports every file of operators, so that they are registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Node
from . import (  # noqa: F401
    attention,
    contrib,
    control,
    convolution,
    elementwise,
    experts,
    few_bits,
    fourier,
    grouped_attention,
    matrix,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduction,
    resize,
    rest,
    rotary,
    shape,
)
from .registry import OPERATORS, Call, Operator


def find(node: Node) -> Operator | None:
    """The implementation of a node's operator: ours, else onnx's; None when there is none."""
    if node.domain == "" and node.op in rest.RANDOM:
        raise node.unsupported("is random, so it has no exact value")
    own = OPERATORS.get((node.domain, node.op))
    if own is not None:
        return own
    return rest.compute if rest.implementation(node.domain, node.op, node.version) is not None else None


def computed(node: Node, arguments: Sequence[Any]) -> list[Any]:
    """The exact outputs of one node by itself. Raises UnsupportedOperator."""
    implementation = find(node)
    if implementation is None:
        raise node.unsupported("has no implementation in float64")
    return Call.of(node).outputs(implementation, arguments)
