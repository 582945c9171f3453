"""A forward pass is captured and replayed in one process. A clean port is EQUAL, and a fault is located."""

import copy
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayednets import Net, failing, judged, make  # noqa: E402
from torch import nn  # noqa: E402

from xverify.float64.layer_kinds import passes_through  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.framework import capture  # noqa: E402
from xverify.replay.coverage import Coverage  # noqa: E402
from xverify.replay.forward import Replay  # noqa: E402
from xverify.replay.tensors import Capture  # noqa: E402


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_port_is_equal(tmp_path, seed):
    done = judged(tmp_path, make(seed), make(seed))
    assert not failing(done)
    assert done.compared == {"conv": 1, "bn": 1, "relu": 2, "conv2": 1, "fc": 1}
    assert 0 < max(finding.ratio for finding in done.findings) < 3
    assert done.findings[-1].layer == "(output) y"


def test_a_replay_does_not_change_the_models(tmp_path):
    model = make()
    models = Models(copy.deepcopy(model).double(), copy.deepcopy(model))
    Replay(models, Capture()).run([torch.randn(2, 3, 6, 6)])
    for name, tensor in models.float64_model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name].to(tensor.dtype)), name
    models.release()
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(models.float32_model(x), model(x))


def test_a_fault_is_found_in_its_layer_and_in_no_other(tmp_path):
    port = make()
    port.bn.eps = 1e-3
    done = judged(tmp_path, port)
    assert {finding.layer for finding in failing(done)} == {"bn"}
    assert done.explained["bn"].says == "behaves as eps=0.001; the reference has 1e-05"


class Forgetful(Net):
    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        x = self.relu(self.conv2(x))  # the shortcut is missing
        weights = x.flatten(2).softmax(-1)
        return self.fc((x.flatten(2) * weights).sum(-1))


def test_a_fault_in_glue_code_is_located(tmp_path):
    port = Forgetful().eval()
    port.load_state_dict(make().state_dict())
    assert {(finding.layer, finding.what) for finding in failing(judged(tmp_path, port))} == {("relu", "input")}


class Doubled(Net):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_fault_after_the_last_layer_is_found(tmp_path):
    port = Doubled().eval()
    port.load_state_dict(make().state_dict())
    assert [finding.layer for finding in failing(judged(tmp_path, port))] == ["(output) y"]


def test_a_layer_with_an_output_of_another_shape_ends_the_replay(tmp_path):
    port = make()
    port.conv = nn.Conv2d(3, 8, 3, 1, 0)
    port.conv.load_state_dict(make().conv.state_dict())
    first = failing(judged(tmp_path, port))[0]
    assert (first.layer, first.reason) == ("conv", "output has shape (2, 8, 4, 4), the reference (2, 8, 6, 6)")


@pytest.mark.parametrize("factor", [2.0, 1.7])
def test_the_ratio_of_a_resize_may_be_rounded_as_any_constant(tmp_path, factor):
    """A port may compute its ratio in float32, and take the sizes from it."""

    class Resized(nn.Module):
        def __init__(self, ratio):
            super().__init__()
            self.up = nn.Upsample(scale_factor=ratio, mode="bilinear", align_corners=False)

        def forward(self, x):
            return self.up(x)

    x = torch.randn(2, 3, 41, 41, generator=torch.Generator().manual_seed(0))
    assert not failing(judged(tmp_path, Resized(float(np.float32(factor))), Resized(factor), x))
    wrong = Resized(factor)
    wrong.up.align_corners = True
    done = judged(tmp_path, wrong, Resized(factor), x)
    assert done.explained["up"].kind == "align_corners"


class Halved(nn.Linear):
    def forward(self, x):
        return super().forward(x).half()


def test_a_layer_of_another_dtype_is_compared(tmp_path):
    model, port = nn.Sequential(nn.Linear(4, 6), nn.Softmax(-1)), nn.Sequential(Halved(4, 6), nn.Softmax(-1))
    port.load_state_dict(model.state_dict())
    done = judged(tmp_path, port.eval(), model.eval(), torch.randn(3, 4))
    assert failing(done)[0].layer == "0"
    assert failing(done)[0].ratio > 40


def test_values_that_are_not_finite_differ(tmp_path):
    port = make()
    port.fc.weight.data[0, 0] = float("nan")
    (first,) = [finding for finding in failing(judged(tmp_path, port)) if finding.layer == "fc"]
    assert "2 NaN" in first.reason


def test_layers_that_were_not_captured_are_judged_with_the_next_layer(tmp_path):
    model = make()
    recorder = capture.Recorder(tmp_path, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
    x = torch.randn(2, 3, 6, 6)

    def run(port):
        recorder = capture.Recorder(tmp_path, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
        with torch.no_grad(), capture.recording({"fc": [port.fc]}, "forward", recorder):
            port(x.clone())
        records = {(r.name, r.call): r for r in recorder.records}
        models = Models(copy.deepcopy(model).double(), copy.deepcopy(model))
        replay = Replay(models, Capture(tmp_path, False, records))
        replay.run([x])
        return replay.report()

    done = run(make())
    assert not failing(done)
    assert set(done.missing) == {"conv", "bn", "relu", "conv2"}
    faulty = make()
    faulty.conv2.bias.data.zero_()
    assert [(finding.layer, finding.what) for finding in failing(run(faulty))] == [("fc", "input")]
    assert recorder.records == []


def test_coverage_lists_the_weights_in_which_no_fault_is_visible():
    model = make()
    model.bn.bias.data.zero_()
    model.bn.running_mean.zero_()
    models = Models(copy.deepcopy(model).double(), copy.deepcopy(model))
    coverage = Coverage(models)
    Replay(models, Capture()).run([torch.randn(2, 3, 6, 6)], coverage.visit)
    assert coverage.untested == ["bn.bias", "bn.running_mean"]
    assert {"conv.weight", "conv.bias", "bn.weight", "bn.running_var", "bn.eps", "fc.weight"} <= set(coverage.tested)


def test_a_cell_whose_state_begins_with_zeros_is_tested_by_its_second_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(4, 3)

        def forward(self, x):
            state = self.cell(x)
            return self.cell(x, state)[0]

    models = Models(Twice().double().eval(), Twice().eval())
    coverage = Coverage(models)
    Replay(models, Capture()).run((torch.randn(2, 4),), coverage.visit)
    assert coverage.untested == []
    assert "cell.weight_hh" in coverage.tested


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_dropout_without_effect_passes_its_input_on(p):
    layer = nn.Dropout(p).train()
    assert passes_through(layer) is (p == 0.0)
    assert passes_through(layer.eval())


def test_inputs_are_recorded_before_an_in_place_layer_changes_them(tmp_path):
    relu = nn.ReLU(inplace=True)
    recorder = capture.Recorder(tmp_path, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
    x = torch.tensor([-1.0, 2.0])
    with capture.recording({"relu": [relu]}, "forward", recorder):
        relu(x)
    (record,) = recorder.records
    assert np.load(tmp_path / record.inputs[0]).tolist() == [-1.0, 2.0]
    assert np.load(tmp_path / record.outputs[0]).tolist() == [0.0, 2.0]
    assert "forward" not in vars(relu)


def chain():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 5)
    ).eval()


def test_glue_code_that_agrees_to_the_bit_needs_one_pass_only(tmp_path, monkeypatch):
    runs = []
    run = Replay.run
    monkeypatch.setattr(Replay, "run", lambda self, *args: runs.append(self.single_pass) or run(self, *args))
    assert not failing(judged(tmp_path, chain(), chain(), torch.randn(4, 3, 10, 10)))
    assert runs == [True]
    (tmp_path / "other").mkdir()
    assert not failing(judged(tmp_path / "other", make()))  # its glue code has a softmax and a sum
    assert runs == [True, True, False]


def test_a_fault_in_an_item_without_measured_floors_is_found(tmp_path):
    class Spoilt(nn.Conv2d):
        def forward(self, x):
            y = super().forward(x)
            y[-1] *= 1.001
            return y

    port = chain()
    port[0] = Spoilt(3, 4, 3)
    port.load_state_dict(chain().state_dict())
    found = failing(judged(tmp_path, port.eval(), chain(), torch.randn(4, 3, 10, 10)))
    assert {finding.layer for finding in found} == {"0"}


def test_an_activation_with_many_channels_that_differ_between_items_is_equal(tmp_path):
    generator = torch.Generator().manual_seed(0)
    sizes = (1, 1, 3072), (2, 1, 3072), (2, 32, 3072)
    channel, item, value = (torch.randn(size, generator=generator) for size in sizes)
    x = channel + 0.5 * item + 0.5 * value  # the first item has far smaller errors than the second in some channels
    model = nn.Sequential(nn.GELU())
    assert failing(judged(tmp_path, model, model, x)) == []

    class Tanh(nn.GELU):
        def forward(self, x):
            return nn.functional.gelu(x, approximate="tanh")

    assert {finding.layer for finding in failing(judged(tmp_path, nn.Sequential(Tanh()), model, x))} == {"0"}


class Watched(nn.Module):
    """A chain that notes what each of its layers is given, without keeping it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(8))
        self.given = []

    def forward(self, x):
        for layer in self.layers:
            self.given.append(weakref.ref(x))
            x = layer(x)
        return x


def test_a_pass_that_measures_floors_keeps_no_inputs_of_layers():
    model = Watched()
    exact, model.given = copy.deepcopy(model).double(), []
    replay = Replay(Models(exact, model), Capture())
    replay.run([torch.ones(2, 3)])
    alive = [each for each in exact.given[1:] + model.given[1:] if each() is not None]
    assert len(exact.given) == 16  # the exact and the perturbed pass
    assert len(alive) <= 3  # of the last layer, in each pass
