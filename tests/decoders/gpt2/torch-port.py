import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, WORDS, PLACES, LAYERS = 48, 4, 64, 32, 2


class Conv1D(nn.Module):
    """A linear layer whose weight has the inputs first."""

    def __init__(self, given, made):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(given, made)), nn.Parameter(torch.zeros(made))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(WIDTH, 3 * WIDTH), Conv1D(WIDTH, WIDTH)

    def forward(self, x, past, allowed):
        n, t, _ = x.shape
        q, k, v = (each.view(n, t, HEADS, -1).transpose(1, 2) for each in self.c_attn(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.c_proj(y.transpose(1, 2).reshape(n, t, WIDTH)), torch.stack([k, v])


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(WIDTH, 4 * WIDTH), Conv1D(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(), MLP()

    def forward(self, x, past, allowed):
        y, kept = self.attn(self.ln_1(x), past, allowed)
        x = x + y
        return x + self.mlp(self.ln_2(x)), kept


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)


class Cache:
    """layers: for each layer (2, sequences, heads, tokens, size), the keys and the values."""

    def __init__(self, layers):
        self.layers = layers

    def crop(self, change):
        self.layers = [each[:, :, :, :change] for each in self.layers]

    def reorder_cache(self, order):
        self.layers = [each[:, order] for each in self.layers]


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = Trunk()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids, past_key_values=None, use_cache=False, attention_mask=None, position_ids=None):
        n, t = input_ids.shape
        past = past_key_values.layers[0].shape[3] if past_key_values is not None else 0
        if position_ids is None:
            position_ids = torch.arange(past, past + t, device=input_ids.device).expand(n, t)
        allowed = torch.ones(t, past + t, dtype=torch.bool, device=input_ids.device).tril(past)
        if attention_mask is not None:
            allowed = allowed & attention_mask.bool()[:, None, None]
            allowed = allowed | torch.eye(past + t, dtype=torch.bool, device=input_ids.device)[past:]
        x, kept = self.transformer.wte(input_ids) + self.transformer.wpe(position_ids), []
        for index, block in enumerate(self.transformer.h):
            x, pair = block(x, past_key_values.layers[index] if past_key_values is not None else None, allowed)
            kept.append(pair)
        logits = self.lm_head(self.transformer.ln_f(x))
        return {"logits": logits, "past_key_values": Cache(kept)} if use_cache else logits


def build():
    return GPT2()
