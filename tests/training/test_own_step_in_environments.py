"""A training step of one's own in JAX, Flax and PaddlePaddle: a GAN with two optimizers, and a loop; right and wrong.

They need ``xverify env create jax`` and ``xverify env create paddle``. Without these the tests are skipped.
"""

import pytest
from helpers.ownsteps import GAN, LOOP, QUICK, checks, folder, judging
from test_recipes_in_environments import is_installed

pytestmark = pytest.mark.slow

FLAX_GAN = """
import jax, optax
from flax import nnx
from jax import numpy as jnp

class Gan(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        norm = nnx.BatchNorm(24, momentum=0.9, epsilon=1e-5, rngs=rngs)
        self.G = nnx.Sequential(nnx.Linear(8, 24, rngs=rngs), norm, nnx.relu, nnx.Linear(24, 6, rngs=rngs))
        slope = lambda x: nnx.leaky_relu(x, 0.2)
        self.D = nnx.Sequential(nnx.Linear(6, 24, rngs=rngs), slope, nnx.Linear(24, 1, rngs=rngs))
    def __call__(self, z):
        return self.G(z)
build = Gan

def train_state(model):
    return {
        "d": nnx.Optimizer(model.D, optax.adam(2e-3, b1=0.5), wrt=nnx.Param),
        "g": nnx.Optimizer(model.G, optax.adam(1e-3, b1=0.5), wrt=nnx.Param),
    }

def bce(score, label):
    return optax.sigmoid_binary_cross_entropy(score, jnp.full_like(score, label)).mean()

def train_step(model, state, batch):
    before = jax.tree.map(jnp.copy, nnx.state(model.G, nnx.BatchStat))
    fake = model.G(batch["z"])
    nnx.update(model.G, before)  # the other pass takes the batch in to the running statistics

    def d_loss_of(D):
        return bce(D(batch["real"]), 1.0) + bce(D(jax.lax.stop_gradient(fake)), 0.0)

    d_loss, gradients = nnx.value_and_grad(d_loss_of)(model.D)
    state["d"].update(model.D, gradients)

    def g_loss_of(G):
        return bce(model.D(G(batch["z"])), 1.0)

    g_loss, gradients = nnx.value_and_grad(g_loss_of)(model.G)
    state["g"].update(model.G, gradients)
    return {"d_loss": d_loss, "g_loss": g_loss}
"""
FLAX_LOOP = """
import jax, optax
from flax import nnx
from jax import numpy as jnp

class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.body, self.head, self.pupil = (nnx.Linear(*size, rngs=rngs) for size in ((12, 24), (24, 5), (24, 5)))
    def __call__(self, x):
        return self.head(nnx.tanh(self.body(x)))
build = Net

def train_state(model):
    chain = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.05, momentum=0.9))
    return nnx.Optimizer(model, chain, wrt=nnx.Param)

def train_step(model, optimizer, batch):
    def loss_of(model):
        hidden = nnx.tanh(model.body(batch["x"]))
        logits = model.head(hidden)
        taught = jax.nn.softmax(jax.lax.stop_gradient(logits))
        label = optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()
        pupil = -(taught * jax.nn.log_softmax(model.pupil(hidden))).sum(1).mean()
        return label + 0.5 * pupil, (label, pupil)

    (_, (label, pupil)), gradients = nnx.value_and_grad(loss_of, has_aux=True)(model)
    optimizer.update(model, gradients)
    return {"label": label, "pupil": pupil}
"""
JAX_LOOP = """
import jax, numpy as np, optax
from jax import numpy as jnp

class Net:
    def __init__(self):
        shapes = {"body": (24, 12), "head": (5, 24), "pupil": (5, 24)}
        self.weights = {f"{name}.weight": np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self.weights |= {f"{name}.bias": np.zeros(shape[0], np.float32) for name, shape in shapes.items()}
    def apply(self, w, x):
        return linear(w, "head", jnp.tanh(linear(w, "body", x)))
build = Net

def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.05, momentum=0.9))

def train_state(model):
    return {"optimizer": OPTIMIZER.init(model.weights)}

def train_step(model, state, batch):
    def loss_of(w):
        hidden = jnp.tanh(linear(w, "body", batch["x"]))
        logits = linear(w, "head", hidden)
        taught = jax.nn.softmax(jax.lax.stop_gradient(logits))
        label = optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()
        pupil = -(taught * jax.nn.log_softmax(linear(w, "pupil", hidden))).sum(1).mean()
        return label + 0.5 * pupil, (label, pupil)

    (_, (label, pupil)), gradients = jax.value_and_grad(loss_of, has_aux=True)(model.weights)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"label": label, "pupil": pupil}
"""
PADDLE_GAN = """
import paddle
from paddle import nn

class Gan(nn.Layer):
    def __init__(self):
        super().__init__()
        norm = nn.BatchNorm1D(24, momentum=0.9, epsilon=1e-5)
        self.G = nn.Sequential(nn.Linear(8, 24), norm, nn.ReLU(), nn.Linear(24, 6))
        self.D = nn.Sequential(nn.Linear(6, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
    def forward(self, z):
        return self.G(z)
build = Gan

def train_state(model):
    return {
        "d": paddle.optimizer.Adam(2e-3, beta1=0.5, parameters=model.D.parameters()),
        "g": paddle.optimizer.Adam(1e-3, beta1=0.5, parameters=model.G.parameters()),
    }

def bce(score, label):
    return nn.functional.binary_cross_entropy_with_logits(score, paddle.full_like(score, label))

def train_step(model, state, batch):
    fake = model.G(batch["z"])
    d_loss = bce(model.D(batch["real"]), 1.0) + bce(model.D(fake.detach()), 0.0)
    state["d"].clear_grad()
    d_loss.backward()
    state["d"].step()
    g_loss = bce(model.D(fake), 1.0)
    state["g"].clear_grad()
    g_loss.backward()
    state["g"].step()
    return {"d_loss": d_loss, "g_loss": g_loss}
"""
PADDLE_LOOP = """
import paddle
from paddle import nn
from paddle.nn.functional import cross_entropy, log_softmax, softmax

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.pupil = nn.Linear(12, 24), nn.Linear(24, 5), nn.Linear(24, 5)
    def forward(self, x):
        return self.head(paddle.tanh(self.body(x)))
build = Net

def train_state(model):
    clip = nn.ClipGradByGlobalNorm(0.5)
    return paddle.optimizer.Momentum(0.05, 0.9, parameters=model.parameters(), grad_clip=clip)

def train_step(model, optimizer, batch):
    hidden = paddle.tanh(model.body(batch["x"]))
    logits = model.head(hidden)
    label = cross_entropy(logits, batch["target"])
    pupil = -(softmax(logits.detach(), 1) * log_softmax(model.pupil(hidden), 1)).sum(1).mean()
    optimizer.clear_grad()
    (label + 0.5 * pupil).backward()
    optimizer.step()
    return {"label": label, "pupil": pupil}
"""
PORTS = {
    "gan": {**{name: GAN[name] for name in ("spec", "torch")}, "flax": FLAX_GAN, "paddle": PADDLE_GAN},
    "loop": {
        **{name: LOOP[name] for name in ("spec", "torch")},
        "flax": FLAX_LOOP,
        "jax": JAX_LOOP,
        "paddle": PADDLE_LOOP,
    },
}


def need(subject):
    """Skip the test where the framework of a subject is not installed."""
    framework = subject.partition(":")[0]
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed")
    return framework


@pytest.mark.parametrize(
    ("port", "subjects"),
    [
        ("gan", ["flax", "flax:eager"]),
        ("gan", ["paddle"]),
        ("loop", ["flax", "flax:eager"]),
        ("loop", ["jax", "jax:eager"]),
        ("loop", ["paddle"]),
    ],
    ids=["gan in flax", "gan in paddle", "loop in flax", "loop in jax", "loop in paddle"],
)
def test_a_right_step_of_ones_own_trains_equally(xverify, tmp_path, port, subjects):
    framework = need(subjects[0])
    files = {name: PORTS[port][name] for name in ("spec", "torch", framework)}
    done = xverify("run", folder(tmp_path / port, files), *QUICK, "--subjects", ",".join(["torch:eager", *subjects]))
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        found = checks(row)
        assert {check["step"] for check in row["training"]["checks"]} == {0, 1, 2}
        assert found.pop("statistics", set()) <= {"EQUAL", "biased variance", "rounding"}, done.out
        gradients = found.pop("gradients", {"EQUAL"})
        assert gradients == {"EQUAL"} or (port == "loop" and gradients == {"other gradients"}), done.out
        assert found.pop("state") <= {"EQUAL", "other gradients"}, done.out
        assert found.pop("gradients", {"EQUAL"}) == {"EQUAL"}, done.out
        assert found == {"weights": {"EQUAL"}, "loss": {"EQUAL"}, "update": {"EQUAL"}}, done.out
        assert row["speed"]["fps"] > 0
        # The optimizers of the loops clip the gradients, and those that they use cannot be seen.
        seen = any(check["name"] == "gradients" for check in row["training"]["checks"])
        assert seen == (port == "gan" or row["subject"].startswith("torch"))


WRONG = {
    ("gan", "flax"): [
        ("state[\"g\"].update(model.G, gradients)", "state[\"g\"].update(model.G, jax.tree.map(lambda g: -g, gradients))",
         ["gradients, step 0: G.0.weight (optimizer 'g')", "it has the opposite sign"]),
        ("optax.adam(1e-3, b1=0.5)", "optax.adam(1e-3, b1=0.9)",
         ["update, step 1: G.0.weight (optimizer 'g')", "optimizer 'g' behaves as beta1 0.9; torch.py says 0.5"]),
        ("    nnx.update(model.G, before)  # the other pass takes the batch in to the running statistics\n", "",
         ["statistics, step 0"]),
    ],
    ("loop", "jax"): [
        ("momentum=0.9", "momentum=0.5", ["update, step 1", "momentum 0.5"]),
        ("jax.lax.stop_gradient(logits)", "logits", ["update, step 0: body.weight"]),
    ],
    ("loop", "flax"): [
        ("    optimizer.update(model, gradients)\n", "", ["the step changes no weight"]),
        ("label + 0.5 * pupil", "label", ["update, step 0: body.weight"]),
    ],
    ("gan", "paddle"): [
        ("    state[\"g\"].clear_grad()\n", "", ["gradients of optimizer 'g' are not zeroed"]),
        ("paddle.optimizer.Adam(2e-3", "paddle.optimizer.Adam(2.2e-3",
         ["update, step 0: D.0.weight (optimizer 'd')", "behaves as learning rate 0.0022; it should be 0.002"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("port", "framework"), list(WRONG), ids=lambda each: str(each))
def test_a_wrong_step_is_different_and_said_to_be(tmp_path, port, framework):
    need(framework)
    assert WRONG[port, framework]
    with judging(tmp_path, PORTS[port], framework) as judged:
        for number, (text, other, says) in enumerate(WRONG[port, framework]):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == "DIFFERENT"
            for clause in says:
                assert clause in error.reason, error.reason
