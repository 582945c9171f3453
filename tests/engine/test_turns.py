"""Subjects whose weights do not fit into memory at once are measured in turns, each beside the baseline."""

import pytest
from conftest import TORCH_MODEL, write_folder

from xverify import run
from xverify.engine import memory
from xverify.engine.stages import Subject
from xverify.framework.discovery import load

FAST = ("--warmup", 2, "--rerun", 16)
LITTLE = ("--total-memory", 1e-9)
MIB = 2**20
WORK = memory.Work({"w": (2**9, 2**9)})  # 1 MiB, and 4 MiB in each subject of numpy
SUBJECTS = [Subject(load("numpy"), mode) for mode in "abcd"]


def planned(available, **options):
    return memory.plan(WORK, SUBJECTS, available, **options)


def needed_by_reference():
    """Bytes of the reference's model, and of all processes without a model."""
    return memory.needed(WORK, []) + memory.overhead([each.adapter for each in SUBJECTS])


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest", "wrong_weight"))


def launches(row):
    return [each["launch"] for each in row["speed"]["launches"]]


def test_a_turn_has_the_baseline_and_as_many_others_as_fit():
    reference = needed_by_reference()
    assert planned(reference + 16 * MIB).turns == ((0, 1, 2, 3),)
    assert planned(reference + 16 * MIB - 1).turns == ((0, 1, 2), (0, 3))
    assert planned(reference + 8 * MIB).turns == ((0, 1), (0, 2), (0, 3))
    assert planned(reference + 8 * MIB, timed=False).turns == ((0, 1), (2, 3))
    assert planned(0, timed=False).turns == ((0,), (1,), (2,), (3,))


def test_notes_say_which_subjects_were_together_and_what_does_not_fit_even_then():
    reference = needed_by_reference()
    assert planned(reference + 16 * MIB).notes == ()
    [note] = planned(reference + 8 * MIB).notes
    assert "3 turns (numpy:a, numpy:b; numpy:a, numpy:c; numpy:a, numpy:d)" in note
    assert "A time ratio compares times of one turn" in note
    assert "time ratio" not in planned(reference + 8 * MIB, timed=False).notes[0]
    assert "Use a machine with more memory" in planned(reference).notes[1]


def test_subjects_that_are_slow_to_start_have_turns_after_the_others():
    late = {1: "compiling its core"}
    plenty = 99 * 2**30
    assert planned(plenty, late=late).turns == ((0, 2, 3), (0, 1))
    assert planned(plenty, timed=False, late=late).turns == ((0, 2, 3), (1,))
    [note] = planned(plenty, late=late).notes
    assert "because numpy:b is slow to start (compiling its core). A time ratio" in note
    assert "of memory" not in note
    everything = dict.fromkeys((1, 2, 3), "")
    assert planned(plenty, late=everything).turns == ((0, 1, 2, 3),), "nothing but the baseline would be ready"
    assert planned(plenty, late={0: "", 3: ""}).turns == ((0, 1, 2, 3),), "the baseline is in every turn"
    little = needed_by_reference() + 8 * MIB
    assert planned(little, late=late).turns == ((0, 2), (0, 3), (0, 1))
    [note] = planned(little, late=late).notes
    assert "of memory, and" in note
    assert "and because numpy:b is slow to start" in note


def test_what_is_ready_is_measured_and_told_before_a_slow_start_begins(xverify, folder, tmp_path):
    write_folder(tmp_path / "port", ("late",))
    done = xverify("run", folder, "--subjects", "numpy,late,honest", *FAST)
    assert done.code == 0, done.err
    lines = done.err.splitlines()
    importing = lines.index("late: importing (compiling its core)")
    told = [
        index
        for index, line in enumerate(lines)
        if line.startswith(("ready: numpy is IDENTICAL, ", "ready: honest is IDENTICAL, "))
    ]
    assert len(told) == 2
    assert max(told) < importing
    assert not any(line.startswith("ready: late") for line in lines)
    assert done.row("late")["error"]["verdict"] == "IDENTICAL"
    assert done.row("late")["speed"]["ratio"] > 0
    assert launches(done.row("late")) == [1]
    assert "late is slow to start (compiling its core)" in done.out


@pytest.mark.timed
@pytest.mark.slow
def test_each_turn_has_process_runs_of_its_own_beside_the_baseline(xverify, folder):
    done = xverify("run", folder, "--subjects", "numpy,honest,wrong_weight", "--effort", "standard", *FAST, *LITTLE)
    assert done.code == 1, done.err
    baseline, second, third = (done.row(name) for name in ("numpy", "honest", "wrong_weight"))
    assert baseline["error"]["verdict"] == second["error"]["verdict"] == "IDENTICAL"
    assert third["error"]["verdict"] == "INVALID", "a wrong port of a later turn is found"
    assert len(launches(second)) >= 3
    assert launches(third) == [max(launches(second)) + 1]
    assert launches(baseline) == launches(second) + launches(third)
    assert second["speed"]["fps"] == pytest.approx(baseline["speed"]["fps"] / second["speed"]["ratio"])
    assert "2 turns (numpy, honest; numpy, wrong_weight)" in done.out
    assert done.result["complete"]


@pytest.mark.slow
def test_a_baseline_that_is_wrong_is_not_timed_again(xverify, folder):
    (folder / "torch.py").write_text(TORCH_MODEL)  # the reference, so that the baseline is not its own one
    done = xverify("run", folder, "--subjects", "wrong_weight,numpy,honest", *FAST, *LITTLE)
    assert done.code == 1, done.err
    assert launches(done.row("wrong_weight")) == launches(done.row("numpy")) == [0]
    assert launches(done.row("honest")) == [1]
    assert done.row("honest")["error"]["verdict"] == "EQUAL"


def test_a_turn_whose_subject_ends_leaves_the_others(xverify, folder, tmp_path):
    write_folder(tmp_path / "port", ("killed",))
    done = xverify("run", folder, "--subjects", "numpy,killed,honest", *FAST, *LITTLE)
    assert done.code == 3, done.err
    assert done.row("killed")["status"] == "crashed"
    assert done.row("honest")["error"]["verdict"] == "IDENTICAL"


@pytest.mark.timed
@pytest.mark.slow
def test_the_budget_is_shared_by_the_turns(xverify, folder):
    arguments = ("--subjects", "numpy,honest,wrong_weight", "--max-seconds", 6, "--effort", "rigorous")
    done = xverify("run", folder, *arguments, *LITTLE)
    assert launches(done.row("wrong_weight"))
    timeline = done.result["timeline"]
    assert timeline["timing_seconds"] < 6


@pytest.mark.slow
def test_sums_that_a_later_turn_brings_are_in_the_digests_of_earlier_turns():
    together = run("lstm-fused", subjects=["torch:eager", "jittor", "tensorflow:graph"], no_timing=True)
    turns = run("lstm-fused", subjects=["torch:eager", "jittor", "tensorflow:graph"], no_timing=True, total_memory=1e-9)
    assert turns.verdict == "PASS"
    assert turns.weights.digest == together.weights.digest
    assert [row.weights_digest for row in turns.rows] == [row.weights_digest for row in together.rows]


@pytest.mark.slow
def test_training_in_turns_has_the_verdicts_of_training_together():
    options = {"subjects": ["torch:eager", "tensorflow:graph", "torch:trace"], "task": "train", "no_timing": True}
    together, turns = run("mlp", **options), run("mlp", **options, total_memory=1e-9)
    assert any("3 turns" in note for note in turns.notes)
    for one, other in zip(together.rows, turns.rows):
        assert one.error.verdict == other.error.verdict
        [first, second] = [[(c.name, c.step, c.verdict) for c in row.training.checks] for row in (one, other)]
        assert first == second
