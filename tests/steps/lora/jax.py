import jax
import numpy as np
import optax
from jax import numpy as jnp

RANK, ALPHA = 3, 12


class Net:
    def __init__(self):
        self.weights = {}
        for name, (rows, columns) in {"fc1": (20, 12), "fc2": (4, 20)}.items():
            self.weights[f"{name}.base.weight"] = np.zeros((rows, columns), np.float32)
            self.weights[f"{name}.base.bias"] = np.zeros(rows, np.float32)
            self.weights[f"{name}.lora_A"] = np.zeros((RANK, columns), np.float32)
            self.weights[f"{name}.lora_B"] = np.zeros((rows, RANK), np.float32)

    def layer(self, w, name, x):
        base = x @ w[f"{name}.base.weight"].T + w[f"{name}.base.bias"]
        return base + (ALPHA / RANK) * (x @ w[f"{name}.lora_A"].T) @ w[f"{name}.lora_B"].T

    def apply(self, w, x):
        return self.layer(w, "fc2", jnp.tanh(self.layer(w, "fc1", x)))


build = Net
OPTIMIZER = optax.adamw(2e-3, weight_decay=0.05)


def is_trained(name):
    return "lora_" in name


def adapters(w):
    return {name: array for name, array in w.items() if is_trained(name)}


def train_state(model):
    return {"optimizer": OPTIMIZER.init(adapters(model.weights))}


def train_step(model, state, batch):
    frozen = {name: array for name, array in model.weights.items() if not is_trained(name)}

    def loss_of(trained):
        return jnp.mean(jnp.square(model.apply({**frozen, **trained}, batch["x"]) - batch["y"]))

    trained = adapters(model.weights)
    loss, gradients = jax.value_and_grad(loss_of)(trained)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], trained)
    model.weights = {**frozen, **optax.apply_updates(trained, changes)}
    return {"loss": loss}
