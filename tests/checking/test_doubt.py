"""An output just beyond the limit: its noise is measured again before the file is accused."""

import json

import numpy as np
import pytest
from test_check import MATRIX, write

from xverify.checking.doubt import doubtful_cases
from xverify.checking.judge import Judged
from xverify.results.records import Error, TensorError
from xverify.results.verdicts import Verdict


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
