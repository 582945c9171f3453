"""A captured tensor that differs from the exact one, and its comparison with other exact ones."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..results.verdicts import Verdict
from ..verdict.findings import Finding
from .tensors import Floors, Place, judge


@dataclass(frozen=True)
class Difference:
    """A captured tensor, and the exact one that it was compared with.

    finding: the comparison.
    captured: the port's tensor, in the layout of the reference where its shape fits.
    floors: the exact tensor with its noise floor.
    axis: axis of the channels.
    terms: length of the sums behind one value.
    """

    finding: Finding
    captured: Tensor
    floors: Floors
    axis: int
    terms: int

    @property
    def equal(self) -> bool:
        """Whether the finding is EQUAL."""
        return self.finding.verdict == Verdict.EQUAL

    def judge(self, exact: Tensor) -> Finding:
        """Compare the captured tensor with another exact one, by the same noise floor."""
        return judge(Place.of(self.finding), self.captured, self.floors.of(exact), self.terms, self.axis)

    def is_equal_to(self, exact: Tensor) -> bool:
        """Whether the captured tensor is EQUAL to another exact one."""
        return self.judge(exact).verdict == Verdict.EQUAL
