"""Images that a port pads before a layer, where the reference's layer pads them itself, or crops behind a layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.replaced import replaced
from .layout import distance
from .positions import CONVOLUTIONS, Part

Pads = tuple[tuple[int, int], ...]  # (before, behind) of each spatial axis

CLOSE = 1e-3  # relative distance of an image that is only rounded otherwise
MOST_CROPPED = 16  # rows of one axis, also of those that a port leaves to its layer to pad
POOLS = (nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd)


@dataclass(frozen=True)
class PaddedImage:
    """A captured image that is larger than the reference's, in the reference's layout.

    captured: what the framework's layer was given.
    whole: the same tensor in the reference's layout.
    inside: the part that corresponds to the reference's image.
    problem: how the padding differs from that of the reference's layer; "" when the layer computes the same from it.
    """

    captured: Tensor
    whole: Tensor
    inside: Tensor
    problem: str


def padded_image(
    captured: Sequence[Tensor],
    exact: Tensor,
    layer: nn.Module,
    channels_last: bool,
    only: Callable[[Part], bool],
) -> PaddedImage | None:
    """The captured tensor that is this image of the reference with padding around it; None where there is none.

    only: tells whether the reference uses no positions of the layer's output but these.
    """
    if not isinstance(layer, (*CONVOLUTIONS, *POOLS)) or exact.dim() < 3:
        return None
    geometry = _Geometry.of(layer, exact)
    for tensor, whole, extra in _larger(captured, exact, channels_last):
        if max(extra) == 0 or any(e > 2 * k for e, k in zip(extra, geometry.kernel)):
            continue
        offsets = _offsets(whole, exact, extra, [before for before, _ in geometry.pads])
        inside = _crop(whole, offsets, exact.shape[2:])
        pads = tuple((before, more - before) for before, more in zip(offsets, extra))
        return PaddedImage(
            tensor,
            whole,
            inside,
            geometry.problem(pads, only if isinstance(layer, CONVOLUTIONS) else None)
            or _wrong_border(layer, whole, inside, geometry, pads),
        )
    return None


def unpadded_image(
    captured: Sequence[Tensor], exact: Tensor, layer: nn.Module, channels_last: bool
) -> tuple[Tensor, Tensor] | None:
    """The captured tensor that is this image of the reference without the zeros around it, and the same tensor with them.

    The reference pads before the layer, and the port's layer itself. Returns None where there is no such tensor.
    """
    if not isinstance(layer, (*CONVOLUTIONS, *POOLS)) or exact.dim() < 3:
        return None
    for tensor in captured:
        whole = tensor.movedim(-1, 1) if channels_last and tensor.dim() == exact.dim() else tensor
        if whole.dim() != exact.dim() or whole.shape[:2] != exact.shape[:2] or 0 in whole.shape:
            continue
        pads = [more - size for more, size in zip(exact.shape[2:], whole.shape[2:])]
        if min(pads) < 0 or max(pads) > MOST_CROPPED:
            continue
        parts = (Part(starts, tuple(whole.shape[2:])) for starts in itertools.product(*(range(n + 1) for n in pads)))
        inside = [part for part in parts if not part.filled(exact, torch.zeros_like(whole, dtype=exact.dtype)).any()]
        if inside:
            best = min(inside, key=lambda part: distance(whole, part.of(exact)))
            return tensor, best.filled(exact.to(whole.dtype), whole)
    return None


def cropped_image(
    captured: Sequence[Tensor], exact: Tensor, layer: nn.Module, channels_last: bool
) -> tuple[Tensor, Tensor] | None:
    """A captured result that is larger than the reference's, and the part of it that is the reference's result.

    For example, a port crops the result of a transposed convolution that has no padding. Returns None where no part of a result is
    near the exact one.
    """
    if not isinstance(layer, (nn.modules.conv._ConvNd, *POOLS)) or exact.dim() < 3:
        return None
    for tensor, whole, extra in _larger(captured, exact, channels_last):
        if max(extra) > MOST_CROPPED:
            continue
        offsets = _offsets(whole, exact, extra, [more // 2 for more in extra])
        part = _crop(whole, offsets, exact.shape[2:])
        if distance(part, exact) < CLOSE * float(exact.norm()):
            return tensor, part.contiguous()
    return None


def _larger(
    captured: Sequence[Tensor], exact: Tensor, channels_last: bool
) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
    """The captured tensors that are at least as large as an image: as captured, in its layout, and the rows more on each axis."""
    for tensor in captured:
        whole = tensor.movedim(-1, 1).contiguous() if channels_last and tensor.dim() == exact.dim() else tensor
        if whole.dim() == exact.dim() and whole.shape[:2] == exact.shape[:2]:
            extra = [more - size for more, size in zip(whole.shape[2:], exact.shape[2:])]
            if min(extra) >= 0:
                yield tensor, whole, extra


@dataclass(frozen=True)
class _Geometry:
    """The sizes of a layer for one image, each by spatial axis.

    kernel: extent of the kernel, dilation included.
    pads: what the reference's layer pads.
    """

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pads: Pads

    @staticmethod
    def of(layer: Any, exact: Tensor) -> _Geometry:
        axes = exact.dim() - 2
        sides = [_each(getattr(layer, key, 1), axes) for key in ("kernel_size", "stride", "dilation")]
        if isinstance(layer, CONVOLUTIONS):
            flat = layer._reversed_padding_repeated_twice  # the last axis first
            pads = tuple((flat[2 * i], flat[2 * i + 1]) for i in reversed(range(axes)))
        else:
            pads = tuple((pad, pad) for pad in _each(layer.padding, axes))
        kernel = tuple(dilation * (size - 1) + 1 for size, dilation in zip(sides[0], sides[2]))
        return _Geometry(tuple(exact.shape[2:]), kernel, sides[1], pads)

    def used(self) -> list[int]:
        """The rows of the padded image that the layer reads; with a stride, the last ones may be left over."""
        padded = [size + sum(pad) for size, pad in zip(self.image, self.pads)]
        return [(size - k) // stride * stride + k for size, k, stride in zip(padded, self.kernel, self.stride)]

    def problem(self, pads: Pads, only: Callable[[Part], bool] | None) -> str:
        """How other pads differ; "" when the layer reads the same rows and returns as many.

        only: it may also return a part of them, which is the first one or of which this is true; None: it may not.
        """
        mine, whole = self._results(pads), self._results(self.pads)
        skipped = self.skipped(pads)
        if mine == whole and not any(skipped):
            return ""
        starts = [rows // stride for rows, stride in zip(skipped, self.stride)]
        inside = all(start >= 0 and start + size <= more for start, size, more in zip(starts, mine, whole))
        on_grid = all(rows % stride == 0 for rows, stride in zip(skipped, self.stride))
        if only is not None and inside and on_grid and (not any(starts) or only(Part(tuple(starts), mine))):
            return ""
        return f"the port pads its image by {_written(pads)} (before and behind each axis), the reference by {_written(self.pads)}"

    def skipped(self, pads: Pads) -> list[int]:
        """The rows before the image that these pads lack."""
        return [own[0] - pad[0] for own, pad in zip(self.pads, pads)]

    def _results(self, pads: Pads) -> tuple[int, ...]:
        """The sizes of what the layer returns for an image with these pads."""
        padded = (size + sum(pad) for size, pad in zip(self.image, pads))
        return tuple((size - k) // stride + 1 for size, k, stride in zip(padded, self.kernel, self.stride))


def _each(value: Any, axes: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def _written(pads: Pads) -> str:
    return ", ".join(f"{before} and {behind}" for before, behind in pads)


def _crop(whole: Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
    return _part(whole, [slice(start, start + size) for start, size in zip(offsets, sizes)])


def _part(image: Tensor, sides: Sequence[slice]) -> Tensor:
    index = (..., *sides)
    return image[index]


def _offsets(whole: Tensor, exact: Tensor, extra: Sequence[int], expected: Sequence[int]) -> tuple[int, ...]:
    """Where the reference's image begins: where the reference's layer expects it, unless it fits far better elsewhere."""
    usual = tuple(min(before, more) for before, more in zip(expected, extra))
    size = float(exact.norm()) or 1.0

    def off(offsets: Sequence[int]) -> float:
        found = distance(_crop(whole, offsets, exact.shape[2:]), exact) / size
        return found if math.isfinite(found) else math.inf

    if off(usual) < CLOSE:
        return usual
    best = min(itertools.product(*(range(more + 1) for more in extra)), key=off)
    return best if off(best) < 0.1 * off(usual) else usual


def _wrong_border(layer: Any, whole: Tensor, inside: Tensor, geometry: _Geometry, pads: Pads) -> str:
    """How the values of a right padding differ from those that the reference's layer pads with; "" when they do not."""
    used = [slice(0, rows) for rows in geometry.used()]
    flat = [pad for pads in reversed(geometry.pads) for pad in pads]
    mode = getattr(layer, "padding_mode", "zeros")
    if mode == "zeros":
        border = -math.inf if isinstance(layer, nn.modules.pooling._MaxPoolNd) else 0.0
        right = nn.functional.pad(inside, flat, value=border)
    else:
        right = nn.functional.pad(inside, flat, mode=mode)
    given, right = whole, _part(_part(right, used), [slice(rows, None) for rows in geometry.skipped(pads)])
    given = _part(given, [slice(0, rows) for rows in right.shape[2:]])
    if given.shape != right.shape:  # rows behind the image that the reference pads and the port leaves out are not used
        sides = [slice(0, min(a, b)) for a, b in zip(given.shape[2:], right.shape[2:])]
        given, right = _part(given, sides), _part(right, sides)
    wrong = given != right
    if isinstance(layer, nn.modules.pooling._MaxPoolNd) and bool(wrong.any()):
        wrong &= given > inside.min()  # a smaller value is never a maximum
    if not bool(wrong.any()):
        return ""
    values = given[wrong]
    low, high = float(values.min()), float(values.max())
    return f"the port pads its image with values from {low:.3g} to {high:.3g}, the reference with {mode}"


@contextmanager
def without_padding(*layers: nn.Module) -> Iterator[None]:
    """The layers do not pad within the context."""
    with ExitStack() as changes:
        for layer in layers:
            paddings = {key: value for key, value in vars(layer).items() if "padding" in key}
            changes.enter_context(replaced(layer, **{key: _none(layer, key, value) for key, value in paddings.items()}))
        yield


def _none(layer: Any, key: str, value: Any) -> Any:
    """The value of an attribute of a layer that does not pad. value: of the layer that pads."""
    if key == "padding_mode":
        return "zeros"
    if isinstance(value, (tuple, list)):
        return type(value)(0 for _ in value)
    return (0,) * len(layer.kernel_size) if isinstance(value, str) else 0
