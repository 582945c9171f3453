"""The suite of decoders: what it says about a wrong answer, and a sample of it as `make decoders` runs it."""

import argparse
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from xverify.results.decoding import Decoding, DecodingCheck
from xverify.results.records import Error, Row
from xverify.results.verdicts import Verdict

SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import decoders  # noqa: E402
from helpers.decoderfiles import FAULTS  # noqa: E402

FAMILIES = decoders.families()
RIGHT = DecodingCheck("steps", Verdict.EQUAL)
TIE = replace(RIGHT, token=3, margin=0.5, says="another token is the best one: rounding decides")


def row(*ways, verdict=Verdict.EQUAL, not_tried=()):
    decoding = Decoding(3, 16, 8, ways, dict.fromkeys(not_tried, "no"))
    return Row(
        "torch:eager", "decode", "torch", "eager", "cpu", 2, status="ok", error=Error(verdict), decoding=decoding
    )


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (row(RIGHT), True),
        (row(RIGHT, TIE), True),
        (row(RIGHT, not_tried=["padded left"]), False),
        (row(replace(RIGHT, verdict=Verdict.DRIFT)), False),
        (row(RIGHT, verdict=Verdict.UNTESTED), False),
        (row(replace(TIE, says="")), False),
        (replace(row(RIGHT), decoding=None), False),
        (replace(row(RIGHT), error=None), False),
    ],
)
def test_wrong_answers_to_a_right_decoder_are_counted(found, right):
    counts, wrong = decoders.judge_right(found, FAMILIES["llama"])
    assert (not wrong) == right
    assert counts["EQUAL"] == int(right)


def test_ways_that_do_not_apply_must_not_be_tried():
    _, wrong = decoders.judge_right(row(replace(RIGHT, name="3 tokens taken back")), FAMILIES["mamba"])
    assert wrong == ["3 tokens taken back: it was tried"]
    assert not decoders.judge_right(row(RIGHT, not_tried=["3 tokens taken back"]), FAMILIES["mamba"])[1]


def test_a_tie_must_be_told_where_there_is_one():
    assert decoders.judge_right(row(RIGHT), FAMILIES["ties"])[1] == ["no tie is told"]
    assert not decoders.judge_right(row(RIGHT, TIE), FAMILIES["ties"])[1]


def test_there_are_eight_families_and_one_with_ties():
    assert list(FAMILIES) == ["bert", "gemma2", "gemma3", "gpt2", "llama", "mamba", "mixtral", "ties", "whisper"]
    assert all("torch" in family.files for family in FAMILIES.values())


FAULT = decoders.Fault("a", "b", "^steps$", "layers.0", says="positions began")
FOUND = replace(RIGHT, verdict=Verdict.DIFFERENT, sequence=0, step=1, place="layer `layers.0.attn`")
NAMED = replace(FOUND, explanation="it behaves as if positions began at 0 in every call")


@pytest.mark.parametrize(
    ("found", "fault", "wrong", "counted"),
    [
        (NAMED, FAULT, [], {"caught", "placed", "named"}),
        (FOUND, FAULT, [], {"caught", "placed", "none"}),
        (NAMED, replace(FAULT, says=""), [f"explained wrongly: {NAMED.explanation}"], {"caught", "placed", "wrongly"}),
        (
            NAMED,
            replace(FAULT, says="mask"),
            [f"explained wrongly: {NAMED.explanation}"],
            {"caught", "placed", "wrongly"},
        ),
        (FOUND, replace(FAULT, at="layers.1"), ["placed at steps, layer `layers.0.attn`"], {"caught", "none"}),
        (FOUND, replace(FAULT, way="padded"), ["placed at steps, layer `layers.0.attn`"], {"caught", "none"}),
        (RIGHT, FAULT, ["missed"], {"missed"}),
        (RIGHT, replace(FAULT, hidden="no position"), [], set()),
        (FOUND, replace(FAULT, hidden="no position"), ["hidden, and caught"], set()),
    ],
)
def test_answers_to_a_fault_are_counted(found, fault, wrong, counted):
    counts, says = decoders.judge_fault(row(found, verdict=found.verdict), fault)
    assert says == wrong
    assert {name for name in counts if counts[name]} - {"faults", "visible"} == counted
    assert counts["visible"] == int(not fault.hidden)


def test_forty_faults_can_be_planted(tmp_path):
    ported = {
        name: [fault for fault in family.faults if not fault.graph]
        for name, family in FAMILIES.items()
        if family.faults
    }
    assert sum(map(len, ported.values())) >= 40
    for name, faults in ported.items():
        for number, fault in enumerate(faults):
            folder = tmp_path / name / str(number)
            shutil.copytree(FAMILIES[name].folder, folder)
            fault.plant(folder)
            compile((folder / "torch-port.py").read_text(), name, "exec")


def test_faults_of_files_are_known_and_have_a_place():
    planted = [fault for family in FAMILIES.values() for fault in family.faults if fault.graph]
    assert {fault.graph for fault in planted} == set(FAULTS)
    assert all(fault.way and fault.at and not fault.old for fault in planted)


def test_seeds_are_a_range():
    assert decoders.seeds_of("3-5") == range(3, 6)
    assert decoders.seeds_of("7") == range(7, 8)
    with pytest.raises(argparse.ArgumentTypeError, match="write FROM-TO"):
        decoders.seeds_of("5-")


@pytest.mark.slow
def test_two_families_as_the_suite_checks_them():
    done = subprocess.run(
        [sys.executable, SUITES / "decoders.py", "--only", "gemma3,whisper", "--jobs", "2", "--seeds", "4", "--clean"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: 3 decoders, 0 wrong answers" in done.stdout
    assert "whisper, torch-port, seed 4: EQUAL" in done.stdout


@pytest.mark.slow
def test_a_fault_that_is_none_fails_the_suite():
    fault = replace(FAMILIES["gpt2"].faults[0], old="import torch\n", new="import torch\n\n")
    item = decoders.Item(FAMILIES["gpt2"], "torch-port", 0, "", fault)
    name, counts, lines = decoders.check(item)
    assert (name, counts["missed"], counts["WRONG"]) == ("gpt2", 1, 1)
    assert lines[-1].strip() == "missed"
