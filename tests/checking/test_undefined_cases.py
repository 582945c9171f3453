"""A case in which no output value is finite on either side is left out and named; the other cases decide."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

from xverify.checking.undefined import told, undefined_cases  # noqa: E402

NAN = np.full(3, np.nan)
node = helper.make_node


def test_only_cases_without_any_finite_value_on_both_sides_are_left_out():
    exact = {"0/y": np.ones(3), "1/y": NAN, "2/y": NAN, "3/y": np.array([1, np.nan, 2]), "4/n": np.ones(3, int)}
    own = {**exact, "1/y": np.array([np.inf, np.nan, -np.inf]), "2/y": np.ones(3)}
    assert undefined_cases(own, exact, range(5)) == {1: "y"}
    assert undefined_cases(own, exact, [0, 2]) == {}
    assert "input case 1 (output y) is left out" in told({1: "y"})[0]
    assert told({}) == []


def write(path, model, factor=1.0):
    """x / |x|, the logarithm of |x|, or the root of a negative number."""
    nodes = {
        "norm": [node("ReduceL2", ["x"], ["n"], axes=[1], keepdims=1), node("Div", ["x", "n"], ["z"])],
        "log": [node("Abs", ["x"], ["a"]), node("Log", ["a"], ["z"])],
        "never": [node("Mul", ["x", "x"], ["s"]), node("Sub", ["minus", "s"], ["m"]), node("Sqrt", ["m"], ["z"])],
    }[model]
    graph = helper.make_graph(
        [*nodes, node("Mul", ["z", "factor"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(np.float32(value), name) for name, value in (("factor", factor), ("minus", -1.0))],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("model", ["norm", "log"])
def test_the_other_cases_decide(xverify, tmp_path, model):
    right, wrong = write(tmp_path / "right.onnx", model), write(tmp_path / "wrong.onnx", model, 1.001)
    done = xverify("check", right, "--against", right, "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    for row in json.loads((tmp_path / "r.json").read_text())["rows"]:
        assert row["error"]["compared"] == 5
        assert any("input case 2 (output y) is left out" in note for note in row["notes"])
    assert "input case 2 (output y) is left out" in " ".join(done.out.split())
    done = xverify("check", wrong, "--against", right)
    assert done.code == 1
    assert "DIFFERENT" in done.out


@pytest.mark.slow
def test_without_any_case_left_the_row_is_invalid(xverify, tmp_path):
    done = xverify("check", write(tmp_path / "never.onnx", "never"))
    assert done.code == 1, done.out + done.err
    assert "INVALID" in done.out
    assert "no input case is left to compare" in " ".join(done.out.split())
