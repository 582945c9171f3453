import jittor as jt
from jittor import nn


class LayerNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = jt.ones(dim)
        self.bias = jt.zeros(dim)

    def execute(self, x):
        var = x.var(-1, keepdims=True)
        x = (x - x.mean(-1, keepdims=True)) / (var + self.eps).sqrt()
        return x * self.weight + self.bias


class CrossAttention(nn.Module):
    def __init__(self, dim, memory, heads):
        super().__init__()
        self.heads = heads
        self.q_proj_weight = jt.randn(dim, dim)
        self.k_proj_weight = jt.randn(dim, memory)
        self.v_proj_weight = jt.randn(dim, memory)
        self.in_proj_bias = jt.zeros(3 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def split(self, x):
        n, length, dim = x.shape
        return x.reshape(n, length, self.heads, dim // self.heads).permute(0, 2, 1, 3)

    def execute(self, query, memory):
        bq, bk, bv = self.in_proj_bias.chunk(3)
        q = self.split(nn.linear(query, self.q_proj_weight, bq))
        k = self.split(nn.linear(memory, self.k_proj_weight, bk))
        v = self.split(nn.linear(memory, self.v_proj_weight, bv))
        attn = nn.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, dim=-1)
        y = (attn @ v).permute(0, 2, 1, 3).reshape(query.shape)
        return self.out_proj(y), attn.mean(1)


class Reader(nn.Module):
    def __init__(self, dim, memory, heads, outputs):
        super().__init__()
        self.attn = CrossAttention(dim, memory, heads)
        self.norm1 = LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 3 * dim)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(3 * dim, dim)
        self.norm2 = LayerNorm(dim)
        self.head = nn.Linear(dim, outputs)

    def execute(self, query, memory):
        y, attention = self.attn(query, memory)
        x = self.norm1(query + y)
        x = self.norm2(x + self.fc2(self.gelu(self.fc1(x))))
        return self.head(x), attention


def build(dim=20, memory=12, heads=4, outputs=6):
    return Reader(dim, memory, heads, outputs)
