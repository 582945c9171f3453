import torch
from torch import nn


class Position(nn.Module):
    """Adds a learned vector to every position."""

    def __init__(self, length, dim):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(length, dim))

    def forward(self, x):
        return x + self.weight


class CausalSoftmax(nn.Module):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def forward(self, scores):
        place = torch.arange(scores.shape[-1], device=scores.device)
        future = place > place[:, None]
        return scores.masked_fill(future, float("-inf")).softmax(-1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.softmax = CausalSoftmax()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(2, 3) / (dim // self.heads) ** 0.5
        x = self.softmax(scores) @ v
        return self.proj(x.transpose(1, 2).reshape(n, length, dim))

    def split(self, x):
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim, eps=1e-5)
        self.attn = Attention(dim, heads)
        self.ln2 = nn.LayerNorm(dim, eps=1e-5)
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.gelu(self.fc1(self.ln2(x))))


class Head(nn.Module):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def forward(self, x, weight):
        return x @ weight.T


class GPT(nn.Module):
    def __init__(self, vocabulary, dim, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, dim)
        self.pos = Position(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.head = Head()

    def forward(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.weight)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length)
