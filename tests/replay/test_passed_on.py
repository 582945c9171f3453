"""Inputs that a replay recognises as captured outputs it passed on, and noise floors that replays share."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from torch import nn  # noqa: E402

from xverify.explain.replay import replay_forward  # noqa: E402
from xverify.float64.layer_kinds import leaves  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.framework import capture  # noqa: E402
from xverify.replay.floors import alike  # noqa: E402
from xverify.replay.tensors import Capture  # noqa: E402


class Net(nn.Module):
    """Glue code that changes the output of a layer in place before the next one is given it."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.second = nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 50)

    def forward(self, x):
        x = self.act(self.first(x))
        x += 0.5
        return self.second(x)


class Forgetful(Net):
    def forward(self, x):
        return self.second(self.act(self.first(x)))


class Counting(Capture):
    """A capture that counts how often each file is read."""

    def load(self, file):
        self.reads = [*getattr(self, "reads", []), file]
        return super().load(file)


def port_of(kind):
    torch.manual_seed(0)
    reference = Net().eval()
    port = kind().eval()
    port.load_state_dict(reference.state_dict())
    return reference, port


def captured(folder, port, x):
    recorder = capture.Recorder(folder, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
    with torch.no_grad(), capture.recording({n: [m] for n, m in leaves(port).items()}, "forward", recorder):
        y = port(x.clone())
    return Counting(folder, False, {(r.name, r.call): r for r in recorder.records}), {"y": y.numpy()}


def inputs(scale=1.0):
    return scale * torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


def test_an_unchanged_input_is_not_read_and_a_changed_one_is(tmp_path):
    reference, port = port_of(Net)
    models = Models(copy.deepcopy(reference).double(), copy.deepcopy(reference))
    found, outputs = captured(tmp_path, port, inputs())
    done = replay_forward(models, found, [inputs()], outputs)
    assert {finding.verdict for finding in done.findings} == {"EQUAL"}
    assert [(finding.layer, finding.what) for finding in done.findings if finding.layer == "act"] == [
        ("act", "input"),
        ("act", "output"),
    ]
    between, added = found.records["act", 0].inputs[0], found.records["second", 0].inputs[0]
    replays = found.reads.count(found.records["second", 0].outputs[0])
    assert found.reads.count(between) == replays  # as the output of `first` alone
    assert found.reads.count(added) > 0


def test_a_tensor_that_was_changed_in_place_after_it_was_passed_on_is_compared(tmp_path):
    reference, port = port_of(Forgetful)
    models = Models(copy.deepcopy(reference).double(), copy.deepcopy(reference))
    found, outputs = captured(tmp_path, port, inputs())
    assert found.records["second", 0].inputs == found.records["act", 0].outputs  # what the port passes on
    done = replay_forward(models, found, [inputs()], outputs)
    wrong = {(finding.layer, finding.what) for finding in done.findings if finding.verdict != "EQUAL"}
    assert wrong == {("second", "input")}


def test_noise_floors_are_measured_once_for_all_ports_and_again_where_outputs_have_other_sizes(tmp_path, monkeypatch):
    reference, port = port_of(Net)
    models = Models(copy.deepcopy(reference).double(), copy.deepcopy(reference))
    perturbed = []
    compute = Models.compute_perturbed
    monkeypatch.setattr(
        Models, "compute_perturbed", lambda self, *args: perturbed.append(args[0]) or compute(self, *args)
    )
    counts, ratios = [], []
    for index, scale in enumerate((1.0, 1.0, 3.0)):
        folder = tmp_path / str(index)
        folder.mkdir()
        found, outputs = captured(folder, port, inputs(scale))
        done = replay_forward(models, found, [inputs(scale)], outputs)
        counts.append(len(perturbed))
        ratios.append([finding.ratio for finding in done.findings])
        perturbed.clear()
    assert counts[0] == counts[2] == 3
    assert counts[1] == 0
    assert ratios[0] == ratios[1] != ratios[2]


def test_one_weak_channel_of_another_size_is_enough_to_measure_again():
    sizes = np.array([1.0, 1e-9])
    assert alike([sizes], [sizes * (1 + 1e-6)])
    assert not alike([sizes], [sizes * [1.0, 2.0]])
    assert not alike([sizes], [sizes, sizes])
    assert not alike([sizes], [np.array([1.0, np.nan])])
