import math

import torch
import torch.nn.functional as F
from torch import nn


def encode(x, levels):
    frequencies = 2.0 ** torch.arange(levels) * math.pi
    angles = (x[..., None] * frequencies).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], -1)


class Field(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = nn.ModuleList(
            [
                nn.Linear(27, width),
                nn.Linear(width, width),
                nn.Linear(width + 27, width),
                nn.Linear(width, width),
            ]
        )
        self.density = nn.Linear(width, 1)
        self.softplus = nn.Softplus(beta=4)
        self.colour1 = nn.Linear(width + 15, 16)
        self.colour2 = nn.Linear(16, 3)

    def forward(self, points, direction):
        features = encode(points, 4)
        x = features
        for index, layer in enumerate(self.hidden):
            if index == 2:
                x = torch.cat([x, features], -1)
            x = F.relu(layer(x))
        density = self.softplus(self.density(x)).squeeze(-1)
        view = encode(F.normalize(direction, dim=-1), 2)
        view = view[:, None].expand(-1, x.shape[1], -1)
        x = F.relu(self.colour1(torch.cat([x, view], -1)))
        return density, torch.sigmoid(self.colour2(x))


def build(width=32):
    return Field(width)
