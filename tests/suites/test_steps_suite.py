"""The suite of training steps of one's own: what it says about a wrong answer, and a sample of it as `make steps` runs it."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from xverify.results.records import Error
from xverify.results.training import OWN_STEP, Check, Training
from xverify.results.verdicts import Verdict

SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import ports  # noqa: E402
import steps  # noqa: E402

KINDS = ports.ports(steps.TESTS / "steps")
SAMPLE = ("simclr", "dcgan")  # in TensorFlow, which `make` installs
FAULT = ports.Fault("jax", "a", "b", "step", at="^update, step 1: .*'adam'", says="beta1 0.9")
WEIGHT = (
    "fc.weight (optimizer 'adam'): its error after the step is in its worst group of values 1.2e+03 x its noise floor"
)


def answer(says="", step=1, verdict=Verdict.DIFFERENT, name="update", difference=""):
    check = Check(name, step, verdict, says=says, difference=difference)
    return Error(verdict), Training(OWN_STEP, checks=(Check("loss", 0, Verdict.EQUAL), check))


@pytest.mark.parametrize(
    ("found", "fault", "wrong", "counted"),
    [
        (answer(f"{WEIGHT}: optimizer 'adam' behaves as beta1 0.9"), FAULT, [], "rightly"),
        (answer(WEIGHT), FAULT, [], "none"),  # an explanation need not be found
        (answer(f"{WEIGHT}: clipping is missing"), FAULT, ["explained wrongly: clipping is missing"], "wrongly"),
        (answer(WEIGHT + ": is late"), replace(FAULT, says=""), ["explained wrongly: is late"], "wrongly"),
        (answer(WEIGHT, step=0), FAULT, [f"placed elsewhere than at {FAULT.at}"], "none"),
        (answer(verdict=Verdict.EQUAL), FAULT, ["missed"], "missed"),
        (answer(verdict=Verdict.DRIFT, difference="eps-hat"), FAULT, ["missed"], "missed"),
        (answer(verdict=Verdict.EQUAL), replace(FAULT, hidden="it adds zero"), [], ""),
        (answer(WEIGHT), replace(FAULT, hidden="it adds zero"), ["hidden, and caught"], ""),
    ],
)
def test_answers_to_a_fault_are_counted(found, fault, wrong, counted):
    counts, says = steps.judge_fault(*found, fault)
    assert says == wrong
    assert [name for name in ("rightly", "wrongly", "none", "missed") if counts[name]] == [counted] * bool(counted)
    assert counts["visible"] == int(not fault.hidden)


def test_facts_are_no_explanation():
    gradient = "the error of the gradient that its optimizer is given is 57.3 x its noise floor"
    facts = [
        f"update, step 1: {WEIGHT}; only weights that loss 'g_loss' trains differ; "
        "the gradients that its optimizer is given agree, so the optimizer differs",
        "loss, step 0: loss 'd' is 0.69314718; the reference's is 0.69404929, 10,300 x its noise floor away; 'margin', 'g' agree",
        "loss, step 0: loss 'd' is 6.7; the reference's is 1.7, 8,920,000 x its noise floor away: it is 4 times the right one",
        "update, step 0: fc.base.bias is changed by the step; the reference's step leaves it as it is",
        "update, step 0: fc.lora_A (optimizer 'adam') is not changed by the step",
        f"gradients, step 0: fc.weight (optimizer 'adam'): {gradient}",
    ]
    assert [steps.explanation(text) for text in facts] == [""] * len(facts)
    assert steps.explanation(f"{facts[0]}: behaves as learning rate 0.1") == "behaves as learning rate 0.1"


@pytest.mark.parametrize(
    ("found", "drift", "right"),
    [
        (answer(verdict=Verdict.EQUAL), "", True),
        (answer(verdict=Verdict.DRIFT, difference="eps-hat"), "eps-hat", True),
        (answer(verdict=Verdict.DRIFT, difference="eps-hat"), "", False),
        (answer(verdict=Verdict.DRIFT, difference="one bias"), "eps-hat", False),
        (answer(verdict=Verdict.UNTESTED), "", False),
        (answer(verdict=Verdict.DIFFERENT), "eps-hat", False),
        ((None, None), "", False),
    ],
)
def test_wrong_answers_to_a_right_kind_are_counted(found, drift, right):
    assert (not steps.judge_right(*found, drift)) == right


def test_the_kinds_are_enough_and_their_faults_can_be_planted(tmp_path):
    """17 kinds of training, each in torch and in another framework, and 100 faults, at least six of each kind."""
    assert len(KINDS) >= 17
    assert sum(len(kind.faults) for kind in KINDS) >= 100
    for kind in KINDS:
        assert len(kind.faults) >= 6
        assert kind.files
        for number, fault in enumerate(kind.faults):
            assert (fault.kind, fault.port in kind.files) == ("step", True), (kind.folder, fault)
            folder = tmp_path / kind.folder.name / str(number)
            shutil.copytree(kind.folder, folder)
            fault.plant(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLE)
def test_a_kind_as_the_suite_checks_it(kind):
    done = subprocess.run(
        [sys.executable, SUITES / "steps.py", "--only", kind],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "PASS: 1 kinds, 0 wrong answers" in done.stdout


@pytest.mark.slow
def test_a_wrong_kind_fails_the_suite(tmp_path, capsys):
    """A kind that is wrong although it should be right, and a fault that is none."""
    kind = next(kind for kind in KINDS if kind.folder.name == "simclr")
    with ports.planted(kind, kind.faults[0]) as folder:
        assert steps.check_right(ports.Port.read(folder), kind.files)["WRONG"] >= 1
    text = (kind.folder / "tensorflow.py").read_text()
    line = next(line for line in text.splitlines() if text.count(line) == 1 and "import" in line)
    faults = steps.Faults()
    try:
        assert faults.check(kind, ports.Fault("tensorflow", line, line, "step", at="update"))["WRONG"] == 1
    finally:
        faults.close()
    assert "missed" in capsys.readouterr().out
