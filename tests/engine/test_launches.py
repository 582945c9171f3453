"""Runs of several launches: fresh processes, verdicts on speed, and going on after an end that came early."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import FAULTY, counts, write_folder

FAST = ("--warmup", 2, "--rerun", 16)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest"))


@pytest.fixture
def count(tmp_path, monkeypatch):
    """Let the adapter ``counted`` do something in its process number so-and-so."""

    def set_up(at, does):
        monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count"))
        monkeypatch.setenv("COUNT_AT", str(at))
        monkeypatch.setenv("COUNT_DOES", does)

    return set_up


def launches(row):
    return sorted({sample["launch"] for sample in row["speed"]["samples"]})


def test_a_standard_run_has_six_launches_and_a_verdict_on_speed(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", "--effort", "standard", *FAST, "--details")
    assert done.code == 0, done.err
    assert done.result["complete"] is True
    row = done.row("honest")
    assert row["speed"]["noisy"] or row["speed"]["verdict"] in ("SAME", "AMBIGUOUS", "FASTER", "SLOWER", "REFUSED")
    assert counts(done.row("numpy"), "BASELINE")
    least = 3 if row["speed"]["noisy"] else 6
    for each in done.result["rows"]:
        assert least <= len(each["speed"]["launches"]) <= 12
        assert launches(each) == [launch["launch"] for launch in each["speed"]["launches"]]
        assert each["speed"]["calls"] == 16 * len(each["speed"]["launches"])
        assert each["speed"]["elapsed_seconds"] == pytest.approx(
            each["speed"]["calls"] * each["speed"]["seconds_per_step"]
        )
    low, high = row["speed"]["ratio_ci"]
    assert low <= row["speed"]["ratio"] <= high
    assert "process runs a subject; intervals are over process runs" in done.out
    assert "first step s" in done.out
    assert "process run 1 of 6 or more: numpy" in done.err


def test_a_quick_run_gives_no_verdict_on_speed(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", *FAST)
    assert counts(done.row("honest"), None)
    assert len(done.row("honest")["speed"]["launches"]) == 1


def test_a_process_that_dies_in_the_third_launch_keeps_two_and_resume_finishes_it(xverify, folder, count, tmp_path):
    count(3, "dies")
    file = tmp_path / "kept.json"
    arguments = ("run", folder, "--subjects", "numpy,counted", "--effort", "standard", *FAST, "--json", file)
    done = xverify(*arguments)
    assert done.code == 3
    result = json.loads(file.read_text())
    row = result["rows"][1]
    assert row["status"] == "crashed"
    assert launches(row) == [0, 1]
    assert [launch["launch"] for launch in row["speed"]["launches"]] == [0, 1]
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL"), "what was compared before stays"
    assert row["speed"]["verdict"] == "REFUSED"
    assert "ended in process run 3" in row["speed"]["reason"]
    before = row["speed"]["samples"]

    done = xverify(*arguments, "--resume")
    assert done.code == 0, done.err
    row = json.loads(file.read_text())["rows"][1]
    assert row["status"] == "ok"
    assert row["speed"]["samples"][: len(before)] == before
    assert row["speed"]["noisy"] or len(launches(row)) >= 6

    done = xverify(*arguments, "--resume")
    assert done.code == 2
    assert "nothing to resume" in done.err


def test_a_run_that_is_killed_in_the_third_launch_leaves_two_and_resume_finishes_it(xverify, folder, tmp_path):
    file = tmp_path / "kept.json"
    arguments = ["run", folder, "--subjects", "numpy,honest", "--effort", "standard", *FAST, "--json", file]
    process = subprocess.Popen(
        [sys.executable, "-m", "xverify", *map(str, arguments)],
        env={**os.environ, "XVERIFY_FRAMEWORKS": str(FAULTY)},
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    for line in process.stderr:
        if line.startswith("process run 2 of 6"):
            process.send_signal(signal.SIGKILL)
            break
    process.stderr.read()
    process.wait()
    result = json.loads(file.read_text())
    assert result["complete"] is False
    assert launches(result["rows"][1]) == [0, 1]
    first = result["rows"][1]["speed"]["samples"]

    done = xverify(*arguments, "--resume")
    assert done.code == 0, done.err
    result = json.loads(file.read_text())
    assert result["complete"] is True
    assert result["rows"][1]["speed"]["samples"][: len(first)] == first
    assert result["rows"][1]["speed"]["noisy"] or len(launches(result["rows"][1])) >= 6

    for changed, says in ((("--seed", 1), "seed was 0, is 1"), (("--batch", 2), "batch was 4, is 2")):
        done = xverify(*arguments, *changed, "--resume")
        assert done.code == 2
        assert says in done.err


def test_resume_needs_a_file(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", "--json", "", "--resume")
    assert done.code == 2


def test_a_fault_in_a_later_launch_is_seen(xverify, folder, count):
    count(3, "differs")
    done = xverify("run", folder, "--subjects", "numpy,counted", "--effort", "standard", *FAST)
    assert done.code == 1
    row = done.row("counted")
    assert row["error"]["verdict"] == "DIFFERENT"
    assert row["error"]["reason"].startswith("in process run 3: ")
    assert row["speed"]["verdict"] == "REFUSED"
    assert launches(row) == [0, 1, 2], "what computes something else is not timed any longer"


def test_a_budget_is_kept_and_what_it_cost_is_said(xverify, folder):
    start = time.monotonic()
    done = xverify("run", folder, "--subjects", "numpy,honest", "--effort", "rigorous", "--max-seconds", 12)
    assert time.monotonic() - start < 12 + 3
    assert done.code == 0, done.err
    assert (
        any("--max-seconds 12 ended it after" in note for note in done.result["notes"])
        or (done.row("numpy")["speed"]["noisy"])
    )
    assert len(done.row("honest")["speed"]["launches"]) < 12


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_subjects_are_bound_to_the_cores_that_are_named(xverify, folder, count):
    count(0, "nothing")
    core = max(os.sched_getaffinity(0))
    done = xverify("run", folder, "--subjects", "numpy,counted", *FAST, "--pin", core)
    assert done.row("counted")["environment"]["cores"] == [core]
    assert done.result["settings"]["threads"] == 1
    for wrong, says in (("999", "--pin 999"), ("a", "--pin a: write cores")):
        done = xverify("run", folder, "--subjects", "numpy", "--pin", wrong)
        assert done.code == 2
        assert says in done.err


def test_a_device_is_waited_for_and_its_memory_told(xverify, folder, monkeypatch):
    done = xverify("run", folder, "--subjects", "fakegpu,honest", *FAST, "--device", "cuda", "--details")
    assert done.code == 3
    row = done.row("fakegpu")
    assert row["device"] == "cuda"
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert counts(row, "BASELINE")
    assert row["memory"]["gpu_peak_mib"] == 123.0
    assert "GPU peak" in done.out
    assert "nearly full" not in done.out
    assert done.row("honest")["status"] == "unsupported"
    assert done.row("honest")["reason"] == "runs on cpu alone, here"
    monkeypatch.setenv("FAKE_USED", "950")
    done = xverify("run", folder, "--subjects", "fakegpu", *FAST, "--device", "cuda")
    assert "memory was nearly full (950 of 1,000 MiB)" in done.out
