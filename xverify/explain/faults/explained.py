"""Faults that an explanation tries and no mutation plants: other settings of convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .changes import combined, with_attributes, with_input, with_output
from .fault import PortFault

DILATIONS = (1, 2, 3, 4, 6, 8)


def explained_only(layer: nn.Module) -> Iterator[PortFault]:
    """The faults of a layer that only an explanation tries."""
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        yield from _transposed(layer)
    elif isinstance(layer, nn.modules.conv._ConvNd):
        yield from _dilation(layer)
        if isinstance(layer.padding, tuple):
            yield from _padding(layer)


def _plain(values: tuple[int, ...]) -> str:
    """Settings of several axes in words: one number where all are the same."""
    return str(values[0]) if len(set(values)) == 1 else f"({', '.join(map(str, values))})"


def _dilation(layer: Any) -> Iterator[PortFault]:
    """Another dilation, with the padding that keeps the size of the result, and with the reference's padding."""
    right, kernel = tuple(layer.dilation), tuple(layer.kernel_size)
    if max(kernel) == 1:
        return
    others = [(value,) * len(right) for value in DILATIONS]
    for other in dict.fromkeys([*others, right[::-1]]):
        if other == right:
            continue
        says = f"has dilation {_plain(other)}; the reference {_plain(right)}"
        if isinstance(layer.padding, tuple):
            more = [(d - own) * (k - 1) for d, own, k in zip(other, right, kernel)]
            kept = tuple(padding + each // 2 for padding, each in zip(layer.padding, more))
            if min(kept) >= 0 and not any(each % 2 for each in more) and layer.padding_mode == "zeros":
                yield PortFault("dilation", says, with_attributes(dilation=other, padding=kept))
        yield PortFault("dilation", says, with_attributes(dilation=other))


def _padding(layer: Any) -> Iterator[PortFault]:
    """Padding by the size of the input, and zeros in the place of another padding."""
    none = (0,) * len(layer.padding)

    def same(x: Tensor) -> Tensor:
        sides: list[int] = []  # F.pad takes the last axis first
        settings = zip(x.shape[2:], layer.kernel_size, layer.stride, layer.dilation)
        for size, kernel, stride, dilation in reversed(list(settings)):
            total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
            sides += [total // 2, total - total // 2]
        return F.pad(x, sides)

    if layer.padding_mode == "zeros":
        yield PortFault(
            "asymmetric padding",
            f'pads each axis by its size, as "same" does; the reference by {_plain(layer.padding)} on both sides',
            combined(with_attributes(padding=none), with_input(same)),
        )
    elif any(layer.padding):
        yield PortFault(
            "padding mode",
            f"pads by zeros; the reference by {layer.padding_mode}",
            with_attributes(padding_mode="zeros"),
        )


def _transposed(layer: Any) -> Iterator[PortFault]:
    """The part of the result that "same" keeps, and no output padding."""
    padding, more = tuple(layer.padding), tuple(layer.output_padding)
    none = (0,) * len(padding)
    settings = list(zip(layer.kernel_size, layer.stride, layer.dilation))
    totals = [dilation * (kernel - 1) + 1 - stride for kernel, stride, dilation in settings]
    if min(totals) >= 0:

        def kept(y: Tensor) -> Tensor:
            for axis, total in enumerate(totals, start=y.dim() - len(totals)):
                y = y.narrow(axis, total // 2, y.shape[axis] - total)
            return y

        before = tuple(total // 2 for total in totals)
        behind = tuple(total - total // 2 for total in totals)
        own = tuple(side - extra for side, extra in zip(padding, more))
        yield PortFault(
            "asymmetric padding",
            f'leaves out {_plain(before)} before and {_plain(behind)} behind each axis of its result, as "same" does; '
            f"the reference {_plain(padding)} and {_plain(own)}",
            combined(with_attributes(padding=none, output_padding=none), with_output(kept)),
        )
    if any(more):
        yield PortFault(
            "output padding",
            f"has no output padding; the reference has {_plain(more)}",
            with_attributes(output_padding=none),
        )
