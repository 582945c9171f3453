"""Where operators are listed, and what one computation of an operator is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model import Node

Operator = Callable[..., Any]
OPERATORS: dict[tuple[str, str], Operator] = {}  # (domain, operator) -> its implementation
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Call:
    """One computation of a node.

    node: the node. Its attributes are not perturbed; ``attributes`` are.
    attributes: the attributes of the node, perturbed in a perturbed pass.
    dtype: the type of new floating-point values: float64 in an exact or perturbed pass, else float32.
    jitter: relative perturbation of constants that the operator derives, such as the ratio of a resize; 0 in an exact pass.
    types: declared types of the inputs.
    """

    node: Node
    attributes: Mapping[str, Any]
    dtype: Any
    jitter: float = 0.0
    types: tuple[Any, ...] = ()

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default."""
        return self.attributes.get(name, default)


def operator(*names: str, domain: str = "") -> Callable[[Operator], Operator]:
    """Register an implementation: a function of a Call and the inputs, which returns one output or a tuple of outputs."""

    def register(function: Operator) -> Operator:
        for name in names:
            OPERATORS[domain, name] = function
        return function

    return register
