import jax
import numpy as np
import optax
from jax import numpy as jnp

LAMBDA = 10.0
SIZES = {"generator.0": (16, 4), "generator.2": (6, 16), "critic.0": (16, 6), "critic.2": (16, 16), "critic.4": (1, 16)}


def linear(w, name, x):
    return jnp.dot(x, w[f"{name}.weight"].T) + w[f"{name}.bias"]


def generate(w, z):
    return linear(w, "generator.2", jax.nn.relu(linear(w, "generator.0", z)))


def criticise(w, x):
    x = jax.nn.leaky_relu(linear(w, "critic.0", x), 0.2)
    x = jnp.tanh(linear(w, "critic.2", x))
    return linear(w, "critic.4", x)[..., 0]


class WGAN:
    def __init__(self):
        self.weights = {f"{name}.weight": np.zeros(size, np.float32) for name, size in SIZES.items()}
        self.weights |= {f"{name}.bias": np.zeros(size[0], np.float32) for name, size in SIZES.items()}

    def apply(self, w, z):
        return generate(w, z)


build = WGAN
CRITIC = optax.adam(1e-3, b1=0.0, b2=0.9)
GENERATOR = optax.adam(5e-4, b1=0.0, b2=0.9)


def part(w, name):
    return {key: array for key, array in w.items() if key.startswith(name)}


def train_state(model):
    return {
        "critic": CRITIC.init(part(model.weights, "critic")),
        "generator": GENERATOR.init(part(model.weights, "generator")),
    }


def train_step(model, state, batch):
    critic, generator = part(model.weights, "critic"), part(model.weights, "generator")
    real, mix = batch["real"], batch["mix"]
    fake = generate(generator, batch["z"])

    def critic_loss(w):
        points = mix * real + (1 - mix) * fake
        slopes = jax.vmap(jax.grad(criticise, argnums=1), in_axes=(None, 0))(w, points)
        norms = jnp.sqrt(jnp.sum(slopes**2, axis=1))
        penalty = jnp.mean((norms - 1.0) ** 2)
        loss = criticise(w, fake).mean() - criticise(w, real).mean() + LAMBDA * penalty
        return loss, penalty

    (d_loss, penalty), gradients = jax.value_and_grad(critic_loss, has_aux=True)(critic)
    changes, state["critic"] = CRITIC.update(gradients, state["critic"])
    critic = optax.apply_updates(critic, changes)

    def generator_loss(w):
        return -criticise(critic, generate(w, batch["z"])).mean()

    g_loss, gradients = jax.value_and_grad(generator_loss)(generator)
    changes, state["generator"] = GENERATOR.update(gradients, state["generator"])
    generator = optax.apply_updates(generator, changes)
    model.weights = {**generator, **critic}
    return {"critic": d_loss, "generator": g_loss, "penalty": penalty}
