"""The operations of a model in the order of their execution, from which a first port is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One operation of a pass.

    name: of the module; "" for a function. kind: the class of the module, or the name of the function.
    settings: of a module, attribute -> value; of a function, its arguments that are no tensors. They are JSON values.
    inputs: the steps whose results it takes, by index; -1 is the first input of the model, -2 the second one.
    shape: of its result; () where it is no tensor.
    """

    name: str
    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def says(self) -> str:
        """The step in words: ``fc1 (Linear)``."""
        return f"{self.name} ({self.kind})" if self.name else self.kind


@dataclass(frozen=True)
class Outlined:
    """The operations of a model.

    steps: of its graph; where it has none, the calls of its modules, without what lies between them.
    outputs: the steps whose results the model returns, numbered as ``Step.inputs`` are.
    problem: why it has no graph; "" when it has one.
    """

    steps: tuple[Step, ...]
    outputs: tuple[int, ...] = ()
    problem: str = ""
