"""Training steps of one's own that make no update in some calls, or change what they do in a later one; in several frameworks."""

from helpers.stepmistakes import NET

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 12))}, outputs={"logits": TensorSpec(("N", 5))}, batch=16)
"""
TORCH = (
    """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
"""
    + NET
)
KERAS = """
import keras
import tensorflow as tf
from keras.layers import Dense

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = Dense(24, activation="tanh", name="a"), Dense(5, name="b")
        self.a.build((None, 12))
        self.b.build((None, 24))
        self.built = True
    def call(self, x):
        return self.b(self.a(x))
build = Net
"""
JAX = """
import jax
import jax.numpy as jnp
import optax

class Net:
    def __init__(self):
        self.weights = {
            "a.weight": jnp.zeros((24, 12)), "a.bias": jnp.zeros(24), "b.weight": jnp.zeros((5, 24)), "b.bias": jnp.zeros(5),
        }
    def __call__(self, weights, x):
        hidden = jnp.tanh(x @ weights["a.weight"].T + weights["a.bias"])
        return hidden @ weights["b.weight"].T + weights["b.bias"]
build = Net
"""
# An update in every fourth call, of the mean of the gradients since the one before.
ACCUMULATED = {
    "spec": SPEC,
    "torch": TORCH
    + """
class State:
    def __init__(self, model):
        self.sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.calls = 0

def train_state(model):
    return State(model)

def train_step(model, state, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    (loss / 4).backward()
    state.calls += 1
    if state.calls % 4 == 0:
        state.sgd.step()
        state.sgd.zero_grad()
    return {"loss": loss}
""",
    "tensorflow": KERAS
    + """
def train_state(model):
    return keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=4)

def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        logits = model(batch["x"])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return {"loss": loss}
""",
    "jax": JAX
    + """
OPTIMIZER = optax.MultiSteps(optax.sgd(0.1, momentum=0.9), 4)

def train_state(model):
    return {"optimizer": OPTIMIZER.init(model.weights)}

def loss_of(weights, model, batch):
    return optax.softmax_cross_entropy_with_integer_labels(model(weights, batch["x"]), batch["target"]).mean()

def train_step(model, state, batch):
    loss, gradients = jax.value_and_grad(loss_of)(model.weights, model, batch)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"loss": loss}
""",
}
# The rate falls, and gradients are clipped, from the fifth call on; the first layer is frozen from the sixth on.
LATER = {
    "spec": SPEC,
    "torch": TORCH
    + """
def train_state(model):
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    return {"adam": adam, "schedule": torch.optim.lr_scheduler.StepLR(adam, 4, 0.1), "calls": 0}

def train_step(model, state, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    state["adam"].zero_grad()
    loss.backward()
    state["calls"] += 1
    if state["calls"] > 4:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    if state["calls"] > 5:
        model.a.weight.grad = None
    state["adam"].step()
    state["schedule"].step()
    return {"loss": loss}
""",
    "tensorflow": KERAS
    + """
class Adam(keras.optimizers.Adam):  # with torch's place of eps
    def update_step(self, gradient, variable, learning_rate):
        step = keras.ops.cast(self.iterations + 1, "float32")
        m, v = self._momentums[self._get_variable_index(variable)], self._velocities[self._get_variable_index(variable)]
        self.assign(m, 0.9 * m + 0.1 * gradient)
        self.assign(v, 0.999 * v + 0.001 * gradient**2)
        corrected = keras.ops.sqrt(v / (1 - 0.999**step)) + 1e-8
        self.assign_sub(variable, learning_rate * m / (1 - 0.9**step) / corrected)

def train_state(model):
    return {"adam": Adam(1e-2), "calls": tf.Variable(0)}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        logits = model(batch["x"])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    calls = state["calls"].assign_add(1)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.05)
    gradients = [tf.where(calls > 4, a, b) for a, b in zip(clipped, gradients)]
    state["adam"].learning_rate.assign(tf.where(calls > 4, 1e-3, 1e-2))
    before = tf.identity(variables[0])
    state["adam"].apply(gradients, variables)
    variables[0].assign(tf.where(calls > 5, before, variables[0]))
    return {"loss": loss}
""",
}
