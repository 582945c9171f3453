"""How many input cases of an ONNX file are evaluated in float64, by the time that they take."""

from types import SimpleNamespace

import numpy as np
import pytest

from xverify.weights import npz
from xverify.worker.graph import LEAST_CASES, GraphWork


@pytest.mark.parametrize(
    ("first", "later", "done"),
    [(0.0, 0.0, 6), (60.0, 0.1, 6), (60.0, 5.0, LEAST_CASES), (0.1, 5.0, LEAST_CASES), (0.0, 1.0, 3), (0.0, 0.5, 5)],
)
def test_the_first_case_which_loads_code_leaves_no_other_one_out(tmp_path, first, later, done):
    npz.save_file({f"{case}/x": np.zeros(1) for case in range(6)}, tmp_path / "cases.npz")
    now = 0.0
    work = object.__new__(GraphWork)
    work.state = SimpleNamespace(clock=lambda: now)
    cases = []
    for case, inputs in work._affordable(str(tmp_path / "cases.npz"), 2.0):
        assert list(inputs) == ["x"]
        cases.append(case)
        now += later if case else first
    assert cases == list(range(done))
