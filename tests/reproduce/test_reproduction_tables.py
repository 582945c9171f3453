"""The tables of a reproduction: published figures beside measured ones, and which speeds count."""

import io
from dataclasses import replace

import pytest
from helpers.reproductions import result, row
from rich.console import Console

from xverify.reproduce.files import markdown
from xverify.reproduce.records import (
    Entry,
    Experiment,
    Figure,
    Part,
    PartRun,
    Reproduction,
    Source,
)
from xverify.reproduce.table import table_rows
from xverify.reproduce.terminal import print_closing, print_part
from xverify.results.records import Error, Memory

PART = Part(
    "mlp", "forward", 8, 10, 1000,
    (
        Entry("torch:eager", 0.1, {"GPU": Figure(seconds=(47, 48), gigabytes=1.5)}),
        Entry("jittor", 0.1, {"GPU": Figure(rate=200.0, named="another name")}),
        Entry("jax", 0.1, extra=True),
    ),
)  # fmt: skip
EXPERIMENT = Experiment("e", "which?", (PART,), (Source("GPU", "a card", "versions"),), by="step", notes=("a note",))


def done(*results, experiment=EXPERIMENT, **changes):
    part_runs = tuple(PartRun(experiment.parts[0], index, each) for index, each in enumerate(results))
    return Reproduction(experiment, 0.02, len(results), "random", "now", part_runs, **changes)


def printed(reproduction):
    console = Console(file=io.StringIO(), width=220, highlight=False)
    print_part(reproduction, PART, console)
    print_closing(reproduction, console, False, None)
    return console.file.getvalue()


def test_the_table_shows_published_figures_beside_measured_ones():
    found = done(result(row("torch:eager", 0.1), row("jittor", 0.05), row("jax", 0.2)))
    text = printed(found)
    assert "mlp, forward, batch 8: 20 steps timed after 1 to warm up; 20 of 1,000 steps: elapsed is measured" in text
    above, head, _, torch, jittor, jax = text.splitlines()[1:7]
    assert above.split()[-2:] == ["published", "published"]
    assert head.split()[-4:] == ["s/step,", "GPU", "GB,", "GPU"]
    assert torch.split()[:6] == ["torch:eager", "off", "20", "8", "2", "0.1"]
    assert torch.split()[-4:] == ["EQUAL", "identical", "0.047–0.048", "1.5"]
    assert jittor.split()[-2:] == ["0.04", "-"]
    assert jax.split()[-2:] == ["-", "-"]
    assert "published, GPU: a card; versions" in text
    assert "jittor: published as another name" in text
    assert "intervals overlap): jittor > torch:eager; published, GPU: the same order" in text
    assert "a note" in text
    assert text.splitlines()[-1] == "PASS e: 3 of 3 rows EQUAL"


def test_rows_whose_intervals_overlap_have_no_order():
    fast, slow = row("jittor", 0.095), row("torch:eager", 0.1)
    for ends, between in (((75.0, 90.0), "≈"), ((83.0, 90.0), ">")):
        found = done(
            result(
                replace(slow, speed=replace(slow.speed, fps_ci=(75.0, 82.0))),
                replace(fast, speed=replace(fast.speed, fps_ci=ends)),
            )
        )
        assert f"jittor {between} torch:eager; published" in printed(found)


def test_figures_of_repeats_agree_with_each_other():
    found = table_rows(EXPERIMENT, PART, 0.02, done(result(row("jittor", 0.1)), result(row("jittor", 0.3))).part_runs)
    line = found[1]
    assert line.elapsed == pytest.approx((2.0, 6.0))
    assert line.elapsed_seconds == pytest.approx(4.0)
    assert line.seconds_per_step == pytest.approx((0.1 * 0.3) ** 0.5), "the geometric mean, as that of ratios"
    assert line.rate == pytest.approx(line.batch / line.seconds_per_step)
    assert found[0].outcome == "failed"  # a row that no result has


def test_a_row_shows_its_worst_repeat():
    drift = Error("DRIFT", "fc differs first", 1e-3, 1e-2, 1e-4)
    other = row("jittor", 0.1, error=drift, weights_digest="sha256:2", memory=Memory(300.0))
    found = table_rows(EXPERIMENT, PART, 0.02, done(result(row("jittor", 0.1)), result(other)).part_runs)[1]
    assert (found.outcome, found.reason, found.relative_error) == ("DRIFT", "fc differs first", 1e-4)
    assert (found.weights, found.peak_mib) == ("DIFFERENT", 300.0)


def test_a_row_that_computes_something_else_has_its_speed_struck_out():
    wrong = row("jittor", 0.05)
    wrong = replace(
        wrong,
        error=Error("DIFFERENT", "fc differs first"),
        speed=replace(wrong.speed, verdict="REFUSED", reason="it does not compute the same"),
    )
    found = done(result(row("torch:eager", 0.1), wrong))
    text = printed(found)
    [line] = [line for line in text.splitlines() if line.startswith("jittor ")]
    assert line.split()[4:9] == ["-", "-", "160", "not", "counted"]
    assert "jittor: fc differs first" in text
    assert "fastest first" not in text
    assert "~~160~~ not counted" in markdown(found)
    assert found.verdict == "FAIL"


def refused(made, reason, short, noisy):
    return replace(made, speed=replace(made.speed, verdict="REFUSED", reason=reason, not_counted=short, noisy=noisy))


@pytest.mark.parametrize(("short", "noisy"), [("TOO NOISY", True), ("WORK_VANISHED", False)])
def test_a_refused_speed_is_struck_out_with_its_reason_and_takes_no_part_in_the_order(short, noisy):
    found = done(result(row("torch:eager", 0.1), refused(row("jittor", 0.05), "why it is refused", short, noisy)))
    text = printed(found)
    [line] = [line for line in text.splitlines() if line.startswith("jittor ")]
    assert line.split()[4:10] == ["-", "-", "160", "not", "counted:", short.split()[0]]
    assert "jittor: why it is refused" in text
    assert "fastest first" not in text
    assert f"~~160~~ not counted: {short}" in markdown(found)


def test_a_row_beside_a_refused_baseline_has_no_time_ratio():
    found = done(result(refused(row("torch:eager", 0.1), "why", "WORK_VANISHED", False), row("jittor", 0.05)))
    torch, jittor = table_rows(EXPERIMENT, PART, 0.02, found.part_runs)[:2]
    assert (torch.counted, torch.not_counted, jittor.counted, jittor.ratio) == (False, "WORK_VANISHED", True, None)


def test_a_noisy_repeat_is_left_out_and_a_faulty_one_is_not():
    quiet, noisy = row("jittor", 0.1), refused(row("jittor", 0.3), "20 of 40 rounds", "TOO NOISY", True)
    line = table_rows(EXPERIMENT, PART, 0.02, done(result(quiet), result(noisy)).part_runs)[1]
    assert (line.counted, line.seconds_per_step) == (True, pytest.approx(0.1))
    assert line.elapsed == pytest.approx((2.0, 6.0))
    assert line.reason == "a repeat is left out: 20 of 40 rounds"
    faulty = refused(row("jittor", 0.3), "why", "WORK_VANISHED", False)
    line = table_rows(EXPERIMENT, PART, 0.02, done(result(quiet), result(faulty)).part_runs)[1]
    assert (line.counted, line.not_counted, line.reason) == (False, "WORK_VANISHED", "why")


@pytest.mark.parametrize("status", ["unsupported", "not-installed"])
def test_an_extra_row_that_cannot_run_here_is_ignored(status):
    absent = row("jax", 1.0, status=status, reason="no", error=None, speed=None)
    assert done(result(row("torch:eager", 0.1), row("jittor", 0.1), absent)).verdict == "PASS"
    crashed = replace(absent, status="crashed")
    assert done(result(row("torch:eager", 0.1), row("jittor", 0.1), crashed)).verdict == "ERROR"
    published = replace(absent, subject="jittor")
    assert done(result(row("torch:eager", 0.1), published)).verdict == "ERROR"


def test_a_narrow_terminal_shows_fewer_columns():
    console = Console(file=io.StringIO(), width=100, highlight=False)
    print_part(done(result(row("torch:eager", 0.1), row("jittor", 0.1))), PART, console)
    text = console.file.getvalue()
    assert "s/step, GPU" in text
    assert "average" not in text
    assert "…" not in text
