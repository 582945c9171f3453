import torch
from torch import distributed, nn

CLIP = 0.2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


build = Net


def train_state(model):
    return {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}


def train_step(model, state, batch):
    optimizer = state["optimizer"]
    optimizer.zero_grad()
    loss = (model(batch["x"]) - batch["goal"]).square().mean()
    loss.backward()
    if distributed.is_initialized():
        average(model)
    own = list(model.parameters())
    norm = nn.utils.get_total_norm([each.grad for each in own])
    nn.utils.clip_grads_with_norm_(model.parameters(), CLIP, norm)
    optimizer.step()
    return {"loss": loss}


def average(model):
    for parameter in model.parameters():
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()


def parallelize(model, mesh):
    return model
