"""Models of llama.cpp as decoders. A cache is a context, which holds the keys and values of its sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from xverify.framework.decoding import Decoder, DecoderOffers
from xverify.framework.runner import Array
from xverify.frameworks.llamacpp.library import Context, Model

OFFERS = DecoderOffers("llama_decode", "memory", mask="batch", positions="pos")
SPARE = 16  # tokens for which a context has room beside those of a sequence, as those that are taken back


class LlamaDecoder(Decoder):
    """A model. length: number of tokens of the longest sequence. count: of threads of the run. kinds: see ``Opened``."""

    def __init__(self, model: Model, length: int, count: int, kinds: Sequence[str]) -> None:
        self.model, self.length, self.run, self.count = model, length, count, count
        self.offers = OFFERS
        if kinds:
            why = (
                f"llama.cpp is given the matrices in {' and '.join(kinds)} in float32, with the values that the file holds, "
                "because its own products with them round the other operand, too"
            )
            self.offers = replace(OFFERS, untried={f"products with {' and '.join(kinds)}": why})

    def call(
        self,
        tokens: Array,
        cache: Any,
        positions: Array | None = None,
        mask: Array | None = None,
        keep: bool = True,
        more: Sequence[Array] = (),
    ) -> tuple[Array, Any]:
        rows, new = tokens.shape
        if cache is None:
            cache = Context(self.model, rows, max(self.length, new) + SPARE, self.count)
        cache.use_threads(self.count)
        counts = np.ones_like(tokens) if mask is None else mask[:, -new:]
        if positions is None:
            positions = np.array(cache.lengths)[:, None] + np.arange(new)
        return cache.compute(tokens, positions, counts), cache if keep else None

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        return []

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        cache.take_back(tokens)
        return cache

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        cache.reorder(order)
        return cache

    @contextmanager
    def threads(self, number: int) -> Iterator[None]:
        self.count = number
        try:
            yield
        finally:
            self.count = self.run
