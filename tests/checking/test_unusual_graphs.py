"""Graphs with loops that never run, single numbers as limits, sequences, optional values and strings; and the end of the time."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import onnx
from conftest import cli
from onnx import TensorProto, helper, numpy_helper

from xverify.processes import worker

node, value = helper.make_node, helper.make_tensor_value_info
FLOAT = TensorProto.FLOAT


def save(path, nodes, inputs, outputs, **constants):
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def loop(path, trips, rows=2):
    """v is multiplied by a matrix in each trip, and each result is one row of all."""
    nodes = [node("Identity", ["c"], ["going"]), node("MatMul", ["v", "w"], ["p"]), node("Tanh", ["p"], ["v2"])]
    nodes += [node("Identity", ["v2"], ["row"])]
    given = [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", FLOAT, [rows, 3])]
    returned = [value("going", TensorProto.BOOL, []), value("v2", FLOAT, [rows, 3]), value("row", FLOAT, [rows, 3])]
    matrix = numpy_helper.from_array(np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32), "w")
    body = helper.make_graph(nodes, "body", given, returned, [matrix])
    outputs = [value("y", FLOAT, [rows, 3]), value("all", FLOAT, None)]
    run = node("Loop", ["n", "", "x"], ["y", "all"], "loop", body=body)
    return save(path, [run], [value("x", FLOAT, [rows, 3])], outputs, n=np.int64(trips))


def suppression(path):
    """The limits are single numbers, and not arrays of one."""
    nodes = [
        node("Softplus", ["corners"], ["c"]),
        node("NonMaxSuppression", ["c", "scores", "most", "overlap", "least"], ["kept"]),
    ]
    inputs = [value("corners", FLOAT, [1, 10, 4]), value("scores", FLOAT, [1, 2, 10])]
    limits = {"most": np.int64(5), "overlap": np.float32(0.5), "least": np.float32(0.3)}
    return save(path, nodes, inputs, [value("kept", TensorProto.INT64, None)], **limits)


def sequence(path):
    nodes = [node("Exp", ["x"], ["e"]), node("SplitToSequence", ["e"], ["parts"], axis=0)]
    outputs = [helper.make_tensor_sequence_value_info("parts", FLOAT, [1, 3])]
    return save(path, nodes, [value("x", FLOAT, [2, 3])], outputs)


def optional(path):
    nodes = [node("Exp", ["x"], ["e"]), node("Optional", ["e"], ["o"]), node("OptionalGetElement", ["o"], ["y"])]
    return save(path, nodes, [value("x", FLOAT, [2, 3])], [value("y", FLOAT, [2, 3])])


def fixed_batch(path):
    """The batch size is open in one input, and fixed in the other."""
    sides = [value("x", FLOAT, ["items", 5]), value("state", FLOAT, [3, 5])]
    return save(
        path, [node("Add", ["x", "state"], ["s"]), node("Tanh", ["s"], ["y"])], sides, [value("y", FLOAT, [3, 5])]
    )


def strings(path):
    inputs = [value("x", FLOAT, [2, 3]), value("text", TensorProto.STRING, [2])]
    outputs = [value("y", FLOAT, [2, 3]), value("same", TensorProto.STRING, [2])]
    return save(path, [node("Exp", ["x"], ["y"]), node("Identity", ["text"], ["same"])], inputs, outputs)


@pytest.mark.slow
def test_unusual_graphs_are_judged(tmp_path):
    made = [sequence, optional, suppression, fixed_batch]
    files = [each(tmp_path / f"{each.__name__}.onnx") for each in made] + [loop(tmp_path / "loop.onnx", 0)]
    done = cli(tmp_path, "check", *files, "--json", tmp_path / "r.json", timeout=600)
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    errors = {row["subject"].removesuffix(".onnx"): row["error"] for row in rows}
    passed = {name for name, error in errors.items() if error["verdict"] in ("IDENTICAL", "EQUAL")}
    assert passed == {"sequence", "optional", "suppression", "fixed_batch"}, done.out + done.err
    assert errors["loop"]["verdict"] == "UNTESTED"  # one of its outputs is empty
    assert "output 'all' of the reference is the same for every input" in errors["loop"]["reason"]
    assert {each["output"] for row in rows for each in row["error"]["tensors"]} >= {"parts_0", "parts_1"}


@pytest.mark.slow
def test_strings_are_passed_through_and_the_numbers_beside_them_are_compared(tmp_path):
    file = strings(tmp_path / "strings.onnx")
    done = cli(tmp_path, "check", file)
    assert done.code != 0
    assert "input 'text' takes strings, which are not drawn: give them with --inputs" in " ".join(
        (done.out + done.err).split()
    )
    np.savez(tmp_path / "texts.npz", text=np.array(["one", "two"]))
    done = cli(tmp_path, "check", file, "--inputs", tmp_path / "texts.npz", "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")


@pytest.mark.slow
def test_a_long_loop_ends_with_max_seconds_and_says_what_was_not_done(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "LEAST", 1.0)
    file = loop(tmp_path / "long.onnx", 30_000)
    begun = time.monotonic()
    done = cli(tmp_path, "check", file, "--max-seconds", 15, "--json", tmp_path / "r.json")
    assert time.monotonic() - begun < 60
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["error"]["verdict"] == "UNTESTED", done.out + done.err
    assert "--max-seconds was over while evaluating the graph in float64" in row["error"]["reason"]
