import io
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from xverify.report.layers import bar
from xverify.report.rows import COLUMNS, DETECTION, FLOAT32, NOISE
from xverify.report.terminal import WIDE, Output, render
from xverify.results.conditions import Host, InputsSummary, NoiseSummary, ReferenceSummary, Settings, WeightsSummary
from xverify.results.records import Error, LayerError, Layers, ProcessRun, Result, Row, Sample, Speed, TensorError


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


def printed(result, width=WIDE, details=False):
    console = Output(file=io.StringIO(), width=width)
    render(result, console, details=details)
    return console.file.getvalue()


def detailed(result):
    return printed(result, details=True)


def test_a_run_with_rerun_shows_seconds_a_batch_and_items_a_second():
    text = printed(result())
    assert "lstm, forward, batch 128: 50 batches timed after 10 to warm up" in text
    head, _, first, refused, absent, *_ = text.splitlines()[1:]
    assert "sequences/s (95% interval)" in head
    assert all(
        column.title.format(rate="sequences/s") in head
        for column in COLUMNS
        if column.title not in (NOISE, DETECTION, "layers", "speed", "task")
    )
    assert first.split()[:5] == ["tensorflow:graph", "512", "(460.8–563.2)", "12.5", "0.25"]
    assert refused.split()[:7] == ["tensorflow:xla", "1,024", "not", "counted:", "REFUSED", "-", "-"]
    assert absent.split()[-2:] == ["unsupported", "-"]
    assert "tensorflow:xla: retraced 3 times" in text
    assert "tensorflow:while: its build takes no loop" in text


def test_images_are_counted_in_frames_and_elapsed_time_is_left_out_where_calls_differ():
    text = printed(result("image", rerun=None))
    assert "FPS (95% interval)" in text
    assert "elapsed" not in text


@pytest.mark.parametrize("width", [WIDE, 120, 100, 90, 80])
def test_a_narrow_table_keeps_the_errors_and_cuts_none(width):
    text = printed(result(), width)
    table = text.splitlines()[:7]
    assert max(map(len, table)) <= width
    assert "…" not in "".join(table)
    head = " ".join(" ".join(table[:4]).split())
    for title in ("subject", "sequences", "relative", "mean", "max", "verdict"):
        assert title in head
    assert ("(95% interval)" in head) == (width == WIDE)
    assert ("peak" in head) == (width >= 120)


def test_a_warning_about_numbers_does_not_hide_why_the_speed_is_refused():
    drifting = Error("DRIFT", "fc differs first: 5 x its rounding floor")
    row = Row("torch:compile", "torch", "compile", "forward", "cpu", 8, "ok", error=drifting)
    text = printed(replace(result(), rows=(replace(row, speed=speed(0.1, "REFUSED", "retraced 2 times")),)))
    assert "torch:compile: fc differs first" in text
    assert "torch:compile: retraced 2 times" in text


def test_a_run_with_a_noise_model_shows_its_columns():
    layers = Layers(
        (LayerError("conv1", "Conv2d", 1, 900.0, 9.0, 0.0, "DIFFERENT", explanation="pads by reflect"),),
        1,
        3,
        ("fc",),
        "jittor",
    )
    whole = result()
    bad = Error("DIFFERENT", layers.describe(layers.first), 1.0, 1.0, 1.0, 50.0, noise_ratio=123.0, layers=layers)
    rows = (replace(whole.rows[0], error=bad), *whole.rows[1:])
    reference = replace(whole.reference, layers=3, tested=5, untested=("bn.eps",))
    weights = WeightsSummary("sha256:0", tensors=1, parameters=1, source="probe")
    text = detailed(replace(whole, rows=rows, reference=reference, weights=weights, inputs=InputsSummary(cases=4)))
    assert NOISE in text
    assert FLOAT32 not in text
    assert " 123 " in text
    assert "1 of 3 differ" in text
    assert "conv1: pads by reflect" in text
    assert "not captured, so checked together with the glue code around them: fc" in text
    assert "UNTESTED: 1 of 6 weights and constants" in text


def test_a_column_title_is_shortened_in_a_narrow_table():
    whole = result(rerun=None)
    judged = Error("EQUAL", None, 1e-7, 1e-6, 1e-7, 1.25, noise_ratio=0.5)
    whole = replace(whole, rows=tuple(replace(row, error=judged) for row in whole.rows))
    assert NOISE in printed(whole)
    assert "× floor" not in printed(whole).splitlines()[1]
    narrow = printed(whole, 135).splitlines()[1]
    assert "× floor" in narrow
    assert "peak MiB" in narrow  # no column has to give way for it


def test_the_footer_says_what_was_checked_and_against_what():
    whole = result()
    layers = Layers((), 3, 3, (), "torch:eager")
    equal = Error("EQUAL", noise_ratio=0.5, layers=layers)
    rows = tuple(replace(row, error=equal, weights_digest="sha256:0") for row in whole.rows[:2])
    weights = WeightsSummary("sha256:0", tensors=2, parameters=1234, statistics=1, source="probe")
    reference = replace(whole.reference, layers=3, tested=5)
    whole = replace(whole, rows=rows, weights=weights, inputs=InputsSummary(cases=4), reference=reference)
    text = detailed(whole)
    assert "Weights: probe, read back equal from 2 of 2 subjects (sha256:0…), so every row computes" in text
    assert "1,234 parameters in 2 tensors, running statistics: 1" in text
    assert "Outputs: 4 input cases checked against torch in float64; residual / noise floor" in text
    assert "Layers: 3 of 3 checked against float64 in 2 of 2 subjects" in text
    assert "quick run: one process each, too few to call one faster" in text
    other = detailed(replace(whole, rows=(rows[0], replace(rows[1], weights_digest="sha256:1"))))
    assert "read back equal from 1 of 2 subjects" in other
    partly = replace(equal, layers=Layers((), 2, 3, ("fc",), "torch:eager"))
    text = detailed(replace(whole, rows=tuple(replace(row, error=partly) for row in rows)))
    assert "Layers: no subject has all 3 checked against float64; each that is checked is computed again" in text
    assert "tensorflow:graph: 2 of 3 checked against float64" in text
    assert "so every row" not in other


def test_the_footer_names_the_number_of_process_runs():
    quick = result()
    runs = tuple(ProcessRun(index, 1.0, 1.0, 1.0, 1.0, 10, 1.0) for index in range(6))

    def told(count, effort):
        rows = tuple(row if row.speed is None else replace(row, speed=replace(row.speed, launches=runs[:count]))
                     for row in quick.rows)  # fmt: skip
        text = detailed(replace(quick, rows=rows, settings=replace(quick.settings, effort=effort)))
        return next(line for line in text.splitlines() if line.startswith("Speed: "))

    assert told(1, "quick").startswith("Speed: a processor, 2 threads; quick run: one process each, too few to call")
    assert told(1, "standard").startswith("Speed: a processor, 2 threads; one process each, too few to call")
    assert "6 process runs a subject; intervals are over process runs" in told(6, "standard")
    absent = replace(quick, rows=quick.rows[2:])
    assert "no subject was timed" in detailed(absent)


@pytest.mark.parametrize(
    ("noise", "line"),
    [
        ({"dropped": 0}, "Noise: 0 of 40 rounds dropped as noisy"),
        ({"dropped": 2, "reasons": {"steal": 2}, "culprit": "a program"},
            "Noise: 2 of 40 rounds dropped as noisy (steal: 2); a program"),
        ({"dropped": 20, "refusal": "20 of 40 rounds were noisy"},
            "TOO NOISY for a verdict on speed: 20 of 40 rounds were noisy"),
        ({"dropped": 0, "missing": ["steal"]},
            "Noise: 0 of 40 rounds dropped as noisy; this system does not report steal"),
    ],
)  # fmt: skip
def test_noise_is_one_sentence(noise, line):
    assert line in detailed(replace(result(), noise=NoiseSummary(rounds=40, **noise))).splitlines()


def test_bars_are_logarithmic_and_marked():
    assert "━" not in bar(0.0, "EQUAL").plain
    assert bar(None, "DIFFERENT").plain.count("━") == len(bar(None, "DIFFERENT").plain)
    lengths = [bar(ratio, "DRIFT").plain.count("━") for ratio in (1, 10, 100, 1000)]
    assert len({b - a for a, b in pairwise(lengths)}) == 1
    assert bar(1.0, "EQUAL").plain.count("┊") == 2
    assert bar(1000.0, "DIFFERENT").plain.count("┊") == 0


def cell_lines(whole):
    return {line.split()[0]: line for line in printed(whole).splitlines() if line.strip()}


@pytest.mark.parametrize("short", ["TOO NOISY", "WORK_VANISHED", "process runs differ"])
def test_a_refused_speed_is_struck_out_with_the_reason_in_its_row(short):
    whole = result()
    refused = replace(whole.rows[1].speed, noisy=True, not_counted=short)
    whole = replace(whole, rows=(whole.rows[0], replace(whole.rows[1], speed=refused)))
    line = cell_lines(whole)["tensorflow:xla"]
    assert f"1,024 not counted: {short} " in line
    assert "(" not in line, "no interval"
    assert line.split(short)[1].split()[:3] == ["-", "-", "-"], "no elapsed time, no seconds a batch, no ratio"
    console = Console(file=io.StringIO(), width=WIDE, force_terminal=True, color_system="standard", highlight=False)
    render(whole, console)
    assert "\x1b[9m1,024\x1b[0m not counted" in console.file.getvalue()


def test_a_row_beside_a_refused_baseline_has_a_speed_and_no_ratio():
    whole = result()
    refused, good = replace(whole.rows[0], speed=whole.rows[1].speed), replace(whole.rows[1], speed=whole.rows[0].speed)
    line = cell_lines(replace(whole, rows=(refused, good)))["tensorflow:xla"]
    assert line.split()[:6] == ["tensorflow:xla", "512", "(460.8–563.2)", "12.5", "0.25", "-"]


def test_a_result_of_two_tasks_tells_of_each_what_it_was_measured_with():
    whole = result()
    weights, noise = WeightsSummary("sha256:0", tensors=2, source="probe"), NoiseSummary(rounds=8, dropped=1)
    forward = replace(whole, weights=weights, inputs=InputsSummary(cases=4), noise=noise)
    loud = NoiseSummary(rounds=8, dropped=8, refusal="8 of 8 rounds were noisy")
    train = replace(
        forward,
        tasks=("train",),
        rows=tuple(replace(row, task="train") for row in whole.rows),
        inputs=InputsSummary(cases=3, kind="images"),
        noise=loud,
    )
    receipts = {"forward": forward.receipt(), "train": train.receipt()}
    joined = replace(train, tasks=("forward", "train"), rows=(*forward.rows, *train.rows), receipts=receipts)
    text = detailed(joined)
    assert "forward: Outputs: 4 input cases checked against torch in float64" in text
    assert "train: Training: 3 batches (images)" in text
    assert "forward: Noise: 1 of 8 rounds dropped as noisy" in text
    assert "train: TOO NOISY for a verdict on speed: 8 of 8 rounds were noisy" in text
    assert text.count("Weights: probe") == 1, "what both tasks share is told once"
    assert [part.rows for part in joined.by_task()] == [forward.rows, train.rows]
    assert forward.by_task() == (forward,)


def test_a_row_shows_what_would_have_been_seen_and_which_values_no_digit_determines():
    whole = result()
    tensor = TensorError(
        3, "logits", rel_rms=1e-6, noise_ratio=0.5, local_ratio=1.0, detection_limit=1.03e-5, detection_limit_index=3e-5,
        detection_limit_value=2e-4, undetermined=0.0124, undetermined_at=((3, 0, 5), (3, 0, 6)), not_judged=("[:, 9:13]",),
        rounding_alone=("[:, 2]",),
    )  # fmt: skip
    error = Error("EQUAL", None, 1e-7, 1e-6, 1e-7, 1.25, noise_ratio=0.5, tensors=(tensor,), detection_limit=1.03e-5)
    shown = replace(whole, rows=(replace(whole.rows[0], error=error, speed=None),))
    text = printed(shown)
    assert [line.split()[-3:] for line in text.splitlines() if line.startswith("tensorflow:graph")] == [
        ["EQUAL", "2e-05", "-"]
    ]
    says = "logits, case 3: 1.2% of the values have no digit that float32 determines; they are compared with their own noise alone"
    assert f"{says} (the first in item 3, row 0: [3, 0, 5])" in text
    for local_ratio, told in ((1.0, False), (None, True)):  # decisions are told however few they are
        few = replace(tensor, undetermined=0.001, local_ratio=local_ratio)
        shown = replace(whole, rows=(replace(whole.rows[0], error=replace(error, tensors=(few,)), speed=None),))
        assert ("rounding decides 0.1% of the whole numbers" in printed(shown)) == told
    assert (
        "rounding explains up to 2e-06 of `logits`; a relative error from 2e-05 on in all values, from 3e-05 on in one class, "
        "channel or item, from 0.0002 on in one value would have been seen, but not in `logits[:, 9:13]`; `logits[:, 2]`: zero but "
        "for rounding, so without a relative limit: the error is compared with its own noise"
    ) in detailed(shown)


def test_faults_are_told_one_in_a_line_the_largest_first_and_counted():
    found = tuple(LayerError(f"fc{n}", "Linear", 1, 50.0 * (n + 1), 0.0, 0.0, "DIFFERENT") for n in range(6))
    layers = Layers(found, 6, 6)
    whole = result()
    first = f"{layers.describe(found[0])} (the first in the order of computation)"
    reason = "; ".join([*(layers.describe(layer) for layer in found[:1:-1]), first, "and 1 more"])
    error = Error("DIFFERENT", reason, layers=layers)
    text = printed(replace(whole, rows=(replace(whole.rows[0], error=error),)))
    lines = [
        line.removeprefix("  tensorflow:graph: ")
        for line in text.splitlines()
        if line.startswith("  tensorflow:graph: ")
    ]
    assert [line.split()[0] for line in lines] == ["fc5", "fc4", "fc3", "fc2", "fc0", "and"]
    assert lines[0].startswith("fc5 differs: 300 x its noise floor")
    assert lines[4].endswith("(the first in the order of computation)")
    assert lines[5] == "and 1 more; --layers shows all"
