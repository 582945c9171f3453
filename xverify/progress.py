"""The progress listener: what a run reports while it works."""

from __future__ import annotations

from collections.abc import Sequence


class Listener:
    """A progress listener that ignores everything. A subclass overrides the methods that it needs; the engine calls them."""

    def phase(self, subject: str, doing: str) -> None:
        """A step has begun. subject: a subject, or "reference". doing: what it does, as a phrase."""

    def ended(self, subject: str, problem: str) -> None:
        """The step is over. problem: the status of a subject that cannot go on, for example "crashed"; "" when it can."""

    def beat(self, subject: str, seconds: float, line: str) -> None:
        """The step continues. This is never called while a block of calls is timed.

        seconds: its duration so far. line: the last line that its worker printed.
        """

    def judged(self, subject: str, task: str, verdict: str) -> None:
        """The verdict on a model file is known. task: the question that it answers. Its speed is measured afterwards."""

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        """A round of timed blocks is complete. done, total: number of rounds. seconds_left: estimated time for the rest."""

    def warm(self, subject: str, rate: float) -> None:
        """The warm-up of a subject is over. rate: items per second during warm-up."""

    def process_run_done(self, done: int, least: int, figures: str) -> None:
        """A process run is complete.

        done: number of process runs so far.
        least: number of process runs that the run makes at least.
        figures: the speeds so far, as text.
        """

    def so_far(self, rows: Sequence[str]) -> None:
        """Some subjects are measured and judged, and others are begun only now. rows: a line on each one that is judged."""

    def note(self, text: str) -> None:
        """Show a sentence that the user should read."""
