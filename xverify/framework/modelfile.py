"""What a format of model files promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model file. shape: a size is None or a name where the file leaves it open; None: unknown rank."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a model file, in its order."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
