"""Mistakes of decoders, made in a right one: what a cache, a mask or positions are when code is wrong in a known way.

Each is a decoder that computes as the right one does, but for the mistake. A wrong decoder that returns the same values
behaves as this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from xverify.framework.adapter import Array
from xverify.framework.decoding import Decoder
from xverify.framework.structures import is_tensor, parts

from .decoding import TorchDecoder

Change = Callable[[str, Any], Any]  # (path of a tensor in a cache, the tensor) -> what stands there instead


class Mistaken(Decoder):
    """A decoder with a mistake.

    done: number of tokens in its cache; 0 before the first call. count: number of tokens of the call that is being computed.
    """

    def __init__(self, right: TorchDecoder) -> None:
        self.right, self.offers, self.done, self.count = right, right.offers, 0, 0

    def call(
        self,
        tokens: Array,
        cache: Any,
        positions: Array | None = None,
        mask: Array | None = None,
        keep: bool = True,
        more: Sequence[Array] = (),
    ) -> tuple[Array, Any]:
        self.done = 0 if cache is None else self.done
        self.count = count = tokens.shape[1]
        true = (
            np.broadcast_to(np.arange(self.done, self.done + count), tokens.shape) if positions is None else positions
        )
        given = self.positions(true, self.done)
        with self.around(cache, tokens.shape):
            logits, cache = self.right.call(
                tokens,
                cache if cache is None else self.before(cache),
                positions if given is true else np.ascontiguousarray(given),
                self.mask(mask, self.done, tokens.shape),
                keep,
                more,
            )
        cache = self.after(cache, count) if keep else cache
        self.done += count
        return logits, cache

    def positions(self, true: Array, past: int) -> Array:
        """The positions that a call is given. true: the right ones, (sequences, tokens). past: number of tokens in the cache."""
        return true

    def mask(self, true: Array | None, past: int, shape: tuple[int, ...]) -> Array | None:
        """The mask that a call is given. true: the right one. shape: of the tokens."""
        return true

    def before(self, cache: Any) -> Any:
        """The cache that a call is given."""
        return cache

    def after(self, cache: Any, count: int) -> Any:
        """The cache that is kept of a call of so many tokens."""
        return cache

    def around(self, cache: Any, shape: tuple[int, ...]) -> AbstractContextManager[Any]:
        """A context of the call. cache: that it is given."""
        return nullcontext()

    def new_cache(self, kind: str, length: int) -> Any:
        return self.right.new_cache(kind, length)

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        return self.right.marked(cache)

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        self.done -= tokens
        return self.right.taken_back(cache, tokens, before)

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        return self.right.reordered(cache, order)


class Placed(Mistaken):
    """Wrong positions. change: (right positions, number of tokens in the cache) -> those that are given."""

    def __init__(self, right: TorchDecoder, change: Callable[[Array, int], Array]) -> None:
        super().__init__(right)
        self.change = change

    def positions(self, true: Array, past: int) -> Array:
        return self.change(true, past)


class Masked(Mistaken):
    """A wrong mask. change: (right mask, number of tokens in the cache, shape of the tokens) -> the one that is given."""

    def __init__(
        self, right: TorchDecoder, change: Callable[[Array | None, int, tuple[int, ...]], Array | None]
    ) -> None:
        super().__init__(right)
        self.change = change

    def mask(self, true: Array | None, past: int, shape: tuple[int, ...]) -> Array | None:
        return self.change(true, past, shape)


class Held(Mistaken):
    """A cache that holds something else.

    change: of its tensors, before every call of at least so many tokens, or after every call (later). A tensor that no call has
        changed since, such as the keys of an encoder's states, stays as it is.
    """

    def __init__(self, right: TorchDecoder, change: Change, later: bool = False, least: int = 1) -> None:
        super().__init__(right)
        self.change, self.later, self.least = change, later, least
        self.put: dict[str, Any] = {}  # path of a tensor -> what the change made of it

    def before(self, cache: Any) -> Any:
        return cache if self.later or self.count < self.least else changed(cache, self._replaced)

    def _replaced(self, path: str, value: Any) -> Any:
        if path not in self.put or not torch.equal(self.put[path], value):
            value = self.change(path, value)
            self.put[path] = value.clone()
        return value

    def after(self, cache: Any, count: int) -> Any:
        return changed(cache, self.change) if self.later else cache


class Stale(Mistaken):
    """A cache that is kept as it was before a call of one token. counts: whether positions go on all the same."""

    def __init__(self, right: TorchDecoder, counts: bool) -> None:
        super().__init__(right)
        self.counts, self.kept = counts, 0

    def positions(self, true: Array, past: int) -> Array:
        return true if self.counts or not past else np.minimum(true, self.kept)

    def after(self, cache: Any, count: int) -> Any:
        if not self.done or count > 1:
            self.kept = self.done + count
            return cache
        return self.right.taken_back(cache, count, [])


class Unrotated(Mistaken):
    """A cache that holds the keys as a layer returns them, before they are rotated."""

    def __init__(self, right: TorchDecoder) -> None:
        super().__init__(right)
        self.returned: list[Any] = []

    @contextmanager
    def around(self, cache: Any, shape: tuple[int, ...]) -> Iterator[None]:
        self.returned.clear()
        modules = [each for each in self.right.model.modules() if not list(each.children())]
        hooks = [each.register_forward_hook(lambda *call: self.returned.append(call[-1])) for each in modules]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def after(self, cache: Any, count: int) -> Any:
        return changed(cache, lambda path, held: self._plain(held, count) if held.dim() == 4 else held)

    def _plain(self, held: Any, count: int) -> Any:
        """The keys with those of the last tokens before their rotation, which keeps the length of every vector."""
        n, heads, _, size = held.shape
        new = held[:, :, -count:]
        for each in self.returned:
            if not is_tensor(each) or each.numel() != new.numel() or each.shape[:2] != (n, count):
                continue
            plain = each.reshape(n, count, heads, size).transpose(1, 2)
            if not torch.equal(plain, new) and torch.allclose(plain.norm(dim=-1), new.norm(dim=-1), rtol=1e-9):
                return torch.cat([held[:, :, :-count], plain], 2)
        return held


class TakenBack(Mistaken):
    """Tokens that are not all taken back. left: how many of them stay. part: in which tensors alone all stay."""

    def __init__(self, right: TorchDecoder, left: int, part: Callable[[str], bool] | None = None) -> None:
        super().__init__(right)
        self.left, self.part = left, part

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        if self.part is None:
            return super().taken_back(cache, tokens - self.left, before)
        part, held = self.part, dict(tensors(cache))
        cropped = super().taken_back(cache, tokens, before)
        return changed(cropped, lambda path, value: held[path] if part(path) else value)


class Reordered(Mistaken):
    """Sequences of which a part of the cache does not change its place. part: which tensors these are."""

    def __init__(self, right: TorchDecoder, part: Callable[[str], bool]) -> None:
        super().__init__(right)
        self.part = part

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        held = dict(tensors(cache))
        turned = super().reordered(cache, order)
        return changed(turned, lambda path, value: held[path] if self.part(path) else value)


class Windowed(Mistaken):
    """A window of another number of tokens. more: how many more."""

    def __init__(self, right: TorchDecoder, more: int) -> None:
        super().__init__(right)
        self.more = more

    @contextmanager
    def around(self, cache: Any, shape: tuple[int, ...]) -> Iterator[None]:
        holders = [*self.right.model.modules(), self.right.model.config]
        held = [
            (each, each.sliding_window) for each in holders if isinstance(getattr(each, "sliding_window", None), int)
        ]
        for each, window in held:
            each.sliding_window = window + self.more
        try:
            yield
        finally:
            for each, window in held:
                each.sliding_window = window


class Routed(Mistaken):
    """Wrong weights of the experts of a mixture.

    change: (logits of all experts, weights of the chosen ones, their numbers) -> the weights and numbers in their place.
    """

    def __init__(self, right: TorchDecoder, change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
        super().__init__(right)
        self.change = change

    @contextmanager
    def around(self, cache: Any, shape: tuple[int, ...]) -> Iterator[None]:
        def replace(module: Any, given: Any, returned: Any) -> Any:
            return (returned[0], *self.change(*returned)) if routes(returned) else None

        hooks = [each.register_forward_hook(replace) for each in self.right.model.modules()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def routes(returned: Any) -> bool:
    """Whether a module returned what a router does: logits of all experts, weights and numbers of the chosen ones."""
    if not isinstance(returned, tuple) or len(returned) != 3 or not all(map(is_tensor, returned)):
        return False
    logits, weights, chosen = returned
    shapes = weights.dim() == 2 and weights.shape == chosen.shape and logits.shape[:-1] == weights.shape[:-1]
    return shapes and weights.is_floating_point() and not chosen.is_floating_point() and logits.is_floating_point()


def tensors(cache: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, tensor) of every tensor of a cache that holds values of sequences, in order."""
    if is_tensor(cache):
        if cache.dim() > 2 and cache.is_floating_point():
            yield path, cache
        return
    inner = parts(cache)
    if inner is None and not isinstance(cache, (type, torch.nn.Module)):
        inner = list(getattr(cache, "__dict__", {}).items())
    for key, value in inner or ():
        yield from tensors(value, f"{path}.{key}" if path else key)


def changed(cache: Any, change: Change, path: str = "") -> Any:
    """A cache with other tensors; an object is changed itself."""
    if is_tensor(cache):
        return change(path, cache) if cache.dim() > 2 and cache.is_floating_point() else cache
    inner = parts(cache)
    if inner is not None:
        values = iter([changed(value, change, f"{path}.{key}" if path else key) for key, value in inner])
        if isinstance(cache, dict):
            return {key: next(values) for key in cache}
        return type(cache)(values) if not hasattr(cache, "_fields") else type(cache)(*values)
    if isinstance(cache, (type, torch.nn.Module)):
        return cache
    for key, value in list(getattr(cache, "__dict__", {}).items()):
        if any(True for _ in tensors(value)):
            setattr(cache, key, changed(value, change, f"{path}.{key}" if path else key))
    return cache
