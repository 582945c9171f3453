"""What the drawn inputs of a model folder do not reach is told, by layer or line, and is UNTESTED with --strict."""

import json

import pytest

pytest.importorskip("torch")

SPEC = """
from xverify.workload.spec import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={{{inputs}}}, outputs={{"y": TensorSpec(("N", 6))}}, batch=4)
"""
MODEL = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(3000, 6, padding_idx=1234)
        self.act = nn.ReLU6()
        self.fc = nn.Linear(6, 6)
    def forward(self, {takes}):
{body}
def build():
    return Net()
"""
X, IDS = '"x": TensorSpec(("N", 6))', '"ids": TensorSpec(("N", 8), "int64", low=0, high=3000)'
STEPS = '"n": TensorSpec((), "int64", low=0, high=10)'
NUMBERS = '"i": TensorSpec(("N", 6), "int64", low=-100, high=100)'
# Inputs, the body of the reference, that of a wrong port, and what is told of the reference.
CASES = {
    "padding": (
        (X, IDS),
        "return self.emb(ids).mean(1) + self.fc(x)",
        "return (self.emb(ids) * (ids != 1234)[..., None]).mean(1) + self.fc(x)",
        [],
    ),
    "loop": (
        (X, STEPS),
        "for _ in range(int(n)): x = torch.tanh(self.fc(x))\nreturn x + 0.0",
        "for _ in range(min(int(n), 4)): x = torch.tanh(self.fc(x))\nreturn x + 0.0",
        [],
    ),
    "later-trip": (
        (X, STEPS),
        "for k in range(int(n)): x = torch.tanh(self.fc(x))\nreturn x + 0.0",
        "for k in range(int(n)): x = torch.tanh(self.fc(x) + 0.1 * (k > 0))\nreturn x + 0.0",
        [],
    ),
    "floor": ((NUMBERS,), "return self.fc((i // 7).float())", "return self.fc(torch.div(i, 7, rounding_mode='trunc').float())", []),
    "modulo": ((NUMBERS,), "return self.fc((i % 7).float())", "return self.fc(torch.fmod(i, 7).float())", []),
    "branch": (
        (X,),
        "h = self.fc(x)\nif x.sum() > 5000:\n    h = h * 3\nreturn h",
        None,
        ["torch.py:12 (gt): it is never true"],
    ),
    "upper": ((X,), "return self.act(self.fc(x) * 0.1)", None, ["act (ReLU6): no value is above its upper bound"]),
    "clip": (
        (X,),
        "return self.fc(x).clamp(-1e4, 1e4)",
        None,
        [f"torch.py:11 (clamp): no value is {side} bound" for side in ("below its lower", "above its upper")],
    ),
    "maximum": (
        (X,),
        "return torch.maximum(self.fc(x), torch.tensor(-900.0))",
        None,
        ["torch.py:11 (maximum): its second argument is never the result"],
    ),
    "where": (
        (X,),
        "h = self.fc(x)\nreturn torch.where(h.abs() < 1e3, h, h * 2)",
        None,
        ["torch.py:12 (lt): it is never false"],
    ),
    "plain": ((X,), "return self.fc(torch.relu(x)) * (torch.arange(6) < 9)", None, []),
}  # fmt: skip


def folder(path, inputs, body, port):
    path.mkdir()
    takes = ", ".join(each.split('"')[1] for each in inputs)
    (path / "spec.py").write_text(SPEC.format(inputs=", ".join(inputs)))
    for name, code in (("torch", body), ("torch-port", body), ("torch-wrong", port or body)):
        lines = "\n".join(f"        {line}" for line in code.splitlines())
        (path / f"{name}.py").write_text(MODEL.format(takes=takes, body=lines))
    return path


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_reached_is_told_and_what_is_reached_is_judged(xverify, tmp_path, name):
    inputs, body, port, places = CASES[name]
    subjects = f"torch:eager,torch-port:eager{',torch-wrong:eager' if port else ''}"
    asked = ("run", folder(tmp_path / "model", inputs, body, port), "--subjects", subjects, "--no-timing")
    done = xverify(*asked, "--json", tmp_path / "r.json", *(() if port else ("--strict",)))
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    verdicts = [row["error"]["verdict"] for row in rows]
    assert rows[1]["error"]["unreached"] == places, done.out
    assert ("not covered by any input case" in done.out) == bool(places)
    if port:
        assert verdicts[1] in ("IDENTICAL", "EQUAL")
        assert verdicts[2] == "DIFFERENT"
    else:
        assert set(verdicts) == ({"UNTESTED"} if places else {"IDENTICAL"})
        assert done.code == (4 if places else 0)
