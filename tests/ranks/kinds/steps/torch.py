from contextlib import nullcontext

import torch
from torch import nn

PARTS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


build = Net


def train_state(model):
    return {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), "steps": 0}


def train_step(model, state, batch):
    optimizer = state["optimizer"]
    optimizer.zero_grad()
    losses = []
    for part in range(PARTS):
        last = part == PARTS - 1
        skips = not last and hasattr(model, "no_sync")
        with model.no_sync() if skips else nullcontext():
            loss = (model(batch["x"][part::PARTS]) - batch["goal"][part::PARTS]).square().mean()
            scaled = loss / PARTS
            scaled.backward()
        losses.append(loss.detach())
    optimizer.step()
    state["steps"] += 1
    return {"loss": sum(losses) / PARTS}


def parallelize(model, mesh):
    return nn.parallel.DistributedDataParallel(model)
