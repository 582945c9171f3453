"""Modules of torch as decoders: those of transformers, and those whose ``forward`` takes a cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Array
from xverify.framework.decoding import Decoder, DecoderOffers, LayerStep, Mistake, Way
from xverify.framework.structures import is_tensor, map_leaves, parts

CACHES = ("past_key_values", "cache_params", "cache", "past", "kv_cache", "past_kv")
USE, MASKS, POSITIONS = ("use_cache",), ("attention_mask", "mask"), ("position_ids", "positions")
WRITTEN = "def forward(self, tokens, cache=None, use_cache=False, mask=None, positions=None)"


def offers_of(model: Any) -> DecoderOffers:
    """What ``forward`` of a module takes. Raises Unsupported where it takes neither a cache nor a mask."""
    names = list(inspect.signature(model.forward).parameters)
    function = f"{type(model).__name__}.forward"

    def first(known: Sequence[str]) -> str:
        return next((name for name in known if name in names), "")

    missing = [what for what, known in (("cache", CACHES), ("use_cache", USE)) if not first(known)]
    if missing:
        lacks = (
            f"{function} takes {', '.join(names)}, and no {missing[0]}: a decoder is written as {WRITTEN}, and returns "
            "(logits, cache) when use_cache is true"
        )
        if not first(MASKS):
            raise Unsupported(lacks)
        return DecoderOffers(function, "", "", first(MASKS), first(POSITIONS), lacks=lacks)
    of_transformers = any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__)
    static = first(CACHES) == "past_key_values" and of_transformers
    return DecoderOffers(
        function,
        first(CACHES),
        first(USE),
        first(MASKS),
        first(POSITIONS),
        ("static",) if static else (),
        unplaced=bool(getattr(model, "_is_stateful", False)),
    )


class TorchDecoder(Decoder):
    """A module as a decoder. output: the name of its first output."""

    def __init__(self, model: Any, output: str) -> None:
        self.model, self.output, self.offers = model, output, offers_of(model)
        self.device = next((each.device for each in model.parameters()), torch.device("cpu"))
        self.dtype = torch.float32

    def call(
        self,
        tokens: Array,
        cache: Any,
        positions: Array | None = None,
        mask: Array | None = None,
        keep: bool = True,
        more: Sequence[Array] = (),
    ) -> tuple[Array, Any]:
        offers, given = self.offers, dict[str, Any]()
        if offers.use_cache:
            given[offers.use_cache] = keep
        if cache is not None:
            given[offers.cache] = cache
        if offers.unplaced and mask is not None:
            mask = mask[:, -tokens.shape[1] :]  # a state holds no tokens that could be masked later
        for name, array in ((offers.positions, positions), (offers.mask, mask)):
            if name and array is not None:
                given[name] = self._native(array)
        returned = self.model(self._native(tokens), *map(self._native, more), **given)
        logits = self.logits(returned)
        self.dtype = logits.dtype
        return logits.detach().cpu().numpy(), self.cache(returned) if keep else None

    def _native(self, array: Array) -> Any:
        return torch.from_numpy(np.array(array)).to(self.device)

    def logits(self, returned: Any) -> Any:
        found = returned if is_tensor(returned) else dict(parts(returned) or []).get(self.output)
        if found is None:
            inner = parts(returned)
            found = inner[0][1] if inner else None
        if not is_tensor(found):
            raise Failed(f"{self.offers.function} returns a {type(returned).__name__}, whose first part is no tensor")
        return found

    def cache(self, returned: Any) -> Any:
        found = getattr(returned, self.offers.cache, None)
        if found is None and isinstance(returned, dict):
            found = returned.get(self.offers.cache)
        if found is None and isinstance(returned, tuple) and len(returned) == 2:
            found = returned[1]
        if found is None:
            raise Failed(
                f"{self.offers.function} returns a {type(returned).__name__} without a cache at {self.offers.use_cache}=True: "
                f"return (logits, cache), or a mapping with {self.output!r} and {self.offers.cache!r}"
            )
        return found

    def new_cache(self, kind: str, length: int) -> Any:
        from transformers import StaticCache

        return StaticCache(config=self.model.config, max_cache_len=length)

    def tensors(self, cache: Any) -> list[Any]:
        """The tensors of a cache, also of one that is an object, or that holds objects."""
        if is_tensor(cache):
            return [cache]
        inner = parts(cache)
        if inner is None and not isinstance(cache, (type, torch.nn.Module)):
            inner = list(getattr(cache, "__dict__", {}).items())
        return [tensor for _, value in inner or () for tensor in self.tensors(value)]

    def _shapes(self, cache: Any) -> list[tuple[int, ...]]:
        return [tuple(each.shape) for each in self.tensors(cache)]

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        _record(cache, True)  # a layer with a window forgets what is before it otherwise
        return self._shapes(cache)

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        if not getattr(
            cache, "is_croppable", not self.offers.unplaced
        ):  # versions of transformers without it crop half of a state
            raise Unsupported(f"{type(cache).__name__} holds a state of all tokens, and none can be taken out of it")
        if hasattr(cache, "crop"):
            try:
                cache.crop(-tokens)
            except (NotImplementedError, RuntimeError) as error:
                raise Unsupported(f"{type(cache).__name__}.crop: {error}") from None
            _record(cache, False)  # earlier versions of transformers need a crop after every call otherwise
            return cache
        axes = [_grown(old, tuple(new.shape), tokens) for old, new in zip(before, self.tensors(cache))]
        if parts(cache) is None or not axes or None in axes:
            raise Unsupported("the cache has tensors without an axis that grows with the tokens; give it crop(-tokens)")
        left = iter(axes)

        def shorter(value: Any) -> Any:
            axis = next(left)
            return value.narrow(axis, 0, value.shape[axis] - tokens)

        return map_leaves(cache, lambda value: shorter(value) if is_tensor(value) else value)

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        index = torch.tensor(list(order), device=self.device)
        if hasattr(cache, "reorder_cache"):
            cache.reorder_cache(index)
            return cache
        if parts(cache) is None or any(shape[:1] != (len(order),) for shape in self._shapes(cache)):
            raise Unsupported(
                "the first axis of its tensors is not that of the sequences; give it reorder_cache(order)"
            )
        return map_leaves(cache, lambda value: value.index_select(0, index) if is_tensor(value) else value)

    def mistakes(self, way: Way, tokens: Array, more: Sequence[Array]) -> Iterator[tuple[Mistake, Decoder]]:
        from xverify.frameworks.torch.decoder_catalogue import mistakes

        return mistakes(self, way, tokens, more)

    def remark(self, cache: Any, sequences: int) -> str:
        tensors = self.tensors(cache)
        narrow = {each.dtype for each in tensors if each.dtype.is_floating_point} - {self.dtype}
        if narrow:
            names = ", ".join(sorted(str(each).removeprefix("torch.") for each in narrow))
            return f"the cache holds {names}, and the model returns {str(self.dtype).removeprefix('torch.')}"
        other = [each for each in tensors if each.dim() > 2 and sequences not in each.shape[:2]]
        return f"the cache holds {other[0].shape[0]} rows for {sequences} sequences" if other else ""

    @contextmanager
    def threads(self, number: int) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def watched(self, row: int) -> Iterator[list[LayerStep]]:
        calls: list[LayerStep] = []

        def note(name: str, given: Any, returned: Any) -> None:
            found = _of_row(returned, row)
            if found is not None:
                calls.append(LayerStep(name, _of_row(given[0], row) if given else None, found))

        hooks = [
            module.register_forward_hook(lambda _, given, returned, name=name: note(name, given, returned))
            for name, module in self.model.named_modules()
            if name and not list(module.children())
        ]
        try:
            yield calls
        finally:
            for hook in hooks:
                hook.remove()


def _record(cache: Any, on: bool) -> None:
    """Let a cache of transformers keep what it needs to take tokens back, or forget it from now on."""
    for layer in getattr(getattr(cache, "self_attention_cache", cache), "layers", None) or ():
        if hasattr(layer, "record_past"):
            layer.record_past = on


def _grown(before: tuple[int, ...], after: tuple[int, ...], tokens: int) -> int | None:
    """The only axis that has grown by this number; None where there is none."""
    axes = [axis for axis, (old, new) in enumerate(zip(before, after)) if new != old]
    return axes[0] if len(axes) == 1 and after[axes[0]] - before[axes[0]] == tokens else None


def _of_row(value: Any, row: int) -> Array | None:
    """The values of one sequence, (tokens, ...) float64; None of a value that has no axes of sequences, tokens and features."""
    if not is_tensor(value) or value.dim() != 3 or not value.dtype.is_floating_point:
        return None
    found: Array = value[min(row, value.shape[0] - 1)].detach().double().cpu().numpy()
    return found
