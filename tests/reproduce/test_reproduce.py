"""xverify reproduce: the records of the experiments, and small ones of numpy's run as a user would."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import write_folder
from rich.console import Console

from xverify.commands._main import main
from xverify.errors import UsageError
from xverify.framework import discovery as frameworks
from xverify.reference.request import resolve
from xverify.reference.subjects import offered
from xverify.report.numbers import duration
from xverify.reproduce import run as running
from xverify.reproduce.files import markdown
from xverify.reproduce.published import EXPERIMENTS
from xverify.reproduce.records import (
    QUICK_SECONDS,
    SCALES,
    Entry,
    Experiment,
    Figure,
    Part,
    PartRun,
    Reproduction,
    Source,
    check_scale,
)
from xverify.reproduce.run import find_data
from xverify.reproduce.table import table_rows
from xverify.reproduce.terminal import print_closing, print_part
from xverify.results.conditions import Host, InputsSummary, ReferenceSummary, Settings, WeightsSummary
from xverify.results.records import Error, Memory, Result, Row, Sample, Speed
from xverify.workload.options import RunSettings
from xverify.workload.spec import find_model

PARTS = [(experiment, part) for experiment in EXPERIMENTS.values() for part in experiment.parts]
ENTRIES = [(experiment, part, entry) for experiment, part in PARTS for entry in part.entries]


# -- the records ------------------------------------------------------------------------------------------------------


def test_the_experiments_are_those_that_were_published():
    assert [*EXPERIMENTS] == [
        "mlp-mnist", "resnet50-cifar10", "resnet152-random", "jittor-method", "lstm-ptb", "tf-torch-jit", "vgg16",
    ]  # fmt: skip


@pytest.mark.parametrize(("experiment", "part"), PARTS, ids=lambda each: getattr(each, "name", None))
def test_the_engine_accepts_the_settings_of_every_part(experiment, part):
    settings = part.settings(0.5, None)
    resolve(part.model, [entry.subject for entry in part.entries], RunSettings(**settings))
    assert len({entry.subject for entry in part.entries}) == len(part.entries)
    assert (part.optimizer is not None) == (part.lr is not None) == (part.task == "train")


@pytest.mark.parametrize(
    ("experiment", "part", "entry"), ENTRIES, ids=[f"{p.model}-{p.task}-{e.subject}" for _, p, e in ENTRIES]
)
def test_every_published_row_is_a_subject_that_can_run_the_model(experiment, part, entry):
    adapter, mode = frameworks.parse_subject(entry.subject)
    folder = find_model(part.model)
    assert adapter.label(mode) == entry.subject
    assert offered(folder, adapter)
    assert set(entry.figures) <= {source.name for source in experiment.sources}
    if not entry.extra:
        assert adapter.refuses(folder, mode) == ""
    else:
        assert not entry.figures


def test_every_source_has_figures():
    assert len(EXPERIMENTS) > 1
    for experiment in EXPERIMENTS.values():
        used = {name for part in experiment.parts for entry in part.entries for name in entry.figures}
        assert used == {source.name for source in experiment.sources}


def test_experiments_about_jit_have_rows_with_and_without_it():
    for name in ("mlp-mnist", "resnet50-cifar10", "resnet152-random", "lstm-ptb", "tf-torch-jit"):
        for part in EXPERIMENTS[name].parts:
            assert {entry.jit for entry in part.entries} == {"on", "off"}
    assert Entry("tensorflow:graph", 1.0).jit == "off"
    assert Entry("tensorflow:xla", 1.0).jit == "on"


def figure(name, index, subject, source):
    """(seconds a step, items a second) of a published figure."""
    experiment = EXPERIMENTS[name]
    part = experiment.parts[index]
    [entry] = [entry for entry in part.entries if entry.subject == subject]
    [place] = [each for each in experiment.sources if each.name == source]
    found = entry.figures[source]
    return part.per_step(found, place), part.per_second(found, place)


def test_figures_are_compared_per_step_and_per_item():
    step, rate = figure("mlp-mnist", 0, "jittor", "GPU")
    assert step == pytest.approx((25 / 37_500, 26 / 37_500))
    assert rate == pytest.approx((32 * 37_500 / 26, 32 * 37_500 / 25))
    assert figure("resnet50-cifar10", 0, "tensorflow:xla", "GPU")[0] == pytest.approx((117 / 4689, 118 / 4689))
    assert figure("lstm-ptb", 0, "tensorflow:while", "CPU")[1] == pytest.approx((482.7, 482.7))
    assert figure("lstm-ptb", 1, "tensorflow:while", "CPU")[1][0] == pytest.approx(147.9)
    assert figure("vgg16", 0, "torch:eager", "CPU")[1][0] == pytest.approx(300 / 267)
    assert figure("vgg16", 0, "torch:eager", "GPU")[1][0] == pytest.approx(32 * 300 / 79)  # its batch is another


@pytest.mark.parametrize(
    ("scale", "expected"), [(1, (10, 1000)), (0.02, (1, 20)), (0.25, (2, 250)), (1e-9, (1, 2)), (0.5, (5, 500))]
)
def test_scale_multiplies_the_steps_and_leaves_a_minimum(scale, expected):
    part = Part("mlp", "forward", 8, 10, 1000, ())
    assert part.scaled(scale) == expected


@pytest.mark.parametrize("scale", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_scale_is_above_zero_and_at_most_one(scale):
    with pytest.raises(UsageError, match="--scale is"):
        check_scale(scale)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=[*EXPERIMENTS])
def test_the_list_names_a_scale_of_less_than_ten_minutes_or_the_smallest(experiment):
    scale = experiment.quick_scale()
    assert scale in SCALES
    assert experiment.duration(scale) < QUICK_SECONDS or scale == SCALES[-1]
    assert experiment.duration(scale) <= experiment.duration(1, experiment.repeats)
    assert experiment.default_repeats(0.5) == 1
    assert experiment.default_repeats(1) == experiment.repeats


def test_the_timeout_is_ten_times_the_expected_duration():
    assert Part("mlp", "forward", 8, 10, 100, (Entry("numpy", 1.0),)).settings(1, None)["timeout"] == 1800
    slow = Part("mlp", "forward", 8, 500, 100, (Entry("numpy", 2.0), Entry("torch:eager", 1.0)))
    assert slow.settings(1, None)["timeout"] == 10_000


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.2, "1 s"), (59, "59 s"), (300, "5 min"), (7200, "2 h"), (1e5, "28 h")]
)
def test_a_duration_has_a_suitable_unit(seconds, says):
    assert duration(seconds) == says


# -- tables -----------------------------------------------------------------------------------------------------------


def row(subject, seconds, **changes):
    speed = Speed(
        8 / seconds, (None, None), seconds, 20 * seconds, 20, 1, 1.0, (None, None), None, None, 1.0, 1.0, 1.0, 1.0,
        (Sample(0, 0, 20, 20 * seconds),),
    )  # fmt: skip
    framework = subject.partition(":")[0]
    made = Row(
        subject, framework, "eager", "forward", "cpu", 8, "ok", weights_digest="sha256:1", speed=speed,
        error=Error("EQUAL", None, 1e-5, 1e-4, 1e-6), memory=Memory(100.0, 90.0), environment={framework: "1.0"},
    )  # fmt: skip
    return replace(made, **changes)


def result(*rows, **changes):
    host, settings = Host("a processor"), Settings(threads=2, device="cpu")
    others = InputsSummary(), ReferenceSummary()
    made = Result(
        "mlp", ("forward",), "PASS", rows, "now", "0", host, settings, WeightsSummary("sha256:1"), *others, "rule"
    )
    return replace(made, **changes)


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


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch, tmp_path, faulty_frameworks):
    """An experiment of numpy's, as ``reproduce tiny``. Returns a function that registers another."""
    folder = write_folder(tmp_path / "port", ("numpy", "honest", "absent", "exits"))

    def register(*subjects, extra=(), parts=None, repeats=1):
        entries = tuple(
            Entry(subject, 1e-4, {} if subject in extra else {"CPU": Figure(rate=100.0)}, subject in extra)
            for subject in (*subjects, *extra)
        )
        found = Part(str(folder), "forward", 4, 20, 400, entries, overhead=1.0)
        found = tuple(replace(found, model=str(model)) for model in parts or (folder,))
        experiment = Experiment("tiny", "why?", found, (Source("CPU", "a core", ""),), repeats=repeats)
        monkeypatch.setitem(EXPERIMENTS, "tiny", experiment)
        return experiment

    register("numpy", "honest")
    return register


def test_without_a_name_it_lists_the_experiments(capsys):
    assert main(["reproduce"]) == 0
    text = capsys.readouterr().out
    for experiment in EXPERIMENTS.values():
        assert experiment.name in text
        assert experiment.question in text
        assert f"takes about {duration(experiment.duration(1, experiment.repeats))} at scale 1" in text
    assert "RTX 2080 Ti" in text
    assert "tensorflow:while" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lstm-pbt"], "unknown experiment 'lstm-pbt'; did you mean 'lstm-ptb'?"),
        (["vgg16", "--scale", "0"], "--scale is 0: it must be above 0 and at most 1"),
        (["vgg16", "--scale", "2"], "--scale is 2"),
        (["vgg16", "--repeats", "0"], "--repeats is 0: it must be at least 1"),
        (["vgg16", "--json", "."], "--json . is a folder"),
        (["vgg16", "--markdown", "no/such/r.md"], "--markdown no/such/r.md: the folder"),
        (["vgg16", "--data", "."], "vgg16 was published on random data: leave --data . out"),
        (["mlp-mnist", "--data", "nowhere"], "nowhere: no such folder"),
        (["resnet50-cifar10", "--data", "."], "holds no data set"),
    ],
)
def test_a_wrong_command_line_is_answered_in_one_line(xverify, arguments, says):
    done = xverify("reproduce", *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_reproduction_is_measured_printed_and_written(tiny, tmp_path, capsys):
    file, text, page = tmp_path / "r.json", tmp_path / "r.md", tmp_path / "r.html"
    options = ["--scale", "0.1", "--repeats", "2", "--json", str(file), "--markdown", str(text), "--html", str(page)]
    assert main(["reproduce", "tiny", *options]) == 0
    captured = capsys.readouterr()
    assert "part 1 of 1, repeat 2 of 2: " in captured.err
    assert captured.out.splitlines()[-1] == f"PASS tiny: 2 of 2 rows EQUAL; {file}"
    found = json.loads(file.read_text())
    assert (found["experiment"], found["verdict"], found["complete"]) == ("tiny", "PASS", True)
    [table] = found["tables"]
    assert "40 of 400 steps: elapsed is measured, not extrapolated" in table["title"]
    for line in table["rows"]:
        assert (line["steps"], line["warmup"], len(line["elapsed"])) == (40, 2, 2)
        assert line["rate"] == pytest.approx(4 / line["seconds_per_step"])
        assert line["weights"] == "identical"
        assert line["published"]["CPU"]["rate"] == [100.0, 100.0]
    assert [run["repeat"] for run in found["runs"]] == [0, 1]
    speeds = [[each["speed"] for each in run["result"]["rows"]] for run in found["runs"]]
    for line, each in zip(table["rows"], zip(*speeds)):
        assert line["elapsed"] == pytest.approx([sum(s["seconds"] for s in speed["samples"]) for speed in each])
    first, second = table["rows"]
    assert not second["counted"] or first["rate"] / second["rate"] == pytest.approx(second["ratio"])
    for run in found["runs"]:
        assert [each["speed"]["calls"] for each in run["result"]["rows"]] == [40, 40]
    assert "| numpy | off | 40 | 4 |" in text.read_text()
    assert "published, CPU: a core" in text.read_text()
    assert page.read_text().count("<section") == 2, "a report for each of the two runs"


def test_quiet_prints_one_line(tiny, capsys):
    assert main(["reproduce", "tiny", "--scale", "0.01", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == "PASS tiny: 2 of 2 rows EQUAL\n"


def test_a_subject_that_cannot_run_is_a_row_with_its_reason(tiny, capsys):
    tiny("numpy", "honest", extra=("absent",))
    assert main(["reproduce", "tiny", "--scale", "0.01"]) == 0
    assert "not-installed" in (text := capsys.readouterr().out)
    assert "absent: " in text
    tiny("numpy", "honest", "absent")
    assert main(["reproduce", "tiny", "--scale", "0.01", "--quiet"]) == 3
    tiny("numpy", "honest", extra=("exits",))
    assert main(["reproduce", "tiny", "--scale", "0.01", "--quiet"]) == 3


def test_a_failed_part_does_not_affect_the_others(tiny, tmp_path, capsys):
    good, bad = tmp_path / "port", write_folder(tmp_path / "bad", spec="SPEC = 1")
    tiny("numpy", parts=(good, bad, good))
    file = tmp_path / "r.json"
    with pytest.raises(UsageError):
        find_model(bad)
    assert main(["reproduce", "tiny", "--scale", "0.01", "--json", str(file), "--quiet"]) == 3
    found = json.loads(file.read_text())
    assert [bool(run["result"]) for run in found["runs"]] == [True, False, True]
    assert "defines no SPEC" in found["runs"][1]["failure"]
    assert [table["rows"][0]["outcome"] for table in found["tables"]] == ["IDENTICAL", "failed", "IDENTICAL"]


def test_an_invalid_first_part_is_a_usage_error(tiny, tmp_path, capsys):
    tiny("numpy", parts=(write_folder(tmp_path / "bad", spec="SPEC = 1"),))
    assert main(["reproduce", "tiny", "--quiet"]) == 2
    assert "defines no SPEC" in capsys.readouterr().err


def test_an_interruption_keeps_what_was_measured(tiny, tmp_path, monkeypatch, capsys):
    tiny("numpy", parts=(tmp_path / "port",) * 3)
    calls = []

    def run(*arguments, **settings):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measured(*arguments, **settings)

    measured = running.run
    monkeypatch.setattr(running, "run", run)
    file = tmp_path / "r.json"
    assert main(["reproduce", "tiny", "--scale", "0.01", "--json", str(file)]) == 3
    found = json.loads(file.read_text())
    assert len(calls) == 2
    assert [bool(run["result"]) for run in found["runs"]] == [True, False]
    assert found["complete"] is False
    assert "interrupted in part 2 of 3" in found["stopped"]
    assert "interrupted in part 2 of 3" in capsys.readouterr().out


def test_an_interrupted_run_ends_the_reproduction_and_is_kept(tiny, tmp_path, monkeypatch, capsys):
    tiny("numpy", repeats=3)
    monkeypatch.setattr(running, "run", lambda *_, **__: result(row("numpy", 0.1), notes=("interrupted: at once",)))
    file = tmp_path / "r.json"
    assert main(["reproduce", "tiny", "--json", str(file), "--quiet"]) == 3
    found = json.loads(file.read_text())
    assert len(found["runs"]) == 1
    assert found["tables"][0]["rows"][0]["outcome"] == "EQUAL"


# -- data -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mnist(tmp_path):
    """MNIST's format, 640 images."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name, magic, shape in (("images-idx3", 2051, (640, 28, 28)), ("labels-idx1", 2049, (640,))):
        content = np.random.default_rng(0).integers(0, 10, shape).astype(np.uint8).tobytes()
        (folder / f"train-{name}-ubyte").write_bytes(np.array([magic, *shape], ">i4").tobytes() + content)
    return folder


def test_data_are_given_or_installed_or_synthetic(mnist, tmp_path):
    mlp = EXPERIMENTS["mlp-mnist"]
    directory, says = find_data(replace(mlp, installed=""), str(mnist))
    assert directory == str(mnist)
    assert "640 items" in says
    directory, says = find_data(replace(mlp, installed=str(mnist)), None)
    assert directory == str(mnist)
    assert says.startswith("found on this machine: MNIST-format IDX files in ")
    directory, says = find_data(replace(mlp, installed=str(tmp_path / "none")), None)
    assert directory is None
    assert says.startswith("synthetic")
    with pytest.raises(UsageError):
        find_data(EXPERIMENTS["lstm-ptb"], str(mnist))


def test_only_parts_that_train_get_the_data():
    forward, train = EXPERIMENTS["lstm-ptb"].parts[:2]
    assert "data" not in forward.settings(1, "ptb")
    assert train.settings(1, "ptb")["data"] == "ptb"


# -- with the frameworks ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_published_experiment_runs_at_a_small_scale(xverify, tmp_path, mnist):
    file = tmp_path / "r.json"
    done = xverify("reproduce", "mlp-mnist", "--scale", "1e-4", "--data", mnist, "--json", file, timeout=900)
    found = json.loads(file.read_text())
    assert found["complete"]
    [table] = found["tables"]
    lines = {line["subject"]: line for line in table["rows"]}
    assert [*lines] == ["torch:eager", "torch:script", "jittor", "tensorflow:graph", "tensorflow:xla"]
    for line in lines.values():
        assert (line["steps"], line["batch"], line["optimizer"], line["lr"]) == (4, 32, "adam", 1e-3)
        assert line["rate"] == pytest.approx(32 / line["seconds_per_step"])
        assert line["weights"] == "identical"
        assert line["outcome"] in ("EQUAL", "IDENTICAL", "DRIFT")
    assert all(row["task"] == "train" for row in found["runs"][0]["result"]["rows"])
    assert lines["jittor"]["published"]["GPU"]["gigabytes"] == 0.77
    assert done.code == 0
    assert "640 items" in done.out
