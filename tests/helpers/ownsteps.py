"""Models with a training step of their own, right ones, and what the tests of several frameworks do with them."""

from contextlib import contextmanager

from xverify.messages import Load
from xverify.messages.own_step import PrepareOwnStep
from xverify.messages.training import PrepareTraining
from xverify.mutation.workers import Subject, reference_and_port, request_for
from xverify.progress import Listener
from xverify.reference.build import build_question
from xverify.training.own_parity import OwnStepParity
from xverify.training.parity import Learner
from xverify.workload.options import RunSettings
from xverify.workload.spec import load_folder

QUICK = ["--task", "train", "--warmup", "1", "--rerun", "2"]

GAN = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"z": TensorSpec(("N", 8))},
    outputs={"x": TensorSpec(("N", 6))},
    targets={"real": TensorSpec(("N", 6))},
    batch=16,
)
""",
    "torch": """
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6))
        self.D = nn.Sequential(nn.Linear(6, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
    def forward(self, z):
        return self.G(z)
build = Gan

def train_state(model):
    return {
        "d": torch.optim.Adam(model.D.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        "g": torch.optim.Adam(model.G.parameters(), lr=1e-3, betas=(0.5, 0.999)),
    }

def train_step(model, state, batch):
    fake = model.G(batch["z"])
    real_score, fake_score = model.D(batch["real"]), model.D(fake.detach())
    d_loss = bce(real_score, torch.ones_like(real_score)) + bce(fake_score, torch.zeros_like(fake_score))
    state["d"].zero_grad()
    d_loss.backward()
    state["d"].step()
    score = model.D(fake)
    g_loss = bce(score, torch.ones_like(score))
    state["g"].zero_grad()
    g_loss.backward()
    state["g"].step()
    return {"d_loss": d_loss, "g_loss": g_loss}
""",
    "tensorflow": """
import keras
import tensorflow as tf
from keras.layers import BatchNormalization, Dense, LeakyReLU, ReLU

class Gan(keras.Model):
    def __init__(self):
        super().__init__()
        norm = BatchNormalization(momentum=0.9, epsilon=1e-5, name="G.1")
        self.G = keras.Sequential([keras.Input((8,)), Dense(24, name="G.0"), norm, ReLU(), Dense(6, name="G.3")])
        self.D = keras.Sequential([keras.Input((6,)), Dense(24, name="D.0"), LeakyReLU(0.2), Dense(1, name="D.2")])
    def call(self, z, training=False):
        return self.G(z, training=training)
build = Gan

def train_state(model):
    return {
        "d": keras.optimizers.Adam(2e-3, beta_1=0.5, epsilon=1e-8),
        "g": keras.optimizers.Adam(1e-3, beta_1=0.5, epsilon=1e-8),
    }

def bce(score, label):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(tf.fill(tf.shape(score), label), score))

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        fake = model.G(batch["z"], training=True)
        with tape.stop_recording():
            with tf.GradientTape() as d_tape:
                d_loss = bce(model.D(batch["real"]), 1.0) + bce(model.D(fake), 0.0)
            d_vars = model.D.trainable_variables
            state["d"].apply(d_tape.gradient(d_loss, d_vars), d_vars)
        g_loss = bce(model.D(fake), 1.0)
    g_vars = model.G.trainable_variables
    state["g"].apply(tape.gradient(g_loss, g_vars), g_vars)
    return {"d_loss": d_loss, "g_loss": g_loss}
""",
    "jittor": """
import jittor as jt
from jittor import nn

class Gan(nn.Module):
    def __init__(self):
        self.G = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 6))
        self.D = nn.Sequential(nn.Linear(6, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
    def execute(self, z):
        return self.G(z)
build = Gan

def train_state(model):
    return {
        "d": jt.optim.Adam(model.D.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        "g": jt.optim.Adam(model.G.parameters(), lr=1e-3, betas=(0.5, 0.999)),
    }

def bce(score, label):
    return nn.binary_cross_entropy_with_logits(score, jt.ones_like(score) * label)

def train_step(model, state, batch):
    fake = model.G(batch["z"])
    d_loss = bce(model.D(batch["real"]), 1.0) + bce(model.D(fake.detach()), 0.0)
    state["d"].step(d_loss)
    g_loss = bce(model.D(fake), 1.0)
    state["g"].step(g_loss)
    return {"d_loss": d_loss, "g_loss": g_loss}
""",
}


# A classifier whose second head learns what the first one says, with its own clipping of gradients.
LOOP = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 12))}, outputs={"logits": TensorSpec(("N", 5))}, batch=16)
""",
    "torch": """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.pupil = nn.Linear(12, 24), nn.Linear(24, 5), nn.Linear(24, 5)
    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))
build = Net

def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

def train_step(model, optimizer, batch):
    hidden = torch.tanh(model.body(batch["x"]))
    logits = model.head(hidden)
    taught = torch.softmax(logits.detach(), 1)
    label_loss = cross_entropy(logits, batch["target"])
    pupil_loss = -(taught * log_softmax(model.pupil(hidden), 1)).sum(1).mean()
    optimizer.zero_grad()
    (label_loss + 0.5 * pupil_loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return {"label": label_loss.item(), "pupil": pupil_loss}
""",
    "tensorflow": """
import keras
import tensorflow as tf
from keras.layers import Dense

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = Dense(24, activation="tanh", name="body")
        self.head, self.pupil = Dense(5, name="head"), Dense(5, name="pupil")
        self.body.build((None, 12))
        self.head.build((None, 24))
        self.pupil.build((None, 24))
        self.built = True
    def call(self, x):
        return self.head(self.body(x))
build = Net

def train_state(model):
    return keras.optimizers.SGD(0.05, momentum=0.9)

def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        hidden = model.body(batch["x"])
        logits = model.head(hidden)
        taught = tf.nn.softmax(tf.stop_gradient(logits))
        label = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], logits))
        pupil = -tf.reduce_mean(tf.reduce_sum(taught * tf.nn.log_softmax(model.pupil(hidden)), 1))
        loss = label + 0.5 * pupil
    variables = model.trainable_variables
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 0.5)
    optimizer.apply(gradients, variables)
    return {"label": label, "pupil": pupil}
""",
    "jittor": """
import jittor as jt
from jittor import nn

class Net(nn.Module):
    def __init__(self):
        self.body, self.head, self.pupil = nn.Linear(12, 24), nn.Linear(24, 5), nn.Linear(24, 5)
    def execute(self, x):
        return self.head(jt.tanh(self.body(x)))
build = Net

def train_state(model):
    return jt.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

def train_step(model, optimizer, batch):
    hidden = jt.tanh(model.body(batch["x"]))
    logits = model.head(hidden)
    taught = nn.softmax(logits.detach(), 1)
    label_loss = nn.cross_entropy_loss(logits, batch["target"])
    pupil_loss = -(taught * nn.log_softmax(model.pupil(hidden), 1)).sum(1).mean()
    optimizer.zero_grad()
    optimizer.backward(label_loss + 0.5 * pupil_loss)
    optimizer.clip_grad_norm(0.5)
    optimizer.step()
    return {"label": label_loss, "pupil": pupil_loss}
""",
}
# The same for Keras on torch, as its guides write a loop.
ON_TORCH = {
    **{name: LOOP[name] for name in ("spec", "torch")},
    "tensorflow": LOOP["tensorflow"].partition("import tensorflow as tf")[0]
    + "import torch"
    + LOOP["tensorflow"].partition("import tensorflow as tf")[2].partition("def train_step")[0]
    + """
def train_step(model, optimizer, batch):
    hidden = model.body(batch["x"])
    logits = model.head(hidden)
    taught = torch.softmax(logits.detach(), 1)
    label = torch.nn.functional.cross_entropy(logits, batch["target"])
    pupil = -(taught * torch.log_softmax(model.pupil(hidden), 1)).sum(1).mean()
    model.zero_grad()
    (label + 0.5 * pupil).backward()
    variables = model.trainable_variables
    torch.nn.utils.clip_grad_norm_([each.value for each in variables], 0.5)
    with torch.no_grad():
        optimizer.apply([each.value.grad for each in variables], variables)
    return {"label": label, "pupil": pupil}
""",
}


def folder(path, files, **changes):
    """A model folder. changes: framework -> (text, text in its place)."""
    path.mkdir()
    for name, text in files.items():
        old, new = changes.get(name, ("", ""))
        assert old in text
        (path / f"{name}.py").write_text(text.replace(old, new) if old else text)
    return path


def checks(row):
    """Check -> its verdicts, and the names of known differences."""
    found = {}
    for check in row["training"]["checks"]:
        found.setdefault(check["name"], set()).add(check["difference"] or check["verdict"])
    return found


@contextmanager
def judging(path, files, subject):
    """A function that returns the verdict on a port, whose file for the framework of this subject has another text."""
    own = Subject.parse(subject).adapter.reads()
    files = {name: files[name] for name in ("spec", "torch", own)}
    with judging_folders(folder(path / "right", files), subject) as judged:
        yield lambda number, change: judged(folder(path / f"wrong-{number}", files, **{own: change}))[0]


@contextmanager
def judging_folders(right, subject, **settings):
    """A function that judges the port of another folder beside the reference of this one. It returns its error and its training.

    The reference and its steps in float64 are computed once. settings: of a run.
    """
    port = Subject.parse(subject)
    request, model = request_for(str(right), port, RunSettings(task="train", **settings))
    with reference_and_port(request, model, port, Listener()) as (process, prepared, worker):
        parity = OwnStepParity(process, prepared)
        parity.prepare(curve=False)

        def judged(wrong):
            built = worker.ask(build_question(load_folder(wrong), port.adapter.reads(), None, port.mode, trains=True))
            worker.ask(Load(path=str(prepared.weights)))
            training = PrepareTraining(
                inputs=str(prepared.training), mode=port.mode, optimizer=request.optimizer, match=False
            )
            worker.ask(PrepareOwnStep(training))
            learner = Learner(port.label, worker, request.optimizer, (), built.fused_parameters, ())
            return parity.judge(learner, parity.observe(learner))

        yield judged


def assert_port_is_wrong(done, *says):
    """Assert that torch is EQUAL and TensorFlow DIFFERENT in a run of both, for a reason that says all this."""
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    error = done.row("tensorflow:eager")["error"]
    assert error["verdict"] == "DIFFERENT"
    for each in says:
        assert each in error["reason"]
