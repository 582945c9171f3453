import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

TIMESTEPS, EMA_DECAY = 100, 0.9


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
        self.inner = nn.Linear(8, width)
        self.outer = nn.Linear(width, 8)

    def forward(self, x, t):
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(4, dtype=x.dtype, device=x.device) / 4)
        angles = t[:, None] * frequencies[None]
        embedded = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1))
        return self.outer(F.silu(self.inner(x) + embedded))


build = Denoiser


def train_state(model):
    ema = copy.deepcopy(model)
    ema.requires_grad_(False)
    return {"optimizer": torch.optim.Adam(model.parameters(), lr=2e-3), "ema": ema}


@torch.no_grad()
def update_ema(ema, model):
    for target, source in zip(ema.parameters(), model.parameters()):
        target.mul_(EMA_DECAY).add_(source, alpha=1 - EMA_DECAY)


def train_step(model, state, batch):
    x0, t, noise = batch["x"], batch["t"], batch["noise"]
    betas = torch.linspace(1e-4, 0.02, TIMESTEPS, dtype=x0.dtype, device=x0.device)
    alphas_cumprod = torch.cumprod(1 - betas, dim=0)[t][:, None]
    noisy = alphas_cumprod.sqrt() * x0 + (1 - alphas_cumprod).sqrt() * noise
    loss = F.mse_loss(model(noisy, t), noise)
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    update_ema(state["ema"], model)
    return {"mse": loss}
