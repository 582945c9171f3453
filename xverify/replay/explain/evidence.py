"""When a change of the reference's computation explains what a port computes."""

from __future__ import annotations

from ...verdict import limits
from ...verdict.findings import Finding

FAR_BETTER = 10.0  # an explanation must fit better than the reference's own computation by this factor
RIVAL = 4.0  # an explanation of another kind must fit worse than the best one by this factor


def excess(finding: Finding) -> float:
    """The larger of R and C in relation to its limit."""
    return max(finding.ratio / limits.EQUAL_R, finding.channel_ratio / limits.EQUAL_C)
