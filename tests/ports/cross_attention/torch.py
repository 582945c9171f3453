import torch.nn.functional as F
from torch import nn


class Reader(nn.Module):
    def __init__(self, dim, memory, heads, outputs):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, kdim=memory, vdim=memory, batch_first=True)
        self.norm1 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 3 * dim)
        self.fc2 = nn.Linear(3 * dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, outputs)

    def forward(self, query, memory):
        y, attention = self.attn(query, memory, memory)
        x = self.norm1(query + y)
        x = self.norm2(x + self.fc2(F.gelu(self.fc1(x))))
        return self.head(x), attention


def build(dim=20, memory=12, heads=4, outputs=6):
    return Reader(dim, memory, heads, outputs)
