"""Model folders whose files say how several ranks train them: right ways, and one with each known mistake."""

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
WEIGHED = """
def parallelize(model, mesh):
    def before(module, given):
        size = torch.tensor(float(len(given[0])))
        module.items, module.all_items = float(size), size
        distributed.all_reduce(module.all_items)

    def weigh(gradient):
        gradient *= model.items / model.all_items
        distributed.all_reduce(gradient)

    model.register_forward_pre_hook(before)
    return reduced(model, weigh)
"""
# A mistake -> (what stands behind NET, the words of a report about it).
MISTAKES = {
    "none": (
        "def parallelize(model, mesh):\n    return model\n",
        "was not reduced: each rank has the gradient of its own items",
    ),
    "one": (
        "def parallelize(model, mesh):\n    return reduced(model, average, ('fc1.weight', 'fc1.bias', 'fc2.bias'))\n",
        "the gradient of fc2.weight: it was not reduced",
    ),
    "summed": (
        "def parallelize(model, mesh):\n    return reduced(model, distributed.all_reduce)\n",
        "2 times the right one: it is summed over the ranks and not averaged, reduced twice",
    ),
    "halved": (
        "def parallelize(model, mesh):\n    def halve(gradient):\n        average(gradient)\n        gradient /= 2\n"
        "    return reduced(model, halve)\n",
        "the right one divided by 2: it is divided by the number of ranks once too often",
    ),
    "unused": (
        "def parallelize(model, mesh):\n    if distributed.get_rank() == 1:\n"
        "        model.fc2.forward = lambda x: linear(x, model.fc2.weight.detach() + 0 * model.fc2.weight, model.fc2.bias)\n"
        "    return reduced(model, average)\n",
        "the gradient of fc2.weight: the share of rank 1 is missing in it",
    ),
    "first": (
        "def parallelize(model, mesh):\n    return reduced(model, lambda gradient: distributed.broadcast(gradient, 0))\n",
        "it is that of the items of rank 0 alone, on every rank",
    ),
    "clipped": (
        "def parallelize(model, mesh):\n    def clip(gradient):\n        gradient *= 0.1 / max(0.1, float(gradient.norm()))\n"
        "        average(gradient)\n    return reduced(model, clip)\n",
        "gradients, step 0: ",
    ),
    "diverging": (
        "def parallelize(model, mesh):\n    def change(gradient):\n        average(gradient)\n"
        "        model.fc1.bias.data *= 1 + 1e-3 * distributed.get_rank()\n    return reduced(model, change, ('fc2.bias',))and "
        "reduced(model, average, ('fc1.weight', 'fc1.bias', 'fc2.weight'))\n",
        "ranks, step 0: rank 1: fc1.bias after the step differs from rank 0's: the ranks no longer train one model",
    ),
}  # fmt: skip
TENSOR_PARALLEL = """
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def parallelize(model, mesh):
    return parallelize_module(model, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
"""
BIAS_ON_EACH = """
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        x = x.clone()
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient


def parallelize(model, mesh):
    parallelize_module(model, mesh, {"fc1": ColwiseParallel()})
    fc2 = model.fc2
    fc2.weight = nn.Parameter(distribute_tensor(fc2.weight.detach(), mesh, [Shard(1)]))
    fc2.forward = lambda x: Sum.apply(linear(x, fc2.weight.to_local(), fc2.bias))
    return model
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


def folder(path: Path, files: dict[str, str], spec: str = SPEC) -> Path:
    """A model folder. files: name without ``.py`` -> what stands behind NET."""
    path.mkdir()
    (path / "spec.py").write_text(spec)
    for name, text in files.items():
        (path / f"{name}.py").write_text(NET + text)
    return path
