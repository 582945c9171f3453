import torch
import torch.nn.functional as F
from torch import nn


class StackedExperts(nn.Module):
    """All experts as two arrays, expert by expert along the first axis."""

    def __init__(self, width, hidden, experts):
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.down = nn.Parameter(torch.empty(experts, width, hidden))

    def forward(self, x, shares):
        """x: token, value. shares: token, expert."""
        gate, up = torch.einsum("td,ehd->teh", x, self.gate_up).chunk(2, -1)
        y = torch.einsum("teh,edh->ted", F.silu(gate) * up, self.down)
        return torch.einsum("te,ted->td", shares, y)


class SparseExperts(nn.Module):
    def __init__(self, width, hidden, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = StackedExperts(width, hidden, experts)
        self.out = nn.Linear(width, width)

    def shares(self, x):
        """The share of each expert in a token; 0 for those that are not chosen."""
        scores = self.router(x)
        values, best = scores.topk(self.chosen, -1)
        return torch.zeros_like(scores).scatter(-1, best, values.softmax(-1))

    def forward(self, tokens):
        x = self.norm(tokens).flatten(0, 1)
        y = self.experts(x, self.shares(x))
        return tokens + self.out(y).view_as(tokens)


def build(width=16, hidden=20, experts=6, chosen=2):
    return SparseExperts(width, hidden, experts, chosen)
