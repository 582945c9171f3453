import copy

import torch
from torch import nn
from torch.nn import functional as F

TAU = 0.95


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
        self.predictor = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, view1):
        return self.predictor(self.encoder(view1))


build = Online


def train_state(model):
    target = copy.deepcopy(model.encoder)
    for p in target.parameters():
        p.requires_grad = False
    return {"optimizer": torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), "target": target}


def regression_loss(p, z):
    return 2 - 2 * (F.normalize(p, dim=-1) * F.normalize(z, dim=-1)).sum(-1)


def train_step(model, state, batch):
    v1, v2, target = batch["view1"], batch["view2"], state["target"]
    p1, p2 = model(v1), model(v2)
    with torch.no_grad():
        z1, z2 = target(v1), target(v2)
    loss = (regression_loss(p1, z2) + regression_loss(p2, z1)).mean()
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    with torch.no_grad():
        for t, o in zip(target.parameters(), model.encoder.parameters()):
            t.copy_(TAU * t + (1 - TAU) * o)
    return {"byol": loss}
