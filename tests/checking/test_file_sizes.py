"""``xverify check --sizes``: files that are right at the size of a trace, and wrong or refused at another one."""

import json
from pathlib import Path

import numpy as np
import pytest

import xverify as library
from xverify.checking import sizes
from xverify.errors import UsageError
from xverify.framework.modelfile import Tensor
from xverify.workload.sizes import combinations

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

pytestmark = pytest.mark.usefixtures("in_one_process")
RANDOM = np.random.default_rng(0)
TRACED = 16  # length of the sequence when the file was traced
MATRIX = RANDOM.standard_normal((8, 8)).astype(np.float32)
TABLE = RANDOM.standard_normal((64, 8)).astype(np.float32)


def save(path: Path, nodes, inputs, outputs, arrays) -> Path:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def mean(path: Path, *, baked: bool) -> Path:
    """The mean over a sequence, and a product. baked: the sum is divided by the length of the trace, and no size is refused."""
    if baked:
        nodes = [
            helper.make_node("ReduceSum", ["x", "axis"], ["sum"], "/pool/ReduceSum", keepdims=0),
            helper.make_node("Div", ["sum", "length"], ["mean"], "/pool/Div"),
        ]
        arrays = {"axis": np.array([1]), "length": np.float32(TRACED)}
    else:
        nodes, arrays = [helper.make_node("ReduceMean", ["x"], ["mean"], "/pool/ReduceMean", axes=[1], keepdims=0)], {}
    nodes.append(helper.make_node("MatMul", ["mean", "matrix"], ["y"], "/fc/MatMul"))
    return save(path, nodes, {"x": ["batch", "seq", 8]}, {"y": ["batch", 8]}, {**arrays, "matrix": MATRIX})


def flattened(path: Path, rows: int, batch: str | None = "batch") -> Path:
    """A product and a Reshape. rows: 0 keeps the batch, and a number is that of the trace."""
    nodes = [
        helper.make_node("MatMul", ["x", "matrix"], ["h"], "/fc/MatMul"),
        helper.make_node("Reshape", ["h", "shape"], ["y"], "/flat/Reshape"),
    ]
    arrays = {"matrix": MATRIX, "shape": np.array([rows, 32])}
    return save(path, nodes, {"x": [batch, 4, 8]}, {"y": [batch, 32]}, arrays)


def positions(path: Path, *, baked: bool) -> Path:
    """Positions are added. baked: to a sequence of the length of the trace alone."""
    if baked:
        nodes, arrays = [helper.make_node("Add", ["x", "table"], ["y"], "/embed/Add")], {"table": TABLE[:TRACED]}
    else:
        nodes = [
            helper.make_node("Shape", ["x"], ["length"], "/embed/Shape", start=1, end=2),
            helper.make_node("Slice", ["table", "start", "length", "axis"], ["own"], "/embed/Slice"),
            helper.make_node("Add", ["x", "own"], ["y"], "/embed/Add"),
        ]
        arrays = {"table": TABLE, "start": np.array([0]), "axis": np.array([0])}
    return save(path, nodes, {"x": ["batch", "seq", 8]}, {"y": ["batch", "seq", 8]}, arrays)


def rows_of(tmp_path: Path, task: str) -> dict[str, dict]:
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    return {
        " ".join(f"{name}={size}" for name, size in row["sizes"].items()): row for row in rows if row["task"] == task
    }


def test_a_right_file_passes_at_every_size_in_one_process(xverify, tmp_path):
    file = mean(tmp_path / "right.onnx", baked=False)
    done = xverify("check", file, "--sizes", "batch=1,2", "seq=1,33", "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    rows = rows_of(tmp_path, "runtime")
    assert list(rows) == [f"batch={batch} seq={seq}" for batch, seq in [(1, 1), (2, 1), (1, 33), (2, 33)]]
    for size, row in rows.items():
        assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
        assert row["error"]["layers"]["compared"] == 2
        assert row["subject"] == f"right.onnx {size}"
    assert "checked at 4 sizes: every combination of batch=1,2 seq=1,33" in done.out
    assert "the first size" not in done.out
    assert done.err.count("opening the file") == 1


def test_a_length_of_the_trace_is_wrong_at_the_next_one_against_a_reference(xverify, tmp_path):
    file, right = mean(tmp_path / "baked.onnx", baked=True), mean(tmp_path / "right.onnx", baked=False)
    done = xverify("check", file, "--against", right, "--sizes", "seq=16,33,64", "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    found = {size: row["error"]["verdict"] for size, row in rows_of(tmp_path, "conversion").items()}
    assert found.pop("seq=16") in ("IDENTICAL", "EQUAL")
    assert found == {"seq=33": "DIFFERENT", "seq=64": "DIFFERENT"}
    assert all(row["error"]["verdict"] in ("IDENTICAL", "EQUAL") for row in rows_of(tmp_path, "runtime").values())
    says = "baked.onnx: the first size that differs is seq=33 (2 of 3 sizes differ): the first value that differs is that of"
    assert says in done.out
    assert "/pool/" in done.out.split(says)[1].split("\n")[0]


@pytest.mark.parametrize("against", [False, True], ids=["alone", "against a reference"])
def test_a_batch_of_the_trace_is_refused_at_the_next_one(xverify, tmp_path, against):
    file, right = flattened(tmp_path / "baked.onnx", 1), flattened(tmp_path / "right.onnx", 0)
    more = ("--against", right) if against else ()
    done = xverify("check", file, *more, "--sizes", "batch=1,2,7", "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    rows = rows_of(tmp_path, "conversion" if against else "runtime")
    assert rows.pop("batch=1")["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert list(rows) == ["batch=2", "batch=7"]
    for size, row in rows.items():
        assert row["error"]["verdict"] == "DIFFERENT"
        assert f"onnxruntime refuses {size}, which the file leaves open" in row["error"]["reason"]
    [line] = [
        line for line in done.out.splitlines() if "the first size that differs is batch=2 (2 of 3 sizes differ)" in line
    ]
    assert "/flat/Reshape" in line


def test_positions_of_the_trace_are_refused_and_their_node_is_named(xverify, tmp_path):
    file, right = positions(tmp_path / "baked.onnx", baked=True), positions(tmp_path / "right.onnx", baked=False)
    done = xverify("check", file, "--against", right, "--sizes", "batch=2", "seq=16,33", "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    assert "the first size that differs is batch=2 seq=33 (1 of 2 sizes differ)" in done.out
    assert "/embed/Add" in done.out
    assert xverify("check", right, "--sizes", "batch=2", "seq=16,33").code == 0


def test_a_batch_without_a_name_is_called_batch_or_by_its_input(xverify, tmp_path):
    file = flattened(tmp_path / "right.onnx", 0, batch=None)
    for name in ("batch", "x:0"):
        done = xverify("check", file, "--sizes", f"{name}=1,3", "--json", tmp_path / "r.json")
        assert done.code == 0, done.out + done.err
        assert {row["batch"] for row in rows_of(tmp_path, "runtime").values()} == {1, 3}


def test_a_size_that_the_reference_refuses_is_untested(xverify, tmp_path):
    file, reference = flattened(tmp_path / "file.onnx", 0), flattened(tmp_path / "reference.onnx", 1)
    done = xverify("check", file, "--against", reference, "--sizes", "batch=1,2", "--json", tmp_path / "r.json")
    assert done.code == 4, done.out + done.err
    row = rows_of(tmp_path, "conversion")["batch=2"]
    assert row["error"]["verdict"] == "UNTESTED"
    assert "the reference cannot be computed at this size" in row["error"]["reason"]


def test_other_axes_keep_the_size_that_was_chosen_first(xverify, tmp_path):
    done = xverify(
        "check", mean(tmp_path / "right.onnx", baked=False), "--sizes", "batch=1,2", "--json", tmp_path / "r.json"
    )
    assert done.code == 0, done.out + done.err
    assert "--shape x=1x16x8" in done.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sizes", "bach=1,2"], "no open axis 'bach'; did you mean 'batch'? Its open axes: batch, seq"),
        (["--sizes", "batch=1,two"], "--sizes batch=1,two: write NAME=SIZES"),
        (["--sizes", "batch=0"], "--sizes batch=0: write NAME=SIZES"),
        (["--sizes", "batch=1,2", "--time"], "one size is timed"),
        (["--sizes", "batch=1,2", "--shape", "x=1x16x8"], "give one axis two sizes"),
        (["--sizes", "batch=1,2", "--against", "recorded.npz"], "were recorded at one size"),
        (["--sizes", f"seq={','.join(map(str, range(1, 70)))}"], "at most 64 are checked"),
    ],
    ids=["a name", "a word", "zero", "timing", "a shape", "recorded", "too many"],
)
def test_what_cannot_be_checked_is_refused(xverify, tmp_path, options, says):
    file = mean(tmp_path / "right.onnx", baked=False)
    (tmp_path / "here").mkdir()
    np.savez(tmp_path / "here" / "recorded.npz", x=np.zeros((1, 16, 8), np.float32), y=np.zeros((1, 8), np.float32))
    done = xverify("check", file, *options)
    assert done.code == 2, done.out + done.err
    assert says in done.err
    assert len(done.err.strip().splitlines()) <= 2


def test_a_file_that_fixes_its_sizes_says_so(xverify, tmp_path):
    file = save(
        tmp_path / "fixed.onnx", [helper.make_node("Relu", ["x"], ["y"], "/Relu")], {"x": [2, 4]}, {"y": [2, 4]}, {}
    )
    done = xverify("check", file, "--sizes", "batch=1,2")
    assert done.code == 2
    assert "fixed.onnx has no open axis 'batch'. It fixes all sizes of its inputs" in done.err


def test_the_same_in_python(tmp_path):
    file = flattened(tmp_path / "baked.onnx", 1)
    found = library.check(file, sizes={"batch": [1, 2]})
    assert [(row.sizes, row.error.verdict) for row in found.rows][1] == ({"batch": 2}, "DIFFERENT")
    assert found.settings.asked.options["sizes"] == ("batch=1,2",)
    with pytest.raises(UsageError, match="it must be one or several whole numbers"):
        library.check(file, sizes={"batch": [1, 0]})


def test_of_many_combinations_one_axis_is_varied_at_a_time():
    found = combinations({"batch": (1, 2, 3), "seq": (4, 8, 16), "width": (5, 6)})
    assert len(found) == 7
    assert {"batch": 1, "seq": 4, "width": 5} in found
    assert {"batch": 3, "seq": 16, "width": 6} in found
    assert {"batch": 2, "seq": 8, "width": 5} not in found
    assert len(combinations({"batch": (1, 2, 7), "seq": (1, 16, 33)})) == 9


def test_an_axis_that_is_a_sum_of_others_follows_them():
    tensors = [Tensor("ids", ("batch", "seq"), "int64"), Tensor("mask", ("batch", "past + seq"), "int64")]
    assert [each.shape for each in sizes.at(tensors, {"seq": 3, "past": 4})] == [("batch", 3), ("batch", 7)]
    assert sizes.at(tensors, {"seq": 3})[1].shape == ("batch", "past + seq")


def test_batch_also_means_the_axis_that_has_another_name_of_a_batch():
    tensors = [Tensor("x", ("N", 3, "H", "W"), "float32"), Tensor("mask", (None, "W"), "float32")]
    assert [each.shape for each in sizes.at(tensors[:1], {"batch": 2})] == [(2, 3, "H", "W")]
    assert sizes.at(tensors, {"batch": 2})[0].shape == ("N", 3, "H", "W")  # an axis without a name is the batch there
    assert sizes.at([Tensor("x", ("seq", "dim"), "float32")], {"batch": 2})[0].shape == ("seq", "dim")


def test_a_symbol_of_torch_is_the_batch_where_every_input_begins_with_it():
    tensors = [Tensor("x", ("s77", "s27", 8), "float32"), Tensor("scale", (), "float32")]
    assert sizes.at(tensors, {"batch": 2, "s27": 3})[0].shape == (2, 3, 8)
    other = Tensor("y", ("s3", 8), "float32")
    assert sizes.at([*tensors, other], {"batch": 2})[0].shape == ("s77", "s27", 8)


def without_names(path: Path, file: Path) -> Path:
    """The same file, whose open axes have no names."""
    model = onnx.load(file)
    for each in (*model.graph.input, *model.graph.output):
        for axis in each.type.tensor_type.shape.dim:
            axis.ClearField("dim_param")
    onnx.save(model, path)
    return path


def test_the_sizes_are_those_of_the_file_where_the_reference_calls_its_axes_otherwise(xverify, tmp_path):
    named, right = mean(tmp_path / "named.onnx", baked=True), mean(tmp_path / "right.onnx", baked=False)
    file = without_names(tmp_path / "file.onnx", named)
    done = xverify("check", file, "--against", right, "--sizes", "x:1=16,33", "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    found = {size: row["error"]["verdict"] for size, row in rows_of(tmp_path, "conversion").items()}
    assert found.pop("x:1=16") in ("IDENTICAL", "EQUAL")
    assert found == {"x:1=33": "DIFFERENT"}


FRAGILE = """
import os
import numpy as np
from xverify.framework.modelfile import ModelFile, Signature, Tensor
from xverify.framework.runner import OnArrays

def once(framework, model, example):
    def call(x):
        if len(x) == 2:
            os._exit(3)
        return {"y": 2 * x}
    return call

class Adapter(OnArrays, ModelFile):
    name, title, runtime = "fragile", "fragile file", "fragile"
    needs = {"numpy": "numpy"}
    modes = {"once": once}

    def __init__(self, threads, device):
        pass

    @classmethod
    def recognises(cls, path):
        return path.read_bytes().startswith(b"fragile")

    def open(self, path, options, float64):
        return path

    def signature(self, model):
        return Signature((Tensor("x", (None, 3), "float32"),), (Tensor("y", (None, 3), "float32"),))

    def environment(self):
        return {}
"""


def test_a_runtime_that_dies_at_a_size_is_started_again_for_the_next_one(xverify, tmp_path, monkeypatch):
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "fragile.py").write_text(FRAGILE)
    (tmp_path / "model.any").write_text("fragile")
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))
    done = xverify("check", tmp_path / "model.any", "--sizes", "batch=1,2,3", "--json", tmp_path / "r.json")
    assert done.code == 3, done.out + done.err
    found = {size: (row["status"], row["error"] is not None) for size, row in rows_of(tmp_path, "runtime").items()}
    assert found == {"batch=1": ("ok", True), "batch=2": ("crashed", False), "batch=3": ("ok", True)}


def test_sizes_for_which_there_is_no_time_are_untested(xverify, tmp_path):
    file = mean(tmp_path / "right.onnx", baked=False)
    done = xverify("check", file, "--sizes", "batch=1,2", "--max-seconds", 0.01, "--json", tmp_path / "r.json")
    assert done.code == 4, done.out + done.err
    first, second = rows_of(tmp_path, "runtime").values()
    assert first["error"]["compared"] > 0
    assert second["error"]["verdict"] == "UNTESTED"
    assert second["error"]["reason"] == "--max-seconds was over before the size batch=2"
