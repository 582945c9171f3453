import math

import jittor as jt
from jittor import nn


def encode(x, levels):
    angles = jt.stack([x * (2**level * math.pi) for level in range(levels)], dim=-1)
    angles = angles.reshape(*x.shape[:-1], -1)
    return jt.concat([x, jt.sin(angles), jt.cos(angles)], dim=-1)


class Field(nn.Module):
    def __init__(self, width):
        sizes = [27, width, width + 27, width]
        self.hidden = nn.ModuleList([nn.Linear(size, width) for size in sizes])
        self.density = nn.Linear(width, 1)
        self.softplus = nn.Softplus(beta=4)
        self.colour1 = nn.Linear(width + 15, 16)
        self.colour2 = nn.Linear(16, 3)

    def execute(self, points, direction):
        features = encode(points, 4)
        x = features
        for index in range(len(self.hidden)):
            if index == 2:
                x = jt.concat([x, features], dim=-1)
            x = nn.relu(self.hidden[index](x))
        density = self.softplus(self.density(x)).squeeze(-1)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        view = encode(direction, 2).unsqueeze(1).repeat(1, x.shape[1], 1)
        x = nn.relu(self.colour1(jt.concat([x, view], dim=-1)))
        return density, jt.sigmoid(self.colour2(x))


def build(width=32):
    return Field(width)
