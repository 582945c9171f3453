"""The suite of floors: what it counts as a broken promise, and a sample of it as `make floors` runs it."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import floor_files  # noqa: E402
import floors  # noqa: E402
from floor_files import Answer, Fault  # noqa: E402
from floor_graphs import GRAPHS  # noqa: E402
from floor_parts import Draw  # noqa: E402

from xverify.errors import XverifyError  # noqa: E402


def answer(verdict):
    return Answer({"conversion": verdict}, {"conversion": "why"})


@pytest.mark.parametrize(
    ("verdict", "error", "limit", "counts"),
    [
        ("EQUAL", 3e-5, 1e-5, "missed"),
        ("IDENTICAL", 3e-5, 1e-5, "missed"),
        ("EQUAL", 1e-7, 0.0, "missed"),  # everything would show, says the report
        ("EQUAL", 5e-6, 1e-5, ""),
        ("EQUAL", 0.0, 0.0, ""),  # the precision does not hold the change
        ("UNTESTED", 2e-5, 1e-5, "untested"),
        ("DRIFT", 2e-5, 1e-5, "caught"),
        ("DIFFERENT", 5e-6, 1e-5, "caught"),
        ("INVALID", 2e-5, 1e-5, "caught"),
        ("failed", 2e-5, 1e-5, "no_answer"),
    ],
)
def test_faults_above_the_stated_limit_must_be_caught(verdict, error, limit, counts):
    line = floors.Line()
    said = floors.judge(line, answer(verdict), [(0.0, 1e-3), (error, limit)])
    found = {"missed": line.missed, "untested": line.untested, "caught": len(line.caught), "no_answer": line.no_answer}
    assert {name for name, count in found.items() if count} == ({counts} if counts else set())
    assert line.broken() == bool(said) == (counts in ("missed", "no_answer"))


def test_one_of_twenty_right_runs_may_fail():
    assert not floors.Line(right=20, passed=19).broken()
    assert floors.Line(right=20, passed=18).broken()
    assert floors.Line(right=19, passed=18).broken()
    # One in a line of a sample; the sum of all lines still counts it.
    assert not floors.Line(right=19, passed=18).broken(least=1)
    assert floors.Line(right=19, passed=17).broken(least=1)
    half = {
        "a": floors.Line(right=10, passed=10),
        "b": floors.Line(right=10, passed=9, missed=1, limits=[1e-5], caught=[0.1]),
    }
    sums = floors.total(half)
    assert (sums.right, sums.passed, sums.missed, sums.limits, sums.caught) == (20, 19, 1, [1e-5], [0.1])
    assert [line.split("|")[-2].strip() for line in floors.table(half, True).splitlines()] == [
        "MISSED",
        "---:",
        "0",
        "1",
        "1",
    ]


def test_the_relative_error_is_that_of_the_values_that_change():
    right = np.array([1.0, 2.0, 3.0, 4.0, 1e9, 1e-9, 5.0, np.inf])
    wrong = right * np.array([1.01, 1.01, 1.01, 1.01, 1.01, 1.0, 1.0, 1.0])
    assert floor_files.relative_error(right, wrong) == pytest.approx(0.01)  # 1e9 is not of the size of most
    assert floor_files.relative_error(right, right) == 0.0
    assert floor_files.relative_error(right * 1e-200, wrong * 1e-200) == pytest.approx(0.01)
    assert math.isinf(floor_files.relative_error(np.array([1, 2]), np.array([1, 3])))


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_has_faults_that_change_its_outputs(name):
    graph = GRAPHS[name](Draw(0))
    inputs = floor_files.drawn(graph, 0, 24)
    right = floor_files.exact(graph, inputs)
    faults = [fault for fault in floor_files.faults(graph) if fault.size in (None, 0.1)]
    assert faults
    for fault in faults:
        wrong = floor_files.exact(fault.plant(graph), inputs)
        assert max(floor_files.relative_error(right[key], wrong[key]) for key in right) > 1e-4, fault


def test_a_right_graph_may_add_its_terms_in_another_order():
    graph = GRAPHS["mlp"](Draw(0))
    inputs = floor_files.drawn(graph, 0, 4)
    one, other = (floor_files.ReferenceEvaluator(model) for model in both(graph))
    fed = {"x": inputs["0/x"].astype(np.float64)}
    assert not np.array_equal(one.run(None, fed)[0], other.run(None, fed)[0])
    np.testing.assert_allclose(one.run(None, fed)[0], other.run(None, fed)[0], rtol=1e-12)


def both(graph):
    return floor_files.model(graph, "float64"), floor_files.reordered(floor_files.model(graph, "float64"), 1)


@pytest.mark.parametrize("error", [XverifyError("the file is empty"), ValueError("a crash")])
def test_a_run_without_an_answer_breaks_the_promise(monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(floor_files, "right_run", fails)
    lines, wrong = floors.run([floors.Item("mlp", None)])
    assert (wrong, lines["mlp"].no_answer, lines["mlp"].broken()) == (1, 1, True)


@pytest.mark.slow
def test_a_verdict_that_passes_everything_breaks_the_promise(tmp_path, monkeypatch, capsys):
    """A fault is judged as a right file would be, so that its report states a limit and says EQUAL."""
    monkeypatch.setattr(sys, "argv", ["floors.py", "--graphs", "--only", "mlp,masked-class", "--seeds", "1"])
    asked = floor_files.ask

    def blind(file, reference, inputs, **settings):
        return asked(reference, reference, inputs, **settings)

    monkeypatch.setattr(floor_files, "ask", blind)
    assert floors.main() == 1
    said = capsys.readouterr().out
    assert "WRONG masked-class, weight 1e-01: a fault of 0.1 is EQUAL" in said
    assert "FAIL" in said


@pytest.mark.slow
def test_a_verdict_that_accuses_a_right_file_breaks_the_promise(monkeypatch, capsys):
    """The reference has another weight than the right file."""
    right = floor_files.reordered

    def wrong(made, seed):
        weight = next(each for each in made.graph.initializer if each.name == "w")
        weight.CopyFrom(
            floor_files.numpy_helper.from_array(floor_files.numpy_helper.to_array(weight) * np.float32(1.01), "w")
        )
        return right(made, seed)

    monkeypatch.setattr(floor_files, "reordered", wrong)
    monkeypatch.setattr(sys, "argv", ["floors.py", "--graphs", "--only", "tiny", "--seeds", "3", "--every", "2"])
    assert floors.main() == 1
    assert "WRONG tiny, seed 2: a right run does not pass" in capsys.readouterr().out


def run(*arguments):
    """The output of the suite, which must pass."""
    done = subprocess.run(
        [sys.executable, SUITES / "floors.py", *arguments], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_a_sample_of_the_graphs():
    assert "PASS" in run("--graphs", "--every", "20")


@pytest.mark.slow
@pytest.mark.long
def test_a_sample_of_the_models():
    assert "PASS" in run("--models", "--every", "20")


def test_a_planted_fault_keeps_the_type_of_the_weight():
    graph = GRAPHS["convolutions"](Draw(0))
    wrong = Fault("weight", 0.1).plant(graph)
    changed = np.flatnonzero((wrong.weights["w"] != graph.weights["w"]).any(axis=(1, 2, 3)))
    assert list(changed) == [1]
    assert floor_files.model(wrong).graph.initializer[0].data_type == 1
    assert replace(wrong, weights=graph.weights) == graph
