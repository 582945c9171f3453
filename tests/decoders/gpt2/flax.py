import jax.numpy as jnp
from flax import nnx

WIDTH, HEADS, WORDS, PLACES, LAYERS = 48, 4, 64, 32, 2


class Conv1D(nnx.Module):
    """A linear layer whose weight has the inputs first, in the reference, too."""

    def __init__(self, given, made):
        self.weight, self.bias = nnx.Param(jnp.zeros((given, made))), nnx.Param(jnp.zeros(made))

    def __call__(self, x):
        return x @ self.weight[...] + self.bias[...]


class Attention(nnx.Module):
    def __init__(self):
        self.c_attn, self.c_proj = Conv1D(WIDTH, 3 * WIDTH), Conv1D(WIDTH, WIDTH)

    def __call__(self, x, past, allowed):
        n, t, _ = x.shape
        q, k, v = (each.reshape(n, t, HEADS, -1).transpose(0, 2, 1, 3) for each in jnp.split(self.c_attn(x), 3, -1))
        if past is not None:
            k, v = jnp.concatenate([past[0], k], 2), jnp.concatenate([past[1], v], 2)
        scores = jnp.where(allowed, q @ k.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5, -1e30)
        y = nnx.softmax(scores, -1) @ v
        return self.c_proj(y.transpose(0, 2, 1, 3).reshape(n, t, WIDTH)), jnp.stack([k, v])


class MLP(nnx.Module):
    def __init__(self):
        self.c_fc, self.c_proj = Conv1D(WIDTH, 4 * WIDTH), Conv1D(4 * WIDTH, WIDTH)

    def __call__(self, x):
        return self.c_proj(nnx.gelu(self.c_fc(x), approximate=True))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.ln_1, self.ln_2 = (nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs) for _ in range(2))
        self.attn, self.mlp = Attention(), MLP()

    def __call__(self, x, past, allowed):
        y, kept = self.attn(self.ln_1(x), past, allowed)
        x = x + y
        return x + self.mlp(self.ln_2(x)), kept


class Trunk(nnx.Module):
    def __init__(self, rngs):
        self.wte, self.wpe = nnx.Embed(WORDS, WIDTH, rngs=rngs), nnx.Embed(PLACES, WIDTH, rngs=rngs)
        self.h = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.ln_f = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)


class Cache:
    """layers: for each layer (2, sequences, heads, tokens, size), the keys and the values. It is never changed in place."""

    def __init__(self, layers):
        self.layers = layers

    def crop(self, change):
        return Cache([each[:, :, :, :change] for each in self.layers])

    def reorder_cache(self, order):
        return Cache([each[:, order] for each in self.layers])


class GPT2(nnx.Module):
    def __init__(self, rngs):
        self.transformer = Trunk(rngs)

    def __call__(self, input_ids, past_key_values=None, use_cache=False, attention_mask=None, position_ids=None):
        n, t = input_ids.shape
        past = past_key_values.layers[0].shape[3] if past_key_values is not None else 0
        if position_ids is None:
            position_ids = jnp.broadcast_to(jnp.arange(past, past + t), (n, t))
        allowed = jnp.tri(t, past + t, past, dtype=bool)
        if attention_mask is not None:
            allowed = allowed & (attention_mask[:, None, None] > 0)
        x, kept = self.transformer.wte(input_ids) + self.transformer.wpe(position_ids), []
        for index, block in enumerate(self.transformer.h):
            x, pair = block(x, past_key_values.layers[index] if past_key_values is not None else None, allowed)
            kept.append(pair)
        logits = self.transformer.wte.attend(self.transformer.ln_f(x))
        return {"logits": logits, "past_key_values": Cache(kept)} if use_cache else logits


def build():
    return GPT2(nnx.Rngs(0))
