"""The verdicts: an ordered enum for numbers, one for speed, and one for a whole run with its exit code."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(str, Enum):
    """How a result compares with the reference, from the best to the worst.

    Members have the order of this list, so ``max`` gives the worst of several. Each member is the string that files and reports
    show.
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


class SpeedVerdict(str, Enum):
    """How the speed of a row compares with the speed of the baseline, or of an earlier run."""

    FASTER = "FASTER"
    SAME = "SAME"  # within the margin of equivalence
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"  # too few or too different process runs to tell
    REFUSED = "REFUSED"  # the measurement is not valid, and the row gives the reason
    BASELINE = "BASELINE"  # what the others are compared with

    __str__ = str.__str__
    __hash__ = str.__hash__


class EndVerdict(str, Enum):
    """How the end losses of a subject compare with those of the reference over several seeds."""

    SAME = "SAME"  # the whole interval of the difference is too small to matter
    HIGHER = "HIGHER"
    LOWER = "LOWER"
    UNDECIDED = "UNDECIDED"  # the interval holds zero, and differences that matter; or there is none
    DIVERGED = "DIVERGED"  # a loss is not finite where the reference's is

    __str__ = str.__str__
    __hash__ = str.__hash__


def settle_verdict(record: object, kind: type[Enum]) -> None:
    """Make the verdict of a new frozen record a member of its enum, because callers may give the bare string.

    Raises ValueError for a string that is no member.
    """
    object.__setattr__(record, "verdict", kind(record.verdict))  # type: ignore[attr-defined]


EXIT_CODES = {
    0: "pass: every row is IDENTICAL, EQUAL or DRIFT, a warning",
    1: "a mismatch: DIFFERENT or INVALID; with --strict, also DRIFT",
    2: "a wrong command line, or an unusable file",
    3: "a subject crashed, could not run, or was interrupted",
    4: "inconclusive: only the reference was run, or a row is UNTESTED",
}


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
        """The exit code of the command; EXIT_CODES says what each means. Code 2, a wrong command line, is no outcome."""
        return {"PASS": 0, "FAIL": 1, "ERROR": 3, "INCONCLUSIVE": 4}[self.value]


def concluded(outcome: Outcome, warnings: int) -> str:
    """The verdict of a run or of several with the number of their warnings: ``PASS, 1 warning``."""
    return f"{outcome}, {warnings} warning{'s' * (warnings != 1)}" if warnings else str(outcome)


SEVERITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL)  # from the best to the worst
