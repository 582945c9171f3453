import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Mixture(nn.Module):
    def __init__(self, dim, hidden, experts, temperature):
        super().__init__()
        self.temperature = temperature
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, experts, bias=False)
        self.softmax = nn.Softmax(dim=-1)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))
        self.head = nn.Linear(dim, 6)

    def forward(self, tokens):
        x = self.norm(tokens)
        share = self.softmax(self.gate(x) / self.temperature)
        parts = torch.stack([expert(x) for expert in self.experts], -2)
        x = tokens + (share.unsqueeze(-1) * parts).sum(-2)
        return self.head(x), share.mean(1)


def build(dim=12, hidden=20, experts=4, temperature=0.5):
    return Mixture(dim, hidden, experts, temperature)
