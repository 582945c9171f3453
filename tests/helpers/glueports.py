"""Models whose glue code is tested: attention, rotary embeddings, normalisations, and layers of images."""

from helpers.replayedports import model, random

ROWS, IMAGE = random(2, 6, 16), random(2, 8, 6, 6)

LINEAR = "self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)"
CONV = "self.a, self.b, self.c = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)"

ATTENTION = """
q, k, v = (t.view(-1, 6, 4, 4).transpose(1, 2) for t in (self.a(x), self.b(x), self.c(x)))
scores = q @ k.transpose(-2, -1) / math.sqrt(4)
mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), diagonal=1)
scores = scores.masked_fill(mask, -1e9)
weights = scores.softmax(dim=-1)
y = (weights @ v).transpose(1, 2).reshape(-1, 6, 16)
return self.o(y)
"""
PROJECTED = LINEAR + "\nself.o = nn.Linear(16, 16)"
FUSED = """
q, k, v = (t.view(-1, 6, 4, 4).transpose(1, 2) for t in (self.a(x), self.b(x), self.c(x)))
y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
return self.o(y.transpose(1, 2).flatten(2))
"""
QKV = """
qkv = self.qkv(x)
q, k, v = qkv.chunk(3, dim=-1)
q, k, v = (t.reshape(-1, 6, 2, 8).transpose(1, 2) for t in (q, k, v))
y = F.scaled_dot_product_attention(q, k, v)
return self.o(y.transpose(1, 2).reshape(-1, 6, 16))
"""
PACKED = "self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)"

TABLES = """
angles = torch.arange(6.0)[:, None] * 100.0 ** (-torch.arange(4) / 4)
angles = torch.cat([angles, angles], -1)
self.register_buffer("cos", angles.cos(), persistent=False)
self.register_buffer("sin", angles.sin(), persistent=False)
"""
ROTATE = """

def rotate(x):
    x1, x2 = x.chunk(2, -1)
    return torch.cat((-x2, x1), -1)


def apply(x, cos, sin):
    return x * cos + rotate(x) * sin
"""
ROTARY = """
q, k, v = (t.view(-1, 6, 2, 8).transpose(1, 2) for t in (self.a(x), self.b(x), self.c(x)))
q, k = apply(q, self.cos, self.sin), apply(k, self.cos, self.sin)
y = F.scaled_dot_product_attention(q, k, v)
return self.o(y.transpose(1, 2).reshape(-1, 6, 16))
"""
INTERLEAVED_TABLES = TABLES.replace("torch.cat([angles, angles], -1)", "angles.repeat_interleave(2, -1)")
INTERLEAVED_ROTATE = ROTATE.replace("x.chunk(2, -1)", "x[..., ::2], x[..., 1::2]").replace(
    "torch.cat((-x2, x1), -1)", "torch.stack((-x2, x1), -1).flatten(-2)"
)
COMPLEX = """

def apply(x, cos, sin):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    turned = torch.complex(cos[..., ::2], sin[..., ::2])
    return torch.view_as_real(z * turned).flatten(-2)
"""
ROTARY_MODEL = model(PROJECTED + TABLES, ROTARY, ROTATE)
INTERLEAVED_MODEL = model(PROJECTED + INTERLEAVED_TABLES, ROTARY, INTERLEAVED_ROTATE)
COMPLEX_MODEL = model(PROJECTED + INTERLEAVED_TABLES, ROTARY, COMPLEX)

RMS = """

class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2) * self.weight
"""
NORMED = "return self.b(self.norm(self.a(x)))"
NORM = "self.a, self.norm, self.b = nn.Linear(16, 16), RMSNorm(), nn.Linear(16, 16)"
OUTSIDE = ("torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2)", "1 / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-2)")

WINDOWS = """
x = torch.roll(self.a(x), shifts=(-2, -1), dims=(2, 3))
return self.b(x)
"""
SHUFFLE = "return self.c(self.b(F.pixel_shuffle(self.a(x), 2).repeat(1, 4, 1, 1)))"
BLOCK = """
y = self.a(x)
y = F.relu(self.b(y) + y)
return self.c(y)
"""
EMBEDDED = """
y = self.a(x)
y = torch.cat([y.cos(), y.sin()], dim=-1)[..., 8:24]
return self.b(y)
"""

CHANNELS = "return self.b(self.a(x).view(-1, 2, 4, 6, 6).transpose(1, 2).flatten(1, 2))"
GROUPED = "self.a, self.b, self.o = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 16)"
SHARED = """
q = self.a(x).view(-1, 6, 4, 4).transpose(1, 2)
k = self.b(x).view(-1, 6, 2, 4).transpose(1, 2).repeat_interleave(2, dim=1)
y = F.scaled_dot_product_attention(q, k, k)
return self.o(y.transpose(1, 2).reshape(-1, 6, 16))
"""
