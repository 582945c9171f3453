"""The known mistakes of decoders, in the order in which they are tried, each in words that complete "behaves as if"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from xverify.framework.adapter import Array
from xverify.framework.decoding import Decoder, Mistake, Way

from .decoder_mistakes import (
    Held,
    Masked,
    Mistaken,
    Placed,
    Reordered,
    Routed,
    Stale,
    TakenBack,
    Unrotated,
    Windowed,
    tensors,
)  # fmt: skip
from .decoding import TorchDecoder

Tried = Iterator[tuple[Mistake, Decoder]]
Part = tuple[
    str, Callable[[str], bool]
]  # (the name of a part of a cache, whether a tensor with this path belongs to it)


def mistakes(right: TorchDecoder, way: Way, tokens: Array, more: Sequence[Array]) -> Tried:
    """(a mistake, a decoder that makes it) of all that a way can show; the first one is none. tokens, more: of a first call."""
    yield Mistake(""), Mistaken(right)
    if right.offers.positions:
        yield from _positions(right, way)
    if right.offers.mask:
        yield from _masks(right, way)
    if not way.chunks:
        yield from _routers(right, way, tokens, more)
        return
    if isinstance(getattr(getattr(right.model, "config", None), "sliding_window", None), int):
        yield Mistake("the window was one token shorter"), Windowed(right, -1)
        yield Mistake("the window was one token longer"), Windowed(right, 1)
    cache = right.call(tokens[:, :1], right.new_cache(way.cache, tokens.shape[1]) if way.cache else None, more=more)[1]
    parts = list(parts_of([path for path, _ in tensors(cache)]))
    if way.back:
        yield from _taken_back(right, way, parts)
    if way.reorder:
        for name, part in parts:
            yield Mistake(f"{name} did not change places with the sequences"), Reordered(right, part)
    yield Mistake("the cache held keys that are not rotated"), Unrotated(right)
    yield Mistake("the tokens of single steps were not added to the cache"), Stale(right, True)
    yield Mistake("the tokens of single steps were not added to the cache, nor counted"), Stale(right, False)
    for name, dtype in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        yield Mistake(f"the cache was rounded to {name}", rounds=True), Held(right, _rounding(dtype), later=True)
    yield from _held(right, way, parts)


def _routers(right: TorchDecoder, way: Way, tokens: Array, more: Sequence[Array]) -> Tried:
    """Mistakes in the choice of experts, of a model that has routers."""
    found: list[Any] = []

    def note(logits: Any, weights: Any, chosen: Any) -> tuple[Any, Any]:
        found.append(logits)
        return weights, chosen

    Routed(right, note).call(tokens[:, :1], None, keep=False, more=more)
    if not found:
        return

    def fewer(logits: Any, weights: Any, chosen: Any) -> tuple[Any, Any]:
        kept = weights[:, :-1]
        return kept * (weights.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True)), chosen[:, :-1]

    def plain(logits: Any, weights: Any, chosen: Any) -> tuple[Any, Any]:
        return logits.softmax(-1).gather(-1, chosen), chosen

    def more_of_them(logits: Any, weights: Any, chosen: Any) -> tuple[Any, Any]:
        best, others = logits.softmax(-1).topk(min(chosen.shape[-1] + 1, logits.shape[-1]), -1)
        return best * (weights.sum(-1, keepdim=True) / best.sum(-1, keepdim=True)), others

    def lowest(logits: Any, weights: Any, chosen: Any) -> tuple[Any, Any]:
        return weights, (-logits).topk(chosen.shape[-1], -1)[1]

    yield Mistake("every token went to one expert less"), Routed(right, fewer)
    yield Mistake("every token went to one expert more"), Routed(right, more_of_them)
    yield Mistake("the weights of the chosen experts did not add up to 1"), Routed(right, plain)
    swapped = Routed(right, lambda logits, weights, chosen: (weights.flip(-1), chosen))
    yield Mistake("the chosen experts had each other's weights, the best one the smallest"), swapped
    equal = Routed(right, lambda logits, weights, chosen: (weights.mean(-1, keepdim=True).expand_as(weights), chosen))
    yield Mistake("all chosen experts had the same weight"), equal
    yield Mistake("the experts with the lowest scores were chosen"), Routed(right, lowest)


def _positions(right: TorchDecoder, way: Way) -> Tried:
    def places(true: Array, past: int) -> Array:
        return np.broadcast_to(np.arange(past, past + true.shape[1]), true.shape)

    if way.padding:
        yield Mistake("positions counted the padding"), Placed(right, places)
        if way.chunks:
            later = Placed(right, lambda true, past: places(true, past) if past else true)
            yield Mistake("positions after a cache counted the padding"), later
        yield (
            Mistake("all sequences had the positions of the first one"),
            Placed(right, lambda true, past: np.broadcast_to(true[:1], true.shape)),
        )
        yield Mistake("positions were one too large"), Placed(right, lambda true, past: true + 1)
    if way.chunks:
        yield Mistake("positions began at 0 in every call"), Placed(right, lambda true, past: places(true, 0))
        yield (
            Mistake("positions after a cache were one too large"),
            Placed(right, lambda true, past: true + int(past > 0)),
        )
        yield (
            Mistake("positions after a cache were one too small"),
            Placed(right, lambda true, past: np.maximum(true - int(past > 0), 0)),
        )
        yield (
            Mistake("positions after a cache did not go on"),
            Placed(right, lambda true, past: np.minimum(true, way.chunks[0])),
        )


def _masks(right: TorchDecoder, way: Way) -> Tried:
    def rolled(true: Array | None, past: int, shape: tuple[int, ...]) -> Array | None:
        return None if true is None else np.concatenate([true[:, 1:], true[:, -1:]], 1) | true

    if way.padding:
        yield Mistake("padding was not masked"), Masked(right, lambda true, past, shape: _all(past, shape))
        if way.chunks:
            yield (
                Mistake("padding was masked in the first call alone"),
                Masked(right, lambda true, past, shape: _all(past, shape) if past else true),
            )
        yield Mistake("the last token of the padding was not masked"), Masked(right, rolled)
        yield (
            Mistake("all sequences had the mask of the first one"),
            Masked(right, lambda true, past, shape: None if true is None else np.repeat(true[:1], len(true), 0)),
        )
        return
    if way.chunks:
        yield (
            Mistake("calls with a cache did not see the oldest token"),
            Masked(right, lambda true, past, shape: _all(past, shape, hidden=slice(0, int(past > 0)))),
        )
        yield (
            Mistake("calls with a cache did not see the newest token of the cache"),
            Masked(right, lambda true, past, shape: _all(past, shape, hidden=slice(max(past - 1, 0), past))),
        )
        yield (
            Mistake("tokens of a call with a cache saw later ones of this call"),
            Masked(right, lambda true, past, shape: _causal(past, shape, shape[1]) if past else true),
        )
        yield (
            Mistake("the causal mask of a call began at the oldest token of the cache"),
            Masked(right, lambda true, past, shape: _causal(past, shape, 0) if past else true),
        )


def _all(past: int, shape: tuple[int, ...], hidden: slice = slice(0)) -> Array:
    """A mask that shows all tokens but the hidden ones."""
    mask = np.ones((shape[0], past + shape[1]), np.int64)
    mask[:, hidden] = 0
    return mask


def _causal(past: int, shape: tuple[int, ...], seen: int) -> Array:
    """For each token of a call, which ones it sees: those up to its own number in the call and so many more."""
    n, t = shape
    return np.broadcast_to(np.tri(t, past + t, past + seen if seen else 0, dtype=bool), (n, 1, t, past + t))


def parts_of(paths: Sequence[str]) -> Iterator[Part]:
    """The parts of a cache: all of it, the tensors of each kind, each layer, and each tensor."""
    kinds = list(dict.fromkeys(_kind(path) for path in paths))
    layers = list(dict.fromkeys(re.sub(r"(\d+).*", r"\1", path) for path in paths))
    yield "the cache", lambda path: True
    if len(kinds) > 1:
        for kind in kinds:
            yield f"`{kind}` of the cache", lambda path, kind=kind: _kind(path) == kind  # type: ignore[misc]
    branches = list(dict.fromkeys(path.partition(".")[0] for path in layers if not path[0].isdigit()))
    if len(branches) > 1:
        for branch in branches:
            yield f"`{branch}`", lambda path, branch=branch: path.startswith(f"{branch}.")  # type: ignore[misc]
    for layer in layers if len(layers) > 1 else ():
        yield f"`{layer}` of the cache", lambda path, layer=layer: re.match(rf"{layer}(\.|$)", path) is not None  # type: ignore[misc]
    for each in paths if len(paths) > 1 else ():
        yield f"`{each}` of the cache", lambda path, each=each: path == each  # type: ignore[misc]


def _kind(path: str) -> str:
    """The path of a tensor with a star for the number of its layer."""
    return re.sub(r"\d+", "*", path, count=1)


def _taken_back(right: TorchDecoder, way: Way, parts: Sequence[Part]) -> Tried:
    yield Mistake("no tokens were taken back"), TakenBack(right, way.back)
    yield Mistake("one token too few was taken back"), TakenBack(right, 1)
    yield Mistake("one token too many was taken back"), TakenBack(right, -1)
    for name, part in parts[1:]:
        yield Mistake(f"no tokens were taken out of {name}"), TakenBack(right, 0, part)


def _held(right: TorchDecoder, way: Way, parts: Sequence[Part]) -> Tried:
    """What a cache holds in place of its values."""
    wrong: list[tuple[str, Callable[[Any], Any], int]] = [("was empty", torch.zeros_like, 1)]
    if len(way.chunks) > 2:
        wrong.append(("was empty in calls of several tokens", torch.zeros_like, 2))
    if not way.alone:
        wrong += [
            ("had the rows of the sequence before", lambda value: value.roll(1, 0), 1),
            ("had the rows of the sequence after", lambda value: value.roll(-1, 0), 1),
            ("had its rows in the opposite order", lambda value: value.flip(0), 1),
            ("had the first row for all sequences", lambda value: value[:1].expand_as(value).clone(), 1),
        ]
    for says, change, least in wrong:
        for name, part in parts:

            def replaced(path: str, value: Any, part: Any = part, change: Any = change) -> Any:
                return change(value) if part(path) else value

            yield Mistake(f"{name} {says}"), Held(right, replaced, least=least)


def _rounding(dtype: torch.dtype) -> Callable[[str, Any], Any]:
    return lambda path, value: value.to(dtype).to(value.dtype)
