"""A training step of one's own in the model files: a GAN with two optimizers, and a loop with a custom loss; right and wrong."""

from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from xverify.mutation.workers import Subject, reference_and_port, request_for
from xverify.progress import Listener
from xverify.reference.build import build_question
from xverify.training.own_parity import OwnStepParity
from xverify.training.parity import Learner
from xverify.worker.messages import Load
from xverify.worker.messages_own_step import PrepareOwnStep
from xverify.worker.messages_training import PrepareTraining
from xverify.workload.options import RunSettings
from xverify.workload.spec import load_folder

pytestmark = pytest.mark.slow
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


def need(framework):
    """Skip the test where a framework is not installed. Jittor is not imported: only its adapter sets what it needs first."""
    if find_spec({"keras-torch": "keras"}.get(framework, framework)) is None:
        pytest.skip(f"{framework} is not installed")


def checks(row):
    """Check -> its verdicts, and the names of known differences."""
    found = {}
    for check in row["training"]["checks"]:
        found.setdefault(check["name"], set()).add(check["difference"] or check["verdict"])
    return found


@pytest.mark.parametrize("framework", ["tensorflow", "jittor"])
def test_a_gan_with_two_optimizers_trains_equally(xverify, tmp_path, framework):
    need(framework)
    subjects = {"tensorflow": ["tensorflow:eager", "tensorflow:graph"]}.get(framework, [framework])
    port = folder(tmp_path / "gan", {name: GAN[name] for name in ("spec", "torch", framework)})
    done = xverify("run", port, *QUICK, "--subjects", ",".join(["torch:eager", *subjects]))
    assert done.code == 0, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    for subject in subjects:
        found = checks(done.row(subject))
        assert found.pop("update") <= {"EQUAL", "eps-hat"}
        assert found.pop("statistics") == {"biased variance"}
        assert found == {"weights": {"EQUAL"}, "loss": {"EQUAL"}, "gradients": {"EQUAL"}}
        assert done.row(subject)["speed"]["fps"] > 0
    assert "with train_step of the model files" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("files", "subjects"),
    [
        (LOOP, ["tensorflow:graph", "tensorflow:xla"]),
        (LOOP, ["jittor"]),
        (ON_TORCH, ["keras-torch"]),
    ],
    ids=["tensorflow", "jittor", "keras-torch"],
)
def test_a_loop_of_ones_own_trains_equally(xverify, tmp_path, files, subjects):
    need(subjects[0].partition(":")[0])
    done = xverify("run", folder(tmp_path / "loop", files), *QUICK, "--subjects", ",".join(["torch:eager", *subjects]))
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "EQUAL", row["error"]
        assert {check["step"] for check in row["training"]["checks"]} == {0, 1, 2}
        assert set(checks(row)) == {"weights", "loss", "gradients", "update"}


# Framework of the port: text of its file -> what stands there in a wrong one, and what a report says then.
WRONG_GAN = {
    "tensorflow": [
        ("tape.gradient(g_loss, g_vars)", "[-each for each in tape.gradient(g_loss, g_vars)]",
         ["gradients, step 0: G.0.weight (optimizer 'g')", "it has the opposite sign",
          "only weights that loss 'g_loss' trains differ"]),
        ('"g": keras.optimizers.Adam(1e-3, beta_1=0.5', '"g": keras.optimizers.Adam(1e-3, beta_1=0.9',
         ["update, step 1: G.0.weight (optimizer 'g')",
          "the gradients that its optimizer is given agree, so the optimizer differs",
          "optimizer 'g' behaves as beta1 0.9; torch.py says 0.5", "only weights that loss 'g_loss' trains differ"]),
        ('"d": keras.optimizers.Adam(2e-3', '"d": keras.optimizers.Adam(2.2e-3',
         ["update, step 0: D.0.weight (optimizer 'd')", "behaves as learning rate 0.0022; it should be 0.002"]),
        (", epsilon=1e-8", "", ["update, step 0: D.0.weight", "eps is 1e-07, the default of Keras"]),
        ("training=True)", "training=False)", ["statistics, step 0", "batch norm is in inference mode"]),
    ],
    "jittor": [
        ("""    state["d"].step(d_loss)
    g_loss = bce(model.D(fake), 1.0)
""", """    g_loss = bce(model.D(fake), 1.0)
    state["d"].step(d_loss)
""", ["loss, step 0: loss 'g_loss'", "'d_loss' agrees",
      "the gradients of optimizer 'g' are computed with stale weights: those before the update of optimizer 'd'"]),
        ('state["g"].step(g_loss)', 'state["g"].step(-g_loss)', ["it has the opposite sign", "'g_loss' trains"]),
    ],
}  # fmt: skip
WRONG_LOOP = {
    "tensorflow": [
        ("tf.stop_gradient(logits)", "logits", ["gradients, step 0: body.weight", "a detach is missing"]),
        ("momentum=0.9", "momentum=0.5", ["update, step 1", "the optimizer behaves as momentum 0.5; torch.py says 0.9"]),
        ("label + 0.5 * pupil", "label", ["gradients, step 0: body.weight"]),
        ("    optimizer.apply(gradients, variables)\n", "", ["the step changes no weight"]),
        ('"pupil": pupil}', '"other": pupil}',
         ["the step returns the losses 'label', 'other'; the reference's returns 'label', 'pupil'"]),
        ("loss = label", "label /= 1 - tf.cast(optimizer.iterations, tf.float32)\n        loss = label",
         ["loss, step 1: loss 'label' is inf"]),
        ('model.body(batch["x"])', 'model.body(batch["x"] + tf.random.normal((12,)))', ["its train_step is random"]),
    ],
    "jittor": [("optimizer.clip_grad_norm(0.5)", "pass", ["gradients, step 0: body.weight"])],
}  # fmt: skip
WRONG_ON_TORCH = {
    "keras-torch": [
        ("    model.zero_grad()\n", "", ["gradients, step 1", "the gradients of the optimizer are not zeroed"])
    ]
}
INVALID = ("returns the losses", "is inf", "is random")


@contextmanager
def judging(path, files, subject):
    """A function that returns the verdict on a port, whose file for the framework of this subject has another text."""
    port = Subject.parse(subject)
    own = port.adapter.reads()
    request, right = request_for(
        str(folder(path / "right", {name: files[name] for name in ("spec", "torch", own)})),
        port,
        RunSettings(task="train"),
    )
    with reference_and_port(request, right, port, Listener()) as (process, prepared, worker):
        parity = OwnStepParity(process, prepared)
        parity.prepare()

        def judged(number, change):
            wrong = folder(
                path / f"wrong-{number}", {name: files[name] for name in ("spec", "torch", own)}, **{own: change}
            )
            built = worker.ask(build_question(load_folder(wrong), port.adapter.name, None, port.mode, trains=True))
            worker.ask(Load(path=str(prepared.weights)))
            training = PrepareTraining(
                inputs=str(prepared.training), mode=port.mode, optimizer=request.optimizer, match=False
            )
            worker.ask(PrepareOwnStep(training))
            learner = Learner(port.label, worker, request.optimizer, (), built.fused_parameters, ())
            return parity.judge(learner, parity.observe(learner))[0]

        yield judged


@pytest.mark.parametrize(
    ("files", "wrong", "subject"),
    [
        (GAN, WRONG_GAN, "tensorflow:graph"),
        (GAN, WRONG_GAN, "jittor"),
        (LOOP, WRONG_LOOP, "tensorflow:graph"),
        (LOOP, WRONG_LOOP, "jittor"),
        (ON_TORCH, WRONG_ON_TORCH, "keras-torch"),
    ],
    ids=["gan in tensorflow", "gan in jittor", "loop in tensorflow", "loop in jittor", "loop in keras on torch"],
)
def test_a_wrong_step_is_different_and_said_to_be(tmp_path, files, wrong, subject):
    framework = subject.partition(":")[0]
    need(framework)
    with judging(tmp_path, files, subject) as judged:
        for number, (text, other, says) in enumerate(wrong[framework]):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == ("INVALID" if any(each in says[0] for each in INVALID) else "DIFFERENT")
            for clause in says:
                assert clause in error.reason, error.reason


RETURNED = 'return {"label": label_loss.item(), "pupil": pupil_loss}'


@pytest.mark.parametrize(
    ("right", "wrong", "code", "says"),
    [
        (RETURNED, "return label_loss", 3, "must return a dictionary of its losses: name -> one number; it returns a Tensor"),
        (RETURNED, 'return {"label": logits}', 3, "'label' is a tensor of shape (16, 5): return its mean or its sum"),
        ("optimizer.step()", "pass", 3, "train_step of the reference changes no weight"),
        ('cross_entropy(logits, batch["target"])', '(logits * float("nan")).mean()', 3, "loss 'label' is nan at step 0"),
        ('model.body(batch["x"])', 'model.body(batch["x"] + torch.randn(12))', 1,
         "the reference is random: two runs of its train_step"),
    ],
    ids=["no dictionary", "no number", "no update", "not a number", "random"],
)  # fmt: skip
def test_a_step_of_the_reference_that_cannot_be_compared_is_one_clear_line(xverify, tmp_path, right, wrong, code, says):
    bad = folder(tmp_path / "bad", {name: LOOP[name] for name in ("spec", "torch")}, torch=(right, wrong))
    done = xverify("run", bad, *QUICK, "--subjects", "torch:eager")
    assert done.code == code, done.out + done.err
    row = done.row("torch:eager")
    assert says in (row["reason"] or row["error"]["reason"])


def test_the_command_line_tells_a_wrong_step_and_a_missing_one(xverify, tmp_path):
    need("tensorflow")
    text, other, says = WRONG_GAN["tensorflow"][0]
    port = folder(tmp_path / "wrong", GAN, tensorflow=(text, other), jittor=("def train_step", "def another"))
    done = xverify("run", port, *QUICK, "--subjects", "torch:eager,tensorflow:graph,jittor")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    for clause in says:
        assert clause in done.row("tensorflow:graph")["error"]["reason"]
        assert clause in " ".join(done.out.split())
    row = done.row("jittor")
    assert row["status"] == "unsupported"
    assert row["reason"].startswith(
        "torch.py defines train_step(model, state, batch), and jittor.py does not: write the function"
    )


def test_settings_of_an_optimizer_have_no_place_beside_a_step_of_ones_own(xverify, tmp_path):
    port = folder(tmp_path / "loop", {name: LOOP[name] for name in ("spec", "torch")})
    done = xverify("run", port, *QUICK, "--optimizer", "adam")
    assert done.code == 2
    assert "--optimizer has no effect on loop: its files make the whole step (train_step)" in done.err
    done = xverify("mutate", port, "--task", "train")
    assert done.code == 2
    assert "the files of loop make the whole step" in done.err
    done = xverify("run", port, *QUICK, "--subjects", "torch:trace")
    assert done.row("torch:trace")["status"] == "unsupported"
    assert "name torch:eager" in done.row("torch:trace")["reason"]
