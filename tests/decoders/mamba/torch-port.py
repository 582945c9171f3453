import torch
from torch import nn
from torch.nn import functional as F

WIDTH, INNER, STATES, RANK, KERNEL, WORDS, LAYERS = 48, 96, 8, 3, 4, 64, 2


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.A_log, self.D = nn.Parameter(torch.zeros(INNER, STATES)), nn.Parameter(torch.zeros(INNER))
        self.conv1d = nn.Conv1d(INNER, INNER, KERNEL, groups=INNER)
        self.in_proj, self.out_proj = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)
        self.x_proj, self.dt_proj = nn.Linear(INNER, RANK + 2 * STATES, bias=False), nn.Linear(RANK, INNER)

    def forward(self, x, past, mask):
        """past: the last inputs of the convolution, (sequences, features, 3), and the state, (sequences, features, 8)."""
        n, t, _ = x.shape
        new, gate = (self.in_proj(x) * mask).transpose(1, 2).chunk(2, 1)
        inputs = torch.cat([past[0] if past is not None else new.new_zeros(n, INNER, KERNEL - 1), new], 2)
        u = F.silu(self.conv1d(inputs)) * mask.transpose(1, 2)
        dt, b, c = self.x_proj(u.transpose(1, 2)).split([RANK, STATES, STATES], -1)
        dt, a = F.softplus(self.dt_proj(dt)).transpose(1, 2), -self.A_log.exp()
        state = past[1] if past is not None else u.new_zeros(n, INNER, STATES)
        returned = []
        for i in range(t):
            state = state * (a * dt[:, :, i, None]).exp() + (dt[:, :, i] * u[:, :, i])[..., None] * b[:, i, None]
            returned.append((state * c[:, i, None]).sum(-1))
        y = (torch.stack(returned, 2) + u * self.D[:, None]) * F.silu(gate)
        return self.out_proj(y.transpose(1, 2)), (inputs[:, :, -(KERNEL - 1) :], state)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixer = nn.RMSNorm(WIDTH, eps=1e-5), Mixer()

    def forward(self, x, past, mask):
        y, kept = self.mixer(self.norm(x), past, mask)
        return x + y, kept


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm_f = nn.RMSNorm(WIDTH, eps=1e-5)


class Mamba(nn.Module):
    _is_stateful = True

    def __init__(self):
        super().__init__()
        self.backbone = Trunk()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.backbone.embeddings.weight

    def forward(self, tokens, cache=None, use_cache=False, mask=None):
        x, kept = self.backbone.embeddings(tokens), []
        mask = x.new_ones(*tokens.shape, 1) if mask is None else mask[..., None].to(x.dtype)
        for index, layer in enumerate(self.backbone.layers):
            x, pair = layer(x, cache[index] if cache is not None else None, mask)
            kept.append(pair)
        logits = self.lm_head(self.backbone.norm_f(x))
        return (logits, tuple(kept)) if use_cache else logits


def build():
    return Mamba()
