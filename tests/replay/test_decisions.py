"""Through the command line: decisions that rounding may change accuse nobody, and wrong ones are found."""

import pytest
from conftest import write_folder

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=16, inputs={"x": TensorSpec(("N", 8))}, outputs={"y": OUTPUT})
"""
FLOATS, TOKENS = 'TensorSpec(("N", 5, 6))', 'TensorSpec(("N", 5), dtype="int64")'
# In float32 the first and the last class tie; in float64 they do not.
SCORES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 15)
        self.table = nn.Embedding(4, 6)

    def forward(self, x):
        scores = self.fc(x).view(-1, 5, 3)
        best = torch.cat([scores, scores[..., :1] * (1 + 2e-8)], -1).argmax(-1)
        return RESULT

def build():
    return Net()
"""
CODES = """
import torch
from torch import nn

class Nearest(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(6, 3))

    def forward(self, z):
        codes = torch.cat([self.codes, self.codes[:2] * (1 + 2e-8)])
        return ((z.unsqueeze(-2) - codes) ** 2).sum(-1).argmin(-1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.nearest, self.table = nn.Linear(8, 15), Nearest(), nn.Embedding(8, 6)

    def forward(self, x):
        return self.table(self.nearest(self.fc(x).view(-1, 5, 3)))

def build():
    return Net()
"""
EXPERTS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.head = nn.Linear(8, 3), nn.Linear(6, 6)
        self.experts = nn.ModuleList(nn.Linear(8, 6) for _ in range(4))

    def forward(self, x):
        scores = self.router(x)
        share, best = torch.cat([scores, scores[..., :1] * (1 + 2e-8)], -1).softmax(-1).max(-1)
        y = torch.stack([expert(x) for expert in self.experts], 1)
        return self.head(y.gather(1, best[:, None, None].expand(-1, 1, 6))[:, 0] * share[:, None])

def build():
    return Net()
"""
MODELS = {
    "experts": (EXPERTS, 'TensorSpec(("N", 6))', ("* share[:, None]", "* share[:, None] * 1.01")),
    "tokens": (SCORES.replace("RESULT", "best + 0 * self.table.weight[0, :1].long()"), TOKENS, ("argmax", "argmin")),
    "rows of a table": (SCORES.replace("RESULT", "self.table(best)"), FLOATS, ("argmax", "argmin")),
    "a codebook": (CODES, FLOATS, ("argmin", "argmax")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_a_decision_that_rounding_may_change_accuses_nobody(xverify, tmp_path, kind):
    model, output, (right, wrong) = MODELS[kind]
    folder = write_folder(tmp_path / "port", ("torch",), spec=SPEC.replace("OUTPUT", output), model=model)
    write_folder(folder, ("torch_port",), spec=SPEC.replace("OUTPUT", output), model=model.replace(right, wrong))
    done = xverify("run", folder, "--subjects", "torch:eager,onnxruntime,torch_port:eager", "--no-timing")
    rows = [done.row(name)["error"] for name in ("torch:eager", "onnxruntime", "torch_port:eager")]
    assert all(row["verdict"] in ("IDENTICAL", "EQUAL") for row in rows[:2]), done.out
    assert rows[2]["verdict"] == "DIFFERENT", done.out
    for row in rows[:2]:
        assert not [layer for layer in row["layers"]["layers"] if layer["verdict"] == "DIFFERENT"], done.out
    assert "no digit that float32 determines" in " ".join(done.out.split())
