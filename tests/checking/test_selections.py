"""A case in which rounding decides what is selected (kept boxes, best classes) is left out with a note, and the others decide."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

node = helper.make_node
BOXES = 24


def boxes():
    """Boxes of 24 places, some of which overlap: (1, 24, 4)."""
    random = np.random.default_rng(3)
    corner = random.uniform(0, 20, (1, BOXES, 2))
    return np.concatenate([corner, corner + random.uniform(3, 6, (1, BOXES, 2))], -1).astype(np.float32)


def kept(wrong):
    """Sigmoid scores -> NonMaxSuppression -> the boxes that are kept. Scores of large inputs are all 1 in float32."""
    nodes = [
        node("MatMul", ["x", "w"], ["z"], "scores"),
        node("Sigmoid", ["z"], ["s"], "sigmoid"),
        node("NonMaxSuppression", ["boxes", "s", "most", "overlap", "least"], ["n"], "nms"),
        node("Gather", ["n", "two"], ["places"], "places", axis=1),
        node("Gather", ["boxes2", "places"], ["y"], "take"),
    ]
    constants = {
        "w": np.random.default_rng(5).standard_normal((BOXES, BOXES)) * 0.6 * (-1 if wrong else 1), "boxes": boxes(),
        "boxes2": boxes()[0], "most": np.int64([10]), "overlap": np.float32([0.3]), "least": np.float32([0.6]),
        "two": np.int64(2),
    }  # fmt: skip
    return nodes, constants, ["kept", 4]


def best(wrong):
    """The rows of a table at the best three places of saturated sigmoids."""
    nodes = [
        node("MatMul", ["x", "w"], ["z"], "scores"),
        node("Sigmoid", ["z"], ["s"], "sigmoid"),
        node("TopK", ["s", "three"], ["values", "places"], "best", axis=2),
        node("Gather", ["table", "places"], ["y"], "take"),
    ]
    constants = {
        "w": np.random.default_rng(5).standard_normal((BOXES, BOXES)) * 0.6 * (-1 if wrong else 1), "three": np.int64([3]),
        "table": np.random.default_rng(6).standard_normal((BOXES, 4)),
    }  # fmt: skip
    return nodes, constants, [1, 1, 3, 4]


def write(path, make, wrong=False):
    nodes, constants, shape = make(wrong)
    constants = {
        name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in constants.items()
    }
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, BOXES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def checked(xverify, tmp_path, *arguments):
    done = xverify("check", *arguments, "--json", tmp_path / "r.json", "--force")
    assert "Traceback" not in done.err, done.err
    return done, {row["task"]: row for row in json.loads((tmp_path / "r.json").read_text())["rows"]}


@pytest.mark.parametrize("make", [kept, best])
def test_saturated_scores_leave_their_case_out_and_the_others_decide(xverify, tmp_path, make):
    right, wrong = write(tmp_path / "right.onnx", make), write(tmp_path / "wrong.onnx", make, True)
    done, rows = checked(xverify, tmp_path, right, "--against", right)
    assert done.code == 0, done.out + done.err
    for row in rows.values():
        assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
        assert row["error"]["compared"] == 5
        assert any(note.startswith("input case 3 is left out: rounding may change what") for note in row["notes"])
    done, rows = checked(xverify, tmp_path, wrong, "--against", right)
    assert done.code == 1, done.out + done.err
    assert rows["conversion"]["error"]["verdict"] in ("DIFFERENT", "INVALID")
    assert rows["runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL")


def near_ties(wrong):
    """The rows of a table at the best places, where every score has another one beside it that differs by rounding alone."""
    half = np.random.default_rng(5).standard_normal((BOXES, 1500)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["s"], "scores"),
        node("TopK", ["s", "three"], ["values", "places"], "best", axis=2),
        node("Gather", ["table", "places"], ["y"], "take"),
    ]
    constants = {
        "w": np.concatenate([half, half * np.float32(1 + 2e-7)], 1) * (-1 if wrong else 1), "three": np.int64([3]),
        "table": np.random.default_rng(6).standard_normal((3000, 4)),
    }  # fmt: skip
    return nodes, constants, [1, 1, 3, 4]


def test_where_rounding_selects_in_every_random_case_a_wrong_weight_is_no_pass(xverify, tmp_path):
    right, wrong = write(tmp_path / "right.onnx", near_ties), write(tmp_path / "wrong.onnx", near_ties, True)
    done, rows = checked(xverify, tmp_path, wrong, "--against", right)
    assert done.code == 4, done.out + done.err
    assert rows["conversion"]["error"]["verdict"] == "UNTESTED"
    assert "in every random input case" in rows["conversion"]["error"]["reason"]
    assert rows["runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL")
