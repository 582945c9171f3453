"""The seconds of a run: what they were spent on, and how many of them ``--max-seconds`` leaves."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PHASES = ("starting", "warming", "timing", "judging")


class Clock:
    """Counts the seconds of a run by what the run is doing. budget: seconds that it may take; None without a limit."""

    def __init__(self, budget: float | None) -> None:
        self.begun = time.monotonic()
        self.deadline = None if budget is None else self.begun + budget
        self.spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Count the seconds of the block under this name."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += time.monotonic() - start

    @property
    def left(self) -> float | None:
        """Seconds until the budget is used up, negative after that; None without a limit."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def share(self, parts: int) -> float | None:
        """An equal part of the seconds that are left; None without a limit."""
        return None if self.left is None else max(0.0, self.left) / parts

    def part(self, parts: int) -> Clock:
        """A clock that has an equal part of the seconds that are left, and counts with this one."""
        clock = Clock(self.share(parts))
        clock.begun, clock.spent = self.begun, self.spent
        return clock

    def timeline(self) -> dict[str, float]:
        """The seconds so far, by activity and in total, as a result has them."""
        spent = {f"{what}_seconds": seconds for what, seconds in self.spent.items()}
        return {**spent, "total_seconds": time.monotonic() - self.begun}


def overrun(budget: float | None, timeline: Mapping[str, float]) -> tuple[str, ...]:
    """A note about a run that took longer than its budget; no note when it did not.

    budget: --max-seconds; None without a limit. timeline: see ``Clock.timeline``.
    """
    total = timeline["total_seconds"]
    if budget is None or total <= budget:
        return ()
    phases = {phase: timeline.get(f"{phase}_seconds", 0.0) for phase in PHASES}
    phases["the rest"] = total - sum(phases.values())
    parts = ", ".join(f"{seconds:.1f} s {phase}" for phase, seconds in phases.items() if seconds >= 0.05)
    return (
        f"--max-seconds {budget:g} was exceeded: the run took {total:.1f} s ({parts}). It does not cut short what every result "
        "needs: starting and building each subject, its first two steps, one round of timed blocks, and the comparison with "
        "the reference",
    )
