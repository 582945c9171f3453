import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseExperts(nn.Module):
    """Each token goes through the experts with the largest scores, whose shares make up 1."""

    def __init__(self, width, hidden, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))
        self.out = nn.Linear(width, width)

    def forward(self, tokens):
        x = self.norm(tokens)
        shares, best = self.gate(x).softmax(-1).topk(self.chosen, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            share = torch.where(best == number, shares, 0.0).sum(-1, keepdim=True)
            y = y + share * expert(x)
        return tokens + self.out(y)


def build(width=16, hidden=20, experts=6, chosen=2):
    return SparseExperts(width, hidden, experts, chosen)
