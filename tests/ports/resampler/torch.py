import torch
from torch import nn


class PerceiverAttention(nn.Module):
    def __init__(self, dim, dim_head, heads):
        super().__init__()
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm_media = nn.LayerNorm(dim)
        self.norm_latents = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, 2 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x, latents):
        x = self.norm_media(x)
        latents = self.norm_latents(latents)
        q = self.to_q(latents)
        k, v = self.to_kv(torch.cat((x, latents), dim=1)).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        sim = (q * self.scale) @ k.transpose(-1, -2)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        out = sim.softmax(dim=-1) @ v
        return self.to_out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    def __init__(self, dim, mult=4):
        inner = dim * mult
        super().__init__(
            nn.LayerNorm(dim), nn.Linear(dim, inner, bias=False), nn.GELU(), nn.Linear(inner, dim, bias=False)
        )


class Resampler(nn.Module):
    def __init__(self, dim=16, depth=2, dim_head=6, heads=3, num_latents=5, frames=2):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(num_latents, dim))
        self.frame_embs = nn.Parameter(torch.randn(frames, dim))
        self.layers = nn.ModuleList(
            nn.ModuleList([PerceiverAttention(dim, dim_head, heads), FeedForward(dim)]) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, features):
        x = features + self.frame_embs[: features.shape[1], None]
        x = x.flatten(1, 2)
        latents = self.latents.expand(x.shape[0], -1, -1)
        for attention, feed_forward in self.layers:
            latents = attention(x, latents) + latents
            latents = feed_forward(latents) + latents
        return self.norm(latents)


def build():
    return Resampler()
