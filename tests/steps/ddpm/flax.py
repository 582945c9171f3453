import jax
import numpy as np
import optax
from flax import nnx
from jax import numpy as jnp

DECAY = 0.9
BETAS = np.linspace(1e-4, 0.02, 100)
ALPHA_BAR = jnp.asarray(np.cumprod(1.0 - BETAS), jnp.float32)


class Denoiser(nnx.Module):
    def __init__(self, width=24):
        rngs = nnx.Rngs(0)
        self.time = nnx.Sequential(nnx.Linear(8, width, rngs=rngs), nnx.silu, nnx.Linear(width, width, rngs=rngs))
        self.inner = nnx.Linear(8, width, rngs=rngs)
        self.outer = nnx.Linear(width, 8, rngs=rngs)

    def __call__(self, x, t):
        rates = jnp.exp(-jnp.log(10000.0) * jnp.arange(4) / 4)
        angles = t[:, None].astype(jnp.float32) * rates
        time = self.time(jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1))
        return self.outer(nnx.silu(self.inner(x) + time))


build = Denoiser


class State(nnx.Module):
    def __init__(self, model):
        self.optimizer = nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)
        self.ema = nnx.clone(model)


def train_state(model):
    return State(model)


def train_step(model, state, batch):
    x0, t, noise = batch["x"], batch["t"], batch["noise"]
    alpha_bar = ALPHA_BAR[t][:, None]
    noisy = jnp.sqrt(alpha_bar) * x0 + jnp.sqrt(1 - alpha_bar) * noise

    def loss_of(model):
        return jnp.mean((model(noisy, t) - noise) ** 2)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    state.optimizer.update(model, gradients)
    average = jax.tree.map(lambda e, p: DECAY * e + (1 - DECAY) * p, nnx.state(state.ema), nnx.state(model))
    nnx.update(state.ema, average)
    return {"mse": loss}
