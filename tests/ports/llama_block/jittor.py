import jittor as jt
import numpy as np
from jittor import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = jt.ones(dim)

    def execute(self, x):
        rms = jt.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return self.weight * (x / rms)


class Attention(nn.Module):
    def __init__(self, dim, heads, shared, length, base=10000.0):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, shared * self.size, bias=False)
        self.v_proj = nn.Linear(dim, shared * self.size, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        angles = np.outer(np.arange(length), base ** (-np.arange(0, self.size, 2) / self.size))
        # Jittor takes attributes without an underscore for weights.
        self._cos = jt.array(np.cos(angles).astype("float32"))
        self._sin = jt.array(np.sin(angles).astype("float32"))

    def rotate(self, x):
        half = self.size // 2
        a, b = x[:, :, :, :half], x[:, :, :, half:]
        return jt.concat([a * self._cos - b * self._sin, b * self._cos + a * self._sin], dim=-1)

    def execute(self, x):
        n, t, dim = x.shape
        q = self.q_proj(x).reshape(n, t, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).reshape(n, t, self.shared, self.size).transpose(1, 2)
        v = self.v_proj(x).reshape(n, t, self.shared, self.size).transpose(1, 2)
        q, k = self.rotate(q), self.rotate(k)
        k = k.repeat_interleave(self.heads // self.shared, 1)
        v = v.repeat_interleave(self.heads // self.shared, 1)
        mask = jt.triu(jt.ones((t, t)), diagonal=1) * -1e9
        scores = nn.matmul(q, k.transpose(2, 3)) / self.size**0.5
        y = nn.matmul(nn.softmax(scores + mask, dim=-1), v)
        return self.o_proj(y.transpose(1, 2).reshape(n, t, dim))


class Llama(nn.Module):
    def __init__(self, words, dim, heads, shared, length):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.norm1 = RMSNorm(dim)
        self.attn = Attention(dim, heads, shared, length)
        self.norm2 = RMSNorm(dim)
        self.gate = nn.Linear(dim, 40, bias=False)
        self.up = nn.Linear(dim, 40, bias=False)
        self.down = nn.Linear(40, dim, bias=False)
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, words, bias=False)

    def execute(self, tokens):
        x = self.embed(tokens)
        x = x + self.attn(self.norm1(x))
        y = self.norm2(x)
        x = x + self.down(nn.silu(self.gate(y)) * self.up(y))
        return self.head(self.norm(x))


def build(words=50, dim=32, heads=4, shared=2, length=9):
    return Llama(words, dim, heads, shared, length)
