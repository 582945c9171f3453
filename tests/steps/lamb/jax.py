import jax
import numpy as np
import optax


class Classifier:
    def __init__(self):
        shapes = {
            "fc1.weight": (24, 10),
            "fc1.bias": (24,),
            "norm.weight": (24,),
            "norm.bias": (24,),
            "fc2.weight": (5, 24),
            "fc2.bias": (5,),
        }
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def apply(self, w, x):
        x = x @ w["fc1.weight"].T + w["fc1.bias"]
        x = jax.nn.standardize(x, axis=-1, epsilon=1e-5) * w["norm.weight"] + w["norm.bias"]
        return jax.nn.relu(x) @ w["fc2.weight"].T + w["fc2.bias"]


build = Classifier
LAMB = optax.chain(
    optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-6),
    optax.add_decayed_weights(0.1),
    optax.scale_by_trust_ratio(),
    optax.scale_by_learning_rate(0.01),
)


def train_state(model):
    return {"lamb": LAMB.init(model.weights)}


def train_step(model, state, batch):
    def loss_of(w):
        logits = model.apply(w, batch["x"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()

    loss, gradients = jax.value_and_grad(loss_of)(model.weights)
    changes, state["lamb"] = LAMB.update(gradients, state["lamb"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"loss": loss}
