"""A training step of one's own that clips its gradients, beside a port that does not, or that clips them in another way."""

import pytest
from helpers.ownsteps import assert_port_is_wrong, folder, judging
from test_own_state import KERAS, SPEC, TORCH, UNTIMED
from test_recipes_in_environments import is_installed

pytestmark = pytest.mark.slow

PLAIN = {
    "spec": SPEC,
    "torch": TORCH
    + """
def train_state(model):
    return {"sgd": torch.optim.SGD(model.parameters(), lr=0.1)}

def train_step(model, state, batch):
    loss = F.cross_entropy(model(batch["x"]), batch["target"])
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    return {"loss": loss}
""",
    "tensorflow": KERAS
    + """
def train_state(model):
    return {"sgd": keras.optimizers.SGD(0.1)}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], model(batch["x"])))
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    state["sgd"].apply(gradients, variables)
    return {"loss": loss}
""",
}
MISSING = "clipping is missing: torch.py clips the gradients, and this step does not"


def with_clipping(call, start=""):
    """The same with the gradients of torch.py clipped. start: the first line of the file."""
    step = '    state["sgd"].step()\n'
    return {**PLAIN, "torch": f"{start}\n" + PLAIN["torch"].replace(step, f"    {call}\n{step}")}


NORM = with_clipping("nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)")
# Imported by name, with Adam, whose update is not a multiple of the right one, and which hides the first step.
VALUE = {
    name: text.replace("torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.Adam(model.parameters(), lr=0.01)")
    .replace("keras.optimizers.SGD(0.1)", "keras.optimizers.Adam(0.01, epsilon=1e-8)")
    for name, text in with_clipping(
        "clip_grad_value_(model.parameters(), 0.01)", "from torch.nn.utils import clip_grad_value_\n"
    ).items()
}  # fmt: skip
APPLIED = 'state["sgd"].apply(gradients, variables)'
BY_HAND = "[each.assign_sub(0.1 * gradient) for each, gradient in zip(variables, gradients)]"
CLIPPED = 'state["sgd"].apply(tf.clip_by_global_norm(gradients, 0.1)[0], variables)'


@pytest.mark.parametrize(
    ("files", "change", "place"),
    [
        (NORM, ("", ""), "gradients, step 0: a.weight"),
        (NORM, (APPLIED, BY_HAND), "update, step 0: a.weight"),
        (VALUE, ("", ""), "gradients, step 1: a.weight"),
    ],
    ids=["norm", "gradients unseen", "values"],
)
def test_clipping_that_is_missing_is_named(xverify, tmp_path, files, change, place):
    done = xverify("run", folder(tmp_path / "clipping", files, tensorflow=change), *UNTIMED)
    assert_port_is_wrong(done, place, MISSING)


# Model -> change of its port, and what the report says.
OTHER = {
    "clipped in torch.py": (NORM, [
        (CLIPPED, ""),
        (CLIPPED.replace("0.1", "0.25"), "the gradients are clipped at norm 0.25; torch.py clips them at 0.1"),
        (CLIPPED.replace("0.1", "0.13"), "the gradients are clipped at norm 0.13; torch.py clips them at 0.1"),
    ]),
    "not clipped in torch.py": (PLAIN, [
        (CLIPPED, "the gradients are clipped at norm 0.1, which torch.py does not do"),
        (f'state["sgd"].global_clipnorm = 0.1; {APPLIED}', "the gradients are clipped at norm 0.1, which"),
        (f'state["sgd"].learning_rate = 0.15; {APPLIED}', "behaves as learning rate 0.15; it should be 0.1"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("files", "wrong"), OTHER.values(), ids=OTHER)
def test_other_clipping_is_named_and_the_same_is_equal(tmp_path, files, wrong):
    assert wrong
    with judging(tmp_path, files, "tensorflow:eager") as judged:
        for number, (other, says) in enumerate(wrong):
            error = judged(number, (APPLIED, other))
            assert error.verdict == ("DIFFERENT" if says else "EQUAL"), error
            reason = error.reason or ""
            assert says in reason
            assert ("clipped" in reason) == ("clipped" in says)


JAX = """
import jax, numpy as np, optax
from jax import numpy as jnp

class Net:
    def __init__(self):
        shapes = {"a.weight": (24, 12), "a.bias": (24,), "b.weight": (5, 24), "b.bias": (5,)}
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    def apply(self, w, x):
        return jnp.tanh(x @ w["a.weight"].T + w["a.bias"]) @ w["b.weight"].T + w["b.bias"]
build = Net
OPTIMIZER = optax.sgd(0.1)

def train_state(model):
    return {"optimizer": OPTIMIZER.init(model.weights)}

def train_step(model, state, batch):
    def loss_of(w):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(w, batch["x"]), batch["target"]).mean()
    loss, gradients = jax.value_and_grad(loss_of)(model.weights)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"loss": loss}
"""


@pytest.mark.skipif(not is_installed("jax"), reason="xverify env create jax")
def test_clipping_that_is_missing_is_named_in_jax(xverify, tmp_path):
    files = {**{name: NORM[name] for name in ("spec", "torch")}, "jax": JAX}
    done = xverify("run", folder(tmp_path / "jax", files), *UNTIMED[:-1], "torch:eager,jax:eager")
    assert done.code == 1, done.out + done.err
    assert MISSING in done.row("jax:eager")["error"]["reason"]
