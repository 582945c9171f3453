from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(self.norm(self.fc1(x).tanh()))


build = Net


def parallelize(model, mesh):
    for module in (model.fc1, model.norm):
        fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)
