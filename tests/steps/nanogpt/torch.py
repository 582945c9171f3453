import math

import torch
from torch import nn
from torch.nn import functional as F

LEARNING_RATE, MIN_LR = 6e-4, 6e-5
WARMUP, DECAY = 2, 10
MICRO = 2


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary=32, context=12, width=16, heads=2, depth=1):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # the output layer is the embedding


build = GPT


def train_state(model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return {"optimizer": torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.95)), "step": 0}


def get_lr(step):
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / (WARMUP + 1)
    if step > DECAY:
        return MIN_LR
    ratio = (step - WARMUP) / (DECAY - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * ratio)) * (LEARNING_RATE - MIN_LR)


def train_step(model, state, batch):
    optimizer = state["optimizer"]
    for group in optimizer.param_groups:
        group["lr"] = get_lr(state["step"])
    total = 0.0
    for tokens, following in zip(batch["tokens"].chunk(MICRO), batch["next"].chunk(MICRO)):
        logits = model(tokens)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), following.reshape(-1)) / MICRO
        loss.backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    state["step"] += 1
    return {"loss": total}
