"""Requests to the worker of a decoder; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from ..framework.decoding import DecoderOffers
from .codec import Request


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
class FindDecoder(Request[DecoderOffers]):
    """Tell what the model takes. It is refused for a model that takes no cache."""


@dataclass(frozen=True)
class Continue(Request[None]):
    """Continue the sequences of an array file, each time with the best token, and write them to ``path``.

    inputs: a file whose only case has the prompts. length: number of tokens of each sequence at the end.
    weights: in float64 with the weights of this array file, by full passes; "": in float32, with the cache.
    """

    inputs: str
    path: str
    length: int
    weights: str = ""


@dataclass(frozen=True)
class Computed:
    """A way was computed. problem: why it was not; "" when it was. remark: what is strange about its cache; "" for nothing."""

    problem: str = ""
    remark: str = ""


@dataclass(frozen=True)
class ComputeWay(Request[Computed]):
    """Compute the sequences of an array file in one way, and write the first output to ``path`` as "logits"."""

    inputs: str
    path: str
    way: Way


@dataclass(frozen=True)
class LocateStep(Request[str]):
    """Find the layer that first differs from the full pass in float64 when a way computes this position of this sequence.

    The reply is a layer or the glue code between two layers, in words; "" where no layer differs.
    """

    inputs: str
    way: Way
    sequence: int
    step: int
