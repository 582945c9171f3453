"""Requests to the worker of a reference for which a model folder is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..framework.outline import Outlined
from .codec import Request


@dataclass(frozen=True)
class Example:
    """One example input. name: "" where it has none. low, high: the least and the greatest value of whole numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class InputsRead:
    """What the code says of the inputs of a model.

    examples: those of ``example_inputs``. annotated: parameter -> the text in its annotation ``Annotated[Tensor, text]``.
    """

    examples: tuple[Example, ...] = ()
    annotated: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadInputs(Request[InputsRead]):
    """Read the example inputs of a file, and the annotations of the model that is built.

    file: the Python file. name: of a function or value in it; "" for none. project: a folder from which the file may import.
    """

    file: str
    name: str
    project: str


@dataclass(frozen=True)
class Outline(Request[Outlined]):
    """Tell the operations of the model in a pass on the first case of these inputs. inputs: an array file."""

    inputs: str
