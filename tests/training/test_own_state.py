"""A training step of one's own whose state holds a copy of the model: a frozen reference, and a teacher that follows the model."""

import pytest
from helpers.ownsteplines import KERAS as KERAS_NET
from helpers.ownsteplines import SPEC
from helpers.ownsteplines import TORCH as NET
from helpers.ownsteps import assert_port_is_wrong, folder

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

UNTIMED = ("--task", "train", "--no-timing", "--subjects", "torch:eager,tensorflow:eager")

TORCH = "import copy\nfrom torch.nn import functional as F\n" + NET
KERAS = (
    KERAS_NET
    + """
def copied(model):
    other = Net()
    other.set_weights(model.get_weights())
    return other
"""
)
# As in preference optimization: what is trained stays near the model that it was.
FROZEN = {
    "spec": SPEC,
    "torch": TORCH
    + """
def train_state(model):
    frozen = copy.deepcopy(model).requires_grad_(False)
    return {"sgd": torch.optim.SGD(model.parameters(), lr=0.1), "frozen": frozen}

def train_step(model, state, batch):
    logits = model(batch["x"])
    loss = F.cross_entropy(logits, batch["target"]) + ((logits - state["frozen"](batch["x"])) ** 2).mean()
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    return {"loss": loss}
""",
    "tensorflow": KERAS
    + """
def train_state(model):
    return {"sgd": keras.optimizers.SGD(0.1), "frozen": copied(model)}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        logits = model(batch["x"])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
        loss += tf.reduce_mean((logits - state["frozen"](batch["x"])) ** 2)
    variables = model.trainable_variables
    state["sgd"].apply(tape.gradient(loss, variables), variables)
    return {"loss": loss}
""",
}
# A teacher, or a target network: an average of the model's weights, which begins as a copy.
TEACHER = {
    "spec": SPEC,
    "torch": TORCH
    + """
def train_state(model):
    return {"adam": torch.optim.Adam(model.parameters(), lr=1e-2), "teacher": copy.deepcopy(model)}

def train_step(model, state, batch):
    with torch.no_grad():
        taught = state["teacher"](batch["x"].flip(1)).softmax(1)
    logits = model(batch["x"])
    label, follow = F.cross_entropy(logits, batch["target"]), F.cross_entropy(logits, taught)
    state["adam"].zero_grad()
    (label + follow).backward()
    state["adam"].step()
    with torch.no_grad():
        for slow, fast in zip(state["teacher"].parameters(), model.parameters()):
            slow.lerp_(fast, 0.05)
    return {"label": label, "follow": follow}
""",
    "tensorflow": KERAS
    + """
def train_state(model):
    return {"adam": keras.optimizers.Adam(1e-2, epsilon=1e-8), "teacher": copied(model)}

def train_step(model, state, batch):
    taught = tf.nn.softmax(state["teacher"](batch["x"][:, ::-1]))
    with tf.GradientTape() as tape:
        logits = model(batch["x"])
        label = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
        follow = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(taught, logits))
        loss = label + follow
    variables = model.trainable_variables
    state["adam"].apply(tape.gradient(loss, variables), variables)
    for slow, fast in zip(state["teacher"].trainable_variables, variables):
        slow.assign_add(0.05 * (fast - slow))
    return {"label": label, "follow": follow}
""",
}


@pytest.mark.parametrize("files", [FROZEN, TEACHER], ids=["frozen", "teacher"])
def test_a_state_is_made_of_the_weights_that_are_trained(xverify, tmp_path, files):
    done = xverify("run", folder(tmp_path / "copy", files), *UNTIMED)
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] in ("EQUAL", "DRIFT"), row["error"]  # DRIFT: eps-hat, Keras' own Adam
        assert {check["verdict"] for check in row["training"]["checks"] if check["name"] == "loss"} == {"EQUAL"}
        # The noise of a copy is that of rounding, so that faults of a thousandth of a loss or a gradient still show.
        assert all(
            limit < 1e-3
            for check in row["training"]["checks"]
            if check["name"] in ("loss", "gradients")
            for limit in check["detection_limits"].values()
        )


ZEROED = ("other.set_weights(model.get_weights())", "other.set_weights([0 * each for each in model.get_weights()])")


@pytest.mark.parametrize(
    ("files", "change", "says"),
    [
        (FROZEN, ZEROED, "loss, step 0: loss 'loss'"),
        (TEACHER, ZEROED, "loss, step 0: loss 'follow'"),
        (TEACHER, ("0.05 *", "0.04 *"), 'state, step 0: state["teacher"].a.weight'),
    ],
    ids=["frozen", "teacher", "another rate of the teacher"],
)
def test_a_copy_of_other_weights_is_different(xverify, tmp_path, files, change, says):
    done = xverify("run", folder(tmp_path / "other", files, tensorflow=change), *UNTIMED)
    assert_port_is_wrong(done, says)
