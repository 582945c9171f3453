"""The noise of a layer of one's own grows by the sums that its code computes, and not by the shapes of its parameters."""

import pytest

torch = pytest.importorskip("torch")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 64, 32))}, outputs={"y": TensorSpec(("N", 64, 32))}, batch=2)
"""
MODEL = """
import torch
import torch.nn.functional as F
from torch import nn
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros({shape}))
        self.register_buffer("index", torch.arange(64) % 16, persistent=False)
    def forward(self, x):
        w = self.w{factor}
        return {result}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Own()
    def forward(self, x):
        return self.own(x)
def build():
    return Net()
"""
# name -> shape of the parameter, the reference's formula, a port's, and the relative error that must show.
LAYERS = {
    "positions": ("1, 64, 32", "x + w", "w + x", 2e-5),
    "scale": ("64, 32", "x * w[None]", "torch.einsum('ntc,tc->ntc', x, w)", 2e-5),
    "scale of a branch": ("32, 1, 1, 64", "x + w.reshape(32, 64).T * torch.tanh(x)", "torch.tanh(x) * w[:, 0, 0].T + x", 1e-4),
    "table": ("16, 32", "x + F.embedding(self.index, w)", "w[self.index] + x", 2e-5),
    "bias of positions": ("64, 64", "(x @ x.mT / 32 + w).softmax(-1) @ x",
                          "F.scaled_dot_product_attention(x, x, x, attn_mask=w, scale=1 / 32)", 1e-3),
    "mixing": ("64, 64", "torch.einsum('ts,nsc->ntc', w, x)", "(w[None].flip(-1) @ x.flip(1))", 1e-4),
    "rows": ("32, 32", "(x[..., None, :] * w).sum(-1)", "x @ w.T", 1e-4),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "reference", "port", "error"), LAYERS.values(), ids=LAYERS)
def test_a_right_layer_is_equal_and_another_parameter_is_not(
    xverify, tmp_path, in_one_process, shape, reference, port, error
):
    files = {"torch": (reference, ""), "torch-port": (port, ""), "torch-wrong": (reference, f" * {1 + error}")}
    (tmp_path / "spec.py").write_text(SPEC)
    for name, (result, factor) in files.items():
        (tmp_path / f"{name}.py").write_text(MODEL.format(shape=shape, result=result, factor=factor))
    done = xverify(
        "run", tmp_path, "--subjects", "torch:eager,torch-port:eager,torch-wrong:eager", "--no-timing", "--quiet"
    )
    right, wrong = (done.row(f"{name}:eager")["error"] for name in ("torch-port", "torch-wrong"))
    assert right["verdict"] in ("IDENTICAL", "EQUAL"), done.out
    assert right["layers"]["compared"] == 1
    assert wrong["verdict"] in ("DRIFT", "DIFFERENT"), (wrong["detection_limit"], done.out)
