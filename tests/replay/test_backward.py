"""A training step is captured and replayed in one process. A clean port is EQUAL, and a wrong gradient is located."""

import copy
import dataclasses
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from torch import nn  # noqa: E402

from xverify.explain.replay import replayed as replayed_forward  # noqa: E402
from xverify.float64.layer_kinds import leaves  # noqa: E402
from xverify.float64.losses import cross_entropy_of  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.float64.training_step import gradient_changes, step_in_float64  # noqa: E402
from xverify.framework import capture  # noqa: E402
from xverify.framework.discovery import load  # noqa: E402
from xverify.replay.backward import INPUT_GRADIENT, UPSTREAM, replay_backward  # noqa: E402
from xverify.replay.tensors import Capture, rms  # noqa: E402
from xverify.verdict.findings import GRADIENT_OF  # noqa: E402


class Net(nn.Module):
    """A batch norm, in-place layers, a pool with ties, an addition, and a parameter that glue code uses."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 1, 1)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 1, 1)
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.pool(self.relu(self.bn(self.conv(x))))
        x = self.relu(self.conv2(x) + x) * self.scale
        return self.fc(x.mean((2, 3)))


@functools.cache
def adapter():
    return load("torch")(1, "cpu")


def make(seed=0):
    torch.manual_seed(seed)
    return Net().train()


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 9, 9, generator=generator), torch.randint(0, 5, (4,), generator=generator)


def captured(tmp_path, port):
    recorder = capture.TrainingRecorder(
        tmp_path, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None, adapter().alias
    )
    names = {name: name for name in leaves(port)}
    _, _, gradients = adapter().capture_training(port, batch(), names, recorder)
    records = {(record.name, record.call): record for record in recorder.records}
    return Capture(tmp_path, False, records), gradients


def models(model):
    return Models(copy.deepcopy(model).double(), copy.deepcopy(model))


def replayed(tmp_path, port, model=None):
    capture, gradients = captured(tmp_path, port)
    x, target = batch()
    return replay_backward(models(model or make()), capture, [x], target, gradients).findings


def failing(findings):
    return {(finding.layer, finding.what) for finding in findings if finding.verdict != "EQUAL"}


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_step_is_equal(tmp_path, seed):
    findings = replayed(tmp_path, make(seed), make(seed))
    assert not failing(findings)
    whats = {finding.what for finding in findings}
    assert {UPSTREAM, INPUT_GRADIENT, f"{GRADIENT_OF} weight", f"{GRADIENT_OF} bias"} == whats
    assert {"conv", "bn", "relu", "pool", "conv2", "fc"} == {finding.layer for finding in findings}


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        return g * 1.001


class WrongRelu(nn.ReLU):
    def forward(self, x):
        return Leaky.apply(x)


def test_a_layer_that_passes_on_a_wrong_gradient_is_named(tmp_path):
    port = make()
    port.relu = WrongRelu()
    assert failing(replayed(tmp_path, port)) == {("relu", INPUT_GRADIENT)}


class Detached(Net):
    def forward(self, x):
        x = self.pool(self.relu(self.bn(self.conv(x))))
        x = self.relu(self.conv2(x) + x.detach()) * self.scale  # the shortcut passes no gradient on
        return self.fc(x.mean((2, 3)))


def test_a_gradient_lost_in_glue_code_is_located(tmp_path):
    port = Detached().train()
    port.load_state_dict(make().state_dict())
    assert failing(replayed(tmp_path, port)) == {("pool", UPSTREAM)}


class Cancelling(nn.Module):
    """A layer whose gradient of its input has terms that cancel each other, so that its rounding is large beside its values."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.fc = nn.Linear(3, 16), nn.Linear(16, 64), nn.Linear(64, 5)

    def forward(self, x):
        return self.fc(self.second(self.first(x.mean((2, 3)))))


def cancelling():
    torch.manual_seed(0)
    net = Cancelling().train()
    with torch.no_grad():
        net.second.weight[32:] = net.second.weight[:32] * (1 + 1e-3)
        net.fc.weight[:, 32:] = -net.fc.weight[:, :32]
    return net


@pytest.mark.parametrize(("factor", "expected"), [(1.0, set()), (1.01, {("first", UPSTREAM)})])
def test_the_rounding_of_a_gradient_that_was_not_captured_is_in_the_floor_of_the_layer_before(
    tmp_path, factor, expected
):
    """As where a port divides a layer in two, each of which has a gradient of its own."""
    port = cancelling()
    capture, gradients = captured(tmp_path, port)
    key = ("second", 0)
    capture.records[key] = dataclasses.replace(capture.records[key], input_gradients=(None,))
    upstream = tmp_path / capture.records["first", 0].output_gradients[0]
    np.save(upstream, np.load(upstream) * np.float32(factor))
    x, target = batch()
    findings = replay_backward(models(cancelling()), capture, [x], target, gradients).findings
    assert {each for each in failing(findings) if each[1] == UPSTREAM} == expected


class WrongWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        return w.clone()

    @staticmethod
    def backward(ctx, g):
        return g * 1.01


class WrongLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, WrongWeight.apply(self.weight), self.bias)


def test_a_wrong_gradient_of_a_weight_is_named(tmp_path):
    port = make()
    state = port.state_dict()
    port.fc = WrongLinear(8, 5)
    port.load_state_dict(state)
    assert failing(replayed(tmp_path, port)) == {("fc", f"{GRADIENT_OF} weight")}


class OtherTies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        flipped, where = nn.functional.max_pool2d(x.flip(-1, -2), 3, 2, 1, return_indices=True)
        ctx.save_for_backward(where)
        ctx.shape = x.shape
        return flipped.flip(-1, -2)

    @staticmethod
    def backward(ctx, g):
        (where,) = ctx.saved_tensors
        back = torch.zeros(ctx.shape, dtype=g.dtype).flatten(2)
        back.scatter_add_(2, where.flatten(2), g.flip(-1, -2).flatten(2))
        return back.view(ctx.shape).flip(-1, -2)


class TiesToTheLast(nn.MaxPool2d):
    def forward(self, x):
        return OtherTies.apply(x)


def test_another_choice_between_equal_maxima_is_no_fault(tmp_path):
    port = make()
    port.pool = TiesToTheLast(3, 2, 1)
    assert not failing(replayed(tmp_path, port))


def test_the_truth_is_the_step_in_float64_and_the_floors_fit_float32(tmp_path):
    model, (x, target) = make(), batch()
    truth, arrays = step_in_float64(models(model), [x], target)
    exact = copy.deepcopy(model).double()
    loss = cross_entropy_of(exact(x.double()), target)
    loss.backward()
    assert truth.loss == pytest.approx(loss.item(), rel=1e-12)
    statistic = arrays["statistic/bn.running_var"]
    assert torch.allclose(torch.from_numpy(statistic), exact.bn.running_var, rtol=1e-9)
    cross_entropy_of(model(x), target).backward()
    for name, parameter in model.named_parameters():
        right = exact.get_parameter(name).grad
        assert torch.allclose(torch.from_numpy(arrays[f"gradient/{name}"]), right, rtol=1e-9, atol=1e-12)
        share = rms(parameter.grad - right) / truth.floors[name]
        assert share < 3 or truth.floors[name] > 0.01 * truth.sizes[name], name
    assert truth.floors["conv.bias"] > 0.01 * truth.sizes["conv.bias"]  # batch norm cancels a bias


def beside_a_kink(distance):
    """A network, and a batch for which one activation is at this distance from ReLU's kink; activations are about 1."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
    x, target = torch.randn(4, 8), torch.randint(0, 5, (4,))
    with torch.no_grad():
        before = net[0].double()(x.double())
        net[0].bias[0] += distance - before[0, 0]
    return net.float(), x, target


def test_larger_perturbations_carry_an_activation_across_the_kink():
    net, x, target = beside_a_kink(2e-6)  # more than float32 rounds, and less than a hundred times that
    truth, _ = step_in_float64(models(net), [x], target)
    floors = {name: rms(torch.from_numpy(n)) for name, n in gradient_changes(models(net), [x], target, 100).items()}
    size = truth.sizes["0.bias"]
    assert truth.floors["0.bias"] < 1e-5 * size
    assert floors["0.bias"] > 1e-3 * size
    calm, x, target = beside_a_kink(0.5)
    smooth, _ = step_in_float64(models(calm), [x], target)
    floors = {name: rms(torch.from_numpy(n)) for name, n in gradient_changes(models(calm), [x], target, 100).items()}
    for name, floor in floors.items():
        assert 10 < floor / smooth.floors[name] < 1000, name


def test_calibrated_batch_norms_average_with_their_own_momentum():
    model, (x, _) = make(), batch()
    adapter().calibrate(model.eval(), (x,))
    assert model.bn.momentum == 0.1
    before = model.bn.running_mean.clone()
    truth, _ = step_in_float64(models(model.train()), [x], batch()[1])
    size = rms(before)
    assert truth.statistics["bn.running_mean"] < 1e-5 * size


class OnePass(nn.BatchNorm2d):
    """A batch norm with the one-pass variance of Jittor."""

    times = 1.0

    def forward(self, x):
        mean = x.mean((0, 2, 3), keepdim=True)
        variance = ((x * x).mean((0, 2, 3), keepdim=True) - mean * mean).clamp(min=0)
        scale = self.weight.view(1, -1, 1, 1) / (variance + self.eps).sqrt() * self.times
        return x * scale + (self.bias.view(1, -1, 1, 1) - mean * scale)


@pytest.mark.parametrize("places", [1, 5])
def test_rounded_sums_of_a_batch_norm_explain_its_gradient(tmp_path, places):
    def net(kind):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 64, 3), kind(64), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)).train()

    x, target = torch.randn(4, 3, places + 2, places + 2) * 0.1 + 20, torch.randint(0, 5, (4,))
    model, port = net(nn.BatchNorm2d), net(OnePass)
    for each in (model, port):
        each(x)
    port.load_state_dict(model.state_dict())

    def judged(folder):
        folder.mkdir()
        recorder = capture.TrainingRecorder(
            folder, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None, adapter().alias
        )
        names = {name: name for name in leaves(port)}
        _, _, gradients = adapter().capture_training(port, (x, target), names, recorder)
        records = {(record.name, record.call): record for record in recorder.records}
        return replay_backward(models(model), Capture(folder, False, records), [x], target, gradients)

    report = judged(tmp_path / "lossy")
    assert {each.layer for each in report.findings if each.verdict == "DIFFERENT"} == {"1"}
    assert report.explained["1"].rounding
    port[1].times = 1.5
    report = judged(tmp_path / "wrong")
    assert "1" not in report.explained or not report.explained["1"].rounding


def test_only_norms_with_a_momentum_have_running_statistics():
    model, (x, target) = make(), batch()
    model.register_buffer("scales", torch.ones(3))
    model.register_buffer("gone", torch.ones(3), persistent=False)
    assert set(step_in_float64(models(model), [x], target)[0].statistics) == {"bn.running_mean", "bn.running_var"}
    model.bn.momentum = None
    assert not step_in_float64(models(model), [x], target)[0].statistics


class FusedNet(nn.Module):
    """A linear layer that ends in an activation, beside the reference, which has the activation as glue code."""

    def __init__(self, fused):
        super().__init__()
        self.conv, self.fc1, self.fc2, self.fused = (
            nn.Conv2d(3, 4, 3),
            Ending(4, 6) if fused else nn.Linear(4, 6),
            nn.Linear(6, 5),
            fused,
        )

    def forward(self, x):
        x = self.fc1(self.conv(x).mean((2, 3)))
        return self.fc2(x if self.fused else torch.tanh(x))


class Ending(nn.Linear):
    def forward(self, x):
        return torch.tanh(super().forward(x))


@pytest.mark.parametrize("right", [True, False])
def test_a_layer_that_ends_in_an_activation_is_no_fault_of_the_step(tmp_path, right):
    model, port = FusedNet(False).train(), FusedNet(True).train()
    port.load_state_dict(model.state_dict())
    if not right:
        port.conv = Scaled(3, 4, 3)
        port.conv.load_state_dict(model.conv.state_dict())
    (captured_step, gradients), (x, target) = captured(tmp_path, port), batch()
    replay = replayed_forward(models(model), captured_step, [x], {})
    assert [finding.layer for finding in replay.findings if finding.verdict != "EQUAL"] == []
    assert set(replay.fused.activations) == {"fc1"}
    findings = replay_backward(models(model), replay.capture_in_order(), [x], target, gradients).findings
    assert {layer for layer, _ in failing(findings)} == (set() if right else {"conv"})


class Scaled(nn.Conv2d):
    """A convolution whose weights get a gradient that is one per mille too large."""

    def forward(self, x):
        weight = 1.001 * self.weight - 0.001 * self.weight.detach()
        return nn.functional.conv2d(x, weight, self.bias)
