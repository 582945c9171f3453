"""A mask that a file ignores or inverts shows, because input masks are drawn with a tail of zeros."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

RANDOM = np.random.default_rng(0)
TABLE, KEYS, QUERIES = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((50, 16), (16, 16), (16, 16)))
node = helper.make_node


def write(path, model, fault="", kind=TensorProto.INT64):
    """A mean over the tokens of a mask, or attention with a mask. fault: "ignored" or "inverted"."""
    nodes = [node("Cast", ["mask"], ["given"], to=TensorProto.FLOAT), node("Gather", ["table", "ids"], ["x"])]
    nodes.append(node("Sub", ["one", "given"], ["other"]))
    nodes.append(node("Mul", ["given", "zero"], ["none"]))
    nodes.append(node("Add", ["none", "one"], ["all"]))
    m = {"": "given", "ignored": "all", "inverted": "other"}[fault]
    if model == "mean":
        nodes += [
            node("Unsqueeze", [m, "last"], ["m"]), node("Mul", ["x", "m"], ["kept"]), node("ReduceSum", ["kept", "rows"], ["sum"]),
            node("ReduceSum", ["m", "rows"], ["count"]), node("Div", ["sum", "count"], ["y"]),
        ]  # fmt: skip
    else:
        nodes += [
            node("MatMul", ["x", "wq"], ["q"]), node("MatMul", ["x", "wk"], ["k"]),
            node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
            node("MatMul", ["q", "kt"], ["s"]), node("Sub", ["one", m], ["out"]), node("Mul", ["out", "lowest"], ["b"]),
            node("Unsqueeze", ["b", "rows"], ["bias"]), node("Add", ["s", "bias"], ["masked"]), node("Softmax", ["masked"], ["y"]),
        ]  # fmt: skip
    constants = {
        "table": TABLE, "wq": QUERIES, "wk": KEYS, "one": np.float32(1), "zero": np.float32(0), "lowest": np.float32(-1e4),
        "rows": np.array([1]), "last": np.array([2]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "model",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 9]),
            helper.make_tensor_value_info("mask", kind, [2, 9]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "kind"), [("mean", TensorProto.INT64), ("attention", TensorProto.INT64), ("attention", TensorProto.FLOAT)]
)
def test_a_mask_that_is_ignored_or_inverted_is_different(xverify, tmp_path, model, kind):
    right = write(tmp_path / "right.onnx", model, kind=kind)
    done = xverify("check", right, "--against", right, "--details")
    assert done.code == 0, done.out + done.err
    assert "mask: taken for a mask from its name: ones and then zeros in each row" in " ".join(done.out.split())
    for fault in ("ignored", "inverted"):
        wrong = write(tmp_path / f"{fault}.onnx", model, fault, kind)
        done = xverify("check", wrong, "--against", right)
        assert done.code == 1, done.out + done.err


BODY = helper.make_graph(
    [
        node("Identity", ["c"], ["going"]),
        node("Mul", ["v", "two"], ["doubled"]),
        node("Identity", ["doubled"], ["each"]),
    ],
    "body",
    [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, 3]),
    ],
    [
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("doubled", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("each", TensorProto.FLOAT, [2, 3]),
    ],
    [numpy_helper.from_array(np.float32(2), "two")],
)


@pytest.mark.slow
def test_a_loop_whose_number_of_steps_is_an_input_is_judged_with_steps_and_without(xverify, tmp_path):
    graph = helper.make_graph(
        [node("Loop", ["n", "", "x"], ["y", "all"], body=BODY)],
        "model",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("all", TensorProto.FLOAT, None),
        ],
    )
    path = tmp_path / "loop.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    done = xverify("check", path, "--details")
    assert done.code == 0, done.out + done.err
    assert "says how often a loop is repeated" in done.out
    x = RANDOM.standard_normal((2, 2, 3)).astype(np.float32)
    np.savez(tmp_path / "given.npz", **{"0/n": np.array(0), "0/x": x[0], "1/n": np.array(2), "1/x": x[1]})
    done = xverify("check", path, "--inputs", tmp_path / "given.npz")
    assert done.code == 0, done.out + done.err
