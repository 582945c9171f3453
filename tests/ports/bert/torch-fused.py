import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    """A block of the encoder, which normalises behind each sum."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def attend(self, x, bias):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        y = (scores + bias).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x, bias):
        x = self.norm1(x + self.attend(x, bias))
        return self.norm2(x + self.fc2(F.gelu(self.fc1(x))))


class Encoder(nn.Module):
    def __init__(self, words, positions, types, width, depth, heads, hidden):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.positions = nn.Embedding(positions, width)
        self.types = nn.Embedding(types, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(depth))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids, mask, types):
        bias = (1.0 - mask[:, None, None, :].to(self.norm.weight.dtype)) * -1e9
        x = self.words(ids) + self.types(types) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


def build(words=53, positions=20, width=24, depth=2, heads=3, hidden=40):
    return Encoder(words, positions, 2, width, depth, heads, hidden)
