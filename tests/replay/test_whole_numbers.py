"""Tables of whole numbers that code computes by cutting off digits, and the place where noise grows too large."""

import pytest

torch = pytest.importorskip("torch")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 20, 12))}, outputs={"y": TensorSpec(("N", 20, 12))}, batch=2)
"""
MODEL = """
import math
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.table = nn.Linear(12, 12), nn.Linear(12, 12), nn.Embedding(64, 12)
    def forward(self, x):
        place = torch.arange(x.shape[1], device=x.device)
        y = self.a(x)
        {line}
        return self.b(y)
def build():
    return Net()
"""
LOG = "4 + (torch.log(place.float().clamp(min=1) / 4) / math.log(4) * 4)"
LINES = {
    "buckets of distances": f"y = y + self.table(torch.where(place < 4, place, {LOG}.long()))",
    "floor": "y = y + self.table((torch.log(2.0 ** (place % 4)) / math.log(2)).floor().long())",
    "ceil": "y = y * (place.float() / 7 * 7).ceil()[:, None]",
    "trunc": "y = y * torch.trunc(1 + place.float() / 3 * 3)[:, None]",
    "int": "y = y + self.table((place.float() / 3 * 3).int())",
}


def files(folder, reference, **ports):
    for name, text in {"spec": SPEC, "torch": reference, **ports}.items():
        (folder / f"{name.replace('_', '-')}.py").write_text(text)
    return ",".join(["torch:eager", *(f"{name.replace('_', '-')}:eager" for name in ports)])


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_whole_number_but_for_rounding_is_that_number(xverify, tmp_path, in_one_process, line):
    right = MODEL.format(line=line)
    wrong = right.replace("return self.b(y)", "return self.b(y * 1.0003)")
    port = right.replace("return self.b(y)", "return y @ self.b.weight.T + self.b.bias")
    subjects = files(tmp_path, right, torch_port=port, torch_wrong=wrong)
    done = xverify("run", tmp_path, "--subjects", subjects, "--no-timing", "--quiet")
    error, other = (done.row(f"{name}:eager")["error"] for name in ("torch-port", "torch-wrong"))
    assert error["verdict"] in ("IDENTICAL", "EQUAL"), done.out
    assert error["detection_limit"] < 1e-4
    assert other["verdict"] == "DIFFERENT"
    assert "and `b`" in other["reason"]


@pytest.mark.parametrize("table", ["place.float() * 0.7 / 0.7", "place.float().sqrt() * place.float().sqrt()"])
def test_a_table_that_float32_decides_otherwise_is_not_wrong(xverify, tmp_path, in_one_process, table):
    text = MODEL.format(line=f"y = y + ({table}).long()[:, None]")
    subjects = files(
        tmp_path, text, torch_port=text.replace("self.a(x)", "x.flip(-1) @ self.a.weight.flip(-1).T + self.a.bias")
    )
    done = xverify("run", tmp_path, "--subjects", subjects, "--no-timing", "--quiet")
    error = done.row("torch-port:eager")["error"]
    assert error["verdict"] in ("EQUAL", "UNTESTED"), done.out
    assert error["verdict"] == "EQUAL" or "the noise grows from" in error["reason"]


def test_another_table_of_whole_numbers_is_different(xverify, tmp_path, in_one_process):
    line = LINES["buckets of distances"]
    subjects = files(
        tmp_path, MODEL.format(line=line), torch_port=MODEL.format(line=line.replace("math.log(4)", "math.log(5)"))
    )
    done = xverify("run", tmp_path, "--subjects", subjects, "--no-timing", "--quiet")
    assert done.row("torch-port:eager")["error"]["verdict"] == "DIFFERENT"


def test_buckets_in_a_file_are_equal(xverify, tmp_path):
    pytest.importorskip("onnxruntime")
    space = {}
    exec(MODEL.format(line=LINES["buckets of distances"]), space)
    path, names = tmp_path / "model.onnx", {"input_names": ["x"], "output_names": ["y"]}
    axes = {name: {0: "N", 1: "T"} for name in "xy"}  # otherwise the table is a constant of the file
    torch.onnx.export(
        space["build"]().eval(), (torch.randn(2, 20, 12),), path, dynamo=False, dynamic_axes=axes, **names
    )
    done = xverify("check", path, "--shape", "x=2x20x12", "--quiet")
    assert done.code == 0, done.out


STEEP = {
    "glue code": ("y = y + torch.sin(y * 3e5)", "in the glue code between `a` and `b` (torch.py:"),
    "a layer": ("y = Steep.forward(self.steep, y)", "in layer `steep`"),
    "decisions": ("y = y * ((y * 1e7) % 2 > 1)", "in the glue code between `a` and `b` (torch.py:"),
}


@pytest.mark.parametrize(("line", "place"), STEEP.values(), ids=STEEP)
def test_a_row_whose_noise_is_too_large_names_the_place(xverify, tmp_path, in_one_process, line, place):
    text = MODEL.format(line=line.replace("Steep.forward(self.steep, y)", "self.steep(y)"))
    text = text.replace(
        "class Net",
        "class Steep(nn.Module):\n    def forward(self, x):\n        return x + torch.sin(x * 3e5)\nclass Net",
    )
    text = text.replace("nn.Embedding(64, 12)\n", "nn.Embedding(64, 12)\n        self.steep = Steep()\n")
    port = text.replace("self.a(x)", "x.flip(-1) @ self.a.weight.flip(-1).T + self.a.bias")
    subjects = files(tmp_path, text, torch_port=port)
    error = xverify("run", tmp_path, "--subjects", subjects, "--no-timing", "--quiet").row("torch-port:eager")["error"]
    assert error["verdict"] == "UNTESTED"
    assert "the noise grows from" in error["reason"]
    assert place in error["reason"]
