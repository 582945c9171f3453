import math

import jittor as jt
import numpy as np
from jittor import nn


def bucket(distance, count, farthest):
    half, near = count // 2, count // 4
    first = half if distance > 0 else 0
    distance = abs(distance)
    if distance >= near:
        distance = near + int(math.log(distance / near) / math.log(farthest / near) * (half - near))
    return first + min(distance, half - 1)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = jt.ones((dim,))

    def execute(self, x):
        variance = x.sqr().mean(-1, keepdims=True)
        return x * jt.rsqrt(variance + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self, dim, heads, length, count, temperature):
        super().__init__()
        self.heads, self.temperature = heads, temperature
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.bias = nn.Embedding(count, heads)
        self.buckets = np.array([[bucket(k - q, count, 12) for k in range(length)] for q in range(length)])

    def execute(self, x):
        n, length, dim = x.shape
        shape = (n, length, self.heads, dim // self.heads)
        q = self.q(x).reshape(shape).permute(0, 2, 1, 3)
        k = self.k(x).reshape(shape).permute(0, 2, 3, 1)
        v = self.v(x).reshape(shape).permute(0, 2, 1, 3)
        bias = self.bias(jt.array(self.buckets)).permute(2, 0, 1).unsqueeze(0)
        scores = (q @ k + bias) / self.temperature
        y = nn.softmax(scores, -1) @ v
        return self.o(y.permute(0, 2, 1, 3).reshape(n, length, dim))


class Encoder(nn.Module):
    def __init__(self, dim, heads, length, count, temperature):
        super().__init__()
        self.norm1 = RMSNorm(dim)
        self.attn = Attention(dim, heads, length, count, temperature)
        self.norm2 = RMSNorm(dim)
        self.wi = nn.Linear(dim, 30, bias=False)
        self.relu = nn.ReLU()
        self.wo = nn.Linear(30, dim, bias=False)
        self.head = nn.Linear(dim, 4)

    def execute(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + self.wo(self.relu(self.wi(self.norm2(x))))
        return self.head(x)


def build(dim=18, heads=3, length=10, count=8, temperature=2.5):
    return Encoder(dim, heads, length, count, temperature)
