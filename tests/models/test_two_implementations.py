"""Ports from torch to torch and from Keras to Keras: right ones are EQUAL in every layer, and planted faults are found there."""

import pytest

SPEC = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"image": TensorSpec(("N", 3, 16, 16), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 10))},
    batch=4,
)
"""

REFERENCE = """
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.act = nn.Linear(width, width), nn.GELU()

    def forward(self, x):
        y = self.norm(x)
        scores = self.q(y) @ self.k(y).transpose(-1, -2) / x.shape[-1] ** 0.5
        return x + self.act(self.out(scores.softmax(-1) @ self.v(y)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 16, 4, 4), nn.BatchNorm2d(16), nn.ReLU()
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x))).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def build():
    return Net()
"""

# The same model with other names, other layers without weights, and a fused attention.
FUSED = """
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.out, self.activation = nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        y = self.norm(x)
        y = F.scaled_dot_product_attention(self.q(y)[:, None], self.k(y)[:, None], self.v(y)[:, None])[:, 0]
        return x + self.activation(self.out(y))


class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 16, 4, 4), nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(Layer(16), Layer(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        return self.head(self.blocks(x.flatten(2).mT).mean(dim=1))


def build():
    return Port()
"""

STEP = """

def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(model, state, batch):
    state.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
    loss.backward()
    state.step()
    return {"loss": loss}
"""

KERAS = """
from keras import Sequential, layers


def build():
    return Sequential([
        layers.Input((16, 16, 3)), layers.Conv2D(8, 3, name="conv"), layers.BatchNormalization(epsilon=1e-5, name="bn"),
        layers.ReLU(), layers.GlobalAveragePooling2D(), layers.Dense(10, name="head"),
    ])
"""

FUNCTIONAL = """
from keras import Input, Model, layers


def build():
    x = image = Input((16, 16, 3))
    x = layers.Conv2D(8, 3, name="first")(x)
    x = layers.BatchNormalization(epsilon=1e-5, name="bn")(x)
    x = layers.Activation("relu")(x)
    x = layers.Dense(10, name="head")(layers.GlobalAveragePooling2D()(x))
    return Model(image, x)
"""

WEIGHTED = {
    "conv",
    "bn",
    "head",
    *(f"blocks.{block}.{name}" for block in (0, 1) for name in ("norm", "q", "k", "v", "out")),
}
NAMES = '[torch-fused]\nconv = "stem"\n[port]\nconv = "stem"\n[tensorflow-functional]\nconv = "first"\n'
FAULTS = {
    "epsilon": ("nn.LayerNorm(width)", "nn.LayerNorm(width, eps=1e-3)", "blocks.0.norm"),
    "gelu": ("nn.GELU()", 'nn.GELU(approximate="tanh")', "blocks.0.act"),
    "stride": ("nn.Conv2d(3, 16, 4, 4)", 'nn.Conv2d(3, 16, 4, 4, padding=2, padding_mode="reflect")', "conv"),
    "keys": ("self.k(y)[:, None], self.v(y)", "self.k(x)[:, None], self.v(y)", "blocks.0.k"),
}  # fmt: skip


def first(found):
    """The first layer or check that is not right."""
    return next(each for each in found if each["verdict"] not in ("EQUAL", "IDENTICAL", "UNTESTED"))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "port"
    place.mkdir()
    for name, text in (
        ("spec.py", SPEC), ("torch.py", REFERENCE), ("torch-fused.py", FUSED), ("names.toml", NAMES),
    ):  # fmt: skip
        (place / name).write_text(text)
    return place


@pytest.mark.slow
def test_a_right_variant_is_equal_in_every_computing_layer(xverify, folder):
    done = xverify("run", folder, "--no-timing", "--subjects", "torch:eager,torch-fused:eager,torch-fused:compile")
    assert done.code == 0, done.out + done.err
    for subject in ("torch-fused:eager", "torch-fused:compile"):
        row = done.row(subject)
        assert row["framework"] == "torch"
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    layers = {each["layer"]: each["verdict"] for each in done.row("torch-fused:eager")["error"]["layers"]["layers"]}
    assert set(layers) >= WEIGHTED | {"blocks.0.act", "blocks.1.act"}
    assert set(layers.values()) <= {"EQUAL", "IDENTICAL"}


@pytest.mark.slow
def test_a_right_variant_trains_as_the_reference(xverify, folder):
    done = xverify("run", folder, "--no-timing", "--task", "train", "--optimizer", "adam")
    assert done.code == 0, done.out + done.err
    row = done.row("torch-fused:eager")
    assert row["error"]["verdict"] == "EQUAL"
    assert {each["layer"] for each in row["training"]["layers"]["layers"]} >= WEIGHTED


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_variant_is_found_in_its_layer(xverify, folder, fault):
    right, wrong, layer = FAULTS[fault]
    assert right in FUSED
    (folder / "torch-fused.py").write_text(FUSED.replace(right, wrong))
    done = xverify("run", folder, "--no-timing", "--subjects", "torch:eager,torch-fused:eager")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "IDENTICAL"
    row = done.row("torch-fused:eager")
    assert row["error"]["verdict"] == "DIFFERENT"
    assert first(row["error"]["layers"]["layers"])["layer"] == layer


@pytest.mark.slow
def test_a_fault_of_a_variant_shows_in_training(xverify, folder):
    (folder / "torch-fused.py").write_text(FUSED.replace("nn.BatchNorm2d(16)", "nn.BatchNorm2d(16, momentum=0.2)"))
    done = xverify("run", folder, "--no-timing", "--task", "train")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    assert first(done.row("torch-fused:eager")["training"]["checks"])["name"] == "statistics"


@pytest.mark.slow
def test_a_file_elsewhere_with_a_step_of_its_own(xverify, folder, tmp_path):
    targets = 'batch=4, targets={"label": TensorSpec(("N",), "int64", low=0, high=10)}'
    (folder / "spec.py").write_text(SPEC.replace("batch=4", targets))
    (folder / "torch.py").write_text("import torch\n" + REFERENCE + STEP)
    for name, step in (("port", STEP), ("wrong", STEP.replace("lr=0.1", "lr=0.1, momentum=0.5"))):
        (tmp_path / f"{name}.py").write_text("import torch\n" + FUSED + step)
    (folder / "names.toml").write_text(NAMES + '[wrong]\nconv = "stem"\n')
    subjects = f"torch:eager,port={tmp_path / 'port.py'},wrong={tmp_path / 'wrong.py'}"
    done = xverify("run", folder, "--no-timing", "--task", "train", "--subjects", subjects)
    assert done.code == 1, done.out + done.err
    assert {name: done.row(name)["error"]["verdict"] for name in ("torch:eager", "port", "wrong")} == {
        "torch:eager": "EQUAL",
        "port": "EQUAL",
        "wrong": "DIFFERENT",
    }
    assert first(done.row("wrong")["training"]["checks"])["name"] == "update"


@pytest.mark.slow
def test_a_file_elsewhere_runs_in_every_mode(xverify, folder, tmp_path):
    (tmp_path / "fast.py").write_text("from torch import nn\n" + FUSED.replace("def build():", "def make():"))
    port = f"port={tmp_path / 'fast.py'}:make"
    subjects = f"torch:eager,{port},{port}@trace,{port}@script,{port}@compile"
    done = xverify("run", folder, "--no-timing", "--subjects", subjects)
    assert done.code == 0, done.out + done.err
    assert [row["subject"] for row in done.result["rows"]] == [
        "torch:eager", "port", "port:trace", "port:script", "port:compile",
    ]  # fmt: skip


@pytest.mark.slow
def test_two_files_of_keras_without_torch(xverify, folder):
    for name in ("torch.py", "torch-fused.py"):
        (folder / name).unlink()
    (folder / "tensorflow.py").write_text(KERAS)
    (folder / "tensorflow-functional.py").write_text(FUNCTIONAL)
    done = xverify("run", folder, "--no-timing")
    assert done.code == 0, done.out + done.err
    names = ("tensorflow:eager", "tensorflow:graph", "tensorflow-functional:eager", "tensorflow-functional:graph")
    assert tuple(row["subject"] for row in done.result["rows"]) == names
    (folder / "tensorflow-functional.py").write_text(FUNCTIONAL.replace('"relu"', '"gelu"'))
    done = xverify("run", folder, "--no-timing", "--subjects", "tensorflow:graph,tensorflow-functional:graph")
    assert done.code == 1
    assert done.row("tensorflow-functional:graph")["error"]["verdict"] == "DIFFERENT"


@pytest.mark.slow
def test_the_lines_for_weights_that_are_fused_stand_in_the_table_of_the_file(folder, xverify):
    port = folder / "torch-fused.py"
    text = port.read_text().replace(
        "self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))", "self.qkv = nn.Linear(width, 3 * width)"
    )
    text = text.replace("        y = F.scaled", "        q, k, v = self.qkv(y).chunk(3, -1)\n        y = F.scaled")
    port.write_text(text.replace("(self.q(y)[:, None], self.k(y)[:, None], self.v(y)", "(q[:, None], k[:, None], v"))
    command = ("run", folder, "--subjects", "torch:eager,torch-fused:eager", "--no-timing", "--layers")
    reason = xverify(*command).row("torch-fused:eager")["reason"]
    told, _, line = reason.partition("in names.toml under [torch-fused.stored]: ")
    assert told.endswith("the shapes fit with, ")
    (folder / "names.toml").write_text(f"{NAMES}\n[torch-fused.stored]\n" + line.replace(", and ", "\n").strip())
    done = xverify(*command)
    assert done.row("torch-fused:eager")["error"]["verdict"] == "EQUAL", (line, done.out)
