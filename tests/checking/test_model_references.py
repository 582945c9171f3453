"""``xverify check --against`` a model folder or code, from outside."""

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from conftest import write_folder
from helpers.modelfiles import save_onnx

from xverify.weights import npz, safetensors

helper = pytest.importorskip("onnx").helper

pytestmark = pytest.mark.usefixtures("in_one_process")
RANDOM = np.random.default_rng(0)
SHAPES = {"fc1.weight": (6, 8), "fc1.bias": (6,), "fc2.weight": (3, 6), "fc2.bias": (3,)}
WEIGHTS = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))

def build():
    return Net()

def sized(width):
    return Net()
"""


def export(path: Path, batch="batch", **changed) -> Path:
    """The model as a converter writes it."""
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "/fc1/Gemm", transB=1),
        helper.make_node("Tanh", ["h"], ["t"], "/Tanh"),
        helper.make_node("Gemm", ["t", "fc2.weight", "fc2.bias"], ["y"], "/fc2/Gemm", transB=1),
    ]
    return save_onnx(path, nodes, {"x": [batch, 8]}, {"y": [batch, 3]}, {**WEIGHTS, **changed})


@pytest.fixture
def weights(tmp_path):
    npz.save_file(WEIGHTS, tmp_path / "weights.npz")
    return tmp_path / "weights.npz"


@pytest.fixture
def right(tmp_path):
    return export(tmp_path / "right.onnx")


def reference(kind: str, folder: Path) -> str:
    """The same model as a folder for numpy, as a folder for torch, and as code for torch."""
    if kind == "code":
        (folder / "net.py").write_text(NET)
        return f"torch={folder / 'net.py'}:build"
    found = write_folder(folder / kind)
    if kind == "torch":
        (found / "numpy.py").unlink()
        (found / "torch.py").write_text(NET)
    return str(found)


def rows(folder: Path, question: str) -> list:
    return [row for row in json.loads((folder / "r.json").read_text())["rows"] if row["task"] == question]


@pytest.mark.parametrize("kind", ["numpy", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("torch", "code"))])
def test_a_right_file_is_equal_and_a_planted_fault_is_not(xverify, right, weights, tmp_path, kind):
    wrong = export(tmp_path / "wrong.onnx", 5, **{"fc2.bias": WEIGHTS["fc2.bias"] * 0})
    text = reference(kind, tmp_path)
    done = xverify("check", right, wrong, "--against", text, "--weights", weights, "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    good, bad = (row["error"] for row in rows(tmp_path, "conversion"))
    assert good["verdict"] in ("IDENTICAL", "EQUAL"), done.out
    assert (bad["verdict"], "fc2.bias is zero" in bad["reason"]) == ("DIFFERENT", True)
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["weights"]["source"] == str(weights)
    assert result["weights"]["tensors"] == len(WEIGHTS)
    assert f"with {weights}" in " ".join(done.out.split())
    if kind != "numpy":  # the float64 replay of the layers measures the noise floor of the reference
        assert result["reference"]["precision"] == "float64"
        assert good["noise_ratio"] < 3


@pytest.mark.parametrize(
    ("kind", "source"),
    [("numpy", "probe weights, seed 0"), pytest.param("code", "the weights that build()", marks=pytest.mark.slow)],
)
def test_forgotten_weights_are_told_with_the_next_step(xverify, right, tmp_path, kind, source):
    done = xverify("check", right, "--against", reference(kind, tmp_path), "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    (row,) = rows(tmp_path, "conversion")
    assert row["error"]["verdict"] == "DIFFERENT"
    reason = row["error"]["reason"]
    assert "4 of 4 weights of the file are not those of the reference" in reason
    assert source in reason
    assert "give the weights the file was made from with --weights" in reason


@pytest.mark.parametrize("kind", ["numpy", pytest.param("code", marks=pytest.mark.slow)])
def test_probe_weights_may_be_asked_for(xverify, right, tmp_path, kind):
    text = reference(kind, tmp_path)
    if kind == "numpy":  # the weights that the folder has are not taken
        safetensors.save_file(WEIGHTS, Path(text) / "weights.safetensors")
        assert xverify("check", right, "--against", text).code == 0
    done = xverify("check", right, "--against", text, "--weights", "probe", "--json", tmp_path / "r.json")
    assert (done.code, json.loads((tmp_path / "r.json").read_text())["weights"]["source"]) == (
        1,
        "probe weights, seed 0",
    )


@pytest.mark.slow
def test_the_weights_of_a_build_that_loads_them_are_the_references_own(xverify, right, weights, tmp_path):
    (tmp_path / "parts.py").write_text(NET)
    (tmp_path / "trained.py").write_text(
        textwrap.dedent(f"""
        import numpy, torch
        from parts import Net

        def build():
            model = Net()
            arrays = numpy.load({str(weights)!r})
            model.load_state_dict({{name: torch.from_numpy(arrays[name]) for name in arrays.files}})
            return model
        model = build()
        """)
    )
    for name in ("build", "model"):  # a function, and a module that is there already
        done = xverify("check", right, "--against", f"torch={tmp_path / 'trained.py'}:{name}")
        assert done.code == 0, done.out + done.err


@pytest.mark.slow
def test_a_file_with_channels_last_is_compared_with_code_whose_channels_come_second(xverify, tmp_path):
    kernel = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32)
    (tmp_path / "conv.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Conv2d(3, 4, 3, bias=False)\n"
    )
    npz.save_file({"weight": kernel}, tmp_path / "kernel.npz")
    nodes = [
        helper.make_node("Transpose", ["image"], ["first"], "/in", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["first", "weight"], ["c"], "/conv"),
        helper.make_node("Transpose", ["c"], ["features"], "/out", perm=[0, 2, 3, 1]),
    ]
    shapes = {"image": [2, 9, 9, 3]}, {"features": [2, 7, 7, 4]}
    file = save_onnx(tmp_path / "nhwc.onnx", nodes, *shapes, {"weight": kernel})
    text = f"torch={tmp_path / 'conv.py'}"
    done = xverify("check", file, "--against", text, "--weights", tmp_path / "kernel.npz", "--details")
    assert done.code == 0, done.out + done.err
    assert "input = image" in done.out
    assert "NCHW→NHWC" in done.out


@pytest.mark.parametrize(
    ("against", "says"),
    [
        ("torch=missing.py:build", "there is no file missing.py"),
        ("missing.py:build", "there is no file missing.py"),
        ("NET:bild", "net.py has no 'bild'; did you mean 'build'?"),
        ("torch=NET:bild", "net.py has no 'bild'; did you mean 'build'?"),
        ("torch=NET:sized", "sized needs the argument width"),
        ("torhc=NET:build", "unknown framework 'torhc'; did you mean 'torch'?"),
        ("onnxruntime=NET:build", "runs exported models"),
        ("torch=RIGHT:build", "is no Python file"),
        ("resnet81", "unknown model 'resnet81'; did you mean 'resnet18'?"),
        ("EMPTY", "no framework that this folder defines is installed"),
        ("BARE", "has no spec.py"),
        ("missing/folder", "there is no such file"),
    ],
)
def test_a_bad_reference_is_one_line_and_exit_code_2(xverify, right, tmp_path, against, says):
    (tmp_path / "net.py").write_text(NET)
    empty = write_folder(tmp_path / "empty", ())
    bare = write_folder(tmp_path / "bare")
    (bare / "spec.py").unlink()
    for name, path in {"NET": tmp_path / "net.py", "RIGHT": right, "EMPTY": empty, "BARE": bare}.items():
        against = against.replace(name, str(path))
    done = xverify("check", right, "--against", against)
    assert done.code == 2, done.out + done.err
    assert says in done.err
    assert "--against" in done.err.splitlines()[-1]  # progress comes before it


def test_weights_need_a_reference_that_takes_them(xverify, right, weights):
    done = xverify("check", right, "--against", right, "--weights", weights)
    assert done.code == 2
    assert "a file has its own weights" in done.err
