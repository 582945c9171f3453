import jax
import numpy as np
import optax
from jax import numpy as jnp

ALPHA, INNER = 0.05, 2


class Regressor:
    def __init__(self):
        self.weights = {}
        for layer, (rows, columns) in {"net.0": (12, 1), "net.2": (12, 12), "net.4": (1, 12)}.items():
            self.weights[layer + ".weight"] = np.zeros((rows, columns), np.float32)
            self.weights[layer + ".bias"] = np.zeros(rows, np.float32)

    def apply(self, w, x):
        x = jnp.tanh(x @ w["net.0.weight"].T + w["net.0.bias"])
        x = jnp.tanh(x @ w["net.2.weight"].T + w["net.2.bias"])
        return x @ w["net.4.weight"].T + w["net.4.bias"]


build = Regressor
META = optax.adam(1e-3)


def train_state(model):
    return {"meta": META.init(model.weights)}


def train_step(model, state, batch):
    def fit(w, x, y):
        return jnp.mean((model.apply(w, x) - y) ** 2)

    def task_loss(w, x, y, query_x, query_y):
        fast = w
        for _ in range(INNER):
            slopes = jax.grad(fit)(fast, x, y)
            fast = jax.tree.map(lambda p, g: p - ALPHA * g, fast, slopes)
        return fit(fast, query_x, query_y)

    def meta_loss(w):
        losses = jax.vmap(task_loss, in_axes=(None, 0, 0, 0, 0))(
            w, batch["support_x"], batch["support_y"], batch["query_x"], batch["query_y"]
        )
        return losses.mean()

    loss, gradients = jax.value_and_grad(meta_loss)(model.weights)
    changes, state["meta"] = META.update(gradients, state["meta"])
    model.weights = optax.apply_updates(model.weights, changes)
    return {"query": loss}
