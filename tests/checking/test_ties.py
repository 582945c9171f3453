"""Which of equal values is selected is a part of what a file says: another is DIFFERENT, and what differs is never IDENTICAL."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

node = helper.make_node
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
W = (np.random.default_rng(1).standard_normal((8, 8)) * 0.3).astype("f")
# The scores at 3 and 5 are the same sums, and often the largest ones.
TWIN, BIAS = W.copy(), np.full(8, 0.1, "f") * np.arange(8, dtype="f")
TWIN[:, 5], BIAS[[3, 5]] = TWIN[:, 3], 0.9
BACK = np.arange(7, -1, -1)
CONSTANTS = {
    "w": W, "twin": TWIN, "bias": BIAS, "back": BACK, "seven": np.int64(7), "four": np.array([4]), "one": np.array([1]),
    "zero": np.float32(0), "w2": W[BACK], "two": np.float32(2), "half": np.float32(0.5), "eight": np.int64(8),
}  # fmt: skip


def best(last, scores, op="ArgMax", keep=0):
    """The index of the first or the last of the largest scores."""
    return node(op, [scores], ["i"], op, axis=-1, keepdims=keep, select_last_index=int(last))


def ranked(wrong):
    """The places of the four largest values behind a Relu; when wrong, those of equal values in the other order."""
    nodes = [node("Relu", ["x"], ["r"])]
    if not wrong:
        return [*nodes, node("TopK", ["r", "four"], ["v", "y"], axis=-1)]
    turned = [node("Gather", ["r", "back"], ["t"], axis=1), node("TopK", ["t", "four"], ["v", "i"], axis=-1)]
    return [*nodes, *turned, node("Sub", ["seven", "i"], ["y"])]


def halves(wrong):
    """Halves rounded to the even number; when wrong, up."""
    nodes = [node("Round", ["x"], ["whole"]), node("Div", ["whole", "two"], ["d"])]
    if not wrong:
        return [*nodes, node("Round", ["d"], ["y"])]
    return [*nodes, node("Add", ["d", "half"], ["up"]), node("Floor", ["up"], ["y"])]


# Name -> (nodes, which take whether they are the wrong ones; type of the output).
MODELS = {
    "behind a Relu, cast": (lambda w: [node("Relu", ["x"], ["r"]), best(w, "r"), node("Cast", ["i"], ["y"], to=FLOAT)], FLOAT),
    "zeros behind a product": (
        lambda w: [
            node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"]), best(w, "r", "ArgMin"), node("Identity", ["i"], ["y"]),
        ],
        INT,
    ),
    "twin scores, moved and cast": (
        lambda w: [
            node("Gemm", ["x", "twin", "bias"], ["m"]), best(w, "m", keep=1), node("Squeeze", ["i", "one"], ["j"]),
            node("Cast", ["j"], ["y"], to=FLOAT),
        ],
        FLOAT,
    ),
    "twin scores": (lambda w: [node("Gemm", ["x", "twin", "bias"], ["m"]), best(w, "m"), node("Identity", ["i"], ["y"])], INT),
    "a row of a table": (lambda w: [node("Relu", ["x"], ["r"]), best(w, "r"), node("Gather", ["w", "i"], ["y"])], FLOAT),
    "the order of equals": (ranked, INT),
    "halves": (halves, FLOAT),
    "a comparison": (
        lambda w: [
            node("Round", ["x"], ["r"]), node("GreaterOrEqual" if w else "Greater", ["r", "zero"], ["c"]),
            node("Cast", ["c"], ["y"], to=FLOAT),
        ],
        FLOAT,
    ),
}  # fmt: skip


def write(path, nodes, kind):
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", FLOAT, [4, 8])], [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items() if name in used],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def checked(xverify, tmp_path, *files):
    done = xverify("check", files[0], "--against", files[1], "--json", tmp_path / "r.json", "--force")
    assert "Traceback" not in done.err, done.err
    return done, {row["task"]: row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"]}


@pytest.mark.parametrize("name", MODELS)
def test_another_one_of_equal_values_is_different_and_the_same_one_is_not(xverify, tmp_path, name):
    make, kind = MODELS[name]
    right, wrong = (write(tmp_path / f"{word}.onnx", make(word == "wrong"), kind) for word in ("right", "wrong"))
    done, errors = checked(xverify, tmp_path, wrong, right)
    assert (done.code, errors["conversion"]["verdict"]) == (1, "DIFFERENT"), done.out
    assert errors["runtime"]["verdict"] in ("IDENTICAL", "EQUAL", "UNTESTED"), done.out
    if name.startswith("twin"):
        assert "of equal values at" in errors["conversion"]["reason"], done.out
    done, errors = checked(xverify, tmp_path, right, right)
    assert errors["conversion"]["verdict"] in ("IDENTICAL", "EQUAL", "UNTESTED"), done.out


def test_sums_in_another_order_may_decide_otherwise_and_are_not_identical(xverify, tmp_path):
    """Two equal sums, in the reference's order and the other way round, beside a score that is larger in most items."""

    def nodes(other):
        return [
            node("Gather", ["x", "back"], ["turned"], axis=1), node("MatMul", ["x", "w"], ["m"]),
            node("MatMul", ["turned", "w2"], ["n"]), node("Concat", ["n", "m"] if other else ["m", "n"], ["c"], axis=1),
            node("ArgMax", ["c"], ["i"], axis=-1, keepdims=0), node("Mod", ["i", "eight"], ["y"]),
        ]  # fmt: skip

    one, other = (write(tmp_path / f"{each}.onnx", nodes(each), INT) for each in (0, 1))
    done, errors = checked(xverify, tmp_path, other, one)
    assert done.code in (0, 4), done.out
    assert all(error["verdict"] in ("EQUAL", "IDENTICAL", "UNTESTED") for error in errors.values()), done.out
