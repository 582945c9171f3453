"""Progress on standard error while a run works: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ..errors import printable
from ..progress import Listener
from .style import coloured
from .terminal import Output

QUIET_SECONDS = 3.0  # the last line of the worker's log is shown only for steps that take longer
REPEAT_SECONDS = 15.0  # seconds between two plain lines about the same long step


@contextmanager
def progress_listener(quiet: bool) -> Iterator[Listener]:
    """A listener that shows progress on standard error, or nothing when quiet."""
    console = Output(stderr=True)
    if quiet:
        yield Listener()
    elif console.is_terminal:
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            auto_refresh=False,  # a thread that redraws would use the processor while a block is timed
        )
        with progress:
            yield LiveProgress(progress)
    else:
        yield PlainProgress()


class LiveProgress(Listener):
    """One line for the candidates and one for the reference. They are drawn again when something happens, never in between."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("starting", total=None, left="")
        self.reference = progress.add_task("reference", total=None, left="", visible=False)

    def phase(self, subject: str, doing: str) -> None:
        text = f"[bold]{escape(subject)}[/] {escape(doing)}"
        self.progress.reset(self._task(subject), total=None, description=text, left="", visible=True)

    def _task(self, subject: str) -> TaskID:
        return self.reference if subject == "reference" else self.task

    def beat(self, subject: str, seconds: float, line: str) -> None:
        if seconds > QUIET_SECONDS and line:
            self.progress.update(self._task(subject), left=f"[dim]{escape(line[:60])}[/]")
        self.progress.refresh()  # the time

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        self.progress.update(self.reference, visible=False)
        self.progress.update(
            self.task, description="[bold]timing[/] all subjects, interleaved", total=total, completed=done,
            left=_rounds(done, total, seconds_left), refresh=True,
        )  # fmt: skip

    def judged(self, subject: str, task: str, verdict: str) -> None:
        self.progress.console.print(f"[bold]{escape(subject)}[/], {task}: {coloured(verdict)}")

    def warm(self, subject: str, rate: float) -> None:
        self.progress.console.print(f"[bold]{escape(subject)}[/] is warm: about {rate:,.4g} a second")

    def process_run_done(self, done: int, least: int, figures: str) -> None:
        self.progress.console.print(f"[bold]{_process_runs(done, least)}[/]: {escape(figures)}")

    def note(self, text: str) -> None:
        self.progress.console.print(f"[yellow]note:[/] {escape(text)}")


class PlainProgress(Listener):
    """One line for each step, and further lines for a long step."""

    def __init__(self) -> None:
        self.told_at: dict[str, float] = {}  # subject -> seconds since its step began, at its latest line

    def tell(self, text: str) -> None:
        sys.stderr.write(printable(text) + "\n")  # one write for each line, because two threads may print at once
        sys.stderr.flush()

    def phase(self, subject: str, doing: str) -> None:
        self.told_at[subject] = 0.0
        self.tell(f"{subject}: {doing}")

    def beat(self, subject: str, seconds: float, line: str) -> None:
        if seconds - self.told_at.get(subject, 0.0) >= REPEAT_SECONDS:
            self.told_at[subject] = seconds
            self.tell(f"{subject}: {seconds:.0f} s so far" + (f": {line[:100]}" if line else ""))

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        if done == 1 or done == total or done * 4 // total != (done - 1) * 4 // total:
            self.tell(f"timing: {_rounds(done, total, seconds_left)}")

    def judged(self, subject: str, task: str, verdict: str) -> None:
        self.tell(f"{subject}, {task}: {verdict}")

    def warm(self, subject: str, rate: float) -> None:
        self.tell(f"{subject}: warm, about {rate:,.4g} a second")

    def process_run_done(self, done: int, least: int, figures: str) -> None:
        self.tell(f"{_process_runs(done, least)}: {figures}")

    def note(self, text: str) -> None:
        self.tell(f"note: {text}")


def _rounds(done: int, total: int, seconds_left: float) -> str:
    return f"round {done} of {total}, {seconds_left:.0f} s left"


def _process_runs(done: int, least: int) -> str:
    return f"process run {done} of {least} or more" if least > 1 else "timed"
