import jittor as jt
from jittor import nn

WIDTH, HEADS, WORDS, PLACES, LAYERS = 48, 4, 64, 32, 2


class Conv1D(nn.Module):
    """A linear layer whose weight has the inputs first."""

    def __init__(self, given, made):
        super().__init__()
        self.weight, self.bias = jt.zeros((given, made)), jt.zeros((made,))

    def execute(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(WIDTH, 3 * WIDTH), Conv1D(WIDTH, WIDTH)

    def execute(self, x, past, allowed):
        n, t, _ = x.shape
        joined = self.c_attn(x).reshape(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = joined[0], joined[1], joined[2]
        if past is not None:
            k, v = jt.concat([past[0], k], 2), jt.concat([past[1], v], 2)
        scores = (q @ k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5
        scores = jt.ternary(allowed.broadcast(scores.shape), scores, jt.full_like(scores, -1e30))
        y = nn.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(n, t, WIDTH)), (k, v)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(WIDTH, 4 * WIDTH), Conv1D(4 * WIDTH, WIDTH)

    def execute(self, x):
        x = self.c_fc(x)
        return self.c_proj(0.5 * x * (1 + jt.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(), MLP()

    def execute(self, x, past, allowed):
        y, kept = self.attn(self.ln_1(x), past, allowed)
        x = x + y
        return x + self.mlp(self.ln_2(x)), kept


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = Trunk()

    def execute(self, input_ids, past_key_values=None, use_cache=False, attention_mask=None, position_ids=None):
        n, t = input_ids.shape
        past = past_key_values[0][0].shape[2] if past_key_values is not None else 0
        places = jt.arange(past, past + t)
        if position_ids is None:
            position_ids = places[None].broadcast((n, t))
        allowed = (jt.arange(past + t)[None] <= places[:, None])[None, None].broadcast((n, 1, t, past + t))
        if attention_mask is not None:
            allowed = allowed & (attention_mask > 0)[:, None, None].broadcast((n, 1, t, past + t))
        x, kept = self.transformer.wte(input_ids) + self.transformer.wpe(position_ids), []
        for index, block in enumerate(self.transformer.h):
            x, pair = block(x, past_key_values[index] if past_key_values is not None else None, allowed)
            kept.append(pair)
        logits = self.transformer.ln_f(x) @ self.transformer.wte.weight.transpose(0, 1)
        return (logits, kept) if use_cache else logits


def build():
    return GPT2()
