"""Model folders whose files say how several ranks train them: a right way, and ranks that fail."""

from pathlib import Path

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=8, inputs={"x": TensorSpec(("N", 12))}, outputs={"y": TensorSpec(("N", 5))})
"""
NET = """
import os, signal, time
import torch
from torch import distributed, nn
from torch.nn.functional import linear


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


build = Net


def reduced(model, change, names=("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")):
    def reduce(parameter):
        change(parameter.grad)
    for name in names:
        model.get_parameter(name).register_post_accumulate_grad_hook(reduce)
    return model


def average(gradient):
    distributed.all_reduce(gradient)
    gradient /= distributed.get_world_size()
"""
# What stands behind NET in the file of each way. Each begins with the parallelize of the file.
AVERAGED = """
def parallelize(model, mesh):
    return reduced(model, average)
"""
# How the ranks fail -> (what stands behind NET, the words of the row, its status). Rank 1 does it in its second forward pass.
BREAKING = """
def parallelize(model, mesh):
    model.calls = 0
    def before(module, given):
        module.calls += 1
        if module.calls == 2 and distributed.get_rank() == 1:
            {}
    model.register_forward_pre_hook(before)
    return reduced(model, average)
"""
FAILURES = {
    "dies": ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1: killed by SIGKILL", "crashed"),
    "raises": ("raise ValueError('no such item')", "rank 1: ValueError: no such item", "failed"),
    "hangs": ("time.sleep(1000)", "rank 1 did not answer: rank 0 waited", "timeout"),
    "skips": (
        "[each._post_accumulate_grad_hooks.clear() for each in module.parameters()]",
        "in a collective operation that rank 1 did not call",
        "failed",
    ),
    "other": (
        "module.fc1.bias.requires_grad_(False)",
        "the ranks call other collective operations, or give one tensors of other sizes",
        "crashed",
    ),
}

# A model of NET with a batch norm.
NORMED = """

class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x):
        return super().forward(self.norm(x))


build = Normed
"""

# A train_step for a model of NET with the targets of GOAL, and what stands behind it when its ranks reduce by hand.
STEP = """
def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model(batch["x"]) - batch["goal"]).square().mean()
    loss.backward()
    reduce(model)
    optimizer.step()
    return {"loss": loss}


def reduce(model):
    pass
"""
BY_HAND = """
def reduce(model):
    if distributed.is_initialized():
        for parameter in model.parameters():
            average(parameter.grad)


def parallelize(model, mesh):
    return model
"""
GOAL = SPEC.replace("batch=8,", 'batch=8, targets={"goal": TensorSpec(("N", 5))},')


def folder(path: Path, files: dict[str, str], spec: str = SPEC) -> Path:
    """A model folder. files: name without ``.py`` -> what stands behind NET."""
    path.mkdir()
    (path / "spec.py").write_text(spec)
    for name, text in files.items():
        (path / f"{name}.py").write_text(NET + text)
    return path
