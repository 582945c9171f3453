"""xverify run --no-timing: the verdicts are those of a timed run, and nothing is timed."""

import json

import jsonschema
import junitparser
import pandas
import pytest
from conftest import write_folder
from helpers.htmlpages import Page

from xverify.results.schema import schema

pytestmark = pytest.mark.usefixtures("in_one_process")

NOISY = """
import numpy as np
from xverify.frameworks.numpy.adapter import Adapter as Numpy

def eager(framework, model, example):
    random = np.random.default_rng()
    return lambda x: model(x) + random.normal(0, 0.1, (len(x), 3)).astype(np.float32)

class Adapter(Numpy):
    name = "noisy"
    modes = {"eager": eager}
"""


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest", "swapped", "breaks"))


def test_the_verdicts_are_known_and_nothing_is_timed(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", "--no-timing")
    assert done.code == 0, done.err
    for row in done.result["rows"]:
        assert (row["status"], row["speed"]) == ("ok", None)
        assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
        assert (row["error"]["compared"], row["error"]["expected"], row["error"]["timed_cases"]) == (4, 4, 0)
        assert set(row["memory"].values()) == {None}
    assert done.result["settings"]["no_timing"] is True
    assert done.result["noise"]["rounds"] == 0
    assert "speed not measured, as --no-timing asks" in done.out
    assert "timing" not in done.out.splitlines()[-1]
    for title in ("/s (95% interval)", "time ratio", "peak MiB", "Noise:"):
        assert title not in done.out
    assert "is warm" not in done.err
    jsonschema.Draft202012Validator(schema()).validate(done.result)


def test_the_verdicts_are_those_of_a_timed_run(xverify, folder):
    subjects = ("--subjects", "numpy,honest,swapped,breaks")
    timed = xverify("run", folder, *subjects, "--warmup", 1, "--rerun", 8)
    untimed = xverify("run", folder, *subjects, "--no-timing")
    assert timed.code == untimed.code == 1

    def verdicts(done):
        return [
            (row["status"], row["error"] and (row["error"]["verdict"], row["error"]["reason"], row["error"]["max_abs"]))
            for row in done.result["rows"]
        ]

    assert verdicts(timed) == verdicts(untimed)
    assert "breaks" in untimed.out


@pytest.mark.parametrize("cases", [1, 2])
def test_every_input_case_is_compared(xverify, folder, cases):
    done = xverify("run", folder, "--subjects", "numpy,swapped", "--no-timing", "--cases", cases)
    assert [tensor["case"] for tensor in done.row("swapped")["error"]["tensors"]] == list(range(cases))
    assert [row["error"]["verdict"] for row in done.result["rows"]][1] == "DIFFERENT"


def test_a_random_subject_is_invalid(xverify, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "noisy.py").write_text(NOISY)
    folder = write_folder(tmp_path / "port", ("numpy", "noisy"))
    done = xverify("run", folder, "--subjects", "numpy,noisy", "--no-timing", frameworks=tmp_path / "mine")
    assert done.row("noisy")["error"]["verdict"] == "INVALID"
    assert "two calls on one input differ" in done.row("noisy")["error"]["reason"]


@pytest.mark.parametrize(
    "option",
    [("--rerun", 4), ("--warmup", 0), ("--task", "train", "--time-input")],
    ids=lambda option: option[-1] if option[0] == "--task" else option[0],
)
def test_options_of_timing_are_refused(xverify, folder, option):
    done = xverify("run", folder, "--no-timing", *option)
    flag = next(word for word in reversed(option) if str(word).startswith("--"))
    assert done.code == 2
    assert f"{flag} says how subjects are timed, and --no-timing that they are not" in done.err


@pytest.mark.parametrize("effort", ["quick", "standard", "rigorous"])
def test_an_effort_says_how_much_is_compared_and_nothing_of_timing(xverify, folder, effort):
    done = xverify("run", folder, "--subjects", "numpy,swapped", "--no-timing", "--effort", effort)
    assert done.code == 1, done.err
    assert [row["error"]["verdict"] for row in done.result["rows"]] == ["IDENTICAL", "DIFFERENT"]
    assert [row["speed"] for row in done.result["rows"]] == [None, None]
    assert (done.result["settings"]["effort"], done.result["noise"]["rounds"]) == (effort, 0)
    assert "speed not measured, as --no-timing asks" in done.out


@pytest.mark.slow
def test_an_effort_says_how_many_training_steps_are_checked_without_timing(xverify):
    run = ("run", "mlp", "--task", "train", "--subjects", "torch:eager", "--no-timing", "--effort")
    for effort, steps, curve in (("quick", {0, 2}, 10), ("standard", {0, 1, 2, 5, 20}, 50)):
        [row] = xverify(*run, effort).result["rows"]
        assert {check["step"] for check in row["training"]["checks"]} == steps
        assert len(row["training"]["curve"]["losses"]) == curve
        assert row["speed"] is None


def test_resume_is_refused(xverify, folder, tmp_path):
    done = xverify("run", folder, "--no-timing", "--resume", "--json", tmp_path / "r.json")
    assert done.code == 2
    assert "--resume adds process runs, and --no-timing makes none" in done.err


def test_every_format_has_no_speed(xverify, folder, tmp_path):
    files = {name: tmp_path / f"out.{name}" for name in ("html", "markdown", "junit", "csv")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    done = xverify("run", folder, "--subjects", "numpy,swapped", "--no-timing", *options)
    assert done.code == 1
    assert "time ratio" not in files["markdown"].read_text()
    assert "not measured, as --no-timing asks" in Page(files["html"].read_text()).text
    [suite] = junitparser.JUnitXml.fromfile(str(files["junit"]))
    assert [bool(case.result) for case in suite] == [False, True]
    assert pandas.read_csv(files["csv"])["fps"].isna().all()


def test_results_without_speeds_are_compared_by_their_verdicts(xverify, folder, tmp_path):
    for name, subject, options in (
        ("good", "honest", ["--no-timing"]),
        ("bad", "swapped", ["--no-timing"]),
        ("timed", "honest", ["--warmup", 1, "--rerun", 8]),
    ):
        xverify("run", folder, "--subjects", f"numpy,{subject}", *options, "--json", tmp_path / f"{name}.json")
    values = json.loads((tmp_path / "bad.json").read_text())
    values["rows"][1]["subject"] = "honest"  # a later run, in which it has become wrong
    (tmp_path / "bad.json").write_text(json.dumps(values))
    good, bad, timed = (tmp_path / f"{name}.json" for name in ("good", "bad", "timed"))
    assert xverify("diff", good, good).code == 0
    worse = xverify("diff", good, bad)
    assert (worse.code, "DIFFERENT" in worse.out) == (1, True)
    mixed = xverify("diff", good, timed)
    assert mixed.code == 2
    assert "only the new result has speeds, because the other has --no-timing (try --errors-only)" in mixed.err
    assert xverify("diff", good, timed, "--errors-only").code == 0


@pytest.mark.slow
def test_training_is_judged_without_timing(xverify):
    done = xverify("run", "mlp", "--task", "train", "--subjects", "torch:eager", "--steps", 10, "--no-timing")
    assert done.code == 4, done.out + done.err  # it is the reference alone
    [row] = done.result["rows"]
    assert row["speed"] is None
    assert {check["name"] for check in row["training"]["checks"]} >= {"weights", "gradients", "update"}
    assert row["training"]["curve"]["verdict"] == "EQUAL"


@pytest.mark.slow
def test_layers_are_judged_without_timing(xverify):
    done = xverify("run", "mlp", "--subjects", "torch:eager,onnxruntime", "--task", "forward,train", "--no-timing")
    forward = [row for row in done.result["rows"] if row["task"] == "forward"]
    assert [row["error"]["layers"]["compared"] for row in forward] == [5, 5] or all(
        row["error"]["layers"]["compared"] == row["error"]["layers"]["known"] > 0 for row in forward
    )
    assert done.out.count("speed not measured") == 1
