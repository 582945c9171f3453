"""What an adapter does so that a model can be called as a decoder: with the cache of its earlier calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import Unsupported
from ..weights.canonical import Array
from .runner import Runner


@dataclass(frozen=True)
class DecoderOffers:
    """What a model takes beside its tokens: the names of the parameters of its code; "" where it takes none.

    function: how the code is called in messages. use_cache: the parameter that asks for a cache.
    kinds: names of further kinds of caches that can be tried.
    """

    function: str
    cache: str
    use_cache: str = ""
    mask: str = ""
    positions: str = ""
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayerStep:
    """One call of a layer. given, returned: (tokens, ...), those of one sequence; None where they have no axis of tokens."""

    layer: str
    given: Array | None
    returned: Array


class Decoder:
    """A model that is called with a cache. A cache is whatever the model returns as one.

    offers: what the model takes.
    """

    offers: DecoderOffers

    def call(
        self, tokens: Array, cache: Any, positions: Array | None = None, mask: Array | None = None, keep: bool = True
    ) -> tuple[Array, Any]:
        """(the first output, the new cache) of one call.

        tokens: (sequences, tokens). cache: of the calls before; None at the first. positions: as tokens.
        mask: (sequences, tokens so far), 1 for a token and 0 for padding. keep: whether a cache is asked for.
        """
        raise NotImplementedError

    def new_cache(self, kind: str, length: int) -> Any:
        """An empty cache of a further kind. length: the most tokens that it will hold."""
        raise NotImplementedError

    def shapes(self, cache: Any) -> list[tuple[int, ...]]:
        """The shapes of the tensors of a cache."""
        raise NotImplementedError

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        """A cache without its last tokens. before: the shapes that it had before these. Raises Unsupported."""
        raise NotImplementedError

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        """A cache with its sequences in another order. Raises Unsupported."""
        raise NotImplementedError

    def remark(self, cache: Any, sequences: int) -> str:
        """What is strange about a cache, in words; "" for nothing. sequences: that it holds."""
        return ""

    def threads(self, number: int) -> AbstractContextManager[None]:
        """A context in which the framework has this number of threads."""
        raise NotImplementedError

    def watched(self, row: int) -> AbstractContextManager[list[LayerStep]]:
        """The calls of all layers within the context. row: of the sequence to keep."""
        raise NotImplementedError


class Decodes(Runner):
    """A runner whose models can be called as decoders. All members are optional."""

    decodes: ClassVar[bool] = False

    def decoder(self, model: Any, output: str) -> Decoder:
        """A model as a decoder. output: the name of the first output. Raises Unsupported for a model without a cache."""
        raise Unsupported(f"xverify does not decode with {self.name} yet: name torch:eager")
