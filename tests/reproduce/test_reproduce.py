"""xverify reproduce: the records of the experiments, and small ones of numpy's run as a user would."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import write_folder
from helpers.reproductions import result, row

from xverify.commands._main import main
from xverify.errors import UsageError
from xverify.report.numbers import duration
from xverify.reproduce import run as running
from xverify.reproduce.published import EXPERIMENTS
from xverify.reproduce.records import (
    Entry,
    Experiment,
    Figure,
    Part,
    Source,
)
from xverify.reproduce.run import find_data
from xverify.workload.spec import find_model

pytestmark = pytest.mark.usefixtures("in_one_process")

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


@pytest.mark.slow
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
