"""A second pass that adds a zero to every value that a first pass recorded: the gradient of a zero is that of the value.

Frameworks without gradients with respect to values inside of a function find the gradients of layers in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .structures import is_tensor, map_leaves


class Adding:
    """Takes the place of a TrainingRecorder, and adds one of these zeros to each tensor that it aliases, in the same order.

    floats: whether a tensor is one of floating-point numbers; only these have gradients.
    """

    def __init__(self, zeros: Iterable[Any], floats: Callable[[Any], bool]) -> None:
        self.zeros, self.floats = iter(zeros), floats

    def enter(self, name: str, arguments: Any) -> tuple[None, Any]:
        """The arguments with which to call a layer."""
        return None, self._added(arguments)

    def leave(self, record: None, outputs: Any) -> Any:
        """The outputs that the layer has to return."""
        return self._added(outputs)

    def _added(self, values: Any) -> Any:
        known: dict[int, Any] = {}

        def change(value: Any) -> Any:
            if not is_tensor(value):
                return value
            if id(value) not in known:
                known[id(value)] = value + next(self.zeros) if self.floats(value) else value
            return known[id(value)]

        return map_leaves(values, change)
