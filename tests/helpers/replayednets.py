"""A small network of torch, and the replay of a port of it that is captured in this process."""

import copy

import torch
from torch import nn

from xverify.explain.replay import replay_forward
from xverify.float64.layer_kinds import leaves
from xverify.float64.stepping import Models
from xverify.framework import capture
from xverify.replay.tensors import Capture


class Net(nn.Module):
    """In-place layers, a layer that is called twice, and glue code with an addition, a softmax and a product."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 1, 1)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(8, 8, 3, 1, 1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        x = self.relu(self.conv2(x) + x)
        weights = x.flatten(2).softmax(-1)
        return self.fc((x.flatten(2) * weights).sum(-1))


def make(seed=0):
    torch.manual_seed(seed)
    model = Net().eval()
    with torch.no_grad():
        model.bn.running_mean.normal_()
        model.bn.running_var.uniform_(0.1, 2)
        model.bn.weight.uniform_(0.5, 1.5)
        model.bn.bias.normal_()
    return model


def judged(tmp_path, port, model=None, x=None, planted=None, channels_last=False):
    model = model or make()
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)) if x is None else x
    recorder = capture.Recorder(tmp_path, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
    with torch.no_grad(), capture.recording({n: [m] for n, m in leaves(port).items()}, "forward", recorder):
        y = port(x.clone())
    records = {(r.name, r.call): r for r in recorder.records}
    models = Models(copy.deepcopy(model).double(), copy.deepcopy(model))
    captured = Capture(tmp_path, channels_last, records)
    return replay_forward(models, captured, [x], {"y": y.numpy()}, planted)


def failing(done):
    return [finding for finding in done.findings if finding.verdict != "EQUAL"]
