"""Layers that are called in a loop: the first wrong call says where the fault is, and later calls are given what it returned."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import replayed  # noqa: E402

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.new, self.out = nn.Linear(14, 8), nn.Linear(14, 8), nn.Linear(8, 5)

    def forward(self, x):
        h, found = x.new_zeros(len(x), 8), []
        for step in x.unbind(1):
            z = torch.sigmoid(self.gate(torch.cat([step, h], 1)))
            n = torch.tanh(self.new(torch.cat([step, {h}], 1)))
            h = {sum}
            found.append(self.out(h))
        return torch.stack(found, 1)


def build():
    return Net()
"""
X = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
RIGHT = {"h": "z * h", "sum": "z * h + (1 - z) * n"}


@pytest.mark.parametrize(
    ("change", "place", "after", "line"),
    [
        ({"sum": "(1 - z) * h + z * n"}, "out", "new", "torch.py:15-17"),
        ({"h": "(z + 0.1) * h + 0.1"}, "new", "gate", "torch.py:14-15"),
    ],
)
def test_the_first_wrong_call_is_told(tmp_path, change, place, after, line):
    layers = replayed(tmp_path, MODEL.format(**RIGHT), MODEL.format(**RIGHT | change), X)
    assert (layers.first.layer, layers.first.faulty, layers.first.after) == (place, "input", after)
    assert layers.first.source.startswith(line)


def test_a_right_loop_is_right(tmp_path):
    assert replayed(tmp_path, MODEL.format(**RIGHT), MODEL.format(**RIGHT), X).first is None
