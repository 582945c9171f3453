"""``xverify check --steps --state``: models whose state is an output, and an input of the next call."""

import json

import numpy as np
import pytest
from helpers.modelfiles import save_onnx

from xverify.weights import npz

onnx = pytest.importorskip("onnx")
helper = onnx.helper

pytestmark = pytest.mark.usefixtures("in_one_process")
RANDOM = np.random.default_rng(0)
W, U, V = (0.5 * RANDOM.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (5, 5), (3, 5)))
SHAPES = {"x": [2, 4], "h": [2, 5]}, {"y": [2, 3], "h_out": [2, 5]}
SEQUENCE = ("--steps", 6, "--state", "h_out=h")
CELL = """
import torch
from torch import nn

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.W, self.U, self.V = nn.Linear(4, 5, bias=False), nn.Linear(5, 5, bias=False), nn.Linear(5, 3, bias=False)

    def forward(self, x, h):
        new = torch.tanh(self.W(x) + self.U(h))
        return {"y": self.V(new), "h_out": new}

def build():
    return Cell()
"""


def cell(path, state=U, names=("y", "h_out")):
    """h_out = tanh(W x + U h), y = V h_out."""
    y, h = names
    nodes = [
        helper.make_node("Gemm", ["x", "W.weight"], ["a"], "/W", transB=1),
        helper.make_node("Gemm", ["h", "U.weight"], ["b"], "/U", transB=1),
        helper.make_node("Add", ["a", "b"], ["c"], "/Add"),
        helper.make_node("Tanh", ["c"], [h], "/Tanh"),
        helper.make_node("Gemm", [h, "V.weight"], [y], "/V", transB=1),
    ]
    outputs = {y: [2, 3], h: [2, 5]}
    return save_onnx(path, nodes, SHAPES[0], outputs, {"W.weight": W, "U.weight": state, "V.weight": V})


def rows(folder, question):
    return [row for row in json.loads((folder / "r.json").read_text())["rows"] if row["task"] == question]


@pytest.fixture
def right(tmp_path):
    return cell(tmp_path / "right.onnx")


def test_a_file_alone_runs_its_sequence_in_float64_too(xverify, right, tmp_path):
    done = xverify("check", right, *SEQUENCE, "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    (row,) = rows(tmp_path, "runtime")
    assert row["error"]["compared"] == 6 * 2
    assert row["error"]["layers"]["compared"] == 5
    assert "step 5:" in done.out
    assert "h is h_out of the step before" in done.out


@pytest.mark.slow
def test_a_wrong_state_is_seen_from_the_second_step_on(xverify, right, tmp_path):
    wrong = cell(tmp_path / "wrong.onnx", state=U.T)
    (tmp_path / "cell.py").write_text(CELL)
    npz.save_file({"W.weight": W, "U.weight": U, "V.weight": V}, tmp_path / "weights.npz")
    references = [str(right)], [f"torch={tmp_path / 'cell.py'}:build", "--weights", tmp_path / "weights.npz"]
    for reference in references:
        done = xverify("check", right, wrong, "--against", *reference, *SEQUENCE, "--json", tmp_path / "r.json")
        assert done.code == 1, done.out + done.err
        good, bad = (row["error"] for row in rows(tmp_path, "conversion"))
        assert good["verdict"] in ("IDENTICAL", "EQUAL"), done.out
        assert bad["verdict"] == "DIFFERENT"
        by_step = {}
        for each in bad["tensors"]:
            by_step.setdefault(each["case"], set()).add(each["verdict"])
        assert by_step.pop(0) <= {"IDENTICAL", "EQUAL"}  # the state begins with zeros, so U has no effect yet
        assert by_step == {step: {"DIFFERENT"} for step in range(1, 6)}
        assert all(row["error"]["verdict"] in ("IDENTICAL", "EQUAL") for row in rows(tmp_path, "runtime"))


def test_the_noise_floor_of_a_step_is_that_of_the_sequence_before_it(xverify, tmp_path):
    """The logistic map doubles an error at every step, which is the noise of the sequence, and no fault of a step."""
    nodes = [
        helper.make_node("Sub", ["one", "h"], ["rest"], "/Sub"),
        helper.make_node("Mul", ["h", "rest"], ["product"], "/Product"),
        helper.make_node("Mul", ["product", "r"], ["h_out"], "/Mul"),
    ]
    constants = {"one": np.float32(1.0), "r": np.float32(3.9)}
    chaos = save_onnx(tmp_path / "chaos.onnx", nodes, {"h": [2, 64]}, {"h_out": [2, 64]}, constants)
    start = {f"{step}/h": RANDOM.uniform(0.1, 0.9, (2, 64)).astype(np.float32) for step in range(12)}
    npz.save_file(start, tmp_path / "start.npz")
    done = xverify(
        "check", chaos, "--steps", 12, "--state", "h_out=h", "--inputs", tmp_path / "start.npz", "--json", tmp_path / "r.json"
    )  # fmt: skip
    assert done.code == 0, done.out + done.err
    (row,) = rows(tmp_path, "runtime")
    errors = {each["case"]: each["rel_rms"] for each in row["error"]["tensors"]}
    assert errors[11] > 30 * errors[0]


def test_other_names_are_matched_and_the_state_goes_with_them(xverify, right, tmp_path):
    other = cell(tmp_path / "other.onnx", names=("output_0", "state"))
    done = xverify("check", other, "--against", right, *SEQUENCE, "--details")
    assert done.code == 0, done.out + done.err
    assert "h_out = state" in done.out


@pytest.mark.slow
@pytest.mark.slow
def test_the_state_has_the_names_of_code_whose_outputs_have_none(xverify, right, tmp_path):
    returned = 'return {"y": self.V(new), "h_out": new}'
    assert returned in CELL
    (tmp_path / "cell.py").write_text(CELL.replace(returned, "return self.V(new), new"))
    npz.save_file({"W.weight": W, "U.weight": U, "V.weight": V}, tmp_path / "weights.npz")
    wrong = cell(tmp_path / "wrong.onnx", state=U.T)
    against = ["--against", f"torch={tmp_path / 'cell.py'}:build", "--weights", tmp_path / "weights.npz", "--steps", 4]
    done = xverify("check", right, wrong, *against, "--state", "output_1=h", "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    assert [row["error"]["verdict"] for row in rows(tmp_path, "conversion")] == ["EQUAL", "DIFFERENT"], done.out
    done = xverify("check", right, *against, "--state", "h_out=h")
    assert done.code == 2
    assert "torch=cell.py:build has no output 'h_out'. It has the outputs output_0, output_1" in done.err


def test_recorded_steps_are_a_reference(xverify, right, tmp_path):
    h, tensors = np.zeros((2, 5)), {}
    for step in range(6):
        x = RANDOM.standard_normal((2, 4)).astype(np.float32)
        folder = tmp_path / "recorded" / f"test_data_set_{step}"
        folder.mkdir(parents=True)
        tensors = {"input_0": x, "input_1": h}
        h = np.tanh(x @ W.T.astype(np.float64) + h @ U.T)
        tensors |= {"output_0": h @ V.T, "output_1": h}
        for name, array in tensors.items():
            tensor = onnx.numpy_helper.from_array(array.astype(np.float32))
            (folder / f"{name}.pb").write_bytes(tensor.SerializeToString())
    assert xverify("check", right, "--against", tmp_path / "recorded", *SEQUENCE).code == 0
    wrong = cell(tmp_path / "wrong.onnx", state=U.T)
    assert xverify("check", wrong, "--against", tmp_path / "recorded", *SEQUENCE).code == 1


@pytest.mark.slow
def test_torchscript_runs_a_sequence_and_is_judged_by_one(xverify, right, tmp_path):
    torch = pytest.importorskip("torch")
    space = {}
    exec(CELL, space)  # the code above
    model = space["build"]()
    model.load_state_dict({f"{name}.weight": torch.from_numpy(array.copy()) for name, array in zip("WUV", (W, U, V))})
    traced = torch.jit.trace(model.eval(), (torch.ones(2, 4), torch.ones(2, 5)), strict=False)
    traced.save(str(tmp_path / "cell.torchscript"))
    shapes = ("--shape", "x=2x4", "--shape", "h=2x5")
    done = xverify("check", tmp_path / "cell.torchscript", *shapes, *SEQUENCE, "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    assert xverify("check", tmp_path / "cell.torchscript", "--against", right, *SEQUENCE).code == 0
    wrong = cell(tmp_path / "wrong.onnx", state=U.T)
    assert xverify("check", wrong, "--against", tmp_path / "cell.torchscript", *shapes, *SEQUENCE).code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--steps", "4"], "say which output is which input of the next step"),
        (["--state", "h_out=h"], "say how many steps the sequence has"),
        (["--steps", "1", "--state", "h_out=h"], "--steps is 1: it must be at least 2"),
        (["--steps", "4", "--state", "h_out"], "write OUT=IN"),
        (
            ["--steps", "4", "--state", "hout=h"],
            "has no output 'hout'; did you mean 'h_out'? It has the outputs y, h_out",
        ),
        (["--steps", "4", "--state", "h_out=k"], "has no input 'k'"),
        (["--steps", "4", "--state", "y=h"], "the output is float32 2x3, and the input is float32 2x5"),
        (["--steps", "4", "--state", "y=h", "--state", "h_out=h"], "gives the input 'h' two outputs, y and h_out"),
        (["--steps", "4", "--state", "y=h", "--state", "y=x"], "--state is given for 'y' with two values"),
        (["--steps", "4", "--state", "h_out=h", "--inputs", "TWO"], "it holds 2 cases, and --steps is 4"),
    ],
)
def test_a_state_that_cannot_be_meant_is_one_line_and_exit_code_2(xverify, right, tmp_path, arguments, says):
    two = {f"{case}/{name}": np.ones(shape, np.float32) for case in range(2) for name, shape in SHAPES[0].items()}
    npz.save_file(two, tmp_path / "two.npz")
    done = xverify("check", right, *(str(tmp_path / "two.npz") if each == "TWO" else each for each in arguments))
    assert done.code == 2, done.out + done.err
    assert says in done.err.splitlines()[-1]  # progress comes before it
