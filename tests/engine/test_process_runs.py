"""Runs of several process runs: new processes, verdicts on speed, and resuming a run that ended early."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import FAULTY, write_folder

FAST = ("--warmup", 2, "--rerun", 16)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest"))


@pytest.fixture
def count(tmp_path, monkeypatch):
    """Let the adapter ``counted`` do something in the process with this number, from 1."""

    def set_up(at, does):
        monkeypatch.setenv("COUNT_FILE", str(tmp_path / "count"))
        monkeypatch.setenv("COUNT_AT", str(at))
        monkeypatch.setenv("COUNT_DOES", does)

    return set_up


def process_runs_of(row):
    return sorted({sample["launch"] for sample in row["speed"]["samples"]})


@pytest.mark.timed
@pytest.mark.slow
def test_a_standard_run_has_six_process_runs_and_a_verdict_on_speed(no_noise, xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", "--effort", "standard", *FAST, "--details")
    assert done.code == 0, done.err
    assert done.result["complete"] is True
    row = done.row("honest")
    assert row["speed"]["verdict"] in ("SAME", "AMBIGUOUS", "FASTER", "SLOWER"), row["speed"]["reason"]
    assert done.row("numpy")["speed"]["verdict"] == "BASELINE"
    for each in done.result["rows"]:
        assert 6 <= len(each["speed"]["launches"]) <= 12
        assert process_runs_of(each) == [run["launch"] for run in each["speed"]["launches"]]
        assert each["speed"]["calls"] == 16 * len(each["speed"]["launches"])
        assert each["speed"]["elapsed_seconds"] == pytest.approx(
            sum(sample["seconds"] for sample in each["speed"]["samples"])
        )
        first = done.row("numpy")["speed"]
        assert first["fps"] / each["speed"]["fps"] == pytest.approx(each["speed"]["ratio"])
    low, high = row["speed"]["ratio_ci"]
    assert low <= row["speed"]["ratio"] <= high
    assert "process runs a subject; intervals are over process runs" in done.out
    assert "first step s" in done.out
    assert "process run 1 of 6 or more: numpy" in done.err


@pytest.mark.timed
def test_a_quick_run_gives_no_verdict_on_speed(no_noise, xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", *FAST)
    assert done.row("honest")["speed"]["verdict"] is None
    assert len(done.row("honest")["speed"]["launches"]) == 1


@pytest.mark.timed
@pytest.mark.slow
def test_a_crash_in_the_third_process_run_keeps_two_and_resume_finishes_it(no_noise, xverify, folder, count, tmp_path):
    count(3, "dies")
    file = tmp_path / "kept.json"
    arguments = ("run", folder, "--subjects", "numpy,counted", "--effort", "standard", *FAST, "--json", file)
    done = xverify(*arguments)
    assert done.code == 3
    result = json.loads(file.read_text())
    row = result["rows"][1]
    assert row["status"] == "crashed"
    assert process_runs_of(row) == [0, 1]
    assert [run["launch"] for run in row["speed"]["launches"]] == [0, 1]
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL"), "the verdict of the earlier process runs is kept"
    assert row["speed"]["verdict"] == "REFUSED"
    assert "ended in process run 3" in row["speed"]["reason"]
    before = row["speed"]["samples"]

    done = xverify(*arguments, "--resume")
    assert done.code == 0, done.err
    row = json.loads(file.read_text())["rows"][1]
    assert row["status"] == "ok"
    assert row["speed"]["samples"][: len(before)] == before
    assert len(process_runs_of(row)) >= 6

    done = xverify(*arguments, "--resume")
    assert done.code == 2
    assert "nothing to resume" in done.err


@pytest.mark.timed
@pytest.mark.slow
def test_a_run_killed_in_the_third_process_run_keeps_two_and_resume_finishes_it(no_noise, xverify, folder, tmp_path):
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
    assert process_runs_of(result["rows"][1]) == [0, 1]
    first = result["rows"][1]["speed"]["samples"]

    done = xverify(*arguments, "--resume")
    assert done.code == 0, done.err
    result = json.loads(file.read_text())
    assert result["complete"] is True
    assert result["rows"][1]["speed"]["samples"][: len(first)] == first
    assert len(process_runs_of(result["rows"][1])) >= 6

    for changed, says in ((("--seed", 1), "seed was 0, is 1"), (("--batch", 2), "batch was 4, is 2")):
        done = xverify(*arguments, *changed, "--resume")
        assert done.code == 2
        assert says in done.err


def test_resume_needs_a_file(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest", "--json", "", "--resume")
    assert done.code == 2


def test_a_fault_in_a_later_process_run_is_found(xverify, folder, count):
    count(3, "differs")
    done = xverify("run", folder, "--subjects", "numpy,counted", "--effort", "standard", *FAST)
    assert done.code == 1
    row = done.row("counted")
    assert row["error"]["verdict"] == "DIFFERENT"
    assert row["error"]["reason"].startswith("in process run 3: ")
    assert row["speed"]["verdict"] == "REFUSED"
    assert process_runs_of(row) == [0, 1, 2], "a subject with a wrong output is not timed any longer"


@pytest.mark.timed
@pytest.mark.slow
def test_a_run_ends_within_its_budget_and_notes_what_was_left_out(no_noise, xverify, folder):
    start = time.monotonic()
    done = xverify("run", folder, "--subjects", "numpy,honest", "--effort", "rigorous", "--max-seconds", 12)
    assert time.monotonic() - start < 12 + 3
    assert done.code == 0, done.err
    assert any("--max-seconds 12 ended the run after" in note for note in done.result["notes"])
    assert len(done.row("honest")["speed"]["launches"]) < 12


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize(
    "calls", [(), ("--warmup", 2, "--rerun", 1000), ("--warmup", 1000, "--rerun", 16)], ids=["free", "rerun", "warmup"]
)
def test_warm_up_and_timing_end_within_the_budget_and_are_noted(no_noise, xverify, folder, calls):
    write_folder(folder, ("sluggish",))
    arguments = ("run", folder, "--subjects", "numpy,sluggish", *calls)
    done = xverify(*arguments, "--max-seconds", 6)
    assert done.code == 0, done.err
    timeline = done.result["timeline"]
    assert timeline["warming_seconds"] + timeline["timing_seconds"] < 6, "without a limit they take over 10 s"
    row, notes = done.row("sluggish"), " ".join(done.result["notes"])
    assert row["error"]["compared"] == row["error"]["expected"] == 4
    assert len(row["speed"]["samples"]) >= 1
    if calls[:2] == ("--warmup", 1000):
        assert row["speed"]["warmup_calls"] < 1000
        assert "--max-seconds 6 ended the warm-up of sluggish after" in notes
    elif calls:
        assert row["speed"]["calls"] < 1000
        assert "--max-seconds 6 ended the timing after" in notes
    else:
        assert row["speed"]["launches"][0]["steady"] is False
        assert row["speed"]["not_counted"] == "NO_STEADY_STATE"
    assert ("was exceeded" in notes) == (timeline["total_seconds"] > 6)


@pytest.mark.timed
def test_a_budget_that_cannot_be_kept_is_noted_with_what_took_how_long(xverify, folder):
    write_folder(folder, ("sluggish",))
    done = xverify("run", folder, "--subjects", "numpy,sluggish", "--max-seconds", 0.5)
    assert done.code == 0, done.err
    [note] = [note for note in done.result["notes"] if "was exceeded" in note]
    timeline = done.result["timeline"]
    assert note.startswith(f"--max-seconds 0.5 was exceeded: the run took {timeline['total_seconds']:.1f} s (")
    for phase in ("starting", "warming", "timing", "judging"):
        assert f"{timeline[phase + '_seconds']:.1f} s {phase}" in note
    assert f"Note: {note}" in done.out
    assert [row["error"]["verdict"] for row in done.result["rows"]] == ["IDENTICAL", "IDENTICAL"]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [(), ("--warmup", 2, "--rerun", 16), ("--warmup", 0, "--rerun", 4)])
def test_peak_memory_is_never_below_average_memory(xverify, folder, calls):
    write_folder(folder, ("hoards",))
    done = xverify("run", folder, "--subjects", "numpy,hoards", *calls)
    assert done.code == 0, done.err
    for row in done.result["rows"]:
        memory = row["memory"]
        assert memory["peak_rss_mib"] >= memory["average_rss_mib"] > 1
    hoards, honest = (done.row(name)["memory"] for name in ("hoards", "numpy"))
    if calls[:2] != ("--warmup", 0):  # without a warm-up, memory can only be sampled after outputs were read
        assert hoards["average_rss_mib"] < honest["average_rss_mib"] + 60, "what reading outputs takes is left out"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_subjects_run_on_the_pinned_cores(xverify, folder, count):
    count(0, "nothing")
    core = max(os.sched_getaffinity(0))
    done = xverify("run", folder, "--subjects", "numpy,counted", *FAST, "--pin", core)
    assert done.row("counted")["environment"]["cores"] == [core]
    assert done.result["settings"]["threads"] == 1
    for wrong, says in (("999", "--pin 999"), ("a", "--pin a: write cores")):
        done = xverify("run", folder, "--subjects", "numpy", "--pin", wrong)
        assert done.code == 2
        assert says in done.err


@pytest.mark.timed
def test_a_device_is_waited_for_and_its_memory_is_reported(no_noise, xverify, folder, monkeypatch):
    done = xverify("run", folder, "--subjects", "fakegpu,honest", *FAST, "--device", "cuda", "--details")
    assert done.code == 3
    row = done.row("fakegpu")
    assert row["device"] == "cuda"
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert row["speed"]["verdict"] == "BASELINE"
    assert row["memory"]["gpu_peak_mib"] == 123.0
    assert "GPU peak" in done.out
    assert "nearly full" not in done.out
    assert done.row("honest")["status"] == "unsupported"
    assert done.row("honest")["reason"] == "xverify runs this framework on cpu only"
    monkeypatch.setenv("FAKE_USED", "950")
    done = xverify("run", folder, "--subjects", "fakegpu", *FAST, "--device", "cuda")
    assert "memory was nearly full (950 of 1,000 MiB)" in done.out
