import jittor as jt
from jittor import nn


class PerceiverAttention(nn.Module):
    def __init__(self, dim, dim_head, heads):
        self.heads = heads
        self.dim_head = dim_head
        self.norm_media = nn.LayerNorm(dim)
        self.norm_latents = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, 2 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def split_heads(self, t):
        b, n, _ = t.shape
        return t.reshape(b, n, self.heads, self.dim_head).permute(0, 2, 1, 3)

    def execute(self, media, latents):
        media = self.norm_media(media)
        latents = self.norm_latents(latents)
        b, n, _ = latents.shape
        q = self.split_heads(self.to_q(latents))
        keys = jt.concat([media, latents], dim=1)
        k, v = self.to_kv(keys).chunk(2, dim=-1)
        k, v = self.split_heads(k), self.split_heads(v)
        scores = jt.matmul(q, k.transpose(2, 3)) / self.dim_head**0.5
        out = jt.matmul(nn.softmax(scores, dim=-1), v)
        out = out.permute(0, 2, 1, 3).reshape(b, n, self.heads * self.dim_head)
        return self.to_out(out)


def feed_forward(dim, mult=4):
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, dim * mult, bias=False), nn.GELU(), nn.Linear(dim * mult, dim, bias=False)
    )


class Resampler(nn.Module):
    def __init__(self, dim=16, depth=2, dim_head=6, heads=3, num_latents=5, frames=2):
        self.latents = jt.randn(num_latents, dim)
        self.frame_embs = jt.randn(frames, dim)
        self.layers = nn.ModuleList(
            [nn.ModuleList([PerceiverAttention(dim, dim_head, heads), feed_forward(dim)]) for _ in range(depth)]
        )
        self.norm = nn.LayerNorm(dim)

    def execute(self, features):
        b, t, n, d = features.shape
        frame = self.frame_embs[:t].reshape(1, t, 1, d)
        x = (features + frame).reshape(b, t * n, d)
        latents = self.latents.unsqueeze(0).expand(b, -1, -1)
        for attention, ff in self.layers:
            latents = latents + attention(x, latents)
            latents = latents + ff(latents)
        return self.norm(latents)


def build():
    return Resampler()
