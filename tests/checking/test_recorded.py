"""Recorded data is compared whole or refused: with exit code 2 and one line that says what is wrong, where, and what to do."""

import warnings
import zipfile

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

WEIGHTS = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
X, Z = np.random.default_rng(1).standard_normal((2, 2, 8)).astype(np.float32)


@pytest.fixture
def model(tmp_path):
    """y = x @ w, and t = tanh(x + z)."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Add", ["x", "z"], ["s"]),
            helper.make_node("Tanh", ["s"], ["t"]),
        ],
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "z")],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6]),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 8]),
        ],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def record(folder, x=X, factor=1.0, names=("x", "z", "y", "t"), without=(), also=()):
    """One test data set. also: (file, name, array) of further tensors."""
    folder.mkdir(parents=True)
    arrays = {
        "input_0": x,
        "input_1": Z,
        "output_0": (factor * x @ WEIGHTS).astype(np.float32),
        "output_1": np.tanh(x + Z),
    }
    for (file, array), name in zip(arrays.items(), names):
        if file not in without:
            (folder / f"{file}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
    for file, name, array in also:
        (folder / f"{file}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def refused(xverify, model, against, *says):
    done = xverify("check", model, "--against", against)
    assert done.code == 2, done.out + done.err
    for each in says:
        assert each in done.err, done.err


@pytest.mark.slow
def test_all_data_sets_count_in_the_order_of_their_numbers(xverify, model, tmp_path):
    for index in range(11):
        record(tmp_path / "right" / f"test_data_set_{index}", x=X + index)
        record(tmp_path / "wrong" / f"test_data_set_{index}", x=X + index, factor=1.01 if index == 10 else 1.0)
    assert xverify("check", model, "--against", tmp_path / "right").code == 0
    done = xverify("check", model, "--against", tmp_path / "wrong")
    assert done.code == 1
    assert "y, case 10" in done.out


@pytest.mark.slow
def test_a_set_that_is_not_whole_is_refused(xverify, model, tmp_path):
    record(tmp_path / "a" / "test_data_set_0")
    record(tmp_path / "a" / "test_data_set_1", factor=-5, without=("input_0", "input_1"))
    refused(xverify, model, tmp_path / "a", "test_data_set_1", "it holds no input_0.pb")
    record(tmp_path / "b" / "test_data_set_0")
    record(tmp_path / "b" / "test_data_set_1", factor=-5, without=("output_0", "output_1"))
    refused(xverify, model, tmp_path / "b", "test_data_set_1", "it holds no output_0.pb")
    record(tmp_path / "c" / "test_data_set_0")
    record(tmp_path / "c" / "test_data_set_2", factor=-5)
    refused(xverify, model, tmp_path / "c", "test_data_set_2 where test_data_set_1 is expected")
    record(tmp_path / "d", without=("output_0",))
    refused(xverify, model, tmp_path / "d", "output_1.pb where output_0.pb is expected")
    record(tmp_path / "e", without=("input_1",))
    refused(xverify, model, tmp_path / "e", "it holds 1 inputs (x), and the model file has 2; record z")
    record(tmp_path / "f" / "test_data_set_0")
    record(tmp_path / "f" / "test_data_set_1", factor=-5, without=("output_1",))
    refused(xverify, model, tmp_path / "f", "case 1: the outputs t are recorded in some cases only")


@pytest.mark.slow
def test_two_arrays_of_one_tensor_are_refused(xverify, model, tmp_path):
    y = X @ WEIGHTS
    record(tmp_path / "a", names=("x", "z", "y", "y"))
    refused(xverify, model, tmp_path / "a", "both output_0.pb and output_1.pb (y) are recorded for one tensor")
    record(tmp_path / "b", also=[("output_00", "y", -5 * y)])
    refused(xverify, model, tmp_path / "b", "it holds output_00.pb")
    arrays = {"input/x": X, "input/z": Z, "output/t": np.tanh(X + Z), "output/y": -5 * y}
    np.savez(tmp_path / "c.npz", **arrays, y=y)
    refused(xverify, model, tmp_path / "c.npz", "both output/y and y are recorded for one tensor")
    np.savez(tmp_path / "d.npz", **{**arrays, "output/y": y})
    assert xverify("check", model, "--against", tmp_path / "d.npz").code == 0
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("output/y.npy", zipfile.ZipFile(tmp_path / "c.npz").read("output/y.npy"))
    refused(xverify, model, tmp_path / "d.npz", "it holds 'output/y' twice")
    np.savez(tmp_path / "e.npz", **{key: array for key, array in arrays.items() if key != "input/z"})
    refused(xverify, model, tmp_path / "e.npz", "it holds 1 inputs (x), and the model file has 2; record z")


@pytest.mark.slow
def test_two_arrays_of_one_given_input_are_refused(xverify, model, tmp_path):
    np.savez(tmp_path / "x.npz", **{"x": X, "0/x": -X, "z": Z})
    done = xverify("check", model, "--inputs", tmp_path / "x.npz")
    assert done.code == 2
    assert "it holds both 0/x and x" in done.err
