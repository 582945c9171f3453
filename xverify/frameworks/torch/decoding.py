"""Modules of torch as decoders: those of transformers, and those whose ``forward`` takes a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from xverify.errors import Unsupported
from xverify.framework.adapter import Array
from xverify.framework.code_decoder import CodeDecoder
from xverify.framework.decoding import Decoder, DecoderOffers, Mistake, Way


class TorchDecoder(CodeDecoder):
    """A module as a decoder."""

    def _offers(self) -> DecoderOffers:
        found, model = super()._offers(), self.model
        of_transformers = any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__)
        static = found.cache == "past_key_values" and of_transformers
        unplaced = bool(found.cache and getattr(model, "_is_stateful", False))
        return replace(found, kinds=("static",) if static else (), unplaced=unplaced)

    def _is_module(self, value: Any) -> bool:
        return isinstance(value, torch.nn.Module)

    def new_cache(self, kind: str, length: int) -> Any:
        from transformers import StaticCache

        return StaticCache(config=self.model.config, max_cache_len=length)

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        _record(cache, True)  # a layer with a window forgets what is before it otherwise
        return super().marked(cache)

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        if not getattr(
            cache, "is_croppable", not self.offers.unplaced
        ):  # versions of transformers without it crop half of a state
            raise Unsupported(f"{type(cache).__name__} holds a state of all tokens, and none can be taken out of it")
        try:
            cache = super().taken_back(cache, tokens, before)
        except (NotImplementedError, RuntimeError) as error:
            raise Unsupported(f"{type(cache).__name__}.crop: {error}") from None
        _record(cache, False)  # earlier versions of transformers need a crop after every call otherwise
        return cache

    def mistakes(self, way: Way, tokens: Array, more: Sequence[Array]) -> Iterator[tuple[Mistake, Decoder]]:
        from xverify.frameworks.torch.decoder_catalogue import mistakes

        return mistakes(self, way, tokens, more)


def _record(cache: Any, on: bool) -> None:
    """Let a cache of transformers keep what it needs to take tokens back, or forget it from now on."""
    for layer in getattr(getattr(cache, "self_attention_cache", cache), "layers", None) or ():
        if hasattr(layer, "record_past"):
            layer.record_past = on
