"""What a run tells whoever watches it. The engine calls; every method may be left as it is."""

from __future__ import annotations


class Listener:
    """A listener that says nothing."""

    def phase(self, subject: str, doing: str) -> None:
        """A step has begun: which subject (or "reference"), and what it does."""

    def beat(self, subject: str, seconds: float, line: str) -> None:
        """The step goes on: seconds so far, the last line that the worker logged."""

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        """Rounds of timed blocks done."""

    def warm(self, subject: str, rate: float) -> None:
        """A subject is warm: items a second, as far as warm-up tells."""

    def launched(self, done: int, least: int, figures: str) -> None:
        """Launches done, of so many at least, and what they say so far."""

    def note(self, text: str) -> None:
        """Something the user should know."""
