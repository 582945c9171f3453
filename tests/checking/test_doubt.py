"""An output just beyond the limit: its noise is measured again before the file is accused."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from test_check import MATRIX, write

from xverify.checking.doubt import SAMPLES, doubtful_cases, measured_again
from xverify.checking.judge import Judged
from xverify.checking.meaning import Meaning
from xverify.results.records import Error, TensorError
from xverify.results.verdicts import Verdict
from xverify.weights import npz


def judged(*outputs):
    return Judged(Error(Verdict.DRIFT, tensors=outputs), {})


def output(case, ratio, verdict):
    return TensorError(case, "y", noise_ratio=ratio, verdict=verdict)


@pytest.mark.parametrize(
    ("outputs", "cases"),
    [
        ([output(2, 3.3, Verdict.DRIFT), output(0, 9.9, Verdict.DRIFT), output(1, 0.5, Verdict.EQUAL)], (0, 2)),
        ([output(0, 50.0, Verdict.DIFFERENT)], ()),
        ([output(0, None, Verdict.UNTESTED), output(1, 3.3, None)], ()),
    ],
)
def test_only_what_is_just_beyond_the_limit_is_doubtful(outputs, cases):
    assert doubtful_cases([judged(*outputs)]) == cases


@dataclass
class Runtime:
    """A file, and the worker of its runtime, which answers perturbed calls. asked: whether each was in float64."""

    folder: Path
    asked: list[bool]
    state: tuple = ()
    keeps: bool = False

    @property
    def worker(self):
        return self

    def ask(self, request):
        self.asked.append(request.float64)
        change = 5.0 if len(self.asked) == 3 else 1.0  # one sample has an activation beyond a bend
        npz.save_file({"0/y": np.full(4, 100 + change, np.float32)}, Path(request.path))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_noise_is_measured_again_in_the_precision_of_the_reference(tmp_path, precision):
    inputs = tmp_path / "inputs.npz"
    npz.save_file({"0/x": np.ones(4, np.float32)}, inputs)
    outputs = {"0/y": np.full(4, 100, np.float32)}
    meaning = Meaning(outputs, outputs, {"0/y": np.ones(4)}, False, precision, "a reference")
    opened = Runtime(tmp_path, [])
    again = measured_again(meaning, opened, inputs, None, 0, (0,))
    assert opened.asked == [precision == "float64"] * SAMPLES
    mean = np.sqrt((SAMPLES - 1 + 25) / SAMPLES)
    assert (again.floors["0/y"] > mean).all()  # and as much more as so few samples leave open


@pytest.mark.slow
def test_a_small_fault_stays_one_when_the_noise_is_measured_again(xverify, tmp_path):
    right = write(tmp_path / "right.onnx")
    noise = np.random.default_rng(1).standard_normal(MATRIX.shape).astype(np.float32)
    wrong = write(tmp_path / "wrong.onnx", matrix=MATRIX * (1 + 3e-6 * noise))
    done = xverify("check", wrong, "--against", right, "--json", tmp_path / "r.json")
    row = json.loads((tmp_path / "r.json").read_text())["rows"][1]
    assert row["error"]["verdict"] == "DRIFT", done.out
    assert 3 < row["error"]["noise_ratio"] < 10
    assert "measuring the noise again, because an output is just beyond the limit" in done.err
