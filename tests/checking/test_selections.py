"""A case in which rounding decides (kept boxes, best classes, gates) is left out with a note, and the others decide."""

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


def gates(wrong=""):
    """Two channels, each multiplied with a gate, whose argument has a rounding of the size of 1 behind large inputs.

    The argument is the difference of nearly equal sums, times the third power of a sum.
    wrong: "sign" for wrong weights; "nan" for NaN behind large inputs alone; "" for the right file.
    """
    half = np.random.default_rng(5).standard_normal((BOXES, 2)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "first"),
        node("MatMul", ["x", "w2"], ["b"], "second"),
        node("Sub", ["a", "b"], ["d"], "difference"),
        node("Pow", ["a", "three"], ["p"], "third"),
        node("Mul", ["d", "p"], ["m"], "larger"),
        node("Sigmoid", ["m"], ["g"], "gate"),
        node("MatMul", ["x", "v"], ["z"], "values"),
        node("Erf", ["z"], ["e"], "activation"),
        node("Mul", ["e", "g"], ["gated"], "gated"),
        node("MatMul", ["gated", "u"], ["y" if wrong != "nan" else "most"], "last"),
    ]
    if wrong == "nan":
        nodes += [
            node("Abs", ["x"], ["sizes"], "sizes"),
            node("ReduceMax", ["sizes"], ["largest"], "largest", axes=[-1]),
            node("Sub", ["ten", "largest"], ["room"], "room"),
            node("Sqrt", ["room"], ["root"], "root"),
            node("Mul", ["root", "zero"], ["nothing"], "nothing"),
            node("Add", ["most", "nothing"], ["y"], "sum"),
        ]
    random = np.random.default_rng(6)
    constants = {
        "w": half, "w2": half * np.float32(1 - 2e-7), "three": np.float32(3), "v": random.standard_normal((BOXES, 2)),
        "u": random.standard_normal((2, 16)) * (-1 if wrong == "sign" else 1), "ten": np.float32(10), "zero": np.float32(0),
    }  # fmt: skip
    return nodes, constants, [1, 1, 16]


SEED = 10  # with it, one of these gates has an argument beside 0


def test_gates_that_rounding_opens_leave_their_case_out_and_the_others_decide(xverify, tmp_path):
    """Without this, a runtime that opens the gate is 77 noise floors away, where no drawn rounding opens it."""
    right = write(tmp_path / "right.onnx", gates, "")
    done, rows = checked(xverify, tmp_path, right, "--seed", SEED)
    assert done.code == 0, done.out + done.err
    assert rows["runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    says = "rounding may change the result of Sigmoid 'gate' by half of its range (output y)"
    assert all(note.startswith(f"input case 3 is left out: {says}") for note in rows["runtime"]["notes"])
    for wrong, verdict in {"sign": "DIFFERENT", "nan": "INVALID"}.items():
        file = write(tmp_path / f"{wrong}.onnx", gates, wrong)
        done, rows = checked(xverify, tmp_path, file, "--against", right, "--seed", SEED)
        assert done.code == 1, done.out + done.err
        assert rows["conversion"]["error"]["verdict"] == verdict
        if wrong == "sign":
            assert rows["conversion"]["error"]["compared"] == 5


@pytest.mark.parametrize("draw", [0, 100, 200, 300])
def test_a_gate_beside_0_is_undecided_in_every_draw_of_the_noise(tmp_path, draw):
    pytest.importorskip("torch")
    from xverify.checking.cases import Input, make
    from xverify.replay.graph.judge.itemwise import noise_of_one_item
    from xverify.replay.graph.judge.noise import noise
    from xverify.replay.graph.model import Graph

    graph = Graph(onnx.load(write(tmp_path / "right.onnx", gates, "")))
    cases = make([Input("x", (1, 1, BOXES), "float32")], SEED)
    undecided = {case: noise(graph, {"x": cases[f"{case}/x"]}, draw)["y"].undecided for case in (0, 1, 3)}
    assert undecided == {0: "", 1: "", 3: "the result of Sigmoid 'gate' by half of its range"}
    # The noise of one item stands for that of others only where no gate is near a decision.
    for case, stands in {0: True, 3: False}.items():
        items = np.repeat(np.concatenate([cases[f"{case}/x"], cases["1/x"]]), 32, 1)
        assert (noise_of_one_item(graph, {"x": items}, draw, 4, ()) is not None) is stands
