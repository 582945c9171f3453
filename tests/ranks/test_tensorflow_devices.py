"""Devices of TensorFlow as ranks, through the command line: right ways are EQUAL, and mistakes are found and named."""

import pytest
from helpers.rankmodels import NET, SPEC

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
