"""Progress on standard error while a command works: one live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors import shown
from ..progress import Listener
from . import numbers
from .style import BROKEN, coloured
from .tables import headed
from .terminal import Output
from .text import escape, quoted

REPEAT_SECONDS = 15.0  # seconds between two plain lines about the same long step
REDRAW_SECONDS = 0.25  # least seconds between two drawings while blocks are timed in between
TIMED = "all subjects"  # the name of the line about the timed rounds
LONGEST_SUBJECT = 28  # characters of a subject in the table
LONG_SECONDS = 10.0  # after so many, a line above the table says how long it took so far
LAST = 3  # sentences below the table that stay longer than the lines of subjects that do nothing


@contextmanager
def progress_listener(quiet: bool) -> Iterator[Listener]:
    """A listener that shows progress on standard error, or nothing when quiet."""
    console = Output(stderr=True)
    if quiet:
        yield Listener()
    elif _can_redraw(console):
        # A thread that redraws would use the processor while a block is timed.
        with Live(console=console, transient=True, auto_refresh=False) as display:
            try:
                yield LiveProgress(display)
            finally:
                display.update("")  # rich draws once more at the end
    else:
        yield PlainProgress()


def _can_redraw(console: Console) -> bool:
    """Whether lines can be drawn again in place. The stream is asked, too: rich takes a pipe for a terminal with FORCE_COLOR."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


@dataclass
class _Line:
    """A line of the table.

    doing: the step of the subject, or what it waits for.
    progress: how far the step is.
    left: the time that it still takes.
    rate: the speed during the warm-up; "" before.
    verdicts: the verdicts so far, in rich's markup.
    over: whether the subject cannot go on.
    """

    doing: str = ""
    progress: str = ""
    left: str = ""
    rate: str = ""
    verdicts: str = ""
    over: bool = False

    def wait(self) -> None:
        """Show that the subject does nothing at present."""
        self.doing, self.progress, self.left = "warm" if self.rate else "waiting", "", ""

    @property
    def is_idle(self) -> bool:
        """Whether the subject does nothing at present."""
        return self.over or self.doing in ("warm", "waiting", "judged")

    @property
    def cells(self) -> tuple[Text, Text, Text]:
        """Phase, progress and time left."""
        known = self.verdicts and not self.progress
        progress = Text.from_markup(self.verdicts) if known else Text(shown(self.progress or self.rate))
        return Text(shown(self.doing), style=BROKEN if self.over else ""), progress, Text(self.left)


class LiveProgress(Listener):
    """One table with a line for each subject. It is drawn again when something happens, and never while a block is timed."""

    def __init__(self, display: Live) -> None:
        self.display = display
        self.lines: defaultdict[str, _Line] = defaultdict(_Line)
        self.below: dict[str, str] = {}  # what a sentence below the table is about -> the sentence
        self.begun, self.drawn = time.monotonic(), 0.0
        self.lock = threading.RLock()  # subjects that start do so in several threads

    def phase(self, subject: str, doing: str) -> None:
        with self._changed():
            self.lines.pop(TIMED, None)
            line = self.lines[subject]
            line.doing, line.progress, line.left = doing, "", ""

    def ended(self, subject: str, problem: str) -> None:
        with self._changed():
            line = self.lines[subject]
            line.wait()
            if problem:
                line.doing, line.rate, line.over = problem, "", True

    def beat(self, subject: str, seconds: float, line: str) -> None:
        with self._changed():
            self.lines[subject].progress = numbers.duration(seconds)

    def warm(self, subject: str, rate: float) -> None:
        with self._changed():
            self.lines[subject].rate = f"about {numbers.figure(rate)} a second"

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        with self._changed(soon=done == total):
            for line in self.lines.values():
                if not line.over:
                    line.wait()
            self.lines[TIMED] = _Line("timing in alternation", f"round {done} of {total}", _left(seconds_left))

    def judged(self, subject: str, task: str, verdict: str) -> None:
        with self._changed():
            line = self.lines[subject]
            line.doing = "judged"
            line.verdicts = ", ".join(filter(None, (line.verdicts, f"{escape(task)}: {coloured(verdict)}")))

    def process_run_done(self, done: int, least: int, figures: str) -> None:
        with self._changed():
            seconds = (time.monotonic() - self.begun) / done * max(0, least - done)
            left = f", {_left(seconds)} left at least" if seconds else ""
            self.below["process runs"] = f"{_process_runs(done, least)}{left}: {figures}"

    def so_far(self, rows: Sequence[str]) -> None:
        with self._changed():
            self.below |= {row: f"ready: {row}" for row in rows}

    def note(self, text: str) -> None:
        with self._changed():
            self.below[text] = f"note: {text}"

    @contextmanager
    def _changed(self, soon: bool = True) -> Iterator[None]:
        """Draw the table again after a change. soon: even when it has only just been drawn."""
        with self.lock:
            yield
            if soon or time.monotonic() - self.drawn >= REDRAW_SECONDS:
                self.display.update(self._drawing(), refresh=True)
                self.drawn = time.monotonic()

    def _drawing(self) -> Group:
        """The table and the sentences below it, in fewer lines than the terminal has: what scrolled away cannot be erased."""
        console, hidden = self.display.console, 0
        while True:
            drawing = self._without(hidden)
            excess = len(console.render_lines(drawing, pad=False)) - (console.size.height - 1)
            if excess <= 0 or hidden >= len(self.lines) + len(self.below):
                return drawing
            hidden += excess

    def _without(self, count: int) -> Group:
        """The drawing with this number of lines left out: old sentences first, then subjects that do nothing at present."""
        rows, said = dict(self.lines), dict(self.below)
        sentences, idle = list(said), [name for name, line in rows.items() if line.is_idle]
        order: list[tuple[dict[str, _Line] | dict[str, str], str]] = [
            *((said, key) for key in sentences[:-LAST]),
            *((rows, name) for name in idle),
            *((said, key) for key in sentences[-LAST:]),
            *((rows, name) for name in self.lines if name not in idle),
        ]
        for kept, name in order[:count]:
            del kept[name]
        hidden, seconds = len(self.lines) - len(rows), time.monotonic() - self.begun
        above = [f"{numbers.duration(seconds)} so far"] if seconds >= LONG_SECONDS else []
        below = [*([f"and {hidden} more subjects"] if hidden else []), *said.values()]
        return Group(*map(Text, above), self._table(rows), *(Text(quoted(text)) for text in below))

    def _table(self, rows: dict[str, _Line]) -> Table:
        table = headed()
        table.expand = True
        table.add_column("subject", no_wrap=True, max_width=LONGEST_SUBJECT)
        table.add_column("phase", ratio=1)
        table.add_column("progress", no_wrap=True, ratio=1)
        table.add_column("time left", no_wrap=True, justify="right")
        for name, line in rows.items():
            table.add_row(Text(quoted(name)), *line.cells)
        return table


class PlainProgress(Listener):
    """One line for each step, and further lines for a long step."""

    def __init__(self) -> None:
        self.told_at: dict[str, float] = {}  # subject -> seconds since its step began, at its latest line

    def tell(self, text: str) -> None:
        sys.stderr.write(quoted(text) + "\n")  # one write for each line, because two threads may print at once
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
            self.tell(f"timing: round {done} of {total}, {seconds_left:.0f} s left")

    def judged(self, subject: str, task: str, verdict: str) -> None:
        self.tell(f"{subject}, {task}: {verdict}")

    def warm(self, subject: str, rate: float) -> None:
        self.tell(f"{subject}: warm, about {rate:,.4g} a second")

    def process_run_done(self, done: int, least: int, figures: str) -> None:
        self.tell(f"{_process_runs(done, least)}: {figures}")

    def so_far(self, rows: Sequence[str]) -> None:
        for row in rows:
            self.tell(f"ready: {row}")

    def note(self, text: str) -> None:
        self.tell(f"note: {text}")


def _left(seconds: float) -> str:
    """A duration that is still to come; "" when there is none."""
    return numbers.duration(seconds) if seconds > 0 else ""


def _process_runs(done: int, least: int) -> str:
    return f"process run {done} of {least} or more" if least > 1 else "timed"
