import math

import torch
import torch.nn.functional as F
from torch import nn


def encode(x, bands):
    """Sines of all frequencies, then cosines, for each coordinate, after the coordinate itself."""
    scaled = x[..., None] * (2.0 ** torch.arange(bands)) * math.pi
    waves = torch.cat([scaled.sin(), scaled.cos()], dim=-1).flatten(-2)
    return torch.cat([x, waves], dim=-1)


class Field(nn.Module):
    def __init__(self, width=24, depth=4, skip=2, point_bands=4, view_bands=2):
        super().__init__()
        self.point_bands, self.view_bands, self.skip = point_bands, view_bands, skip
        points = 3 + 6 * point_bands
        views = 3 + 6 * view_bands
        self.trunk = nn.ModuleList(
            nn.Linear(points if i == 0 else width + points if i == skip else width, width) for i in range(depth)
        )
        self.density = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.view = nn.Linear(width + views, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, points, views):
        encoded = encode(points, self.point_bands)
        h = encoded
        for i, layer in enumerate(self.trunk):
            if i == self.skip:
                h = torch.cat([encoded, h], dim=-1)
            h = F.relu(layer(h))
        sigma = F.softplus(self.density(h) - 1)
        h = torch.cat([self.feature(h), encode(views, self.view_bands)], dim=-1)
        return sigma.squeeze(-1), torch.sigmoid(self.rgb(F.relu(self.view(h))))


class Renderer(nn.Module):
    def __init__(self, near=0.5, far=3.0, samples=9):
        super().__init__()
        self.near, self.far, self.samples = near, far, samples
        self.field = Field()

    def forward(self, origins, directions):
        t = torch.linspace(self.near, self.far, self.samples)
        points = origins[:, None] + directions[:, None] * t[:, None]
        views = F.normalize(directions, dim=-1)[:, None].expand_as(points)
        sigma, rgb = self.field(points, views)
        deltas = torch.cat([t[1:] - t[:-1], torch.tensor([1e2])])
        deltas = deltas * directions.norm(dim=-1, keepdim=True)
        alpha = 1 - torch.exp(-sigma * deltas)
        through = torch.cumprod(1 - alpha + 1e-10, dim=-1)
        through = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], dim=-1)
        weights = alpha * through
        opacity = weights.sum(-1)
        colour = (weights[..., None] * rgb).sum(1) + (1 - opacity[:, None])
        return colour, (weights * t).sum(-1), opacity


def build():
    return Renderer()
