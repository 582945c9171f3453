import jax
import optax
from flax import nnx
from jax import numpy as jnp

TAU = 0.95


class Online(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        norm = nnx.BatchNorm(24, momentum=0.9, epsilon=1e-5, rngs=rngs)
        self.encoder = nnx.Sequential(nnx.Linear(10, 24, rngs=rngs), norm, nnx.relu, nnx.Linear(24, 8, rngs=rngs))
        self.predictor = nnx.Sequential(nnx.Linear(8, 16, rngs=rngs), nnx.tanh, nnx.Linear(16, 8, rngs=rngs))

    def __call__(self, view1):
        return self.predictor(self.encoder(view1))


build = Online


class Trainer(nnx.Module):
    def __init__(self, model):
        self.optimizer = nnx.Optimizer(model, optax.sgd(0.2, momentum=0.9), wrt=nnx.Param)
        self.target = nnx.clone(model.encoder)


train_state = Trainer


def unit(x):
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def distance(p, z):
    return 2.0 - 2.0 * jnp.sum(unit(p) * unit(z), axis=-1)


def train_step(model, state, batch):
    v1, v2 = batch["view1"], batch["view2"]
    z1, z2 = state.target(v1), state.target(v2)

    def loss_of(model):
        return jnp.mean(distance(model(v1), z2) + distance(model(v2), z1))

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    state.optimizer.update(model, gradients)
    old, new = nnx.state(state.target, nnx.Param), nnx.state(model.encoder, nnx.Param)
    nnx.update(state.target, jax.tree.map(lambda t, o: TAU * t + (1 - TAU) * o, old, new))
    return {"byol": loss}
