"""The precision of matrix products in steps of one's own: those of JAX, and those of a deep residual net with a policy of Keras."""

import pytest
from helpers.ownsteps import checks, folder, judging
from test_own_clipping import JAX, PLAIN
from test_own_precision import CAST, UNTIMED
from test_recipes_in_environments import is_installed

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

IN_JAX = pytest.mark.skipif(not is_installed("jax"), reason="xverify env create jax")


@IN_JAX
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("", ""), "100% of the matrix products and convolutions compute in bfloat16"),
        (
            ("LOW = jnp.bfloat16", "LOW = jnp.float32"),
            "all matrix products and convolutions compute in float32; in torch.py, 100%",
        ),
        (
            ("LOW = jnp.bfloat16", "LOW = jnp.float16"),
            "100% of the matrix products and convolutions compute in float16; in torch.py, 100% of the matrix products",
        ),
    ],
    ids=["right", "float32", "float16"],
)
def test_the_precision_of_products_in_jax_is_seen(xverify, tmp_path, change, says, compiled):
    """A function that the step compiles itself is looked into, also where it has been compiled before."""
    port = folder(tmp_path / "casts", CAST, jax=change)
    if compiled:
        text = (port / "jax.py").read_text()
        assert "jax.value_and_grad(loss_of)" in text
        (port / "jax.py").write_text(
            text.replace("jax.value_and_grad(loss_of)", "jax.jit(jax.value_and_grad(loss_of))")
        )
    done = xverify("run", port, *UNTIMED, "jax:eager,jax:jit")
    assert done.result["rows"]
    for row in done.result["rows"]:
        found = {check["name"]: check for check in row["training"]["checks"]}["precision"]
        assert found["says"].startswith(says)
        assert found["verdict"] == ("DIFFERENT" if change[0] else "EQUAL")
        assert found["compared"] == 5  # two forward, and all backward but the gradient of the inputs


@IN_JAX
def test_a_port_in_jax_in_a_lower_precision_is_judged_at_that(xverify, tmp_path):
    files = {name: PLAIN[name] for name in ("spec", "torch")}
    low = JAX.replace("jnp.tanh(x @", "jnp.tanh(x.astype(jnp.bfloat16) @").replace("].T", "].T.astype(jnp.bfloat16)")
    # On a CPU this setting changes nothing.
    asked = JAX.replace(
        "def train_step", "jax.config.update('jax_default_matmul_precision', 'BF16_BF16_F32')\ndef train_step"
    )
    for number, (text, name) in enumerate(((low, "bfloat16"), (asked, None))):
        done = xverify("run", folder(tmp_path / f"{number}", {**files, "jax": text}), *UNTIMED, "torch:eager,jax:eager")
        print(done.out)
        assert (done.row("jax:eager")["precision"] or {}).get("name") == name
        assert checks(done.row("jax:eager"))["loss"] == {"EQUAL"}


# 20 blocks of two convolutions, so that rounding adds up over 41 layers. Behind the mean over an image, the gradients of the biases
# are sums of nearly equal terms, of which TensorFlow loses a large part. In float16 the loss is scaled.
RESIDUAL = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"logits": TensorSpec(("N", 5))}, batch=16
)
""",
    "torch": """
import torch
from torch import nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
    def forward(self, x):
        return x + 0.3 * self.conv2(F.relu(self.conv1(F.relu(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)
        self.blocks = nn.ModuleList(Block() for _ in range(20))
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))
build = Net

def train_state(model):
    return {"scaler": torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=SCALED),
            "sgd": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)}

def train_step(model, state, batch):
    with torch.autocast("cpu", dtype=torch.PRECISION):
        loss = F.cross_entropy(model(batch["x"]), batch["target"])
    state["sgd"].zero_grad()
    state["scaler"].scale(loss).backward()
    state["scaler"].step(state["sgd"])
    state["scaler"].update()
    return {"loss": loss}
""",
    "tensorflow": """
import keras
import tensorflow as tf
from keras.layers import Conv2D, Dense, GlobalAveragePooling2D, ReLU

def build():
    keras.config.set_dtype_policy("mixed_PRECISION")
    inputs = keras.Input((8, 8, 3))
    x = Conv2D(8, 3, padding="same", name="stem")(inputs)
    for k in range(20):
        y = Conv2D(8, 3, padding="same", name=f"blocks.{k}.conv1")(ReLU()(x))
        x = x + 0.3 * Conv2D(8, 3, padding="same", name=f"blocks.{k}.conv2")(ReLU()(y))
    return keras.Model(inputs, Dense(5, name="head")(GlobalAveragePooling2D()(x)))

def train_state(model):
    sgd = keras.optimizers.SGD(0.05, momentum=0.9)
    return {"sgd": keras.optimizers.LossScaleOptimizer(sgd, initial_scale=1024.0) if SCALED else sgd}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        logits = tf.cast(model(batch["x"], training=True), tf.float32)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
        scaled = state["sgd"].scale_loss(loss) if SCALED else loss
    variables = model.trainable_variables
    state["sgd"].apply(tape.gradient(scaled, variables), variables)
    return {"loss": loss}
""",
}
# The change of the port, and what the report says.
WRONG = [
    ("SGD(0.05", "SGD(0.0515", "behaves as learning rate 0.0515; it should be 0.05"),
    ("        x = x + 0.3", "        x = (x if k != 4 else 0.0 * x) + 0.3", "loss, step 0: loss 'loss'"),
    ("", "", ""),
]


def at(precision):
    """The residual net in a precision."""
    scaled = str(precision == "float16")
    return {name: text.replace("PRECISION", precision).replace("SCALED", scaled) for name, text in RESIDUAL.items()}


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_deep_residual_net_with_a_policy_is_equal_at_its_precision(xverify, tmp_path, precision):
    done = xverify(
        "run", folder(tmp_path / "deep", at(precision)), *UNTIMED, "torch:eager,tensorflow:eager,tensorflow:graph"
    )
    print(done.out)
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "EQUAL", row["error"]
        assert row["precision"]["name"] == precision
        found = checks(row)
        # Keras keeps the momentum times the rate, and bfloat16 rounds too coarsely to compare that.
        assert found.pop("state") <= {"EQUAL", "UNTESTED"}
        assert all(verdicts == {"EQUAL"} for verdicts in found.values()), found


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mistakes_in_a_deep_residual_net_are_found_below_float32(tmp_path, precision):
    assert WRONG
    with judging(tmp_path, at(precision), "tensorflow:eager") as judged:
        for number, (text, other, says) in enumerate(WRONG):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == ("DIFFERENT" if says else "EQUAL")
            assert says in (error.reason or "")
