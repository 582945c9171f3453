"""The precision in which a captured framework computed: its unit roundoff, and the reference's own layers at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..framework.capture import LayerCall
from ..verdict.limits import UNIT, UNITS

# Type of numbers -> what its results may lose because they are too small: float32 is flushed to zero by some frameworks.
SMALLEST = {torch.float32: 2.0**-126, torch.bfloat16: 2.0**-126, torch.float16: 2.0**-24}


@dataclass(frozen=True)
class Precision:
    """The precision of a captured training step.

    name: "float32", "bfloat16" or "float16".
    outputs: layers with an output in that precision. touched: layers with an input or an output in it.
    loss_scale: what the loss of the captured step was multiplied by. The captured gradients have been divided by it.
    """

    name: str = "float32"
    outputs: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()
    loss_scale: float = 1.0

    @classmethod
    def of(cls, name: str, records: Iterable[LayerCall], loss_scale: float) -> Precision:
        """The precision of a step, with what the captured layers took and returned."""
        narrow = [each for each in records if UNITS.get(name, UNIT) > UNIT]
        outputs = frozenset(each.name for each in narrow if each.output_dtype == name)
        touched = outputs | {each.name for each in narrow if each.input_dtype == name}
        return cls(name, outputs, touched, loss_scale)

    @property
    def is_mixed(self) -> bool:
        """Whether it is lower than float32."""
        return self.name in UNITS

    @property
    def unit(self) -> float:
        """The unit roundoff of the run, by which glue code is judged."""
        return UNITS.get(self.name, UNIT)

    def forward_unit(self, layer: str) -> float:
        """The unit roundoff of what a layer returns."""
        return self.unit if layer in self.outputs else UNIT

    def backward_unit(self, layer: str) -> float:
        """The unit roundoff of the gradients that a layer computes, which have the dtypes of its inputs and outputs."""
        return self.unit if layer in self.touched else UNIT

    def autocast(self, unit: float | None = None) -> AbstractContextManager[Any]:
        """A context in which torch's float32 layers compute as under autocast. unit: nothing is changed where it is float32's."""
        if not self.is_mixed or unit == UNIT:
            return nullcontext()
        return torch.autocast("cpu", getattr(torch, self.name), cache_enabled=False)


FLOAT32 = Precision()


# -- rounding to a precision ---------------------------------------------------------------------------------------------


def _to_tf32(tensor: Tensor) -> Tensor:
    """Round to TF32, which keeps ten bits of the fraction of float32."""
    bits = tensor.float().view(torch.int32)
    return (((bits + 0x1000) // 0x2000) * 0x2000).view(torch.float32).to(tensor.dtype)


def _to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor.to(dtype).to(tensor.dtype)


# Name of a precision -> the function that rounds to it.
ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "float16": _to(torch.float16),
    "bfloat16": _to(torch.bfloat16),
    "TF32": _to_tf32,
}
