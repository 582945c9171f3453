"""The gradient of GELU has the absolute error of an error function, by which kernels of torch differ from each other."""

import copy
import functools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from xverify.float64.layer_kinds import leaves  # noqa: E402
from xverify.float64.operations import perturbed_gradients  # noqa: E402
from xverify.float64.rounding import Noise  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.framework import capture  # noqa: E402
from xverify.framework.discovery import load  # noqa: E402
from xverify.replay.backward import replay_backward  # noqa: E402
from xverify.replay.tensors import Capture  # noqa: E402
from xverify.results.verdicts import Verdict  # noqa: E402

UNIT = 2.0**-24


class Gated(nn.Module):
    """A gated layer. The gate is a part of a tensor, and its arguments are around -4 in half of the channels."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 128), nn.Linear(64, 5)
        with torch.no_grad():
            self.up.bias[64:96] -= 4.0

    def forward(self, x):
        value, gate = self.up(x).chunk(2, -1)
        return self.down(value * self.activated(gate))

    def activated(self, gate):
        return F.gelu(gate)


class Whole(Gated):
    def activated(self, gate):
        return F.gelu(gate.contiguous())


class Wrong(Gated):
    def activated(self, gate):
        y = F.gelu(gate)
        return y + 1e-4 * (gate - gate.detach()) * y.detach().abs()  # the same values, another gradient


@functools.cache
def adapter():
    return load("torch")(1, "cpu")


def judged(folder, kind):
    torch.manual_seed(0)
    mine, theirs = Gated().train(), kind().train()
    theirs.load_state_dict(mine.state_dict())
    generator = torch.Generator().manual_seed(1)
    batch = torch.randn(64, 16, generator=generator), torch.randint(0, 5, (64,), generator=generator)
    recorder = capture.TrainingRecorder(
        folder, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None, adapter().alias
    )
    names = {name: name for name in leaves(theirs)}
    _, _, gradients = adapter().capture_training(theirs, batch, names, recorder)
    records = {(record.name, record.call): record for record in recorder.records}
    models = Models(copy.deepcopy(mine).double(), mine)
    return replay_backward(models, Capture(folder, False, records), batch[:1], batch[1], gradients).findings


def test_the_kernel_for_whole_tensors_is_right(tmp_path):
    findings = judged(tmp_path, Whole)
    assert len(findings) > 3
    assert max(finding.verdict for finding in findings) == Verdict.EQUAL
    assert max(finding.channel_ratio for finding in findings) < 8


def test_a_gradient_that_is_wrong_by_little_is_found(tmp_path):
    wrong = [finding for finding in judged(tmp_path, Wrong) if finding.verdict == Verdict.DIFFERENT]
    assert [finding.layer for finding in wrong] == ["up"]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_noise_of_the_gradient_is_as_large_as_the_error_of_the_kernel(approximate):
    x = torch.linspace(-6, 6, 40_000, dtype=torch.float32)
    narrow, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    F.gelu(narrow, approximate=approximate).sum().backward()
    [exact] = torch.autograd.grad(F.gelu(wide, approximate=approximate).sum(), wide)
    y = F.gelu(wide, approximate=approximate).sum()
    with perturbed_gradients(Noise(0)):
        [noisy] = torch.autograd.grad(y, wide)
    for part in (slice(3_000, 12_000), slice(28_000, 38_000)):  # the negative tail, and the positive one
        error, noise = (
            float((found.double() - exact)[part].square().mean().sqrt()) / UNIT for found in (narrow.grad, noisy)
        )
        assert error / 12 < noise < error * 12


def test_nothing_else_is_perturbed():
    x = torch.linspace(-3, 3, 100, dtype=torch.float64, requires_grad=True)
    y = (x.sigmoid() * x).sum()
    [exact] = torch.autograd.grad(y, x, retain_graph=True)
    with perturbed_gradients(Noise(0)):
        assert torch.equal(torch.autograd.grad(y, x)[0], exact)
