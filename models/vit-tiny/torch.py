import torch
from torch import nn

from xverify.models.torch_layers import Block, Position


class Token(nn.Module):
    """Puts a learned token before the others."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(1, dim))

    def forward(self, x):
        return torch.cat([self.weight.expand(x.shape[0], 1, -1), x], 1)


class ViT(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.cls = Token(dim)
        self.pos = Position((image // patch) ** 2 + 1, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, nn.Softmax(-1), 1e-6) for _ in range(depth))
        self.ln = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = self.pos(self.cls(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def build(image=64, patch=8, dim=192, depth=6, heads=3, classes=10):
    return ViT(image, patch, dim, depth, heads, classes)
