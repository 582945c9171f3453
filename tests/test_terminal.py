import io

import pytest
from rich.console import Console

from xverify.records import Error, Result, Row, Sample, Speed
from xverify.report.terminal import render

ALL = (
    "elapsed s",
    "s/batch",
    "time ratio",
    "relative error",
    "mean |Δ|",
    "max |Δ|",
    "÷ float32's",
    "verdict",
    "peak MiB",
)


def speed(seconds, verdict=None, reason=None):
    samples = (Sample(0, 0, 50, 50 * seconds),)
    fps = 128 / seconds
    return Speed(
        fps,
        (0.9 * fps, 1.1 * fps),
        seconds,
        50 * seconds,
        50,
        10,
        1.0,
        (1.0, 1.0),
        verdict,
        reason,
        1.0,
        1.0,
        1.0,
        1.0,
        samples,
    )


def result(item="sequence", rerun=50):
    equal = Error("EQUAL", None, 1e-7, 1e-6, 1e-7, 1.25)
    common = ("tensorflow", "graph", "forward", "cpu", 128)
    rows = (
        Row("tensorflow:graph", *common, "ok", error=equal, speed=speed(0.25)),
        Row("tensorflow:xla", *common, "ok", error=equal, speed=speed(0.125, "REFUSED", "retraced 3 times")),
        Row("tensorflow:while", *common, "unsupported", "its build takes no loop"),
    )
    settings = {"threads": 2, "warmup": 10, "rerun": rerun}
    host, reference = {"cpu": "a processor"}, {"framework": "torch", "precision": "float64", "floor": "its own"}
    return Result("lstm", ("forward",), "ERROR", rows, "now", "0", host, settings, {}, {}, reference, "rule", item=item)


def printed(result, width=160):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(result, console)
    return console.file.getvalue()


def test_a_literal_run_shows_seconds_a_batch_and_items_a_second():
    text = printed(result())
    assert "lstm, forward, batch 128: 50 batches timed after 10 to warm up" in text
    head, _, first, refused, absent, *_ = text.splitlines()[2:]
    assert "sequences/s (95% interval)" in head
    assert all(title in head for title in ALL)
    assert first.split()[:5] == ["tensorflow:graph", "512", "(460.8–563.2)", "12.5", "0.25"]
    assert refused.split()[:6] == ["tensorflow:xla", "1,024", "not", "counted", "-", "-"]
    assert absent.split()[-2:] == ["unsupported", "-"]
    assert "tensorflow:xla: retraced 3 times" in text
    assert "tensorflow:while: its build takes no loop" in text


def test_images_are_counted_in_frames_and_elapsed_time_is_left_out_where_calls_differ():
    text = printed(result("image", rerun=None))
    assert "FPS (95% interval)" in text
    assert "elapsed" not in text


@pytest.mark.parametrize("width", [160, 120, 100, 80])
def test_columns_give_way_and_none_is_cut(width):
    text = printed(result(), width)
    table = text.splitlines()[:7]
    assert max(map(len, table)) <= width
    assert "…" not in "".join(table)
    head = table[2]
    assert [title in head for title in ("subject", "sequences/s (95% interval)", "÷ float32's", "verdict")] == [
        True
    ] * 4
    assert ("max |Δ|" in head) == (width == 160)
