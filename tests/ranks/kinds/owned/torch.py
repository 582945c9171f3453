import torch
from torch import distributed, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


build = Net


def owners(model):
    """The parameters, and the rank that updates each: the last parameter has an owner of its own."""
    last = distributed.get_world_size() - 1 if distributed.is_initialized() else 0
    parameters = list(model.parameters())
    return list(zip(parameters, [0] * (len(parameters) - 1) + [last]))


def train_state(model):
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    own = [each for each, owner in owners(model) if owner == rank]
    return {"optimizer": torch.optim.Adam(own, lr=0.01) if own else None}


def train_step(model, state, batch):
    model.zero_grad()
    loss = (model(batch["x"]) - batch["goal"]).square().mean()
    loss.backward()
    optimizer = state["optimizer"]
    if distributed.is_initialized():
        for each in model.parameters():
            distributed.all_reduce(each.grad)
            each.grad /= distributed.get_world_size()
    if optimizer is not None:
        optimizer.step()
    if distributed.is_initialized():
        for each, owner in owners(model):
            distributed.broadcast(each.data, owner)
    return {"loss": loss.detach()}


def parallelize(model, mesh):
    return model
