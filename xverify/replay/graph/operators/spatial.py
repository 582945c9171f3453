"""What operators with a sliding window share: their windows and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .registry import Call


@dataclass(frozen=True)
class Windows:
    """The windows of an operator along each spatial axis.

    kernel, strides, dilations: sizes and steps. begin, end: padding; negative padding crops. outputs: number of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def sides(self) -> list[int]:
        """The padding as torch takes it: before and after each axis, the last axis first."""
        return [side for pair in zip(reversed(self.begin), reversed(self.end)) for side in pair]

    def part(self, x: Tensor, axis: int, at: int) -> Tensor:
        """What all windows along a spatial axis, the first of which is 0, see at one position of the kernel."""
        start, stride = at * self.dilations[axis], self.strides[axis]
        return x[(slice(None),) * (axis + 2) + (slice(start, start + (self.outputs[axis] - 1) * stride + 1, stride),)]


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """The windows for an image of these sizes."""
    rank = len(sizes)
    strides = tuple(call.get("strides") or [1] * rank)
    dilations = tuple(call.get("dilations") or [1] * rank)
    spans = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, kernel)]
    automatic, ceil = call.get("auto_pad", "NOTSET"), bool(call.get("ceil_mode", 0))
    if automatic.startswith("SAME"):
        outputs = [-(-size // stride) for size, stride in zip(sizes, strides)]
        total = [
            max(0, (out - 1) * stride + span - size) for out, stride, span, size in zip(outputs, strides, spans, sizes)
        ]
        begin, end = halves(total, upper=automatic == "SAME_UPPER")
    else:
        pads = [0] * (2 * rank) if automatic == "VALID" else call.get("pads") or [0] * (2 * rank)
        begin, end = list(pads[:rank]), list(pads[rank:])
        outputs = []
        for size, before, after, span, stride in zip(sizes, begin, end, spans, strides):
            room = size + before + after - span
            count = (-(-room // stride) if ceil else room // stride) + 1
            # A window that would begin behind the image and its first padding is left out.
            if ceil and (count - 1) * stride >= size + before:
                count -= 1
            outputs.append(count)
    return Windows(tuple(kernel), strides, dilations, tuple(begin), tuple(end), tuple(outputs))


def halves(total: Sequence[int], upper: bool) -> tuple[list[int], list[int]]:
    """The padding of each axis in two parts: before and after it. upper: whether an odd one has more after it."""
    less, more = [pad // 2 for pad in total], [pad - pad // 2 for pad in total]
    return (less, more) if upper else (more, less)
