"""What an adapter does so that a model can be called as a decoder: with the cache of its earlier calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..errors import Unsupported
from ..weights.canonical import Array
from .layered import ShowsLayers

# Names in the graph that a framework exports of a decoder; the tensors of the cache are past.0 and present.0, and so on.
MASK, POSITIONS, PAST, PRESENT = "attention_mask", "position_ids", "past", "present"


@dataclass(frozen=True)
class DecoderOffers:
    """What a model takes beside its tokens: the names of the parameters of its code; "" where it takes none.

    function: how the code is called in messages. use_cache: the parameter that asks for a cache.
    kinds: names of further kinds of caches that can be tried.
    unplaced: whether its tokens have no positions, as in a model whose cache is a state. Then a mask alone is enough for
        padding, and a call takes that of its own tokens.
    lacks: what it takes instead of a cache, and what to write, in words; "" for a model with a cache.
    untried: what else of this model is not tried -> why.
    """

    function: str
    cache: str
    use_cache: str = ""
    mask: str = ""
    positions: str = ""
    kinds: tuple[str, ...] = ()
    unplaced: bool = False
    lacks: str = ""
    untried: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    """One way to compute every position of some sequences.

    name: in reports.
    chunks: numbers of tokens of the first calls; the last number goes on. Empty: one call with all tokens.
    alone: whether every sequence is computed by itself.
    padding: "left" or "right" where sequences of several lengths are computed together; "" for whole ones.
    threads: number of threads; 0 for that of the run.
    back: number of wrong tokens that are computed in the middle, and taken out of the cache again.
    reorder: whether the sequences change their places in the middle, as beams do.
    cache: name of the kind of the cache; "" for the model's own.
    """

    name: str
    chunks: tuple[int, ...] = ()
    alone: bool = False
    padding: str = ""
    threads: int = 0
    back: int = 0
    reorder: bool = False
    cache: str = ""

    def missing(self, sequence: int, length: int) -> int:
        """The number of last tokens that this way leaves out of a sequence, because padding has their places."""
        return min(3 * sequence, length // 2) if self.padding else 0

    def sizes(self, length: int) -> list[int]:
        """The number of tokens of each call, in order."""
        left, found = length, list[int]()
        while left:
            size = min(left, self.chunks[min(len(found), len(self.chunks) - 1)]) if self.chunks else length
            found.append(size)
            left -= size
        return found


@dataclass(frozen=True)
class Mistake:
    """A known mistake of a decoder. says: what completes "behaves as if". rounds: whether its values are rounded otherwise."""

    says: str
    rounds: bool = False


@dataclass(frozen=True)
class LayerStep:
    """One call of a layer, or of a node of a graph.

    given, returned: (tokens, ...), those of one sequence; None where they have no axis of tokens, or are not known.
    """

    layer: str
    given: Array | None
    returned: Array


@dataclass(frozen=True)
class GraphCall:
    """A call of a graph, to be computed again in another precision.

    model: as the library of the graph has it. folder: where its external data is. feed: name of an input -> value.
    steps: makes the steps of one node's outputs, by name.
    """

    model: Any
    folder: Path
    feed: Mapping[str, Array]
    steps: Callable[[str, Mapping[str, Array]], Iterator[LayerStep]]


class Decoder:
    """A model that is called with a cache. A cache is whatever the model returns as one.

    offers: what the model takes. shows: what ``watched`` gives the calls of, in words.
    """

    offers: DecoderOffers
    shows: ClassVar[str] = "layer"

    def call(
        self,
        tokens: Array,
        cache: Any,
        positions: Array | None = None,
        mask: Array | None = None,
        keep: bool = True,
        more: Sequence[Array] = (),
    ) -> tuple[Array, Any]:
        """(the first output, the new cache) of one call.

        tokens: (sequences, tokens). cache: of the calls before; None at the first. positions: as tokens.
        mask: (sequences, tokens so far), 1 for a token and 0 for padding. keep: whether a cache is asked for.
        more: the further inputs of these sequences, such as the states of an encoder.
        """
        raise NotImplementedError

    def new_cache(self, kind: str, length: int) -> Any:
        """An empty cache of a further kind. length: the most tokens that it will hold."""
        raise NotImplementedError

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        """The shapes of the tensors of a cache, out of which the tokens of the next call will be taken back."""
        raise NotImplementedError

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        """A cache without its last tokens. before: the shapes that it had before these. Raises Unsupported."""
        raise NotImplementedError

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        """A cache with its sequences in another order. Raises Unsupported."""
        raise NotImplementedError

    def mistakes(self, way: Way, tokens: Array, more: Sequence[Array]) -> Iterator[tuple[Mistake, Decoder]]:
        """Known mistakes that a way can show, each with a decoder that makes it. The first one is no mistake, and has no words.

        tokens, more: what a first call is given.
        """
        return iter(())

    def remark(self, cache: Any, sequences: int) -> str:
        """What is strange about a cache, in words; "" for nothing. sequences: that it holds."""
        return ""

    def threads(self, number: int) -> AbstractContextManager[None]:
        """A context in which the framework has this number of threads."""
        raise NotImplementedError

    def watched(self, row: int) -> AbstractContextManager[list[LayerStep]]:
        """The calls of all layers within the context. row: of the sequence to keep."""
        raise NotImplementedError

    def graph_call(self, tokens: Array, more: Sequence[Array]) -> GraphCall | None:
        """The call of one sequence, of a model that is a graph and cannot be built in float64; None for other models."""
        return None


class Decodes(ShowsLayers):
    """A runner whose models can be called as decoders. All members are optional."""

    decodes: ClassVar[bool] = False
    # The modes whose callables a decoder has; None: all of them.
    decoding_modes: ClassVar[tuple[str, ...] | None] = ("eager",)

    def decoder(self, model: Any, inputs: Mapping[str, str | None], output: str) -> Decoder:
        """A model as a decoder. Raises Unsupported for a model without a cache.

        inputs: the tokens and the further inputs, name -> layout (see ``to_native``). output: the name of the first output.
        """
        raise Unsupported(f"xverify does not decode with {self.name} yet: name torch:eager")

    def decoder_code(self, model: Any) -> Callable[..., Any]:
        """The method of a model whose parameters say what a call takes. Raises Unsupported where no call takes a cache."""
        code: Callable[..., Any] = getattr(model, self.layer_method)
        return code

    def decoder_call(self, model: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Call a model. inputs: native. given: the other arguments by name, such as the cache."""
        return model(*inputs, **given)

    def taken(self, tensor: Any, places: Sequence[int], axis: int) -> Any:
        """A tensor with these places of an axis alone, in this order."""
        raise NotImplementedError

    def other_threads(self, number: int) -> AbstractContextManager[None]:
        """A context in which the framework has this number of threads. Raises Unsupported where it cannot change it."""
        raise Unsupported(f"{self.name} cannot change its number of threads after its start")

    def export_decoder(
        self, model: Any, inputs: tuple[Any, ...], names: tuple[list[str], list[str]], path: Path, with_weights: bool
    ) -> str:
        """Write a decoder as an ONNX file that takes the tensors of its cache, and returns them with the new tokens.

        See ``Reference.export_onnx`` for the arguments and what it returns.
        """
        raise Unsupported(f"{self.name} cannot export decoders")
