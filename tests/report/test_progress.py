import io
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import FAULTY, write_folder
from rich.console import Console
from rich.progress import Progress

from xverify.report.progress import LiveProgress, PlainProgress, progress_listener


def test_plain_progress_reports_a_long_step_at_intervals(capsys):
    listener = PlainProgress()
    listener.phase("jittor", "warming up")
    for seconds in (5.0, 16.0, 20.0, 32.0):
        listener.beat("jittor", seconds, "compiling")
    for done in range(1, 9):
        listener.timing(done, 8, 3.2)
    listener.process_run_done(2, 6, "jittor 10 a second")
    listener.process_run_done(1, 1, "jittor 10 a second")
    assert capsys.readouterr().err.splitlines() == [
        "jittor: warming up",
        "jittor: 16 s so far: compiling",
        "jittor: 32 s so far: compiling",
        "timing: round 1 of 8, 3 s left",
        "timing: round 2 of 8, 3 s left",
        "timing: round 4 of 8, 3 s left",
        "timing: round 6 of 8, 3 s left",
        "timing: round 8 of 8, 3 s left",
        "process run 2 of 6 or more: jittor 10 a second",
        "timed: jittor 10 a second",
    ]


def test_quiet_prints_nothing(capsys):
    with progress_listener(quiet=True) as listener:
        listener.phase("jittor", "warming up")
        listener.note("a note")
    assert capsys.readouterr() == ("", "")


def test_in_a_terminal_the_reference_has_a_line_of_its_own():
    console = Console(file=io.StringIO(), width=100, force_terminal=True, highlight=False)
    progress = Progress(console=console)
    listener = LiveProgress(progress)
    listener.phase("jittor", "warming up [fast]")
    listener.phase("reference", "computing")
    first, second = progress.tasks
    assert (first.description, first.visible) == ("[bold]jittor[/] warming up \\[fast]", True)
    assert (second.description, second.visible) == ("[bold]reference[/] computing", True)
    listener.timing(3, 8, 2.0)
    assert (first.completed, first.fields["left"], second.visible) == (3, "round 3 of 8, 2 s left", False)
    listener.process_run_done(1, 6, "x")
    assert "process run 1 of 6 or more" in console.file.getvalue()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="counts processor time with /proc")
def test_the_live_display_uses_no_processor_time_while_a_block_is_timed(tmp_path):
    """The subject of this run sleeps for two seconds in each call, and counts the processor time of its parent."""
    folder, counted = write_folder(tmp_path / "port", ("watches",)), tmp_path / "seconds"
    arguments = ["run", str(folder), "--subjects", "watches", "--warmup", "0", "--rerun", "4", "--cases", "2"]
    master, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while text := os.read(master, 65536):
                shown.append(text)
        except OSError:
            pass  # the terminal is closed

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    environment = {**os.environ, "XVERIFY_FRAMEWORKS": str(FAULTY), "WATCH_FILE": str(counted), "TERM": "xterm"}
    command = [sys.executable, "-m", "xverify", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, env=environment, check=False, timeout=300)
    os.close(terminal)
    reader.join(10)
    os.close(master)
    assert done.returncode == 0, done.stdout
    assert b"timing" in b"".join(shown), "the display is live"
    lines = [line.split() for line in counted.read_text().splitlines()]
    seconds = [float(used) for folder, used in lines if folder != "reference"]
    timed = seconds[2:6]  # after the first and the second step
    assert max(timed) < 2e-3, f"a thread that redraws ten times a second uses more: {seconds}"
