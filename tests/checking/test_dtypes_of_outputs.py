"""An output of another dtype is INVALID, and both dtypes are named; a note tells the one that a framework has made."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

node = helper.make_node
W = (np.random.default_rng(1).standard_normal((8, 8)) * 0.3).astype("f")
BEST = node("ArgMax", ["m"], ["i"], axis=-1, keepdims=0)


def product(kind, half=False):
    """x @ w, cast to a type. half: computed in it, too."""
    taken = [node("Cast", ["x"], ["h"], to=kind)] if half else []
    return [*taken, node("MatMul", ["h" if half else "x", "w"], ["m"]), node("Cast", ["m"], ["y"], to=kind)], kind


MODELS = {
    "float32": product(TensorProto.FLOAT), "float64": product(TensorProto.DOUBLE), "float16": product(TensorProto.FLOAT16),
    "half": product(TensorProto.FLOAT16, True),
    **{
        name: ([node("MatMul", ["x", "w"], ["m"]), BEST, node("Cast", ["i"], ["y"], to=kind)], kind)
        for name, kind in (("int64", TensorProto.INT64), ("int32", TensorProto.INT32))
    },
}  # fmt: skip


def write(path, name):
    nodes, kind = MODELS[name]
    w = W.astype(np.float16) if name == "half" else W
    shape = [4] if "int" in name else [4, 8]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", kind, shape)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def checked(xverify, tmp_path, file, reference):
    done = xverify("check", file, "--against", reference, "--json", tmp_path / "r.json", "--force")
    assert "Traceback" not in done.err, done.err
    (row,) = (row for row in json.loads((tmp_path / "r.json").read_text())["rows"] if row["task"] == "conversion")
    return done, row


@pytest.mark.parametrize(
    ("name", "against"),
    [("float64", "float32"), ("float32", "float64"), ("float16", "float32"), ("int32", "int64"), ("int64", "int32")],
)
def test_another_dtype_is_invalid(xverify, tmp_path, name, against):
    done, row = checked(xverify, tmp_path, *(write(tmp_path / f"{each}.onnx", each) for each in (name, against)))
    assert (done.code, row["error"]["verdict"]) == (1, "INVALID"), done.out
    assert f"output 'y' is {name}, and the reference's is {against}" in row["error"]["reason"]


def test_dtypes_that_a_conversion_may_have_are_told(xverify, tmp_path):
    openvino = pytest.importorskip("openvino")
    half, single, short, long = (
        write(tmp_path / f"{each}.onnx", each) for each in ("half", "float32", "int32", "int64")
    )
    openvino.save_model(openvino.Core().read_model(short), tmp_path / "short.xml", compress_to_fp16=False)
    x = np.random.default_rng(2).standard_normal((4, 8))
    np.savez(tmp_path / "wide.npz", **{"input/x": x.astype("f"), "output/y": x.astype("f").astype(float) @ W})
    for file, reference, says in (
        (half, single, "float16, and the reference's is float32: one of them is in float16"),
        (tmp_path / "short.xml", long, "int32, and the reference's is int64: openvino often has no longer one"),
        (
            single,
            tmp_path / "wide.npz",
            "float32, and the reference's is float64: recorded tensors may have another one",
        ),
    ):
        done, _ = checked(xverify, tmp_path, file, reference)
        assert done.code == 0, done.out + done.err
        assert f"output 'y' is {says}" in " ".join(done.out.split()), done.out
