"""A training step of one's own that computes below float32: in bfloat16, and in float16 with a scaled loss; right and wrong."""

import pytest
from helpers.ownsteps import checks, folder, judging
from test_own_state import KERAS, SPEC, TORCH
from test_recipes_in_environments import is_installed

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

UNTIMED = ("--task", "train", "--no-timing", "--subjects")
KERAS = KERAS.replace('name="a")', 'name="a", dtype=POLICY)').replace('name="b")', 'name="b", dtype=POLICY)')
BFLOAT16 = {
    "spec": SPEC,
    "torch": TORCH
    + """
def train_state(model):
    return {"sgd": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}

def train_step(model, state, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(torch.cat([model(batch["x"])]), batch["target"])
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    return {"loss": loss}
""",
    "tensorflow": 'POLICY = "mixed_bfloat16"\n'
    + KERAS
    + """
def train_state(model):
    return {"sgd": keras.optimizers.SGD(0.1, momentum=0.9)}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        logits = tf.cast(model(batch["x"]), tf.float32)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
    variables = model.trainable_variables
    state["sgd"].apply(tape.gradient(loss, variables), variables)
    return {"loss": loss}
""",
}
# Casts that the code makes itself, with Adam.
CAST = {
    "spec": SPEC,
    "torch": TORCH
    + """
def train_state(model):
    return {"adam": torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)}

def train_step(model, state, batch):
    low = lambda layer, x: F.linear(x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16())
    loss = F.cross_entropy(low(model.b, torch.tanh(low(model.a, batch["x"]))).float(), batch["target"])
    state["adam"].zero_grad()
    loss.backward()
    state["adam"].step()
    return {"loss": loss}
""",
    "tensorflow": BFLOAT16["tensorflow"]
    .replace('"sgd"', '"adam"')
    .replace("SGD(0.1, momentum=0.9)", "AdamW(0.01, weight_decay=0.1, epsilon=1e-8)"),
    "jax": """
import jax, numpy as np, optax
from jax import numpy as jnp

class Net:
    def __init__(self):
        shapes = {"a.weight": (24, 12), "a.bias": (24,), "b.weight": (5, 24), "b.bias": (5,)}
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    def apply(self, w, x):
        w = {name: array.astype(LOW) for name, array in w.items()}
        return jnp.tanh(x.astype(LOW) @ w["a.weight"].T + w["a.bias"]) @ w["b.weight"].T + w["b.bias"]
build = Net
LOW = jnp.bfloat16
OPTIMIZER = optax.adamw(0.01, weight_decay=0.1)

def train_state(model):
    return {"optimizer": OPTIMIZER.init(model.weights)}

def train_step(model, state, batch):
    def loss_of(w):
        logits = model.apply(w, batch["x"]).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()
    loss, gradients = jax.value_and_grad(loss_of)(model.weights)
    changes, state["optimizer"] = OPTIMIZER.update(gradients, state["optimizer"], model.weights)
    model.weights = optax.apply_updates(model.weights, changes)
    return {"loss": loss}
""",
}
# A port in torch that updates with a fused kernel, which GradScaler lets divide the gradients by the scale.
CAST["torch-fused"] = CAST["torch"].replace("weight_decay=0.1)", "weight_decay=0.1, fused=True)")
# The scale makes gradients of the first step infinite, and not those of the second one.
SCALE = "2.0**18"
FLOAT16 = {
    "spec": SPEC,
    "torch": BFLOAT16["torch"]
    .replace("bfloat16", "float16")
    .replace("    return {\"sgd\":", "    return {\"scaler\": torch.amp.GradScaler(\"cpu\", init_scale=SCALE), \"sgd\":")
    .replace("    loss.backward()\n    state[\"sgd\"].step()\n", """    state["scaler"].scale(loss).backward()
    state["scaler"].step(state["sgd"])
    state["scaler"].update()
""").replace("SCALE", SCALE),
    "tensorflow": BFLOAT16["tensorflow"]
    .replace("bfloat16", "float16")
    .replace("keras.optimizers.SGD(0.1, momentum=0.9)",
             "keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=SCALE)")
    .replace("    variables =", "        scaled = state[\"sgd\"].scale_loss(loss)\n    variables =")
    .replace("gradient(loss,", "gradient(scaled,").replace("SCALE", SCALE),
}  # fmt: skip
FLOAT16["torch-fused"] = FLOAT16["torch"].replace("momentum=0.9)", "momentum=0.9, fused=True)")
# A convolutional net. TensorFlow adds up the gradient of a bias in bfloat16, which loses some percent of it.
CONVOLUTIONS = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 3, 16, 16), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 7))},
    batch=8,
)
""",
    "torch": """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(16, 32), nn.Linear(32, 7)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        return self.fc2(F.gelu(self.fc1(F.relu(self.conv2(x)).mean((2, 3)))))
build = Net

def train_state(model):
    return {"adam": torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)}

def train_step(model, state, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(batch["x"]), batch["target"])
    state["adam"].zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    state["adam"].step()
    return {"loss": loss, "norm": norm}
""",
    "tensorflow": """
import keras
import tensorflow as tf
from keras.layers import BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, MaxPooling2D, ReLU

def build():
    keras.config.set_dtype_policy("mixed_bfloat16")
    x = inputs = keras.Input((16, 16, 3))
    x = Conv2D(8, 3, padding="same", use_bias=False, name="conv1")(x)
    x = MaxPooling2D(2)(ReLU()(BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm1")(x)))
    x = GlobalAveragePooling2D()(ReLU()(Conv2D(16, 3, padding="same", name="conv2")(x)))
    x = Dense(32, activation="gelu", name="fc1")(x)
    return keras.Model(inputs, Dense(7, name="fc2")(x))

def train_state(model):
    return {"adam": keras.optimizers.AdamW(1e-3, weight_decay=0.05, epsilon=1e-8)}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        logits = tf.cast(model(batch["x"], training=True), tf.float32)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
    variables = model.trainable_variables
    gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
    state["adam"].apply(gradients, variables)
    return {"loss": loss, "norm": norm}
""",
}


@pytest.mark.parametrize(
    ("files", "precision", "subjects"),
    [
        (BFLOAT16, "bfloat16", "tensorflow:eager,tensorflow:graph"),
        (CAST, "bfloat16", "torch-fused:eager,tensorflow:eager"),
        (FLOAT16, "float16", "torch-fused:eager,tensorflow:eager,tensorflow:graph"),
        (CONVOLUTIONS, "bfloat16", "tensorflow:eager"),
    ],
    ids=["autocast", "casts", "scaled loss", "convolutions"],
)
def test_a_right_step_is_equal_at_its_precision(xverify, tmp_path, files, precision, subjects):
    port = folder(tmp_path / "port", files)
    done = xverify("run", port, *UNTIMED, f"torch:eager,{subjects}")
    print(done.out)
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] in ("EQUAL", "DRIFT"), row["error"]
        assert row["precision"]["name"] == precision
        found = checks(row)
        assert found["precision"] == {"EQUAL"}
        assert found["loss"] == {"EQUAL"}
        assert found["update"] <= {"EQUAL", "eps-hat"}
        assert found["state"] <= {"EQUAL", "eps-hat"}
        assert found["optimizer"] <= {"EQUAL", "eps-hat"}
        assert {check["step"] for check in row["training"]["checks"]} == {0, 1, 2}
    assert f"EQUAL at {precision}" in done.out


@pytest.mark.skipif(not is_installed("jax"), reason="xverify env create jax")
def test_a_step_whose_noise_could_hide_a_wrong_rate_is_untested(xverify, tmp_path):
    """What optax is given cannot be seen, so that an update is judged by the noise of its gradients alone."""
    port = folder(tmp_path / "port", CAST)
    done = xverify("run", port, *UNTIMED, "jax:eager,jax:jit")
    assert done.code == 4, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "UNTESTED"
        assert "optimizer: the gradients that the optimizers are given cannot be seen" in row["error"]["reason"]
        assert checks(row)["loss"] == {"EQUAL"}
        assert checks(row)["precision"] == {"EQUAL"}


def test_a_rate_that_is_a_little_wrong_is_different(xverify, tmp_path):
    files = {**BFLOAT16, "torch-mine": BFLOAT16["torch"].replace("lr=0.1,", "lr=0.103,")}
    assert files["torch-mine"] != files["torch"]
    port = folder(tmp_path / "rate", files, tensorflow=("SGD(0.1,", "SGD(0.103,"))
    done = xverify("run", port, *UNTIMED, "torch:eager,torch-mine:eager,tensorflow:eager")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    for subject in ("torch-mine:eager", "tensorflow:eager"):
        error = done.row(subject)["error"]
        assert error["verdict"] == "DIFFERENT", subject
        assert "optimizer, step 0: a.weight (optimizer 'sgd')" in error["reason"]
        assert "behaves as learning rate 0.103; it should be 0.1" in error["reason"]


def test_gradients_that_are_not_unscaled_or_are_clipped_before_are_wrong(xverify, tmp_path):
    right, fused = (FLOAT16[name].replace(SCALE, "2.0**10") for name in ("torch", "torch-fused"))
    backward = '    state["scaler"].scale(loss).backward()\n'
    step = '    state["scaler"].step(state["sgd"])\n    state["scaler"].update()\n'
    clip = "    nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
    unscale = '    state["scaler"].unscale_(state["sgd"])\n'
    assert backward + step in right
    files = {
        "torch": right.replace(backward, backward + unscale + clip),
        "torch-fused": fused.replace(backward, backward + unscale + clip),
        "torch-early": right.replace(backward, backward + clip),
        "torch-scaled": right.replace(backward + step, backward + '    state["sgd"].step()\n'),
    }
    port = folder(tmp_path / "unscaling", {"spec": SPEC, **files})
    done = xverify("run", port, *UNTIMED, ",".join(f"{name}:eager" for name in files))
    assert done.code == 1, done.out + done.err
    for subject in ("torch:eager", "torch-fused:eager"):
        assert done.row(subject)["error"]["verdict"] == "EQUAL", done.out
    for subject in ("torch-early:eager", "torch-scaled:eager"):
        error = done.row(subject)["error"]
        assert error["verdict"] == "DIFFERENT", done.out
        assert error["reason"].startswith("gradients, step 0: ")


def test_a_port_in_a_lower_precision_is_judged_at_that(xverify, tmp_path):
    files = {**BFLOAT16, "torch": BFLOAT16["torch"].replace("dtype=torch.bfloat16", "enabled=False")}
    files |= {"torch-mine": BFLOAT16["torch"], "torch-rate": BFLOAT16["torch"].replace("lr=0.1,", "lr=0.103,")}
    subjects = "torch:eager,torch-mine:eager,torch-rate:eager,tensorflow:eager"
    done = xverify("run", folder(tmp_path / "lower", files), *UNTIMED, subjects)
    print(done.out)
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    assert done.row("torch:eager")["precision"] is None
    for subject in ("torch-mine:eager", "tensorflow:eager"):
        row = done.row(subject)
        assert row["error"]["verdict"] == "EQUAL", row["error"]
        assert row["precision"]["name"] == "bfloat16"
        assert [check["says"] for check in row["training"]["checks"] if check["name"] == "precision"] == [
            "100% of the matrix products and convolutions compute in bfloat16; torch.py computes in float32, and its noise is "
            "that of its step in bfloat16"
        ]
    assert "EQUAL at bfloat16" in done.out
    error = done.row("torch-rate:eager")["error"]
    assert error["verdict"] == "DIFFERENT"
    assert "optimizer, step 0: a.weight (optimizer 'sgd')" in error["reason"]


# Model -> change of its port, and what the report says.
WRONG = {
    "autocast": (BFLOAT16, [
        ("mixed_bfloat16", "float32", "all matrix products and convolutions compute in float32; in torch.py, 100% of"),
        ("mixed_bfloat16", "mixed_float16", "100% of the matrix products and convolutions compute in float16; in torch.py"),
        ("momentum=0.9", "momentum=0.88", "optimizer, step 1: a.weight"),
        ("momentum=0.9", "momentum=0.5", "optimizer 'sgd' behaves as momentum 0.5; torch.py says 0.9"),
        ("tape.gradient(loss, variables)", "[-each for each in tape.gradient(loss, variables)]", "it has the opposite sign"),
        ("SGD(0.1,", "SGD(0.1,", ""),
    ]),
    "casts": (CAST, [
        ("weight_decay=0.1", "weight_decay=0.09", "optimizer, step 0: "),
        ("weight_decay=0.1", "weight_decay=0.0", "behaves as weight decay 0; torch.py says 0.1"),
        ("AdamW(0.01", "AdamW(0.0103", "behaves as learning rate 0.0103; it should be 0.01"),
    ]),
    "scaled loss": (FLOAT16, [
        # It does not skip a step, and leaves out what is infinite.
        ("keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=2.0**18)",
         "Unskipped()", "is skipped, because its gradients times the scale of its loss, 262144, are infinite"),
        ("initial_scale=2.0**18", "initial_scale=2.0**10", "and begin with the same scale"),
        ("SGD(0.1,", "SGD(0.103,", "behaves as learning rate 0.103; it should be 0.1"),
        ("gradient(scaled,", "gradient(loss,", "gradients, step"),
    ]),
}  # fmt: skip
UNSKIPPED = """
class Unskipped(keras.optimizers.SGD):
    def __init__(self):
        super().__init__(0.1, momentum=0.9)
    def scale_loss(self, loss):
        return loss * 2.0**18
    def apply(self, grads, variables):
        finite = [tf.where(tf.math.is_finite(each), each, 0.0) for each in grads]
        super().apply([each / 2.0**18 for each in finite], variables)
"""


@pytest.mark.parametrize(("files", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_step_is_different_and_said_to_be(tmp_path, files, wrong):
    assert wrong
    files = {**files, "tensorflow": files["tensorflow"].replace("build = Net", "build = Net" + UNSKIPPED)}
    with judging(tmp_path, files, "tensorflow:eager") as judged:
        for number, (text, other, says) in enumerate(wrong):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == ("DIFFERENT" if says else "EQUAL")
            assert says in (error.reason or "")
