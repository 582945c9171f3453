"""Noise floors of training: right ports of tied weights, of batch norms and of tiny gradients are EQUAL, wrong ones are not."""

import pytest
from helpers.ownsteps import folder

pytestmark = pytest.mark.slow
TRAIN = ["--task", "train", "--no-timing", "--subjects", "torch:eager,tensorflow:eager"]
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(%s)}, outputs={"y": TensorSpec(%s)}, targets={"goal": TensorSpec(%s)}, batch=%d
)
"""
LOSS = """
def loss(outputs, targets):
    return ((outputs["y"] - targets["goal"]) ** 2).mean()
"""
KERAS_LOSS = """
def loss(outputs, targets):
    return tf.reduce_mean((outputs["y"] - targets["goal"]) ** 2)
"""
KERAS = """
import keras
import tensorflow as tf
from keras.layers import BatchNormalization, Conv2D, Dense, Embedding

class Net(keras.Model):
"""

# -- one weight in two places -------------------------------------------------------------------------------------------

# Most rows of the embedding are used by the head alone.
TIED = {
    "spec": SPEC % ('("N", 6), "int64", low=0, high=200', '("N", 6, 200)', '("N", 6, 200)', 4),
    "torch": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.mix = nn.Embedding(200, 16), nn.Linear(16, 16)
    def forward(self, x):
        return torch.tanh(self.mix(self.tok(x))) @ self.tok.weight.T
build = Net
"""
    + LOSS,
    "tensorflow": KERAS
    + """
    def __init__(self):
        super().__init__()
        self.tok, self.mix = Embedding(200, 16, name="tok"), Dense(16, activation="tanh", name="mix")
        self.tok.build((None, 6))
        self.mix.build((None, 6, 16))
    def call(self, x, training=False):
        weight = self.tok.embeddings
        return tf.matmul(self.mix(self.tok(x)), weight, transpose_b=True)
build = Net
"""
    + KERAS_LOSS,
}
AUTOENCODER = {
    "spec": SPEC % ('("N", 12)', '("N", 12)', '("N", 12)', 16),
    "torch": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(12, 24)
    def forward(self, x):
        return torch.tanh(self.mix(x)) @ self.mix.weight
build = Net
"""
    + LOSS,
    "tensorflow": KERAS
    + """
    def __init__(self):
        super().__init__()
        self.mix = Dense(24, name="mix")
        self.mix.build((None, 12))
    def call(self, x, training=False):
        weight = self.mix.kernel
        return tf.matmul(tf.tanh(self.mix(x)), weight, transpose_b=True)
build = Net
"""
    + KERAS_LOSS,
}
IN_TWO_PLACES = {"embedding and head": (TIED, "tok"), "autoencoder": (AUTOENCODER, "mix")}


def checks_of(done, name):
    return {check["verdict"] for check in done.row("tensorflow:eager")["training"]["checks"] if check["name"] == name}


@pytest.mark.parametrize("name", IN_TWO_PLACES)
def test_a_weight_that_code_uses_again_has_the_noise_of_both_uses(xverify, tmp_path, name):
    files, layer = IN_TWO_PLACES[name]
    right = xverify("run", folder(tmp_path / "right", files), *TRAIN)
    assert right.code == 0, right.out
    assert checks_of(right, "backward") == {"EQUAL"}
    used = "self.tok.embeddings" if layer == "tok" else "self.mix.kernel"
    more = (
        f"1.0001 * {used} - tf.stop_gradient(0.0001 * {used})"  # the same weight, and a gradient that is 1e-4 too large
    )
    wrong = xverify(
        "run", folder(tmp_path / "wrong", files, tensorflow=(f"weight = {used}", f"weight = {more}")), *TRAIN
    )
    assert wrong.row("tensorflow:eager")["error"]["verdict"] == "DIFFERENT", wrong.out
    assert "DIFFERENT" in checks_of(wrong, "backward")
    assert f"{layer}, gradient of weight" in " ".join(wrong.out.split())


# -- sums over the batch ------------------------------------------------------------------------------------------------

NORM = {
    "spec": SPEC % ('("N", 3, 56, 56)', '("N", 8)', '("N", 8)', 8),
    "torch": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 1, bias=False), nn.BatchNorm2d(16)
        self.act, self.head = nn.ReLU(), nn.Linear(16, 8)
    def forward(self, x):
        return self.head(self.act(self.norm(self.conv(x) + OFFSET)).mean((2, 3)))
build = Net
"""
    + LOSS,
    "tensorflow": KERAS
    + """
    def __init__(self):
        super().__init__()
        self.conv = Conv2D(16, 1, use_bias=False, name="conv")
        self.norm = BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm")
        self.act, self.head = keras.layers.ReLU(name="act"), Dense(8, name="head")
        self.conv.build((None, 56, 56, 3))
        self.norm.build((None, 56, 56, 16))
        self.head.build((None, 16))
    def call(self, x, training=False):
        x = self.norm(self.conv(tf.transpose(x, (0, 2, 3, 1))) + OFFSET, training=training)
        return self.head(tf.reduce_mean(self.act(x), (1, 2)))
build = Net
"""
    + KERAS_LOSS,
}


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_the_sums_of_a_batch_norm_are_rounded(xverify, tmp_path, offset):
    files = {name: text.replace("OFFSET", str(offset)) for name, text in NORM.items()}
    right = xverify("run", folder(tmp_path / "right", files), *TRAIN)
    assert right.code == 0, right.out
    assert checks_of(right, "forward") == {"EQUAL"}
    done = xverify("run", folder(tmp_path / "wrong", files, tensorflow=("epsilon=1e-5", "epsilon=1e-3")), *TRAIN)
    assert done.code == 1
    assert "behaves as eps=0.001" in " ".join(done.out.split())


# -- gradients that float32 does not hold -------------------------------------------------------------------------------


def test_gradients_below_the_range_of_float32_are_not_called_zero(xverify):
    recipe = ["--optimizer", "rmsprop", "--lr", "0.01", "--batch", "2", "--cases", "2"]
    done = xverify("run", "mlp", *TRAIN[:-1], "torch:eager", *recipe)
    assert done.code == 4, done.out  # the reference alone
    checks = done.result["rows"][0]["training"]["checks"]
    assert {(check["step"], check["verdict"]) for check in checks if check["name"] == "gradients"} == {
        (0, "EQUAL"),
        (2, "UNTESTED"),
    }


# The gradients of `c` are some 1e-85.
SATURATED = {
    "spec": SPEC % ('("N", 12)', '("N", 5)', '("N", 5)', 16),
    "torch": """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 24), nn.Linear(24, 5), nn.Linear(12, 5)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
build = Net

def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def train_step(model, optimizer, batch):
    y = model(batch["x"])
    won = model.c(batch["x"]) + 200.0 * F.one_hot(batch["goal"].argmax(-1), 5)
    loss = F.cross_entropy(won, batch["goal"].argmax(-1)) + ((y - batch["goal"]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
""",
    "tensorflow": KERAS
    + """
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = Dense(24, activation="tanh", name="a"), Dense(5, name="b"), Dense(5, name="c")
        self.a.build((None, 12))
        self.c.build((None, 12))
        self.b.build((None, 24))
    def call(self, x, training=False):
        return self.b(self.a(x))
build = Net

def train_state(model):
    return keras.optimizers.SGD(0.1)

def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        y, labels = model(batch["x"], training=True), tf.argmax(batch["goal"], -1)
        won = model.c(batch["x"]) + 200.0 * tf.one_hot(labels, 5)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, won)
        loss = tf.reduce_mean(each) + tf.reduce_mean((y - batch["goal"]) ** 2)
    variables = model.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    return {"loss": loss}
""",
}


def test_a_step_whose_gradients_underflow_is_not_blamed(xverify, tmp_path):
    done = xverify("run", folder(tmp_path / "port", SATURATED), *TRAIN)
    assert done.code == 0, done.out
    assert done.row("tensorflow:eager")["error"]["verdict"] == "EQUAL"
    less = ("+ tf.reduce_mean((y", "+ 0.999 * tf.reduce_mean((y")
    wrong = xverify("run", folder(tmp_path / "wrong", SATURATED, tensorflow=less), *TRAIN)
    assert wrong.row("tensorflow:eager")["error"]["verdict"] == "DIFFERENT"
