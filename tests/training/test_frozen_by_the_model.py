"""A model that freezes a parameter itself can be trained when its recipe freezes it, too."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, Recipe, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(("N", 6))},
    outputs={"logits": TensorSpec(("N", 3))},
    training=Recipe(frozen=("first.weight",)),
)
"""
TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)
        self.first.weight.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x).relu())


def build():
    return Net()
"""


def test_every_layer_of_such_a_model_is_judged(xverify, tmp_path):
    (tmp_path / "spec.py").write_text(SPEC)
    (tmp_path / "torch.py").write_text(TORCH)
    done = xverify("run", tmp_path, "--task", "train", "--subjects", "torch:eager", "--no-timing", "--cases", 2)
    assert done.code == 0, done.out + done.err
    training = done.row("torch:eager")["training"]
    assert {check["name"] for check in training["checks"]} >= {"backward", "gradients", "frozen", "update"}
    assert training["layers"]["compared"] == training["layers"]["known"] == 2
