"""Buffers that build() of the reference computes: probe weights leave them, unless spec.py says otherwise."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 2, 12))}, outputs={"y": TensorSpec(("N", 2, 9))}, batch=4DRAWN)
"""
# The port has the filter as a buffer, too, and computes with numbers of its own.
TORCH = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("taps", torch.tensor([1.0, 3.0, 3.0, 1.0]) / 8)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        taps = TAPS
        return F.conv1d(self.fc(x) + self.count.mean(), taps.to(x.dtype).expand(2, 1, 4), groups=2)


def build():
    return Net()
"""


@pytest.mark.parametrize(
    ("drawn", "taps", "verdict"),
    [
        ("", "[1.0, 3.0, 3.0, 1.0]", "EQUAL"),
        ("", "[1.0, 3.0, 2.0, 1.0]", "DIFFERENT"),
        (", draw_buffers=True", "[1.0, 3.0, 3.0, 1.0]", "DIFFERENT"),
    ],
)
def test_a_computed_filter_keeps_its_taps(xverify, tmp_path, drawn, taps, verdict):
    port = TORCH.replace("TAPS", f"torch.tensor({taps}) / 8")
    for name, text in (
        ("spec", SPEC.replace("DRAWN", drawn)),
        ("torch", TORCH.replace("TAPS", "self.taps")),
        ("torch_port", port),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    done = xverify("run", tmp_path, "--subjects", "torch:eager,torch_port:eager", "--no-timing", "--cases", 2)
    found = done.row("torch_port:eager")["error"]["verdict"]
    assert ("EQUAL" if found == "IDENTICAL" else found) == verdict
    source = done.result["weights"]["source"]
    assert source == "probe weights, seed 0" + ("" if drawn else "; as build() computes them: taps")
