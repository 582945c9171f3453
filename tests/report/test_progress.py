import io
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import FAULTY, write_folder
from rich.console import Console
from rich.live import Live

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


def shown(tell, height=25):
    """What a terminal of 100 columns shows after these calls, without what was erased."""
    console = Console(
        file=io.StringIO(), width=100, height=height, force_terminal=True, color_system=None, highlight=False
    )
    display = Live(console=console, auto_refresh=False)
    tell(LiveProgress(display))
    console.file = io.StringIO()
    console.print(display.get_renderable())
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]


def test_every_subject_has_a_line_in_the_live_table():
    def tell(listener):
        listener.phase("reference", "computing")
        listener.phase("jittor", "warming up [fast]")
        listener.beat("jittor", 2.0, "compiling")
        listener.beat("reference", 200.0, "reading :smile: [bold]")

    head, rule, *lines = shown(tell)
    assert head == "subject phase progress time left"
    assert set(rule) == {"─"}
    assert lines == ["reference computing 3 min", "jittor warming up [fast] 2 s"]


def test_a_table_of_many_subjects_fits_into_the_terminal_and_shows_those_that_work():
    def tell(listener):
        for number in range(40):
            listener.phase(f"subject{number}", "building the model")
            listener.note(f"note {number}")
            if number != 33:
                listener.ended(f"subject{number}", "")
        listener.timing(3, 8, 2.0)
        listener.phase("subject33", "warming up")

    head, _, *lines = shown(tell, height=12)
    assert head == "subject phase progress time left"
    assert len(lines) == 9
    assert "subject33 warming up" in lines
    assert lines[-4:] == ["and 35 more subjects", "note: note 37", "note: note 38", "note: note 39"]


def test_long_work_has_its_time_above_the_table(monkeypatch):
    seconds = iter([0.0, 0.0, 0.0, 130.0, 130.0, 130.0, 130.0])
    monkeypatch.setattr("xverify.report.progress.time", SimpleNamespace(monotonic=lambda: next(seconds)))

    def tell(listener):
        listener.phase("jittor", "warming up")
        listener.beat("jittor", 130.0, "compiling")

    assert shown(tell) == ["2 min so far", "subject phase progress time left", "─" * 100, "jittor warming up 2 min"]


def test_while_blocks_are_timed_one_line_shows_the_rounds():
    def tell(listener):
        listener.phase("jittor", "first step, warming up")
        listener.warm("jittor", 12.3456)
        listener.ended("jittor", "")
        listener.phase("torch:eager", "building the model")
        listener.ended("torch:eager", "crashed")
        listener.phase("reference", "computing")
        listener.timing(8, 8, 2.0)
        listener.process_run_done(1, 6, "jittor 12 a second")
        listener.note("something")

    assert shown(tell)[2:5] == ["jittor warm about 12.35 a second", "torch:eager crashed", "reference waiting"]
    timed, run, note = shown(tell)[5:]
    assert timed == "all subjects timing in alternation round 8 of 8 2 s"
    assert run.startswith("process run 1 of 6 or more, ")
    assert run.endswith(" left at least: jittor 12 a second")
    assert note == "note: something"


def test_the_next_step_takes_the_line_of_the_rounds_away():
    def tell(listener):
        listener.timing(8, 8, 0.0)
        listener.phase("reference", "computing in float64")
        listener.judged("a.onnx", "runtime", "EQUAL")
        listener.judged("a.onnx", "conversion", "DRIFT")

    assert shown(tell)[2:] == ["reference computing in float64", "a.onnx judged runtime: EQUAL, conversion: DRIFT"]


def test_rounds_that_follow_each_other_quickly_are_not_all_drawn():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    listener = LiveProgress(Live(console=console, auto_refresh=False))
    drawn = []
    listener.display.update = lambda *_, **__: drawn.append(1)
    for done in range(1, 101):
        listener.timing(done, 100, 1.0)
    assert 1 <= len(drawn) <= 5


@pytest.mark.slow
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
