"""Ports that crop what a layer returns, where the reference's layer returns less; and layers that return their input."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import replayed  # noqa: E402

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


RESIDUAL = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.norm, self.last = nn.Conv2d(3, 3, 1), nn.Dropout(0.5), nn.GroupNorm(1, 3), nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return self.last({given})


def build():
    return Net()
"""


def test_a_dropout_that_a_port_leaves_out_in_inference_is_not_blamed(tmp_path):
    """It returns its input, so what comes behind it cannot tell whether it ran."""
    reference = RESIDUAL.format(given="self.norm(self.drop(self.conv(x)) + x)")
    port = RESIDUAL.format(given="x + self.norm(self.conv(x))").replace("nn.Dropout(0.5)", "nn.Flatten()")
    layers = replayed(tmp_path, reference, port, X)
    assert (layers.first.layer, layers.first.faulty) == ("norm", "input")
    assert "did not run" not in layers.describe(layers.first)
