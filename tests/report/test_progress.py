import io

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
