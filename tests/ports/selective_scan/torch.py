import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, width, inner, states, rank, kernel):
        super().__init__()
        self.rank, self.states = rank, states
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, hidden):
        length = hidden.shape[1]
        x, z = self.in_proj(hidden).chunk(2, dim=-1)
        x = self.conv1d(x.transpose(1, 2))[..., :length].transpose(1, 2)
        x = F.silu(x)
        dt, B, C = self.x_proj(x).split([self.rank, self.states, self.states], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        y = self.scan(x, dt, B, C)
        return self.out_proj(y * F.silu(z))

    def scan(self, x, dt, B, C):
        A = -torch.exp(self.A_log)
        state = torch.zeros(x.shape[0], x.shape[2], self.states)
        outputs = []
        for i in range(x.shape[1]):
            decay = torch.exp(dt[:, i, :, None] * A)
            state = decay * state + dt[:, i, :, None] * B[:, i, None, :] * x[:, i, :, None]
            outputs.append((state * C[:, i, None, :]).sum(-1))
        return torch.stack(outputs, 1) + x * self.D


class Block(nn.Module):
    def __init__(self, width, **sizes):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.mixer = Mixer(width, **sizes)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Mamba(nn.Module):
    def __init__(self, words, width, depth, **sizes):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Block(width, **sizes) for _ in range(depth))
        self.norm_f = nn.RMSNorm(width, eps=1e-5)
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def build():
    return Mamba(words=60, width=12, depth=2, inner=20, states=5, rank=3, kernel=4)
