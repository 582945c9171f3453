"""A float16 file whose values become larger than 65504 is told so, with the first node where that happens."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402  it is there

node = helper.make_node


def write(path, dtype, scale, output="y"):
    """x -> MatMul = a -> MatMul = b -> Mul = y. scale: of the first matrix."""
    random = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {"w": random.standard_normal((16, 8)) * scale, "v": random.standard_normal((8, 8)), "small": 1e-4}
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "first"),
        node("MatMul", ["a", "v"], ["b"], "second"),
        node("Mul", ["b", "small"], ["y"], "smaller"),
    ]
    graph = helper.make_graph(
        nodes[: 1 if output == "a" else 3],
        "model",
        [helper.make_tensor_value_info("x", kind, [4, 16])],
        [helper.make_tensor_value_info(output, kind, [4, 8])],
        [numpy_helper.from_array(np.asarray(value, dtype), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def checked(xverify, tmp_path, scale, output="y", *more):
    """The outcome and the rows for a float16 file against the float32 one."""
    plain = write(tmp_path / "plain.onnx", np.float32, scale, output)
    half = write(tmp_path / "half.onnx", np.float16, scale, output)
    done = xverify("check", half, "--against", plain, "--json", tmp_path / "r.json", *more)
    assert "Traceback" not in done.err, done.err
    return done, {row["task"]: row for row in json.loads((tmp_path / "r.json").read_text())["rows"]}


def test_an_output_that_overflows_is_told_with_its_node_and_the_next_step(xverify, tmp_path):
    done, rows = checked(xverify, tmp_path, 1e4, "a")
    assert done.code == 1, done.out + done.err
    error = rows["conversion"]["error"]
    assert error["verdict"] == "INVALID"
    assert error["reason"].startswith("first (MatMul) overflows float16, which ends at 65504: ")
    assert "(input case 1); keep this node in float32" in error["reason"]
    assert "output 'a' is float16, and the reference's values, up to 9.05e+04, are beyond its range" in error["reason"]


def test_an_overflow_that_this_runtime_does_not_have_is_a_note(xverify, tmp_path):
    done, rows = checked(xverify, tmp_path, 1.5e4)
    assert done.code == 0, done.out + done.err  # ONNX Runtime computes float16 in float32
    assert any(
        note.startswith("second (MatMul) overflows float16, which ends at 65504: 16 of its 32 values are larger")
        and "a runtime that stores them in float16 has infinity there: keep this node in float32" in note
        for note in rows["conversion"]["notes"]
    )


def test_a_file_whose_values_fit_says_nothing_of_it(xverify, tmp_path):
    done, rows = checked(xverify, tmp_path, 1.0, "y", "--input-range=-1,1")
    assert done.code == 0, done.out + done.err
    assert "overflow" not in json.dumps(rows)


def test_rounding_decides_beside_the_end_of_the_range():
    torch = pytest.importorskip("torch")
    from xverify.replay.graph.values import in_range

    half = np.dtype(np.float16)
    exact = torch.tensor([65500.0, 65510.0, 65519.0, 65521.0, -65700.0], dtype=torch.float64)
    assert in_range(exact, half).tolist() == [65500.0, 65504.0, 65504.0, np.inf, -np.inf]
    found = torch.tensor([65504.0, np.inf, 65504.0, 65504.0, -65504.0])
    assert in_range(exact, half, found).tolist() == [65500.0, np.inf, 65504.0, 65504.0, -np.inf]


@pytest.mark.parametrize(("stored", "wrong"), [(-65504.0, 0), (-60000.0, 1), (-np.inf, 1)])
def test_a_number_that_float16_cannot_hold_is_right_at_the_end_of_its_range(stored, wrong):
    pytest.importorskip("torch")
    from xverify.replay.graph.explain.constants import beyond_rounding
    from xverify.replay.graph.model import Graph

    def graph(value, dtype):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        values = [helper.make_tensor_value_info(name, kind, [2]) for name in "xy"]
        constants = [numpy_helper.from_array(np.asarray(value, dtype), "mask")]
        made = helper.make_graph(
            [node("Add", ["x", "mask"], ["y"], "masked")], "model", values[:1], values[1:], constants
        )
        return Graph(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]))

    told = beyond_rounding(graph(stored, np.float16), graph(np.finfo(np.float32).min, np.float32))
    assert len(told) == wrong
    assert all("and the reference has -3.40282e+38" in each for each in told)
