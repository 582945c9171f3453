"""Normalisations whose mean and variance lose digits: they are told from other faults."""

import pytest
import torch
from helpers.replayednets import failing, judged
from torch import nn

from xverify.explain.explained_roundings import output_changes
from xverify.float64.stepping import Models


class OnePassGroups(nn.GroupNorm):
    """As Jittor computes it: E[x²] - E[x]², and one factor and one summand for each channel."""

    def forward(self, x):
        rows = x.reshape(x.shape[0], self.num_groups, -1)
        mean = rows.mean(-1)
        variance = (rows.square().mean(-1) - mean.square()).clamp(min=0)
        each = x.shape[1] // self.num_groups
        mean, deviation = (value.repeat_interleave(each, 1) for value in (mean, (variance + self.eps).sqrt()))
        factor = self.weight / deviation
        summand = self.bias - mean * factor
        return x * factor[..., None, None] + summand[..., None, None]


class OnePassInstances(nn.InstanceNorm2d):
    def forward(self, x):
        mean = x.mean((2, 3), keepdim=True)
        variance = (x.square().mean((2, 3), keepdim=True) - mean.square()).clamp(min=0)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight[:, None, None] + self.bias[:, None, None]


class NormOfChannels(nn.LayerNorm):
    """A layer norm over the channels of an image N,C,H,W, as ConvNeXt has it."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class OnePassChannels(nn.LayerNorm):
    over = 0  # what is taken from the number of values

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x.square().mean(1, keepdim=True) - mean.square()).clamp(min=0) * 8 / (8 - self.over)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight[:, None, None] + self.bias[:, None, None]


def model(norm, mean=0.0):
    """A model whose normalisation is given about this mean."""
    torch.manual_seed(1)
    made = nn.Sequential(nn.Conv2d(3, 8, 3), norm).eval()
    with torch.no_grad():
        made[0].bias += mean
        made[1].weight.uniform_(0.5, 1.5)
        made[1].bias.uniform_(-1, 1)
    return made


PAIRS = {
    "groups": (lambda: OnePassGroups(2, 8), lambda: nn.GroupNorm(2, 8)),
    "channels": (lambda: OnePassChannels(8), lambda: NormOfChannels(8)),
    "instances": (lambda: OnePassInstances(8, affine=True), lambda: nn.InstanceNorm2d(8, affine=True)),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_rounded_sums_are_told(tmp_path, kind):
    port, reference = PAIRS[kind]
    done = judged(tmp_path, model(port(), 20.0), model(reference(), 20.0), torch.randn(4, 3, 12, 12))
    assert {finding.layer for finding in failing(done)} == {"1"}
    assert (done.explained["1"].kind, done.explained["1"].rounding) == ("rounded sums", True)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("what", "factor"), [("weight", 1.01), ("bias", 1.01), ("weight", 1 + 2e-4)])
def test_another_weight_is_no_rounding(tmp_path, kind, what, factor):
    port, reference = PAIRS[kind]
    x = torch.randn(4, 3, 12, 12)
    wrong = model(port())
    with torch.no_grad():
        getattr(wrong[1], what)[2:4] *= factor
    done = judged(tmp_path, wrong, model(reference()), x)
    assert {finding.layer for finding in failing(done)} == {"1"}
    assert "1" not in done.explained or not done.explained["1"].rounding


def test_the_variance_of_a_norm_of_channels_over_fewer_values_is_told(tmp_path):
    port = OnePassChannels(8)
    port.over = 1
    done = judged(tmp_path, model(port), model(NormOfChannels(8)), torch.randn(4, 3, 12, 12))
    assert "over n-1 values" in done.explained["1"].says


def test_a_search_for_a_cause_that_fails_loses_no_judgement(tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("the size of tensor a must match the size of tensor b")

    monkeypatch.setattr("xverify.explain.explanation.output_has_rounded_sums", fails)
    done = judged(tmp_path, model(OnePassChannels(8), 20.0), model(NormOfChannels(8), 20.0), torch.randn(4, 3, 12, 12))
    assert {finding.layer for finding in failing(done)} == {"1"}
    assert dict(done.compared) == {"0": 1, "1": 1}
    assert [note for note in done.notes if "`1` differs, and its cause could not be searched: RuntimeError" in note]


def test_another_eps_is_no_rounding(tmp_path):
    wrong = model(nn.GroupNorm(2, 8, eps=1e-3))
    done = judged(tmp_path, wrong, model(nn.GroupNorm(2, 8)), torch.randn(4, 3, 12, 12))
    assert done.explained["1"].kind == "eps"


def test_a_single_item_without_an_axis_of_items_is_judged(tmp_path):
    wrong = nn.Sequential(nn.InstanceNorm2d(3, affine=True)).eval()
    with torch.no_grad():
        wrong[0].weight[1] *= 1.01
    done = judged(tmp_path, wrong, nn.Sequential(nn.InstanceNorm2d(3, affine=True)).eval(), torch.randn(3, 9, 8))
    assert {finding.layer for finding in failing(done)} == {"0"}
    assert "0" not in done.explained or not done.explained["0"].rounding


class WritesFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        return self.first(x.float() * torch.arange(4, dtype=torch.float32))


def test_what_roundings_come_to_is_measured_where_code_asks_for_float32():
    torch.manual_seed(0)
    reference = WritesFloat32().eval()
    wide = WritesFloat32().eval().double()
    wide.load_state_dict(reference.state_dict())
    models = Models(wide, reference)
    try:
        found = output_changes(models, (), [torch.randn(2, 4)], ["y"])
    finally:
        models.release()
    assert found["y"].shape == (2, 4)
    assert not found["y"].any()


class OnePass(nn.BatchNorm2d):
    def forward(self, x):
        mean = x.mean((0, 2, 3), keepdim=True)
        variance = (x * x).mean((0, 2, 3), keepdim=True) - mean * mean
        return (x - mean) / (variance.clamp(min=0) + self.eps).sqrt()


def norm(kind):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), kind(4), nn.ReLU()).train()


def test_a_variance_in_one_pass_is_explained_and_another_fault_is_not(tmp_path):
    x = torch.randn(4, 3, 10, 10) * 0.05 + 20
    done = judged(tmp_path, norm(OnePass), norm(nn.BatchNorm2d), x)
    assert {finding.layer for finding in failing(done)} == {"1"}
    assert (done.explained["1"].kind, done.explained["1"].rounding) == ("rounded sums", True)
    few = torch.randn(4, 3, 3, 3) * 0.002 + 20  # one value per item: in float32 the whole variance is lost
    (tmp_path / "few").mkdir()
    done = judged(tmp_path / "few", norm(OnePass), norm(nn.BatchNorm2d), few)
    assert done.explained["1"].kind == "rounded sums"
    (tmp_path / "other").mkdir()
    port = norm(nn.BatchNorm2d)
    port[1].eps = 1e-3
    done = judged(tmp_path / "other", port, norm(nn.BatchNorm2d), x)
    assert done.explained["1"].kind == "eps"
