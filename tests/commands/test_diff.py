"""xverify diff, as a user types it, on result files with known samples."""

import copy
import csv
import json
import math
import os

import junitparser
import pytest
from helpers.sampleresults import RESULT

SETTINGS = {"model": "m", "task": "forward", "batch": 4, "threads": 1, "device": "cpu", "seed": 0, "cases": 4}
SPEED = {
    "fps": 4.0, "fps_ci": [None, None], "seconds_per_step": 1.0, "elapsed_seconds": 8.0, "calls": 8, "warmup_calls": 1,
    "ratio": 1.0, "ratio_ci": [None, None], "reason": None, "first_step_seconds": 1.0, "second_step_seconds": 1.0,
    "import_seconds": 1.0, "build_seconds": 1.0,
}  # fmt: skip


def row(subject, seconds, verdict="EQUAL", speed="SAME", runs=6):
    samples = [
        {"round": index, "case": 0, "calls": 1, "launch": run, "dropped": None}
        | {"seconds": seconds * math.exp(0.002 * ((run * 7 + index) % 5 - 2))}
        for run in range(runs)
        for index in range(8)
    ]
    error = {"verdict": verdict, "rel_rms": 1e-6}
    return {
        "subject": subject, "framework": "f", "mode": "eager", "task": "forward", "device": "cpu", "batch": 4,
        "status": "ok", "reason": None, "error": error,
        "speed": {**SPEED, "verdict": speed, "samples": samples},
    }  # fmt: skip


@pytest.fixture
def result():
    return {
        "schema_version": 1, "model": "m", "tasks": ["forward"], "verdict": "PASS", "created": "now", "xverify": "0",
        "rule": "", "inputs": {}, "reference": {}, "settings": dict(SETTINGS),
        "host": {"cpu": "c", "cores": 2, "system": "s"}, "weights": {"digest": "sha256:1"},
        "noise": {"canary_seconds": [1e-4, 1.01e-4]}, "rows": [row("torch:eager", 1.0, speed="BASELINE"), row("jittor", 2.0)],
    }  # fmt: skip


def verdict_of(rows):
    """The verdict of a result with these rows."""
    verdicts = [each["error"]["verdict"] for each in rows if each["error"]]
    if {"DIFFERENT", "INVALID"} & set(verdicts):
        return "FAIL"
    if any(each["status"] != "ok" for each in rows):
        return "ERROR"
    return "INCONCLUSIVE" if "UNTESTED" in verdicts or not verdicts else "PASS"


@pytest.fixture
def diff(xverify, tmp_path, result):
    def call(change, *options):
        new = copy.deepcopy(result)
        change(new)
        for name, each in (("old", result), ("new", new)):
            (tmp_path / f"{name}.json").write_text(json.dumps({**each, "verdict": verdict_of(each["rows"])}))
        return xverify("diff", tmp_path / "old.json", tmp_path / "new.json", *options)

    return call


def test_equal_results_are_not_worse(diff):
    done = diff(lambda new: None)
    assert done.code == 0, done.out
    assert done.out.count("SAME") == 2
    assert "equal (EQUAL)" in done.out
    assert "NOT WORSE: 2 subjects" in done.out


def test_a_slower_row_is_worse_and_a_faster_one_is_not(diff):
    done = diff(lambda new: new["rows"].__setitem__(1, row("jittor", 2.2)))
    assert done.code == 1
    assert "1.100 (" in done.out
    assert "WORSE: jittor" in done.out
    done = diff(lambda new: new["rows"].__setitem__(1, row("jittor", 1.8)))
    assert done.code == 0
    assert "FASTER" in done.out


def test_a_row_with_a_worse_verdict_is_worse(diff):
    done = diff(lambda new: new["rows"].__setitem__(1, row("jittor", 2.0, verdict="DIFFERENT")))
    assert done.code == 1
    assert "different (EQUAL → DIFFERENT)" in done.out
    assert diff(lambda new: new["rows"].__setitem__(1, row("jittor", 2.0, verdict="IDENTICAL"))).code == 0


def test_the_help_says_what_the_exit_codes_depend_on(diff, result):
    """A row is worse than it was, or is not; a row that was wrong before, and still is, is not worse."""
    from xverify.commands.diff import EXIT_CODES

    assert "EQUAL to DRIFT counts" in EXIT_CODES[1]
    assert diff(lambda new: new["rows"].__setitem__(1, row("jittor", 2.0, verdict="DRIFT"))).code == 1
    assert "no verdict became worse" in EXIT_CODES[0]
    result["rows"][1] = row("jittor", 2.0, verdict="DIFFERENT")
    assert diff(lambda new: None).code == 0
    assert "no longer runs" in EXIT_CODES[1]
    gone = {"status": "crashed", "error": None, "speed": None, "reason": "it fell"}
    assert diff(lambda new: new["rows"][1].update(gone)).code == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda new: new["rows"].__setitem__(1, row("jittor", 2.0, runs=1)),
            "one process run is too few for a verdict on speed",
        ),
        (lambda new: new["rows"].__setitem__(1, row("jittor", 2.0, speed="REFUSED")), "refused now"),
        (lambda new: new["rows"].pop(), "only in"),
        (
            lambda new: new["rows"][1].update(status="crashed", error=None, speed=None, reason="it fell"),
            "not timed now: it fell",
        ),
    ],
)
def test_an_undecided_row_makes_the_comparison_inconclusive(diff, change, says):
    done = diff(change)
    assert says in done.out
    assert done.code == (1 if "fell" in says else 4), done.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda new: new["host"].update(cpu="another"), "cpu was 'c', is 'another'"),
        (lambda new: new["settings"].update(batch=8), "batch was 4, is 8"),
        (lambda new: new["weights"].update(digest="sha256:2"), "the weights were sha256:1, are sha256:2"),
        (lambda new: new["noise"].update(canary_seconds=[1.2e-4]), "the machine itself was 19% slower in the second"),
    ],
)
def test_other_hosts_and_settings_are_refused_without_anyway(diff, change, says):
    done = diff(change)
    assert done.code == 2
    assert says in done.err
    done = diff(change, "--anyway")
    assert done.code == 0
    assert says in done.out


def test_paths_do_not_make_results_incomparable(diff, result):
    result["settings"].update(
        model="/home/a/mlp", weights="/home/a/w.pt", data="/home/a/mnist", reference="/home/a/ref.onnx"
    )
    result["inputs"]["digest"] = "sha256:5"

    def moved(new):
        new["settings"].update(model="C:\\b\\mlp", weights="/b/w.pt", data="/b/mnist", reference="/b/c/ref.onnx")

    assert diff(moved).code == 0
    done = diff(lambda new: (moved(new), new["inputs"].update(digest="sha256:6")))
    assert done.code == 2
    assert "the inputs were sha256:5, are sha256:6" in done.err


def test_files_of_one_name_are_compared_whatever_folder_they_were_in(diff, result):
    result["rows"] = [row("/home/a/fp32/m.onnx:onnxruntime", 1.0), row("/home/a/int8/m.onnx:onnxruntime", 2.0)]

    def moved(new):
        for each in new["rows"]:
            each["subject"] = each["subject"].replace("/home/a", "/tmp/other")

    done = diff(moved)
    assert done.code == 0, done.out
    assert "fp32/m.onnx:onnxruntime" in done.out
    assert "home" not in done.out


def test_models_of_other_names_are_compared_when_their_folders_hold_the_same_files(diff, result):
    assert (
        "do not compare: they are of different models, 'm' and 'n'. See --anyway"
        in diff(lambda new: new.update(model="n")).err
    )
    result["settings"]["folder_digest"] = "sha256:7"
    assert diff(lambda new: new.update(model="n")).code == 0


def test_errors_only_compares_runs_of_different_machines_without_their_speeds(diff):
    def elsewhere(new):
        new["host"].update(cpu="another", cores=64)
        new["settings"].update(threads=64)
        new["noise"] = {}
        new["rows"][1] = row("jittor", 9.0)

    done = diff(elsewhere, "--errors-only")
    assert done.code == 0, done.out + done.err
    assert "NOT WORSE: 2 subjects" in done.out
    assert "speed" not in done.out
    done = diff(lambda new: (elsewhere(new), new["rows"][1]["error"].update(verdict="DIFFERENT")), "--errors-only")
    assert done.code == 1
    done = diff(lambda new: new["settings"].update(batch=8), "--errors-only")
    assert "batch was 4, is 8" in done.err
    assert diff(lambda new: None, "--errors-only", "--relative").code == 2


def test_a_comparison_is_written_in_every_format(diff, tmp_path):
    files = {name: tmp_path / f"out.{name}" for name in ("markdown", "junit", "csv")}
    options = [text for name, path in files.items() for text in (f"--{name}", path)]
    done = diff(lambda new: new["rows"].__setitem__(1, row("jittor", 2.2)), *options, "--format", "json")
    assert done.code == 1, done.err
    values = json.loads(done.out)
    assert (values["outcome"], values["rows"][1]["worse"]) == ("WORSE", True)
    assert values["rows"][1]["ratio"][0] == pytest.approx(1.1)
    assert "## WORSE: m: " in files["markdown"].read_text()
    [suite] = junitparser.JUnitXml.fromfile(str(files["junit"]))
    assert [case.name for case in suite if case.result] == ["jittor"]
    with files["csv"].open() as file:
        first, second = csv.DictReader(file)
    assert (first["subject"], first["worse"]) == ("torch:eager", "False")
    assert float(second["time_ratio"]) == pytest.approx(1.1)
    assert second["speed_verdict"] == "SLOWER"


def test_relative_removes_the_effect_of_a_slower_machine(diff):
    def slower(new):
        new["rows"] = [row("torch:eager", 1.3, speed="BASELINE"), row("jittor", 2.6)]
        new["noise"]["canary_seconds"] = [1.3e-4]

    done = diff(slower, "--relative")
    assert done.code == 0, done.out
    assert "BASELINE" in done.out
    assert diff(slower, "--anyway").code == 1


def test_nothing_is_compared_with_a_refused_baseline(diff):
    def refuse(new):
        new["rows"][0]["speed"].update(verdict="REFUSED", reason="WORK_VANISHED: some calls did no work")

    done = diff(refuse, "--relative")
    assert done.code == 4, done.out
    assert "torch:eager: refused now: WORK_VANISHED: some calls did no work" in done.out
    assert "jittor: the baseline torch:eager has no speed that counts now: WORK_VANISHED" in done.out
    assert "BASELINE" not in done.out
    assert "1.000" not in done.out


def test_a_file_that_is_no_result_is_refused(xverify, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    done = xverify("diff", tmp_path / "x.json", tmp_path / "none.json")
    assert done.code == 2
    assert "no result of xverify run" in done.err


def test_the_names_of_many_rows_are_looked_for_once(tmp_path, xverify, monkeypatch):
    values = RESULT.to_dict()
    values["rows"] += [{**values["rows"][2], "subject": f"/a/{number}"} for number in range(200)]
    for name in ("old", "new"):
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    seen, usual = [], os.path.isabs
    monkeypatch.setattr(os.path, "isabs", lambda path: seen.append(path) or usual(path))
    done = xverify("diff", tmp_path / "old.json", tmp_path / "new.json", "--format", "json")
    assert done.code in (0, 1, 4), done.err
    assert sum(str(path).startswith("/a/") for path in seen) <= 10 * 200
