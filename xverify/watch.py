"""What a run tells whoever watches it. The engine calls; every method may be left as it is."""

from __future__ import annotations


class Watch:
    """A watcher that says nothing."""

    def phase(self, subject: str, doing: str) -> None:
        """A step has begun: which subject (or "reference"), and what it does."""

    def beat(self, subject: str, seconds: float, line: str) -> None:
        """The step goes on: seconds so far, the last line that the worker logged."""

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        """Rounds of timed blocks done."""

    def note(self, text: str) -> None:
        """Something the user should know."""
