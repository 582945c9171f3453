"""What a replay says of a capture: the record that goes from the replay, through a worker, to the summary of its layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from .limits import Finding


@dataclass(frozen=True)
class Explanation:
    """The known alternative that a layer behaves as.

    kind: the name of the alternative. says: a clause for the report. rounding: whether it computes the right result in
    another precision.
    """

    kind: str
    says: str
    rounding: bool


@dataclass(frozen=True)
class ReplayReport:
    """The result of one replay.

    findings: one comparison each, in the order of computation.
    compared: layer -> how many of its calls were compared. missing: layer -> how many of its calls were not captured.
    explained: layer -> what it behaves as, where a known alternative explains its difference.
    visible: by how many noise floors a planted fault moves its layer's exact output; 0.0 where no fault was planted.
    stopped: why the replay ended before the end of the model; "" where it did not.
    """

    findings: tuple[Finding, ...]
    compared: dict[str, int]
    missing: dict[str, int] = field(default_factory=dict)
    explained: dict[str, Explanation] = field(default_factory=dict)
    visible: float = 0.0
    stopped: str = ""
