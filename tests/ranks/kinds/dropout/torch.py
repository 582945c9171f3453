import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Dropout(nn.Dropout):
    """Dropout of values of which every rank has a part: it draws from random numbers of its rank."""

    state = None

    def forward(self, x):
        if self.state is None:
            return super().forward(x)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.state)
            y = super().forward(x)
            self.state = torch.get_rng_state()
        return y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 32)
        self.inner = Dropout(0.5)
        self.fc2 = nn.Linear(32, 16)
        self.outer = nn.Dropout(0.5, inplace=True)
        self.fc3 = nn.Linear(16, 5)

    def forward(self, x):
        hidden = self.inner(self.fc1(x).tanh())
        return self.fc3(self.outer(self.fc2(hidden)))


build = Net


def parallelize(model, mesh):
    parallelize_module(model, mesh, {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    rank = mesh.get_local_rank()
    model.inner.state = torch.Generator().manual_seed(1 + rank).get_state()
    return model
