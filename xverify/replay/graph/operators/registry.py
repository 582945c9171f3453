"""Where operators are listed, and what one computation of an operator is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..model import Node
from ..values import Value, array, convert

Operator = Callable[..., Any]
OPERATORS: dict[tuple[str, str], Operator] = {}  # (domain, operator) -> its implementation
CONTROL: dict[
    str, Operator
] = {}  # operator with subgraphs -> a function of the evaluation, the node, its inputs and its scope
MICROSOFT = "com.microsoft"
# Operators whose implementation is a sequence of torch's operations. Their rounding is that of each of these.
COMPOSED: set[tuple[str, str]] = {("", "Softmax"), ("", "LogSoftmax"), ("", "ReduceLogSumExp")}


@dataclass(frozen=True)
class Call:
    """One computation of a node.

    node: the node. Its attributes are not perturbed; ``attributes`` are.
    attributes: the attributes of the node, perturbed in a perturbed pass.
    dtype: the type of new floating-point values: float64 in an exact or perturbed pass, else float32.
    jitter: relative perturbation of constants that the operator derives, such as the ratio of a resize; 0 in an exact pass.
    types: declared types of the inputs.
    spread: random numbers within ± the given sizes, for what a runtime may round more than the types say; None in an exact pass.
    """

    node: Node
    attributes: Mapping[str, Any]
    dtype: Any
    jitter: float = 0.0
    types: tuple[Any, ...] = ()
    spread: Callable[[Any], Any] | None = None

    @classmethod
    def of(cls, node: Node, inputs: Sequence[Value | None] = (), dtype: Any = np.float64) -> Call:
        """The computation of a node without perturbations. inputs: in all passes; they tell the declared types."""
        return cls(node, node.attributes, dtype, 0.0, types_of(inputs))

    def outputs(self, implementation: Operator, arguments: Sequence[Any]) -> list[Any]:
        """The outputs of an implementation as arrays, those of floating-point types in ``dtype``."""
        with torch.no_grad(), np.errstate(all="ignore"):
            found = implementation(self, *present(arguments))
        several = found if isinstance(found, tuple) else (found,)
        return [convert(array(data), self.dtype) for data in several]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default."""
        return self.attributes.get(name, default)


def types_of(inputs: Sequence[Value | None]) -> tuple[Any, ...]:
    """The declared types of inputs."""
    return tuple(None if value is None else value.dtype for value in inputs)


def present(arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments without those that are left out at the end."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    return arguments


def operator(*names: str, domain: str = "", composed: bool = False) -> Callable[[Operator], Operator]:
    """Register an implementation: a function of a Call and the inputs, which returns one output or a tuple of outputs.

    composed: see ``COMPOSED``.
    """

    def register(function: Operator) -> Operator:
        for name in names:
            OPERATORS[domain, name] = function
            if composed:
                COMPOSED.add((domain, name))
        return function

    return register


def control(name: str) -> Callable[[Operator], Operator]:
    """Register an operator with subgraphs: a function of an Evaluation, the node, its inputs and its Scope."""

    def register(function: Operator) -> Operator:
        CONTROL[name] = function
        return function

    return register
