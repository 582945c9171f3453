"""Mamba, whose scan multiplies the decays of all pairs of positions at once."""

import torch
from torch import nn
from torch.nn.functional import pad, silu, softplus


class SelectiveSSM(nn.Module):
    def __init__(self, d_model, d_inner, d_state, dt_rank, d_conv):
        super().__init__()
        self.sizes = (dt_rank, d_state, d_state)
        self.to_x = nn.Linear(d_model, d_inner, bias=False)
        self.to_z = nn.Linear(d_model, d_inner, bias=False)
        self.conv = nn.Conv1d(d_inner, d_inner, d_conv, groups=d_inner)
        self.bcdt = nn.Linear(d_inner, dt_rank + 2 * d_state, bias=False)
        self.dt = nn.Linear(dt_rank, d_inner)
        self.log_a = nn.Parameter(torch.zeros(d_inner, d_state))
        self.d = nn.Parameter(torch.ones(d_inner))
        self.out = nn.Linear(d_inner, d_model, bias=False)

    def forward(self, u):
        gate = silu(self.to_z(u))
        x = self.to_x(u).mT
        x = silu(self.conv(pad(x, (self.conv.kernel_size[0] - 1, 0)))).mT
        rank, b, c = torch.split(self.bcdt(x), self.sizes, -1)
        delta = softplus(self.dt(rank))
        steps = delta[..., None] * -self.log_a.exp()
        n = u.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        # log of the decay from position m to l, (batch, l, m, inner, states): the sum of the steps after m. As a difference of
        # running sums it would have a gradient in which large terms cancel.
        later = causal.tril(-1)[None, :, :, None, None]
        gaps = torch.cumsum(torch.where(later, steps[:, :, None], 0.0), dim=1)
        gaps = gaps.masked_fill(~causal[None, :, :, None, None], float("-inf"))
        y = torch.einsum("blmds,bls,bmd,bms->bld", gaps.exp(), c, delta * x, b)
        y = y + self.d * x
        return self.out(y * gate)


class Net(nn.Module):
    def __init__(self, vocab=60, d_model=12, n_layer=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.norms = nn.ModuleList(nn.RMSNorm(d_model, eps=1e-5) for _ in range(n_layer))
        self.mixers = nn.ModuleList(SelectiveSSM(d_model, 20, 5, 3, 4) for _ in range(n_layer))
        self.final = nn.RMSNorm(d_model, eps=1e-5)
        self.head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for norm, mixer in zip(self.norms, self.mixers):
            h = h + mixer(norm(h))
        return self.head(self.final(h))


def build():
    return Net()
