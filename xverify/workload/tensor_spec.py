"""The description of one tensor in the spec of a model."""

from __future__ import annotations

from dataclasses import dataclass

from . import fields
from .arguments import Arguments

BATCH = "N"  # the size of a batch axis in a shape


@dataclass(frozen=True)
class TensorSpec(Arguments):
    """One input or output of a model, in canonical (torch's) layout.

    shape: the sizes of the axes; ``"N"`` stands for the batch size, e.g. ``("N", 3, 224, 224)``. Another word is the name of an
        axis, of which ``ModelSpec`` has the size, e.g. ``("N", "seq")``, and ``"seq // 2"`` is computed from it.
    dtype: numpy's name of the dtype, e.g. ``"float32"`` or ``"int64"``.
    low, high: random inputs are uniform in [low, high). Without them, floats are standard normal. Integer inputs need both.
    layout: the names of the axes, e.g. ``"NCHW"``. Images are then converted for a framework with another native layout
        (TensorFlow: NHWC). Without it, arrays keep the order of their axes.
    ignore_index: of a target, a label that a loss ignores: about one value in eight is drawn as this one.
    Raises SpecError for values that contradict each other.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None
    layout: str | None = None
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", fields.shape(self.shape, BATCH))
        fields.dtype(self.dtype)
        fields.limits(self.low, self.high, self.dtype, f"shape {self.shape}")
        fields.layout(self.layout, self.shape)

    def sized(self, batch: int) -> tuple[int, ...]:
        """The shape for this batch size. The shape has no names of axes: those of a ModelSpec have their sizes in place of them."""
        return tuple(batch if size == BATCH else int(size) for size in self.shape)

    @property
    def integers(self) -> tuple[int, int]:
        """The range of an integer tensor, which always has one: the lowest value, and the highest value plus one."""
        return int(self.low or 0), int(self.high or 0)
