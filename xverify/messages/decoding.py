"""Requests to the worker of a decoder; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from ..framework.decoding import DecoderOffers, Mistake, Way
from .codec import Request


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
class ComputeMistaken(Request[tuple[Mistake, ...]]):
    """Compute a way in float64 with each known mistake that it can show.

    The reply has the mistakes that were computed; ``path`` gets the values of the first one as "0", and so on.
    weights: of the float64 model. seconds: no further mistake is tried after them. places: of each sequence,
    no call begins after so many, and the values are 0 there. only: these mistakes alone, by their words; empty: all.
    """

    inputs: str
    path: str
    way: Way
    weights: str
    seconds: float
    places: int
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocateStep(Request[str]):
    """Find the layer that first differs from the full pass in float64 when a way computes this position of this sequence.

    The reply is a layer or the glue code between two layers, in words; "" where no layer differs.
    """

    inputs: str
    way: Way
    sequence: int
    step: int
