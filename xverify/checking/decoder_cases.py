"""Inputs of the file of a decoder, drawn so that the cache, the mask and the positions fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..framework.decodernames import MASKS, OF_CACHE, OF_TOKENS, POSITIONS, USES, words
from ..framework.modelfile import Tensor
from ..weights.canonical import Array
from ..workload import probe

BEFORE, TOKENS = 8, 8  # tokens in the cache, and after them
PADDED_MASK, PLACES, TRUE = "mask of a decoder", "positions of a decoder", "use of a cache"  # kinds of inputs
KINDS = (PADDED_MASK, PLACES, TRUE)
KEPT_IN = ("float", "bfloat16", "int8", "uint8")  # beginnings of the types of a tensor of a cache
MOST_PADDING = 0.5  # share of the tokens in the cache; the first ones of a row are padding


@dataclass(frozen=True)
class Decoding:
    """The inputs of a decoder.

    tokens: name of the input. before, count: number of tokens in the cache and after them.
    mask, positions, uses: "" where there is none. past: the tensors of the cache.
    """

    tokens: str
    before: int
    count: int
    mask: str
    positions: str
    uses: str
    past: tuple[str, ...]

    def kind(self, name: str) -> str:
        """What an input is; "" for one that is drawn like any other."""
        return {self.mask: PADDED_MASK, self.positions: PLACES, self.uses: TRUE, "": ""}.get(name, "")

    def says(self) -> str:
        """What is drawn, as a sentence."""
        others = len(self.past) - 1
        cache = f"{self.past[0]} and {others} more" if others else self.past[0]
        parts = [f"{self.before} tokens in the cache ({cache})", f"{self.count} after them"]
        if self.mask:
            parts.append(f"the first ones of some rows of {self.mask} are padding")
        if self.positions:
            parts.append(f"{self.positions} go on from those of the cache")
        if self.uses:
            parts.append(f"{self.uses} is true")
        return f"{self.tokens}: taken for the tokens of a decoder: {'; '.join(parts)}; give others with --shape or --inputs"


def fitted(
    tensors: Sequence[Tensor], shapes: Mapping[str, tuple[int, ...]], new: int = TOKENS
) -> tuple[list[Tensor], Decoding | None]:
    """The inputs with the sizes that must fit together, and what they are; None where they are not those of a decoder.

    shapes: --shape, which comes before what is chosen here. new: number of tokens behind the cache.
    """
    by_name = {each.name: each for each in tensors}
    past = {each.name: axis for each in tensors for axis in _tokens_axis(each)}
    mask, positions, uses = (
        next((name for name in known if name in by_name), "") for known in (MASKS, POSITIONS, USES)
    )
    wide = [each.name for each in tensors if each.dtype in ("int64", "int32") and len(each.shape or ()) == 2]
    tokens = next((name for name in wide if name not in (mask, positions, *past)), "")
    if not past or not tokens:
        return list(tensors), None
    first, axis = next(iter(past.items()))
    open_axis = (by_name[first].shape or ())[axis]
    alike = [name for name, place in past.items() if (by_name[name].shape or ())[place] == open_axis]
    first = next((name for name in alike if name in shapes), first)
    axis = past[first]
    before = _size(by_name[first], axis, shapes, BEFORE)
    count = _size(by_name[tokens], 1, shapes, new)
    sizes = {tokens: (1, count), positions: (1, count), mask: (1, before + count)}
    sizes |= {name: (axis, before) for name, axis in past.items()}
    found = [
        _sized(each, *sizes[each.name]) if each.name in sizes and each.name not in shapes else each for each in tensors
    ]
    total = _size(next((each for each in found if each.name == mask), by_name[tokens]), 1, shapes, before + count)
    fits = not mask or total == before + count
    return found, Decoding(tokens, before, count, mask if fits else "", positions, uses, tuple(past))


def misfit(tensors: Sequence[Tensor], shapes: Mapping[str, Sequence[int | str | None] | None]) -> str:
    """A sentence on the first input of a decoder whose size does not fit that of another one; "" where all fit.

    tensors: the inputs of the file. shapes: input -> the shape that it is given.
    """
    _, decoder = fitted(tensors, {})
    if decoder is None:
        return ""
    by_name = {each.name: each for each in tensors}
    axes = {name: axis for name in decoder.past for axis in _tokens_axis(by_name[name])}
    first, tokens = decoder.past[0], decoder.tokens
    before, (rows, count) = (shapes[first] or ())[axes[first]], (shapes[tokens] or ())[:2]
    for name, axis in axes.items():
        own, declared = shapes[name] or (), by_name[name].shape or ()
        if declared[axis] == (by_name[first].shape or ())[axes[first]] and own[axis] != before:
            return f"{name} holds {own[axis]} tokens, and {first} {before}: the tensors of a cache hold equally many"
        batch = (by_name[tokens].shape or ())[0]
        held = own[declared.index(batch) if batch in declared else 0]
        if held != rows:
            return f"{name} has {held} rows, and {tokens} {rows}: a row is a sequence"
    for name, width in ((decoder.mask, int(before or 0) + int(count or 0)), (decoder.positions, count)):
        if name and (shapes[name] or (width,))[-1] != width:
            says = f"there are {before} tokens in the cache and {count} after them"
            return f"{name} has {(shapes[name] or ())[-1]} tokens, and needs {width}: {says}"
    return ""


def widened(tensors: Sequence[Tensor], widths: Mapping[str, int]) -> list[Tensor]:
    """The inputs, those of a cache with the size of a head where the file leaves it open. widths: see ``GraphDescribed``."""
    return [
        _sized(each, len(each.shape or ()) - 1, widths[each.name]) if each.name in widths else each for each in tensors
    ]


def values(kind: str, shape: tuple[int, ...], before: int, padded: bool, seed: int, case: int) -> Array:
    """The values of an input of one of the kinds.

    before: number of tokens in the cache. padded: whether some of them are padding in this case.
    """
    if kind == TRUE:
        return np.ones(shape)
    rows, count = shape[0], shape[-1]
    random = probe.generator(seed, f"case {case}: padding")
    padding = random.integers(0, int(MOST_PADDING * before) + 1, (rows, 1)) if padded else np.zeros((rows, 1), np.int64)
    if kind == PADDED_MASK:
        return (np.arange(count) >= padding).astype(np.int64)
    return before + np.arange(count) - padding


def _tokens_axis(tensor: Tensor) -> Iterator[int]:
    """The axis of tokens of a tensor of a cache; none of another input."""
    if not tensor.dtype.startswith(KEPT_IN) or not OF_CACHE & set(words(tensor.name)):
        return
    opened = [axis for axis, size in enumerate(tensor.shape or ()) if axis and not isinstance(size, int)]
    named = [axis for axis in opened if OF_TOKENS.search(str(tensor.shape[axis] or ""))] if tensor.shape else []
    yield from (named or opened)[:1] if len(named or opened) == 1 else ()


def _size(tensor: Tensor, axis: int, shapes: Mapping[str, tuple[int, ...]], usual: int) -> int:
    given = shapes.get(tensor.name, tensor.shape or ())
    size = given[axis] if axis < len(given) else None
    return size if isinstance(size, int) else usual


def _sized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """The tensor with this size of an axis that the file leaves open."""
    shape = tensor.shape or ()
    if axis >= len(shape) or isinstance(shape[axis], int):
        return tensor
    return replace(tensor, shape=(*shape[:axis], size, *shape[axis + 1 :]))
