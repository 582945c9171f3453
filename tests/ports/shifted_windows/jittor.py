import jittor as jt
import numpy as np
from jittor import nn


def window_partition(x, size):
    B, H, W, C = x.shape
    x = x.reshape(B, H // size, size, W // size, size, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, C)


def window_reverse(windows, size, H, W):
    B = windows.shape[0] // (H * W // size // size)
    x = windows.reshape(B, H // size, W // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, -1)


def shift_mask(H, W, size, shift):
    rows = np.repeat([0, 1, 2], [H - size, size - shift, shift])
    columns = np.repeat([0, 1, 2], [W - size, size - shift, shift])
    region = (3 * rows[:, None] + columns).reshape(H // size, size, W // size, size)
    region = region.transpose(0, 2, 1, 3).reshape(-1, size * size)
    return np.where(region[:, None] == region[:, :, None], 0.0, -100.0).astype("float32")


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, positions):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.bias = jt.randn(heads, positions, positions) * 0.02
        self.softmax = nn.Softmax(dim=-1)
        self.proj = nn.Linear(dim, dim)

    def execute(self, x, mask=None):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attn = jt.matmul(q, k.transpose(0, 1, 3, 2)) + self.bias.unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.reshape(B // windows, windows, self.heads, N, N) + jt.array(mask).unsqueeze(1).unsqueeze(0)
            attn = attn.reshape(B, self.heads, N, N)
        x = jt.matmul(self.softmax(attn), v)
        return self.proj(x.permute(0, 2, 1, 3).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads, size, shift, H, W):
        super().__init__()
        self.size = size
        self.shift = shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, size * size)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, dim * 2)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(dim * 2, dim)
        self.mask = shift_mask(H, W, size, shift) if shift > 0 else None

    def execute(self, x):
        H, W = x.shape[1:3]
        y = self.norm1(x)
        if self.shift > 0:
            y = jt.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attn(window_partition(y, self.size), self.mask)
        y = window_reverse(y, self.size, H, W)
        if self.shift > 0:
            y = jt.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class WindowTransformer(nn.Module):
    def __init__(self, dim, heads, size, H, W, classes):
        super().__init__()
        self.patch = nn.Conv(3, dim, 2, stride=2)
        self.blocks = nn.Sequential(Block(dim, heads, size, 0, H, W), Block(dim, heads, size, size // 2, H, W))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def execute(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        x = self.norm(self.blocks(x))
        B, H, W, C = x.shape
        return self.head(x.reshape(B, H * W, C).mean(dim=1))


def build(dim=30, heads=3, size=4, h=8, w=12, classes=5):
    return WindowTransformer(dim, heads, size, h, w, classes)
