"""The verdicts: one ordered enum for numbers, one for a whole run with its exit code."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(str, Enum):
    """How a result compares with the reference, from the best to the worst.

    Members are ordered by this list, so ``max`` gives the worst of several. Each is the string that files and reports show.
    """

    IDENTICAL = "IDENTICAL"  # the same to the last bit
    EQUAL = "EQUAL"  # different by rounding alone
    DRIFT = "DRIFT"  # more than rounding in float32 explains: a warning
    UNTESTED = "UNTESTED"  # nothing was compared that could have shown a fault
    DIFFERENT = "DIFFERENT"  # another computation
    INVALID = "INVALID"  # not comparable: another shape, NaN, other weights

    __str__ = str.__str__
    __hash__ = str.__hash__

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Verdict).index(self)

    @property
    def fails(self) -> bool:
        """Whether a result with this verdict is wrong."""
        return self >= Verdict.DIFFERENT

    def __lt__(self, other: str) -> bool:
        return self.rank < Verdict(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= Verdict(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > Verdict(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= Verdict(other).rank

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict], default: Verdict = UNTESTED) -> Verdict:  # type: ignore[assignment]
        """The worst of these; ``default`` when there are none."""
        return max(verdicts, default=Verdict(default))


class Outcome(str, Enum):
    """The verdict on a whole run."""

    PASS = "PASS"
    FAIL = "FAIL"
    ERROR = "ERROR"
    INCONCLUSIVE = "INCONCLUSIVE"

    __str__ = str.__str__
    __hash__ = str.__hash__

    @property
    def exit_code(self) -> int:
        """0 pass, 1 a numerical mismatch, 3 a subject could not run, 4 inconclusive. Code 2 is a wrong command line."""
        return {"PASS": 0, "FAIL": 1, "ERROR": 3, "INCONCLUSIVE": 4}[self.value]
