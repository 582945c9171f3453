import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, WORDS, PLACES, LAYERS = 48, 4, 64, 32, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.v_proj, self.out_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x):
        return x.view(len(x), -1, HEADS, WIDTH // HEADS).transpose(1, 2)

    def pair(self, x):
        """The keys and values of these states."""
        return self.heads(self.k_proj(x)), self.heads(self.v_proj(x))

    def forward(self, x, k, v, allowed=None):
        y = F.scaled_dot_product_attention(self.heads(self.q_proj(x)), k, v, attn_mask=allowed)
        return self.out_proj(y.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.encoder_attn = Attention(), Attention()
        self.self_attn_layer_norm, self.encoder_attn_layer_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.fc1, self.fc2, self.final_layer_norm = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, states, past, allowed):
        h = self.self_attn_layer_norm(x)
        k, v = self.self_attn.pair(h)
        if past is not None:
            k, v = torch.cat([past["k"], k], 2), torch.cat([past["v"], v], 2)
        x = x + self.self_attn(h, k, v, allowed)
        cross = past["cross"] if past is not None else self.encoder_attn.pair(states)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), *cross)
        x = x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return x, {"k": k, "v": v, "cross": cross}


class Cache:
    """layers: for each layer the keys and values of the tokens, and those of the states of the encoder."""

    def __init__(self, layers):
        self.layers = layers

    def crop(self, change):
        self.layers = [{**each, "k": each["k"][:, :, :change], "v": each["v"][:, :, :change]} for each in self.layers]

    def reorder_cache(self, order):
        self.layers = [
            {"k": each["k"][order], "v": each["v"][order], "cross": tuple(part[order] for part in each["cross"])}
            for each in self.layers
        ]


class Positions(nn.Embedding):
    def forward(self, tokens, positions):
        return super().forward(positions)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens, self.embed_positions = nn.Embedding(WORDS, WIDTH), Positions(PLACES, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.layer_norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, states, cache=None, use_cache=False, mask=None, positions=None):
        n, t = tokens.shape
        past = cache.layers[0]["k"].shape[2] if cache is not None else 0
        if positions is None:
            positions = torch.arange(past, past + t, device=tokens.device).expand(n, t)
        allowed = torch.ones(t, past + t, dtype=torch.bool, device=tokens.device).tril(past)
        if mask is not None:
            allowed = allowed & mask.bool()[:, None, None]
            allowed = allowed | torch.eye(past + t, dtype=torch.bool, device=tokens.device)[past:]
        x, kept = self.embed_tokens(tokens) + self.embed_positions(tokens, positions), []
        for index, layer in enumerate(self.layers):
            x, pair = layer(x, states, cache.layers[index] if cache is not None else None, allowed)
            kept.append(pair)
        logits = self.layer_norm(x) @ self.embed_tokens.weight.T
        return (logits, Cache(kept)) if use_cache else logits


def build():
    return Decoder()
