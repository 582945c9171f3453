"""When a change of the reference's computation explains what a port computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor

from ..replay.difference import Difference
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.findings import Finding

FAR_BETTER = 10.0  # an explanation must fit better than the reference's own computation by this factor
RIVAL = 4.0  # an explanation of another kind must fit worse than the best one by this factor
NEAR = 100.0  # times the limit, up to which the noise of a changed computation itself is measured
MUCH_NEARER = 1e4  # a changed computation whose noise is measured must fit better than the reference's by this factor

Item = TypeVar("Item")


def excess(finding: Finding) -> float:
    """The larger of R and C in relation to its limit."""
    return max(finding.ratio / limits.EQUAL_R, finding.channel_ratio / limits.EQUAL_C)


def is_far_better(finding: Finding, difference: Difference) -> bool:
    """Whether a finding fits far better than the comparison with the reference's own tensor."""
    return excess(finding) * FAR_BETTER <= excess(difference.finding)


def fits(difference: Difference, value: Tensor) -> float | None:
    """R when the captured tensor is EQUAL to another exact one, and far nearer to it than to the reference's; else None."""
    found = compared(difference, value)
    if found is None or found.verdict != Verdict.EQUAL or not is_far_better(found, difference):
        return None
    return found.ratio


def compared(difference: Difference, value: Tensor) -> Finding | None:
    """The comparison of the captured tensor with another exact one; None where their shapes or kinds differ."""
    exact = difference.floors.exact
    if not value.shape == difference.captured.shape == exact.shape or value.dtype != exact.dtype:
        return None
    return difference.judge(value)


def is_near(finding: Finding, difference: Difference) -> bool:
    """Whether a finding is so much nearer than the reference's own tensor that a larger noise floor may explain what is left."""
    return excess(finding) <= NEAR and excess(finding) * MUCH_NEARER <= excess(difference.finding)


def best_and_near(fitting: Sequence[tuple[Item, float]]) -> tuple[Item, list[Item]]:
    """The alternative that explains a tensor best, and the others that explain it nearly as well.

    fitting: alternatives, the likelier first, with R of each. A later one must agree twice as well as an earlier one to be chosen.
    """
    best, ratio = fitting[0]
    for item, other in fitting[1:]:
        if other < ratio / 2:
            best, ratio = item, other
    return best, [item for item, other in fitting if item is not best and other <= RIVAL * ratio]
