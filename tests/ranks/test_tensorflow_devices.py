"""Devices of TensorFlow as ranks, through the command line: right ways are EQUAL, and mistakes are found and named."""

import pytest
from helpers.rankmodels import GOAL, NET, NORMED, SPEC

pytest.importorskip("torch")
pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
TRAIN = ("--task", "train", "--steps", "3", "--threads", "2")
DDP = ("--ranks", 2, "--subjects", "tensorflow:eager,tensorflow:graph")
MODEL = """
import tensorflow as tf
from keras import Model, layers


class Net(Model):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = layers.Dense(16, name="fc1"), layers.Dense(5, name="fc2")

    def call(self, x):
        return self.fc2(tf.tanh(self.fc1(x)))


build = Net
"""
TIMES = """

def count():
    return tf.distribute.get_strategy().num_replicas_in_sync


@tf.custom_gradient
def times(x):
    return x, lambda gradient: gradient * FACTOR
"""
HIDDEN = "self.fc2(tf.tanh(self.fc1(x)))"
# A mistake -> (what stands in the place of the model's output, what stands behind it in the file, the words of a report).
MISTAKES = {
    "summed": (
        "self.fc2(times(tf.tanh(self.fc1(x))))",
        TIMES.replace("FACTOR", "count()"),
        "the gradient of fc1.weight: it is 2 times the right one: it is summed over the ranks and not averaged",
    ),
    "halved": (
        "self.fc2(times(tf.tanh(self.fc1(x))))",
        TIMES.replace("FACTOR", "(1 / count())"),
        "the gradient of fc1.weight: it is the right one divided by 2: it is divided by the number of ranks once too often",
    ),
    "not reduced": (
        HIDDEN,
        "\ntf.distribute.ReplicaContext.all_reduce = lambda context, operation, value, *_, **__: value\n",
        "it was not reduced: each rank has the gradient of its own items, divided by 2",
    ),
    "one replica": (
        "self.fc2(first(tf.tanh(self.fc1(x))))",
        "\ndef first(x):\n    context = tf.distribute.get_replica_context()\n"
        "    other = tf.cast(context.replica_id_in_sync_group if context else 0, x.dtype)\n"
        "    return x * (1 - other) + tf.stop_gradient(x) * other\n",
        "the share of rank 1 is missing in it",
    ),
    "statistics": (
        "self.fc2(tf.tanh(self.fc1(x - tf.reduce_mean(x, 0))))",
        "",
        "something that a layer or the loss computes of the whole batch",
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Makes a model folder of the text of tensorflow.py, and of torch.py."""

    def make(text, torch=NET, spec=SPEC):
        place = tmp_path / "net"
        place.mkdir()
        for name, content in (("spec", spec), ("torch", torch), ("tensorflow", text)):
            (place / f"{name}.py").write_text(content)
        return place

    return make


def checks(done, subject="tensorflow:eager"):
    return {each["name"]: each for each in done.row(subject)["training"]["checks"]}


@pytest.mark.parametrize(("ranks", "more"), [(2, ("--optimizer", "lion")), (4, ("--match-optimizer",))])
def test_a_model_of_the_zoo_trains_equally(xverify, ranks, more):
    done = xverify("run", "mlp", *TRAIN, *DDP[2:], "--ranks", ranks, *more)
    assert done.code == 0, done.out + done.err
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        row = done.row(subject)
        assert row["error"]["verdict"] == "EQUAL"
        assert row["training"]["ranks"] == f"{ranks} ranks, plan ddp, {' + '.join([str(32 // ranks)] * ranks)} items"
        assert checks(done, subject)["ranks"]["compared"] == 4  # the parameters, bit for bit


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_model_folder_trains_equally(xverify, folder, ranks):
    done = xverify("run", folder(MODEL), *TRAIN, *DDP[2:], "--ranks", ranks)
    assert done.code == 0, done.out + done.err
    assert done.row("tensorflow:graph")["error"]["verdict"] == "EQUAL"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(xverify, folder, mistake):
    output, more, says = MISTAKES[mistake]
    torch = NET.replace("self.fc1(x)", "self.fc1(x - x.mean(0))") if mistake == "statistics" else NET
    done = xverify("run", folder(MODEL.replace(HIDDEN, output) + more, torch), *TRAIN, *DDP)
    assert done.code == 1, done.out + done.err
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        assert done.row(subject)["error"]["verdict"] == "DIFFERENT"
        assert says in " ".join(each["says"] for each in done.row(subject)["training"]["checks"]), done.out


def test_a_mean_of_means_over_uneven_parts_is_named(xverify, folder):
    done = xverify("run", folder(MODEL), *TRAIN, *DDP, "--shards", "3,1")
    assert done.code == 1, done.out + done.err
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        says = checks(done, subject)["gradients"]["says"]
        assert "it is the mean of the ranks' gradients, which are means over 6 and 2 items" in says


NORM = """

class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm", synchronized=SYNCHRONIZED)

    def call(self, x, training=False):
        return super().call(self.norm(x, training=training))


build = Normed
"""


@pytest.mark.parametrize("synchronized", [False, True])
def test_batch_norms_use_the_items_of_their_replica(xverify, folder, synchronized):
    place = folder(MODEL + NORM.replace("SYNCHRONIZED", str(synchronized)), NET + NORMED)
    done = xverify("run", place, *TRAIN, *DDP, "--batch", 32)
    assert done.code == 0, done.out + done.err
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        assert done.row(subject)["training"]["apart"] == ([] if synchronized else ["norm"])
        found = checks(done, subject)
        assert {found[name]["verdict"] for name in ("loss", "gradients", "update", "ranks")} == {"EQUAL"}
        assert found["statistics"]["difference"] == "biased variance"
    done = xverify("run", place, *TRAIN, *DDP, "--batch", 32, "--match-optimizer")
    assert done.code == (3 if synchronized else 0), done.out + done.err
    assert not synchronized or "which are not synchronised" in done.row("tensorflow:eager")["reason"]


TORCH_STEP = """
def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = (model(batch["x"]) - batch["goal"]).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    return {"loss": loss}
"""
STEP = """
import keras


def train_state(model):
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return optimizer


def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch["x"], training=True) - batch["goal"]))
        scaled = loss / tf.distribute.get_strategy().num_replicas_in_sync
    optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
    return {"loss": loss}
"""
LOCAL = """

class Local(keras.optimizers.SGD):
    def _all_reduce_sum_gradients(self, pairs):
        return pairs
"""
# A mistake in a train_step -> (the text that it changes, the text in its place, the words of the row).
MISTAKES_OF_STEPS = {
    "summed": ("scaled = loss / tf.distribute.get_strategy().num_replicas_in_sync", "scaled = loss", "it is 2 times"),
    "halved": ("scaled = loss / tf", "scaled = loss / 2 / tf", "it is 0.5 times the right one"),
    "local": (
        "SGD(0.1, momentum=0.9)",
        "SGD(0.1, momentum=0.9)\n    optimizer.__class__ = Local",
        "rank 1: the gradient of fc1.weight that an optimizer is given differs from rank 0's: it was not reduced",
    ),
}


def test_own_steps_train_equally_and_their_mistakes_are_named(xverify, folder):
    place = folder(MODEL + STEP, NET + TORCH_STEP.replace("LIMIT", "1e9"), GOAL)
    for name, (old, new, _) in MISTAKES_OF_STEPS.items():
        assert old in STEP
        (place / f"tensorflow-{name}.py").write_text(MODEL + STEP.replace(old, new) + LOCAL)
    modes = {"summed": "graph", "halved": "eager", "local": "graph"}
    wrong = ",".join(f"tensorflow-{name}:{mode}" for name, mode in modes.items())
    done = xverify("run", place, *TRAIN, *DDP[:2], "--subjects", f"{DDP[3]},{wrong}")
    assert done.code == 1, done.out + done.err
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        assert done.row(subject)["error"]["verdict"] == "EQUAL"
        assert {"gradients", "update", "state", "ranks"} <= checks(done, subject).keys()
    for name, mode in modes.items():
        error = done.row(f"tensorflow-{name}:{mode}")["error"]
        assert error["verdict"] == "DIFFERENT"
        assert MISTAKES_OF_STEPS[name][2] in error["reason"]


def test_optimizers_of_keras_clip_the_gradients_of_each_replica(xverify, folder):
    text = MODEL + STEP.replace("momentum=0.9)", "momentum=0.9, global_clipnorm=0.05)")
    place = folder(text, NET + TORCH_STEP.replace("LIMIT", "0.05"), GOAL)
    alone, ranks = (xverify("run", place, *TRAIN, "--no-timing", *more, *DDP[2:]) for more in ((), DDP[:2]))
    assert alone.code == 0, alone.out + alone.err
    assert ranks.code == 1, ranks.out + ranks.err
    assert checks(ranks)["gradients"]["verdict"] == "DIFFERENT"


def test_batch_norms_of_own_steps_use_the_items_of_their_replica(xverify, folder):
    norm = NORM.replace("SYNCHRONIZED", "False")
    place = folder(MODEL + norm + STEP, NET + NORMED + TORCH_STEP.replace("LIMIT", "1e9"), GOAL)
    done = xverify("run", place, *TRAIN, *DDP, "--batch", 32)
    assert done.code == 0, done.out + done.err
    for subject in ("tensorflow:eager", "tensorflow:graph"):
        assert checks(done, subject)["update"]["verdict"] == "EQUAL"
        assert checks(done, subject)["statistics"]["difference"] == "biased variance"


def test_an_optimizer_without_variables_is_told(xverify, folder):
    text = MODEL + STEP.replace("    optimizer.build(model.trainable_variables)\n", "")
    done = xverify("run", folder(text, NET + TORCH_STEP.replace("LIMIT", "1e9"), GOAL), *TRAIN, *DDP)
    assert done.code == 3, done.out + done.err
    assert done.row("tensorflow:eager")["error"]["verdict"] == "EQUAL"
    assert "call optimizer.build(variables) in train_state" in done.row("tensorflow:graph")["reason"]


def test_what_devices_cannot_do_is_one_line(xverify, folder):
    place = folder(MODEL)
    for words, says in (
        (
            ("--plan", "fsdp", "--subjects", "tensorflow:eager"),
            "several ranks of tensorflow train with --plan ddp only",
        ),
        (("--subjects", "tensorflow:xla"), "several ranks train as the model is written: name tensorflow:eager"),
        (
            ("--subjects", "tensorflow:eager", "--clip-norm", "1"),
            "several devices of TensorFlow train with plain optimizers in float32",
        ),
    ):
        done = xverify("run", place, *TRAIN, "--ranks", 2, *words)
        assert done.code == 3, done.out + done.err
        assert says in " ".join(done.out.split())
