import io
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from xverify.report.layers import bar
from xverify.report.terminal import COLUMNS, MODELLED, WIDE, render
from xverify.results.conditions import Host, InputsSummary, ReferenceSummary, Settings, WeightsSummary
from xverify.results.records import Error, LayerError, Layers, Result, Row, Sample, Speed


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
    settings = Settings(threads=2, warmup=10, rerun=rerun)
    host, reference = Host("a processor"), ReferenceSummary("torch", "float64", "its own")
    conditions = host, settings, WeightsSummary(), InputsSummary(), reference
    return Result("lstm", ("forward",), "ERROR", rows, "now", "0", *conditions, "rule", item=item)


def printed(result, width=WIDE):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render(result, console)
    return console.file.getvalue()


def test_a_literal_run_shows_seconds_a_batch_and_items_a_second():
    text = printed(result())
    assert "lstm, forward, batch 128: 50 batches timed after 10 to warm up" in text
    head, _, first, refused, absent, *_ = text.splitlines()[2:]
    assert "sequences/s (95% interval)" in head
    assert all(
        title.format(rate="sequences/s") in head for title in COLUMNS if title not in (*MODELLED, "speed", "task")
    )
    assert first.split()[:5] == ["tensorflow:graph", "512", "(460.8–563.2)", "12.5", "0.25"]
    assert refused.split()[:6] == ["tensorflow:xla", "1,024", "not", "counted", "-", "-"]
    assert absent.split()[-2:] == ["unsupported", "-"]
    assert "tensorflow:xla: retraced 3 times" in text
    assert "tensorflow:while: its build takes no loop" in text


def test_images_are_counted_in_frames_and_elapsed_time_is_left_out_where_calls_differ():
    text = printed(result("image", rerun=None))
    assert "FPS (95% interval)" in text
    assert "elapsed" not in text


@pytest.mark.parametrize("width", [WIDE, 120, 100, 80])
def test_columns_give_way_and_none_is_cut(width):
    text = printed(result(), width)
    table = text.splitlines()[:7]
    assert max(map(len, table)) <= width
    assert "…" not in "".join(table)
    head = table[2]
    assert "sequences/s (95% interval)" in head
    assert head.split()[0] == "subject"
    assert "verdict" in head
    assert ("max |Δ|" in head) == (width == WIDE)


def test_a_warning_about_numbers_does_not_hide_why_the_speed_is_refused():
    drifting = Error("DRIFT", "fc differs first: 5 x its rounding floor")
    row = Row("torch:compile", "torch", "compile", "forward", "cpu", 8, "ok", error=drifting)
    text = printed(replace(result(), rows=(replace(row, speed=speed(0.1, "REFUSED", "retraced 2 times")),)))
    assert "torch:compile: fc differs first" in text
    assert "torch:compile: retraced 2 times" in text


def test_with_modelled_noise_the_table_has_its_columns():
    layers = Layers(
        (LayerError("conv1", "Conv2d", 1, 900.0, 9.0, 0.0, "DIFFERENT", explanation="pads by reflect"),),
        1,
        3,
        ("fc",),
        "jittor",
    )
    whole = result()
    bad = Error("DIFFERENT", layers.first.says(), 1.0, 1.0, 1.0, 50.0, noise_ratio=123.0, layers=layers)
    rows = (replace(whole.rows[0], error=bad), *whole.rows[1:])
    reference = replace(whole.reference, layers=3, tested=5, untested=("bn.eps",))
    weights = WeightsSummary("sha256:0", tensors=1, parameters=1, source="probe")
    text = printed(replace(whole, rows=rows, reference=reference, weights=weights, inputs=InputsSummary(cases=4)))
    assert "÷ noise" in text
    assert "÷ float32's" not in text
    assert "123.00" in text
    assert "1 of 3 differ" in text
    assert "conv1: pads by reflect" in text
    assert "not captured, so judged with the code between the others: fc" in text
    assert "UNTESTED: 1 of 6 weights and constants" in text


def test_bars_are_logarithmic_and_marked():
    assert "━" not in bar(0.0, "EQUAL").plain
    assert bar(None, "DIFFERENT").plain.count("━") == len(bar(None, "DIFFERENT").plain)
    lengths = [bar(ratio, "DRIFT").plain.count("━") for ratio in (1, 10, 100, 1000)]
    assert len({b - a for a, b in pairwise(lengths)}) == 1
    assert bar(1.0, "EQUAL").plain.count("┊") == 2
    assert bar(1000.0, "DIFFERENT").plain.count("┊") == 0
