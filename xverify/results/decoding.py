"""The records of a decoder: the ways to compute its sequences, each beside the reference's full pass."""

from __future__ import annotations

from dataclasses import dataclass, field

from .verdicts import Verdict, settle_verdict


@dataclass(frozen=True)
class DecodingCheck:
    """One way to compute every position of the sequences, beside the reference's full pass in float64.

    name: of the way, such as "steps with the cache".
    ratio: rms of the difference of all positions / noise floor; None where nothing was computed.
    worst_ratio: the same of the worst position of a sequence.
    detection_limit: the smallest relative error of all positions that would not have been EQUAL; None where nothing was computed.
    compared, known: number of compared positions, and of all that the way computes.
    sequence, step: of the first position that is not EQUAL, each from 0; None where all are.
    place: the layer, or the glue code between two layers, that differs there first; "" where none is known.
    explanation: the known mistakes that explain what differs; "" for none.
    says: what differs, in words.
    token: the first step at which another token is the best; None where none is. margin: the distance of both tokens in the
        reference, in noise floors.
    same_bits: whether every sequence has the same bits alone as in the batch; None where that was not compared.
    """

    name: str
    verdict: Verdict
    ratio: float | None = None
    worst_ratio: float | None = None
    detection_limit: float | None = None
    compared: int = 0
    known: int = 0
    sequence: int | None = None
    step: int | None = None
    place: str = ""
    explanation: str = ""
    says: str = ""
    token: int | None = None
    margin: float | None = None
    same_bits: bool | None = None

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)


@dataclass(frozen=True)
class Decoding:
    """A decoder, computed in every way that it offers.

    sequences, length: number of the sequences, and of the tokens in each. prompt: number of the first tokens, which are drawn; the
        reference chose the others, each the best one.
    ways: every way that was tried.
    not_tried: name of a way -> why it was not tried, and what to add.
    """

    sequences: int
    length: int
    prompt: int
    ways: tuple[DecodingCheck, ...] = ()
    not_tried: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> DecodingCheck | None:
        """The first way that fails, else the first with the worst verdict; None where all are EQUAL."""
        worst = Verdict.worst((each.verdict for each in self.ways), Verdict.EQUAL)
        shown = [each for each in self.ways if each.verdict.fails or (each.verdict == worst and not worst.fails)]
        return shown[0] if worst > Verdict.EQUAL else None
