"""Ports that crop what a layer returns, where the reference's layer returns less; and layers that return their input."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from replayedports import replayed  # noqa: E402

from xverify.results.verdicts import Verdict  # noqa: E402

MODEL = """
import torch.nn.functional as F
from torch import nn


class Drop(nn.Module):
    def forward(self, x):
        return x if not self.training else x * 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 4, 2, {padding})
        self.drop = {drop}
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.conv({given})


def build():
    return Net()
"""
RIGHT = MODEL.format(padding=1, drop="Drop()", given="self.drop(self.up(x)).relu()")
X = torch.randn(2, 3, 5, 6, generator=torch.Generator().manual_seed(1))


def judge(folder, padding, given):
    return replayed(folder, RIGHT, MODEL.format(padding=padding, drop="nn.Flatten()", given=given), X)


@pytest.mark.parametrize("given", ["self.up(x)[:, :, 1:-1, 1:-1].relu()", "F.pad(self.up(x), (-1, -1, -1, -1)).relu()"])
def test_a_port_that_crops_behind_a_layer_is_right(tmp_path, given):
    layers = judge(tmp_path, 0, given)
    assert layers.verdict == Verdict.EQUAL, layers
    assert (layers.compared, layers.known, layers.missing, layers.stopped) == (2, 2, (), "")


@pytest.mark.parametrize(
    ("padding", "given", "place", "faulty"),
    [
        (0, "self.up(x)[:, :, 2:, 1:-1].relu()", "conv", "input"),  # cropped at another place
        (0, "self.up(x * 1.01)[:, :, 1:-1, 1:-1].relu()", "up", "input"),
        (0, "F.interpolate(self.up(x), (10, 12)).relu()", "conv", "input"),
        (2, "F.pad(self.up(x), (1, 1, 1, 1)).relu()", "up", "output"),  # less than the reference, which no crop makes
    ],
)
def test_a_fault_around_a_cropped_layer_is_found(tmp_path, padding, given, place, faulty):
    layers = judge(tmp_path, padding, given)
    assert layers.verdict == Verdict.DIFFERENT
    assert (layers.first.layer, layers.first.faulty) == (place, faulty)
