import jax
import numpy as np
import optax
from jax import numpy as jnp

RATE, MOMENTUM, DECAY = 0.02, 0.95, 0.01
MATRICES = ("up.weight", "down.weight")


class Net:
    def __init__(self):
        shapes = {
            "embed.weight": (16, 12),
            "embed.bias": (16,),
            "up.weight": (32, 16),
            "down.weight": (16, 32),
            "head.weight": (6, 16),
            "head.bias": (6,),
        }
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def apply(self, w, x):
        x = x @ w["embed.weight"].T + w["embed.bias"]
        x = x + jax.nn.gelu(x @ w["up.weight"].T, approximate=False) @ w["down.weight"].T
        return x @ w["head.weight"].T + w["head.bias"]


build = Net
ADAMW = optax.adamw(3e-3, b1=0.9, b2=0.95, weight_decay=0.01)


def orthogonal(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[0] > g.shape[1]
    x = g.T if tall else g
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def others(w):
    return {name: array for name, array in w.items() if name not in MATRICES}


def train_state(model):
    return {
        "momentum": {name: jnp.zeros_like(model.weights[name]) for name in MATRICES},
        "adamw": ADAMW.init(others(model.weights)),
    }


def train_step(model, state, batch):
    def loss_of(w):
        logits = model.apply(w, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(model.weights)
    changes, state["adamw"] = ADAMW.update(others(gradients), state["adamw"], others(model.weights))
    after = optax.apply_updates(others(model.weights), changes)
    momentum = {}
    for name in MATRICES:
        weight, gradient = model.weights[name], gradients[name]
        momentum[name] = MOMENTUM * state["momentum"][name] + (1 - MOMENTUM) * gradient
        update = orthogonal((1 - MOMENTUM) * gradient + MOMENTUM * momentum[name])
        scale = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
        after[name] = weight * (1 - RATE * DECAY) - RATE * scale * update
    state["momentum"] = momentum
    model.weights = after
    return {"loss": loss}
