"""Through the command line: a few large values, tiny numbers and cases of other sizes hide no fault of a file."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

WEIGHT = np.random.default_rng(0).standard_normal((8, 6))
node = helper.make_node


def column(factor, index=1):
    weight = WEIGHT.copy()
    weight[:, index] *= factor
    return weight


def save(path, nodes, constants, kind=TensorProto.FLOAT):
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", kind, [2, 8])],
        [helper.make_tensor_value_info("y", kind, [2, 6])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def large_column(path, weight):
    weight = weight.astype(np.float32)
    weight[:, 0] *= 1e8
    return save(path, [node("MatMul", ["x", "w"], ["y"])], {"w": weight})


def masked_class(path, weight):
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Where", ["keep", "z", "lowest"], ["y"])]
    keep, lowest = np.arange(6) != 2, np.finfo(np.float32).min
    return save(path, nodes, {"w": weight.astype(np.float32), "keep": keep, "lowest": lowest})


def tiny(path, weight):
    return save(path, [node("MatMul", ["x", "w"], ["y"])], {"w": weight * 1e-200}, TensorProto.DOUBLE)


def cancelled(path, weight):
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Add", ["z", "c"], ["s"]), node("Sub", ["s", "c"], ["y"])]
    return save(path, nodes, {"w": weight.astype(np.float32), "c": np.float32(1e4)})


@pytest.mark.slow
@pytest.mark.parametrize("write", [large_column, masked_class, tiny, cancelled])
@pytest.mark.parametrize("factor", [-1.0, 1.1])
def test_a_wrong_column_is_different_and_the_right_file_passes(xverify, tmp_path, write, factor):
    right, wrong = write(tmp_path / "right.onnx", WEIGHT), write(tmp_path / "wrong.onnx", column(factor))
    passes = xverify("check", right, "--against", right)
    assert passes.code == 0, passes.out + passes.err
    done = xverify("check", wrong, "--against", right, "--json", tmp_path / "result.json")
    assert done.code == 1, done.out + done.err
    (error,) = (row["error"] for row in done.result["rows"] if row["task"] == "conversion")
    assert error["verdict"] == "DIFFERENT"
    if error["noise_ratio"] < 3:
        assert "x the noise of its worst group of values (limit 60)" in error["reason"]


def half(path, weight, last):
    """A product in float16, of which ``last`` makes the output."""
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("MatMul", ["h", "w"], ["z"]),
        node(*last, ["m"]),
        node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    keep, lowest = np.arange(6) != 2, np.float16(-60000)
    constants = {
        "w": weight.astype(np.float16),
        "keep": keep,
        "lowest": lowest,
        "wide": np.float16([1e4, 1, 1, 1, 1, 1]),
    }
    return save(path, nodes, constants)


@pytest.mark.slow
@pytest.mark.parametrize("last", [("Where", ["keep", "z", "lowest"]), ("Mul", ["z", "wide"])])
@pytest.mark.parametrize("factor", [-1.0, 1.3])
def test_one_large_value_hides_no_fault_of_a_narrow_file(xverify, tmp_path, last, factor):
    right, wrong = half(tmp_path / "right.onnx", WEIGHT, last), half(tmp_path / "wrong.onnx", column(factor), last)
    passes = xverify("check", right, "--against", right)
    assert passes.code == 0, passes.out + passes.err
    done = xverify("check", wrong, "--against", right, "--json", tmp_path / "result.json")
    assert done.code == 1, done.out + done.err


def signed(path, sign):
    """Two products with a masked class, whose classes have this sign."""
    random = np.random.default_rng(1)
    nodes = [
        node("MatMul", ["x", "v"], ["a"]),
        node("Tanh", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["z"]),
        node("Mul", ["z", "sign"], ["s"]),
        node("Where", ["keep", "s", "lowest"], ["y"]),
    ]
    weights = {name: random.standard_normal(shape) * 0.3 for name, shape in (("v", (8, 12)), ("w", (12, 6)))}
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    mask = {"keep": np.arange(6) != 2, "lowest": np.float32(-1e9)}
    return save(path, nodes, {**constants, **mask, "sign": np.float32(sign)})


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "code"), [(1.0, 0), (-1.0, 1)])
def test_a_masked_class_hides_no_wrong_sign_of_an_int8_file(xverify, tmp_path, sign, code):
    from onnxruntime.quantization import quantize_dynamic

    right, narrow = signed(tmp_path / "right.onnx", 1.0), tmp_path / "int8.onnx"
    quantize_dynamic(signed(tmp_path / "wide.onnx", sign), narrow)
    done = xverify("check", narrow, "--against", right, "--json", tmp_path / "result.json")
    assert done.code == code, done.out + done.err


@pytest.mark.slow
def test_values_without_a_digit_are_told_and_the_others_decide(xverify, tmp_path):
    done = xverify("check", cancelled(tmp_path / "right.onnx", WEIGHT), "--details", "--json", tmp_path / "result.json")
    tensors = done.result["rows"][0]["error"]["tensors"]
    assert done.code == 0
    assert [each["verdict"] for each in tensors].count("UNTESTED") >= 1  # the case of tiny inputs
    assert "values have no digit that float32 determines" in " ".join(done.out.split())


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "code"), [("1e-3", 0), ("1e-9", 4)])
def test_a_detection_limit_can_be_required(xverify, tmp_path, asked, code):
    done = xverify("check", masked_class(tmp_path / "right.onnx", WEIGHT), "--require", asked)
    assert done.code == code, done.out + done.err
