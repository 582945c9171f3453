"""Training in which rounding hides faults: nothing passes that could not have failed, and a wild value hides no other."""

import pytest
from helpers import stepmistakes
from helpers.ownsteps import LOOP, folder

pytestmark = pytest.mark.slow
TRAIN = ["--task", "train", "--no-timing", "--subjects", "torch:eager,tensorflow:eager"]

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(%s)}, outputs={"y": TensorSpec(%s)}, targets={"goal": TensorSpec(%s)}, batch=16
)
"""
STEP = """
def train_step(model, optimizer, batch):
    loss = loss_of(model, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
"""
KERAS_STEP = """
def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = loss_of(model, batch)
    variables = model.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    return {"loss": loss}
"""
SEQUENCE = '("N", 12, 16)'
CAUSAL = {
    "spec": SPEC % (SEQUENCE, SEQUENCE, SEQUENCE),
    "torch": """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 4.0
        later = torch.ones(12, 12).triu(1) == 1
        return self.out(torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ self.v(x))
build = Attention

def train_state(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)

def loss_of(model, batch):
    return ((model(batch["x"]) - batch["goal"]) ** 2).mean()
"""
    + STEP,
    "tensorflow": """
import keras
import numpy as np
import tensorflow as tf
from keras.layers import Dense

class Attention(keras.Model):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (Dense(16, name=name) for name in ("q", "k", "v", "out"))
        for layer in (self.q, self.k, self.v, self.out):
            layer.build((None, 12, 16))
    def call(self, x, training=False):
        scores = tf.matmul(self.q(x), self.k(x), transpose_b=True) / 4.0
        scores = tf.where(np.triu(np.ones((12, 12)), 1) == 1, tf.constant(-np.inf), scores)
        return self.out(tf.matmul(tf.nn.softmax(scores), self.v(x)))
build = Attention

def train_state(model):
    return keras.optimizers.AdamW(1e-3, weight_decay=0.1, epsilon=1e-8)

def loss_of(model, batch):
    return tf.reduce_mean((model(batch["x"], training=True) - batch["goal"]) ** 2)
"""
    + KERAS_STEP,
}
NET = (
    stepmistakes.START
    + stepmistakes.NET
    + """
def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
"""
)
KERAS_NET = """
import keras
import tensorflow as tf
from keras.layers import Dense

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = Dense(24, activation="tanh", name="a"), Dense(5, name="b")
        self.a.build((None, 12))
        self.b.build((None, 24))
    def call(self, x, training=False):
        return self.b(self.a(x))
build = Net

def train_state(model):
    return keras.optimizers.SGD(0.1)
"""
MASKED_CLASS = {
    "spec": LOOP["spec"],
    "torch": NET
    + """
def loss_of(model, batch):
    logits = model(batch["x"])
    masked = logits[:, 4:].masked_fill(logits[:, 4:] < 1e9, float("-inf"))
    return F.cross_entropy(torch.cat((logits[:, :4], masked), 1), batch["target"].clamp(max=3))
"""
    + STEP,
    "tensorflow": KERAS_NET
    + """
def loss_of(model, batch):
    logits, labels = model(batch["x"], training=True)[:, :4], tf.minimum(batch["target"], 3)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
"""
    + KERAS_STEP,
}
LENGTHS = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))}, outputs={"y": TensorSpec(("N", 5))}, batch=16,
    targets={"goal": TensorSpec(("N", 5)), "length": TensorSpec(("N",), "int64", low=1, high=6)},
)
""",
    "torch": NET
    + """
def loss_of(model, batch):
    out = model(batch["x"])
    mask = (torch.arange(5).to(out.dtype)[None] + 1.0 <= batch["length"].to(out.dtype)[:, None]).to(out.dtype)
    return (((out - batch["goal"]) ** 2) * mask).sum() / mask.sum()
"""
    + STEP,
    "tensorflow": KERAS_NET
    + """
def loss_of(model, batch):
    out = model(batch["x"], training=True)
    mask = tf.cast(tf.range(5, dtype=tf.float32)[None] + 1.0 <= tf.cast(batch["length"], tf.float32)[:, None], tf.float32)
    return tf.reduce_sum((out - batch["goal"]) ** 2 * mask) / tf.reduce_sum(mask)
"""
    + KERAS_STEP,
}
# A loss of the model files, and an optimizer of xverify.
OWN_LOSS = {
    "spec": MASKED_CLASS["spec"],
    "torch": MASKED_CLASS["torch"].partition("def train_state")[0]
    + """
def loss(outputs, targets):
    logits = outputs["logits"]
    masked = logits[:, 4:].masked_fill(logits[:, 4:] < 1e9, float("-inf"))
    return F.cross_entropy(torch.cat((logits[:, :4], masked), 1), targets["target"].clamp(max=3))
""",
    "tensorflow": MASKED_CLASS["tensorflow"].partition("def train_state")[0]
    + """
def loss(outputs, targets):
    logits, labels = outputs["logits"][:, :4], tf.minimum(targets["target"], 3)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
""",
}
MASKED = [
    (CAUSAL, ("AdamW(1e-3, weight_decay=0.1", "AdamW(1e-2, weight_decay=0.5")),
    (MASKED_CLASS, ("SGD(0.1)", "SGD(100.0)")),
    (LENGTHS, ("+ 1.0 <= tf.cast(batch", "+ 0.0 <= tf.cast(batch")),
    (OWN_LOSS, ("return tf.reduce_mean(", "return 1.3 * tf.reduce_mean(")),
]
NAMES = ["causal attention", "masked class", "lengths as floats", "masked class in a loss"]


@pytest.mark.parametrize(("files", "fault"), MASKED, ids=NAMES)
def test_a_fault_beside_a_mask_never_passes(xverify, tmp_path, files, fault):
    """An infinite noise floor would be above every fault."""
    done = xverify("run", folder(tmp_path / "wrong", files, tensorflow=fault), *TRAIN)
    assert done.row("tensorflow:eager")["error"]["verdict"] == "DIFFERENT", done.out
    assert done.code == 1


@pytest.mark.parametrize("files", [files for files, _ in MASKED], ids=NAMES)
def test_a_right_port_beside_a_mask_is_not_blamed(xverify, tmp_path, files):
    done = xverify("run", folder(tmp_path / "right", files), *TRAIN)
    assert len(done.result["rows"]) > 1, done.out
    for row in done.result["rows"]:
        assert row["error"]["judged"] == 1.0
        if row["error"]["verdict"] != "EQUAL":  # AdamW of Keras has another formula
            assert row["error"]["verdict"] == "DRIFT", done.out
            assert row["error"]["reason"].startswith("eps-hat"), done.out


VECTOR = '("N", 12)'
# The sum with a large number rounds all digits away but one.
CANCELS = {
    "spec": SPEC % (VECTOR, VECTOR, VECTOR),
    "torch": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
    def forward(self, x):
        return (self.a(x) + 1e7) - 1e7
build = Net

def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def loss_of(model, batch):
    return ((model(batch["x"]) - batch["goal"]) ** 2).mean()
"""
    + STEP,
    "tensorflow": """
import keras
import tensorflow as tf
from keras.layers import Dense

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a = Dense(12, name="a")
        self.a.build((None, 12))
    def call(self, x, training=False):
        return (self.a(x) + 1e7) - 1e7
build = Net

def train_state(model):
    return keras.optimizers.SGD(0.1)

def loss_of(model, batch):
    return tf.reduce_mean((model(batch["x"], training=True) - batch["goal"]) ** 2)
"""
    + KERAS_STEP,
}
LOGISTIC = (
    "return (self.a(x) + 1e7) - 1e7",
    "z = SIGMOID(self.a(x))\n        for _ in range(60): z = 3.99 * z * (1 - z)\n        return z",
)


def chaotic(files):
    """The same with 60 steps of the logistic map, which make of rounding errors any number."""
    old, new = LOGISTIC
    pairs = (("torch", "torch.sigmoid"), ("tensorflow", "tf.sigmoid"))
    return files | {name: files[name].replace(old, new.replace("SIGMOID", sigmoid)) for name, sigmoid in pairs}


@pytest.mark.parametrize("files", [CANCELS, chaotic(CANCELS)], ids=["cancellation", "chaos"])
def test_a_row_of_which_no_parameter_could_be_judged_is_untested(xverify, tmp_path, files):
    done = xverify("run", folder(tmp_path / "port", files), *TRAIN)
    assert done.code == 4, done.out
    for row in done.result["rows"]:
        assert (row["error"]["verdict"], row["error"]["judged"]) == ("UNTESTED", 0.0)
        assert row["training"]["untested"] == ["a.weight", "a.bias"]
        # The first step alone: it may leave the logistic map where every gradient is exactly 0, which later steps agree on.
        first = {check["name"]: check["verdict"] for check in row["training"]["checks"] if check["step"] == 0}
        assert first["update"] == "UNTESTED"


# Two parts, one of which loses its digits.
PARTLY = {
    "spec": CANCELS["spec"],
    "torch": CANCELS["torch"]
    .replace("self.a = nn.Linear(12, 12)", "self.a, self.b = nn.Linear(12, 12), nn.Linear(12, WIDE)")
    .replace("return (self.a(x) + 1e7) - 1e7", "return self.a(x)")
    .replace("return ((model", 'return 1e-4 * (((model.b(batch["x"]) + 1e7) - 1e7 - 1) ** 2).mean() + ((model'),
    "tensorflow": CANCELS["tensorflow"]
    .replace("self.a = Dense(12, name=\"a\")", "self.a, self.b = Dense(12, name=\"a\"), Dense(WIDE, name=\"b\")")
    .replace("self.a.build((None, 12))", "self.a.build((None, 12))\n        self.b.build((None, 12))")
    .replace("return (self.a(x) + 1e7) - 1e7", "return self.a(x)")
    .replace(
        "return tf.reduce_mean((model",
        'second = tf.reduce_mean(((model.b(batch["x"]) + 1e7) - 1e7 - 1) ** 2)\n    return 1e-4 * second + tf.reduce_mean((model',
    ),
}  # fmt: skip


def wide(columns):
    return {name: text.replace("WIDE", str(columns)) for name, text in PARTLY.items()}


def test_a_row_says_how_much_was_judged_and_strict_asks_for_all(xverify, tmp_path):
    port = folder(tmp_path / "port", wide(4))
    done = xverify("run", port, *TRAIN)
    assert done.code == 0, done.out
    row = done.row("tensorflow:eager")
    assert row["error"]["judged"] == 0.75  # 12 x 13 of 16 x 13 values
    assert row["training"]["judged"] == "update of 2 of 4 parameters (75% of the trained values) judged"
    assert row["training"]["judged"] in " ".join(done.out.split())
    assert xverify("run", port, *TRAIN, "--strict").code == 4


def test_a_row_of_which_less_than_half_was_judged_is_untested(xverify, tmp_path):
    done = xverify("run", folder(tmp_path / "port", wide(24)), *TRAIN)
    assert done.code == 4
    reason = done.row("tensorflow:eager")["error"]["reason"]
    assert reason.startswith(
        "update of 2 of 4 parameters (33.3% of the trained values) judged: rounding alone may change the others"
    )


# The first output loses its digits, so that a row of one weight has no gradient that float32 determines.
OF_ONE_OUTPUT = {
    "spec": CANCELS["spec"],
    "torch": CANCELS["torch"].replace("return (self.a(x) + 1e7) - 1e7", "return self.a(x)").partition("def loss_of")[0]
    + """
def train_step(model, optimizer, batch):
    y = model(batch["x"])
    first, others = (VAGUE ** 2).mean(), ((y[:, 1:] - batch["goal"][:, 1:]) ** 2).mean()
    optimizer.zero_grad()
    (first + others).backward()
    optimizer.step()
    return {"first": first, "others": others}
""",
    "tensorflow": CANCELS["tensorflow"]
    .replace("return (self.a(x) + 1e7) - 1e7", "return self.a(x)")
    .partition("def loss_of")[0]
    + """
FACTOR = tf.constant([1.0] * 12)

def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        y = model(batch["x"], training=True)
        first = tf.reduce_mean(VAGUE ** 2)
        others = tf.reduce_mean((y[:, 1:] - batch["goal"][:, 1:]) ** 2)
        loss = first + others
    variables = model.trainable_variables
    optimizer.apply([each * FACTOR for each in tape.gradient(loss, variables)], variables)
    return {"first": first, "others": others}
""",
}


@pytest.mark.parametrize(("vague", "weight"), [("((y[:, 0] + 1e7) - 1e7)", 1.0), ("(4e6 + y[:, 0] - 4e6 - 1)", -1.0)])
def test_a_value_that_rounding_changes_hides_no_other(xverify, tmp_path, vague, weight):
    files = {name: text.replace("VAGUE", vague) for name, text in OF_ONE_OUTPUT.items()}
    right = xverify("run", folder(tmp_path / "right", files), *TRAIN)
    assert right.row("tensorflow:eager")["error"]["verdict"] == "EQUAL", right.out
    assert 0.9 < right.row("tensorflow:eager")["error"]["judged"] < 1  # 11 of 12 rows
    fault = ("[1.0] * 12", f"[1.0] * 5 + [{weight * 1.001}] + [1.0] * 6")
    done = xverify("run", folder(tmp_path / "wrong", files, tensorflow=fault), *TRAIN)
    assert done.row("tensorflow:eager")["error"]["verdict"] == "DIFFERENT", done.out


def test_a_fault_above_the_detection_limit_is_seen(xverify, tmp_path):
    right = xverify("run", folder(tmp_path / "right", LOOP), *TRAIN)
    error = right.row("tensorflow:eager")["error"]
    updates = [check for check in right.row("tensorflow:eager")["training"]["checks"] if check["name"] == "update"]
    limit = max(max(check["detection_limits"].values()) for check in updates)
    assert 1e-7 < limit < 1e-2
    assert error["detection_limit"] >= limit
    assert "a relative error would have been seen from: loss" in " ".join(right.out.split())
    rate = ("SGD(0.05", f"SGD({0.05 * (1 + 2 * limit)!r}")
    wrong = xverify("run", folder(tmp_path / "wrong", LOOP, tensorflow=rate), *TRAIN)
    assert wrong.row("tensorflow:eager")["error"]["verdict"] in ("DRIFT", "DIFFERENT"), wrong.out
