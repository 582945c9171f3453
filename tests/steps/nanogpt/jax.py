import jax
import numpy as np
import optax
from jax import numpy as jnp

VOCABULARY, CONTEXT, WIDTH, HEADS, DEPTH = 32, 12, 16, 2, 1
PEAK, FLOOR, WARMUP, DECAY = 6e-4, 6e-5, 2, 10


def shapes():
    yield "wte.weight", (VOCABULARY, WIDTH)
    yield "wpe.weight", (CONTEXT, WIDTH)
    for i in range(DEPTH):
        for name, rows, columns in (
            ("attn.c_attn", 3 * WIDTH, WIDTH),
            ("attn.c_proj", WIDTH, WIDTH),
            ("c_fc", 4 * WIDTH, WIDTH),
            ("c_proj", WIDTH, 4 * WIDTH),
        ):
            yield f"h.{i}.{name}.weight", (rows, columns)
            yield f"h.{i}.{name}.bias", (rows,)
        for name in ("ln_1", "ln_2"):
            yield f"h.{i}.{name}.weight", (WIDTH,)
            yield f"h.{i}.{name}.bias", (WIDTH,)
    yield "ln_f.weight", (WIDTH,)
    yield "ln_f.bias", (WIDTH,)


def dense(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def layer_norm(w, name, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def attend(w, name, x):
    q, k, v = (part.reshape(*x.shape[:2], HEADS, -1) for part in jnp.split(dense(w, name + ".c_attn", x), 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH // HEADS)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
    return dense(w, name + ".c_proj", jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))


class GPT:
    def __init__(self):
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes()}

    def apply(self, w, tokens):
        x = w["wte.weight"][tokens] + w["wpe.weight"]
        for i in range(DEPTH):
            x = x + attend(w, f"h.{i}.attn", layer_norm(w, f"h.{i}.ln_1", x))
            hidden = jax.nn.gelu(dense(w, f"h.{i}.c_fc", layer_norm(w, f"h.{i}.ln_2", x)), approximate=False)
            x = x + dense(w, f"h.{i}.c_proj", hidden)
        return layer_norm(w, "ln_f", x) @ w["wte.weight"].T


build = GPT


def schedule(count):
    warm = PEAK * (count + 1) / (WARMUP + 1)
    ratio = (count - WARMUP) / (DECAY - WARMUP)
    cosine = FLOOR + 0.5 * (1 + jnp.cos(jnp.pi * ratio)) * (PEAK - FLOOR)
    return jnp.where(count < WARMUP, warm, jnp.where(count > DECAY, FLOOR, cosine))


def matrices(w):
    return {name: array.ndim >= 2 for name, array in w.items()}


OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=0.1, mask=matrices),
)


def train_state(model):
    return {"optimizer": OPTIMIZER.init(model.weights)}


def train_step(model, state, batch):
    def loss_of(w, tokens, following):
        logits = model.apply(w, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, following).mean()

    half = len(batch["tokens"]) // 2
    first, g1 = jax.value_and_grad(loss_of)(model.weights, batch["tokens"][:half], batch["next"][:half])
    second, g2 = jax.value_and_grad(loss_of)(model.weights, batch["tokens"][half:], batch["next"][half:])
    gradients = jax.tree.map(lambda a, b: (a + b) / 2, g1, g2)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"loss": (first + second) / 2}
