"""Models of other people's designs, as a port may have them: routed experts, grids of images, decoders, transducers, fields."""

import torch

from helpers.replayedports import random

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn

"""

MOE = """
class Net(nn.Module):
    def __init__(self, dim=12, experts=6, k=2):
        super().__init__()
        self.k, self.count = k, experts
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, experts, bias=False)
        self.up = nn.Linear(dim, experts * 10)
        self.down = nn.Parameter(torch.randn(experts, 10, dim) / 3)
        self.out = nn.Linear(dim, 8)

    def forward(self, x):
        h = self.norm(x)
        p = self.gate(h).softmax(-1)
        w, chosen = p.topk(self.k, dim=-1)
        w = w / w.sum(-1, keepdim=True)
        up = F.gelu(self.up(h)).unflatten(-1, (self.count, 10))
        each = torch.einsum("nteh,ehd->nted", up, self.down)
        index = chosen[..., None].expand(-1, -1, -1, each.shape[-1])
        taken = each.gather(2, index)
        y = (w[..., None] * taken).sum(2)
        return self.out(x + y)

def build():
    return Net()
"""

STN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.fc = nn.Linear(4, 6)
        self.head = nn.Conv2d(5, 6, 3, padding=1)

    def forward(self, x):
        n, _, h, w = x.shape
        f = F.relu(self.conv(x)).mean((2, 3))
        theta = 0.5 * torch.tanh(self.fc(f)).view(-1, 2, 3) + torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, -0.1]])
        ys = torch.linspace(-1, 1, h)
        xs = torch.linspace(-1, 1, w)
        gy, gx = torch.meshgrid(ys, xs, indexing="ij")
        points = torch.stack([gx, gy, torch.ones_like(gx)], -1)
        grid = points.view(1, h * w, 3) @ theta.transpose(1, 2)
        grid = grid.view(n, h, w, 2)
        y = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)
        radius = (grid ** 2).sum(-1).clamp(0.0, 1.5)
        return self.head(torch.cat([y, radius[:, None], gy.expand(n, 1, h, w)], 1))

def build():
    return Net()
"""

FCOS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c3 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.c4 = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.l3, self.l4 = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.head = nn.Conv2d(8, 5, 3, padding=1)
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        c3 = F.relu(self.c3(x))
        c4 = F.relu(self.c4(c3))
        p4 = self.l4(c4)
        p3 = self.l3(c3) + F.interpolate(p4, scale_factor=2, mode="nearest")
        boxes, scores = [], []
        for stride, p in ((2, p3), (4, p4)):
            y = self.head(p)
            n, _, h, w = y.shape
            size = torch.exp(self.scale * y[:, :4]) * stride
            cx = (torch.arange(w) + 0.5) * stride
            cy = (torch.arange(h) + 0.5) * stride
            l, t, r, b = size.unbind(1)
            box = torch.stack([cx[None, :] - l, cy[:, None] - t, cx[None, :] + r, cy[:, None] + b], 1)
            centre = torch.sqrt(torch.minimum(l, r) / torch.maximum(l, r) * (torch.minimum(t, b) / torch.maximum(t, b)))
            score = torch.sigmoid(y[:, 4]) * centre
            boxes.append(box.flatten(2).transpose(1, 2))
            scores.append(score.flatten(1))
        return torch.cat(boxes, 1), torch.cat(scores, 1)

def build():
    return Net()
"""

RNNT = """
class Net(nn.Module):
    def __init__(self, dim=10, vocab=7, hidden=12):
        super().__init__()
        self.encoder = nn.Linear(dim, hidden)
        self.embed = nn.Embedding(vocab, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.predictor = nn.Linear(hidden, hidden)
        self.joint = nn.Linear(hidden, vocab)

    def forward(self, x, labels):
        n, count = labels.shape
        f = self.encoder(x)
        f = (f[:, ::2] + f[:, 1::2]) / 2
        shifted = torch.cat([torch.zeros(n, 1, dtype=torch.long), labels], 1)
        e = self.embed(shifted)
        h = torch.zeros(n, 12)
        outputs = []
        for t in range(count + 1):
            h = self.cell(e[:, t], h)
            outputs.append(h)
        p = self.predictor(torch.stack(outputs, 1))
        z = torch.tanh(f[:, :, None] + p[:, None])
        logits = self.joint(z)
        scores = logits.log_softmax(-1)
        blank = scores[..., 0]
        emit = scores[:, :, :-1].gather(3, labels[:, None, :, None].expand(-1, f.shape[1], -1, 1)).squeeze(3)
        return blank, emit

def build():
    return Net()
"""

CRF = """
class Net(nn.Module):
    def __init__(self, dim=8, tags=5):
        super().__init__()
        self.fc = nn.Linear(dim, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags))
        self.start, self.end = nn.Parameter(torch.randn(tags)), nn.Parameter(torch.randn(tags))

    def forward(self, x, lengths):
        scores = self.fc(x)
        n, length, tags = scores.shape
        mask = torch.arange(length)[None, :] < lengths[:, None]
        alpha = self.start + scores[:, 0]
        best = alpha
        for t in range(1, length):
            new = torch.logsumexp(alpha[:, :, None] + self.transitions, 1) + scores[:, t]
            alpha = torch.where(mask[:, t, None], new, alpha)
            top = (best[:, :, None] + self.transitions).amax(1) + scores[:, t]
            best = torch.where(mask[:, t, None], top, best)
        z = torch.logsumexp(alpha + self.end, -1)
        return z, (best + self.end).amax(-1), z / lengths

def build():
    return Net()
"""

GAT = """
class Net(nn.Module):
    def __init__(self, dim=8, heads=3, size=4):
        super().__init__()
        self.heads, self.size = heads, size
        self.fc = nn.Linear(dim, heads * size, bias=False)
        self.source = nn.Parameter(torch.randn(heads, size))
        self.target = nn.Parameter(torch.randn(heads, size))
        self.out = nn.Linear(heads * size, 6)

    def forward(self, x, edges):
        n, nodes, _ = x.shape
        h = self.fc(x).view(n, nodes, self.heads, self.size)
        u = (h * self.source).sum(-1)
        v = (h * self.target).sum(-1)
        scores = F.leaky_relu(u[:, :, None] + v[:, None], 0.2)
        joined = (edges > 0.5) | torch.eye(nodes, dtype=torch.bool)
        scores = scores.masked_fill(~joined[..., None], -1e9)
        weights = scores.softmax(2)
        y = torch.einsum("nijh,njhd->nihd", weights, h)
        y = F.elu(y).flatten(2)
        degree = joined.float().sum(-1, keepdim=True)
        return self.out(y / degree.sqrt())

def build():
    return Net()
"""

FNO = """
class Net(nn.Module):
    def __init__(self, width=6, modes=3):
        super().__init__()
        self.modes = modes
        self.lift = nn.Conv2d(2, width, 1)
        self.a = nn.Parameter(torch.randn(width, width, modes, modes, 2) / 3)
        self.b = nn.Parameter(torch.randn(width, width, modes, modes, 2) / 3)
        self.skip = nn.Conv2d(width, width, 1)
        self.project = nn.Conv2d(width + 2, 3, 1)

    def forward(self, x):
        n, _, h, w = x.shape
        y = self.lift(x)
        f = torch.fft.rfft2(y)
        m = self.modes
        low = torch.einsum("nixy,ioxy->noxy", f[:, :, :m, :m], torch.view_as_complex(self.a))
        high = torch.einsum("nixy,ioxy->noxy", f[:, :, -m:, :m], torch.view_as_complex(self.b))
        z = torch.zeros_like(f)
        z[:, :, :m, :m] = low
        z[:, :, -m:, :m] = high
        y = F.gelu(torch.fft.irfft2(z, s=(h, w)) + self.skip(y))
        gx = torch.linspace(0, 1, w)[None, None, None].expand(n, 1, h, w)
        gy = torch.linspace(0, 1, h)[None, None, :, None].expand(n, 1, h, w)
        return self.project(torch.cat([y, gx, gy], 1))

def build():
    return Net()
"""

XL = """
class Net(nn.Module):
    def __init__(self, dim=16, heads=4):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.w = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.p = nn.Linear(dim, dim, bias=False)
        self.u, self.v = nn.Parameter(torch.randn(heads, 1, 4) / 2), nn.Parameter(torch.randn(heads, 1, 4) / 2)
        self.o = nn.Linear(dim, dim)

    def shift(self, x):
        n, h, q, k = x.shape
        x = F.pad(x, (1, 0))
        return x.view(n, h, k + 1, q)[:, :, 1:].view(n, h, q, k)

    def forward(self, x):
        n, length, dim = x.shape
        positions = torch.arange(length - 1, -1, -1.0)
        angles = positions[:, None] / 10000.0 ** (torch.arange(0, dim, 2) / dim)
        table = torch.cat([angles.sin(), angles.cos()], -1)
        q, k, w = (f(x).view(n, length, self.heads, self.size).transpose(1, 2) for f in (self.q, self.k, self.w))
        p = self.p(table).view(length, self.heads, self.size).permute(1, 2, 0)
        content = (q + self.u) @ k.transpose(2, 3)
        place = self.shift((q + self.v) @ p)
        scores = (content + place) / self.size ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(mask, -1e9).softmax(-1) @ w
        return self.o(y.transpose(1, 2).reshape(n, length, dim))

def build():
    return Net()
"""

NERF = """
class Net(nn.Module):
    def __init__(self, bands=3, samples=8):
        super().__init__()
        self.bands, self.samples = bands, samples
        self.fc1 = nn.Linear(3 + 6 * bands, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, origin, direction):
        direction = direction / direction.norm(dim=-1, keepdim=True)
        t = torch.linspace(0.5, 2.5, self.samples)
        points = origin[:, None] + direction[:, None] * t[:, None]
        frequencies = 2.0 ** torch.arange(self.bands)
        angles = (points[..., None, :] * frequencies[:, None] * math.pi).flatten(2)
        code = torch.cat([points, angles.sin(), angles.cos()], -1)
        raw = self.fc2(F.relu(self.fc1(code)))
        color, sigma = torch.sigmoid(raw[..., :3]), F.softplus(raw[..., 3])
        step = torch.cat([t[1:] - t[:-1], torch.tensor([0.4])])
        alpha = 1 - torch.exp(-sigma * step)
        through = torch.cumprod(1 - alpha + 1e-3, -1)
        through = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], -1)
        weights = alpha * through
        image = (weights[..., None] * color).sum(1)
        depth = (weights * t).sum(1)
        return image + (1 - weights.sum(1, keepdim=True)), depth

def build():
    return Net()
"""

AUDIO = """
class Net(nn.Module):
    def __init__(self, bins=9, mels=6):
        super().__init__()
        self.mel = nn.Linear(bins, mels, bias=False)
        self.lstm = nn.LSTM(mels, 7, batch_first=True)
        self.score, self.out = nn.Linear(7, 1), nn.Linear(14, 5)

    def forward(self, x, lengths):
        power = x ** 2
        mask = torch.arange(x.shape[1])[None, :] < lengths[:, None]
        m = mask[..., None].float()
        mel = torch.log(torch.clamp(self.mel(power).abs(), min=1e-2))
        count = m.sum(1, keepdim=True)
        mean = (mel * m).sum(1, keepdim=True) / count
        var = ((mel - mean) ** 2 * m).sum(1, keepdim=True) / count
        z = (mel - mean) / torch.sqrt(var + 1e-3) * m
        h, _ = self.lstm(z)
        s = self.score(torch.tanh(h)).squeeze(-1).masked_fill(~mask, -1e9)
        a = s.softmax(1)[..., None]
        mu = (a * h).sum(1)
        sd = ((a * h ** 2).sum(1) - mu ** 2).clamp(min=1e-3).sqrt()
        return self.out(torch.cat([mu, sd], -1))

def build():
    return Net()
"""

DECODER = """
def turn(x, positions, base, scale):
    half = x.shape[-1] // 2
    angle = (positions / scale)[:, None] * base ** (-torch.arange(half) / half)
    c, s = angle.cos(), angle.sin()
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * c - x2 * s, x1 * s + x2 * c], -1).flatten(-2)


class Net(nn.Module):
    def __init__(self, dim=16, heads=4, experts=4):
        super().__init__()
        self.heads, self.window = heads, 3
        self.norm = nn.Parameter(torch.randn(dim) / 4)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.qn, self.kn = nn.Parameter(1 + torch.randn(4) / 4), nn.Parameter(1 + torch.randn(4) / 4)
        self.o = nn.Linear(dim, dim, bias=False)
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])
        self.head = nn.Linear(dim, 12, bias=False)

    def rms(self, x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * (1 + weight)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = self.qkv(self.rms(x, self.norm)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rms(q, self.qn), self.rms(k, self.kn)
        i = torch.arange(length)
        q, k = turn(q, i.float(), 10000.0, 2.0), turn(k, i.float(), 10000.0, 2.0)
        s = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        seen = (i[None, :] <= i[:, None]) & (i[:, None] - i[None, :] < self.window)
        y = s.masked_fill(~seen, -1e9).softmax(-1) @ v
        x = x + self.o(y.transpose(1, 2).reshape(n, length, dim))
        p = self.router(x).sigmoid()
        w, chosen = p.topk(2, -1)
        w = w / (w.sum(-1, keepdim=True) + 1e-6) * 1.5
        each = torch.stack([F.gelu(expert(x)) for expert in self.experts], 2)
        mixed = (each.gather(2, chosen[..., None].expand(-1, -1, -1, dim)) * w[..., None]).sum(2)
        logits = self.head(x + mixed)
        return 3.0 * torch.tanh(logits / 3.0)

def build():
    return Net()
"""

# name -> the text of the model, and its inputs
MODELS = {
    "moe": (HEAD + MOE, [random(2, 5, 12)]),
    "stn": (HEAD + STN, [random(2, 3, 8, 10)]),
    "fcos": (HEAD + FCOS, [random(2, 3, 16, 16)]),
    "rnnt": (HEAD + RNNT, [random(2, 8, 10), torch.tensor([[2, 6, 5, 4], [4, 1, 3, 2]])]),
    "crf": (HEAD + CRF, [random(3, 6, 8), torch.tensor([6, 3, 4])]),
    "gat": (HEAD + GAT, [random(2, 6, 8), random(2, 6, 6).sigmoid()]),
    "fno": (HEAD + FNO, [random(2, 2, 8, 10)]),
    "xl": (HEAD + XL, [random(2, 6, 16)]),
    "nerf": (HEAD + NERF, [random(4, 3), random(4, 3)]),
    "audio": (HEAD + AUDIO, [random(3, 7, 9), torch.tensor([7, 4, 5])]),
    "decoder": (HEAD + DECODER, [random(2, 6, 16)]),
}
