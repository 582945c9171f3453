"""The suite of ports: what it says about an answer that is wrong, and a sample of it as `make ports` runs it."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from xverify.results.layers import LayerError, Layers
from xverify.results.records import Error, Row
from xverify.results.training import Check, Training
from xverify.results.verdicts import Verdict

SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import ports  # noqa: E402

FAULT = ports.Fault("jittor", "a", "b", "layer", "fc", says="ReLU")


def row(verdict=Verdict.DIFFERENT, status="ok", layers=(), **more):
    found = Layers(tuple(layers), compared=2, known=2, **more)
    error = Error(verdict, layers=found) if status == "ok" else None
    return Row("jittor:eager", "jittor", "eager", "forward", "cpu", 2, status, reason="it broke", error=error)


def layer(name="fc", faulty="output", explanation=None, glue="", verdict=Verdict.DIFFERENT):
    return LayerError(name, "Linear", 1, 50, 50, 50, verdict, faulty, explanation=explanation, glue=glue)


@pytest.mark.parametrize(
    ("answer", "fault", "wrong"),
    [
        (row(layers=[layer(explanation="computes ReLU")]), FAULT, []),
        (row(layers=[layer()]), FAULT, []),  # an explanation need not be found
        (row(Verdict.EQUAL), FAULT, ["missed"]),
        (row(Verdict.DRIFT, layers=[layer(verdict=Verdict.DRIFT)]), FAULT, ["missed"]),
        (row(Verdict.DRIFT, layers=[layer(explanation="computes ReLU", verdict=Verdict.DRIFT)]), FAULT, []),
        (row(layers=[layer("conv")]), FAULT, ["placed at output of conv"]),
        (row(layers=[layer(faulty="input")]), FAULT, ["placed at input of fc"]),
        (row(), FAULT, ["placed nowhere"]),
        (row(layers=[layer(explanation="has no bias")]), FAULT, ["explained wrongly: has no bias"]),
        (
            row(layers=[layer(explanation="computes ReLU")]),
            replace(FAULT, says=""),
            ["explained wrongly: computes ReLU"],
        ),
        (row(layers=[layer(faulty="input", glue="computes ReLU")]), replace(FAULT, kind="glue"), []),
        (row(layers=[layer()]), replace(FAULT, kind="glue"), ["placed at output of fc"]),
        (row(status="failed"), FAULT, ["failed: it broke"]),
        (row(Verdict.EQUAL), replace(FAULT, hidden="the mask is full"), []),
        (row(), replace(FAULT, hidden="the mask is full"), ["hidden, and caught"]),
    ],
)
def test_wrong_answers_to_a_fault_are_counted(answer, fault, wrong):
    counts, found, _ = ports.judge_fault(answer, fault)
    assert found == wrong
    if not wrong:
        assert counts["caught"] == counts["placed"] == int(not fault.hidden)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (row(Verdict.EQUAL), []),
        (row(Verdict.EQUAL, missing=("relu",)), []),
        (row(Verdict.EQUAL, missing=("fc",)), ["not judged by themselves: fc"]),
        (row(Verdict.EQUAL, missing=("fc",), uncalled=("fc",)), []),
        (row(Verdict.EQUAL, partial=("fc",)), ["not judged by themselves: fc"]),
        (row(Verdict.EQUAL, stopped="it ended"), ["not judged by themselves: it ended"]),
        (row(Verdict.DRIFT), ["DRIFT: None"]),
        (row(Verdict.EQUAL, layers=[layer(explanation="is ReLU")]), ["a right layer is explained: fc is ReLU"]),
        (row(status="failed"), ["failed: it broke"]),
    ],
)
def test_wrong_answers_to_a_right_port_are_counted(answer, wrong):
    assert ports.judge_clean(answer, ["relu"])[1] == wrong


def drifting(name):
    return layer(name, explanation="its sums lose digits", verdict=Verdict.DRIFT)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (row(Verdict.DRIFT, layers=[drifting("fc")]), True),
        (row(Verdict.DIFFERENT, layers=[drifting("fc")]), False),
        (row(Verdict.DRIFT, layers=[drifting("conv")]), False),
        (row(Verdict.DRIFT, layers=[replace(drifting("fc"), explanation="computes in float16")]), False),
        (row(Verdict.DRIFT, layers=[drifting("fc"), replace(drifting("conv"), explanation=None)]), False),
        (row(Verdict.EQUAL), True),
    ],
)
def test_a_right_port_may_lose_digits_in_the_layer_that_is_listed(answer, right):
    counts, wrong = ports.judge_clean(answer, [], "fc")
    assert (not wrong, counts["EQUAL"]) == (right, int(right))


def test_a_text_that_is_not_there_once_is_no_fault(tmp_path):
    (tmp_path / "jittor.py").write_text("a b b")
    replace(FAULT, old="a", new="c").plant(tmp_path)
    assert (tmp_path / "jittor.py").read_text() == "c b b"
    for text in ("a", "b"):
        with pytest.raises(ValueError, match="it must occur once"):
            replace(FAULT, old=text).plant(tmp_path)


def test_the_ports_are_enough_and_can_be_read():
    """At least 25 ports in torch and two other frameworks, and 80 faults, half of them in glue code; each can be planted."""
    found = [port for port in ports.ports() if len(port.files) > 1]
    faults = [fault for port in found for fault in port.faults]
    assert len(found) >= 25
    assert len(faults) >= 80
    assert sum(fault.kind == "glue" for fault in faults) >= 0.4 * len(faults)
    for port in found:
        for fault in port.faults:
            assert fault.kind in ("glue", "layer")
            text = (port.folder / (fault.file or f"{fault.port}.py")).read_text()
            assert text.count(fault.old) == 1, (port.folder, fault)


def test_the_pairs_in_torch_have_enough_faults():
    """Six modules that are rewritten in torch, all but one trained, with thirty faults, also in the form of the weights."""
    found = {port.folder.name: port for port in ports.ports() if port.of(["torch"])}
    faults = [fault for port in found.values() for fault in port.faults if ports.framework_of(fault.port) == "torch"]
    assert len(found) >= 6
    assert sum(bool(port.train) for port in found.values()) >= 5
    assert len(faults) >= 30
    assert sum(fault.file == "names.toml" for fault in faults) >= 8
    assert {ports.subject(fault.port) for fault in faults} >= {"torch-fused:eager", "torch-stacked:eager"}
    for port in found.values():
        for fault in port.faults:
            assert (port.folder / (fault.file or f"{fault.port}.py")).read_text().count(fault.old) == 1, fault


def test_a_fault_that_training_alone_shows_is_placed_at_its_check():
    check = Check("statistics", 0, Verdict.DIFFERENT, says="bn.running_mean: its error is large")
    answer = replace(row(), training=Training("sgd", checks=(Check("loss", 0, Verdict.EQUAL), check)))
    for at, wrong in (("statistics", []), ("update", ["placed at statistics"])):
        fault = replace(FAULT, at=at, says="running_mean", task="train")
        assert ports.judge_fault(answer, fault)[1] == wrong


def test_every_part_has_its_own_items():
    chosen = ports.ports()
    everything = list(ports.items(chosen, ["jittor", "tensorflow"], True, True))
    parts = [item for number in range(1, 11) for item in ports.part_of(iter(everything), f"{number}/10")]
    assert sorted(parts, key=everything.index) == everything


@pytest.mark.slow
def test_a_twentieth_of_the_ports():
    done = subprocess.run(
        [sys.executable, SUITES / "ports.py", "--part", "1/20", "--frameworks", "jittor,tensorflow,torch"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "PASS" in done.stdout


@pytest.mark.slow
def test_a_planted_wrong_port_fails_the_suite(tmp_path, monkeypatch, capsys):
    """A port that is wrong although it should be clean, and a fault that is none."""
    name = "experts"
    shutil.copytree(ports.PORTS / name, tmp_path / name)
    port = ports.Port.read(tmp_path / name)
    port.faults[0].plant(tmp_path / name)
    assert ports.check_clean(port, [port.faults[0].port])["WRONG"] >= 1
    text = (ports.PORTS / name / "jittor.py").read_text()
    line = next(line for line in text.splitlines() if text.count(line) == 1 and "import" in line)
    nothing = ports.Fault("jittor", line, line, "layer", "fc")
    assert ports.check_fault(ports.Port.read(ports.PORTS / name), nothing)["WRONG"] == 1
    assert "missed" in capsys.readouterr().out
