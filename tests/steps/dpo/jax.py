import jax
import numpy as np
import optax
from jax import numpy as jnp

BETA, LABEL_SMOOTHING, PROMPT = 0.1, 0.1, 3


class Policy:
    def __init__(self):
        shapes = {
            "embed.weight": (16, 12),
            "mix.weight": (24, 24),
            "mix.bias": (24,),
            "head.weight": (16, 24),
            "head.bias": (16,),
        }
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def apply(self, w, tokens):
        x = w["embed.weight"][tokens]
        mean = jnp.cumsum(x, axis=1) / jnp.arange(1, x.shape[1] + 1)[None, :, None]
        hidden = jnp.tanh(jnp.concatenate([x, mean], -1) @ w["mix.weight"].T + w["mix.bias"])
        return hidden @ w["head.weight"].T + w["head.bias"]


build = Policy
OPTIMIZER = optax.adamw(5e-3, weight_decay=0.01)


def train_state(model):
    return {
        "optimizer": OPTIMIZER.init(model.weights),
        "reference": {name: jnp.array(array) for name, array in model.weights.items()},
    }


def train_step(model, state, batch):
    def logp(w, tokens):
        logits = model.apply(w, tokens[:, :-1])
        each = -optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return each[:, PROMPT - 1 :].sum(1)

    def loss_of(w):
        frozen = state["reference"]
        chosen = logp(w, batch["chosen"]) - logp(frozen, batch["chosen"])
        rejected = logp(w, batch["rejected"]) - logp(frozen, batch["rejected"])
        margin = BETA * (chosen - rejected)
        right, wrong = jax.nn.log_sigmoid(margin), jax.nn.log_sigmoid(-margin)
        loss = -(right * (1 - LABEL_SMOOTHING) + wrong * LABEL_SMOOTHING).mean()
        return loss, margin.mean()

    (loss, margin), gradients = jax.value_and_grad(loss_of, has_aux=True)(model.weights)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"loss": loss, "margin": margin}
