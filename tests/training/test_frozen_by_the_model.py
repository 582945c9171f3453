"""A model file may freeze parameters itself: its port must train the same ones as the reference, with a recipe and without."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, Recipe, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(("N", 6))},
    outputs={"logits": TensorSpec(("N", 3))},
    training=Recipe(RECIPE),
)
"""
TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)
        self.first.weight.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x).relu())


def build():
    return Net()
"""
FREEZES = "self.first.weight.requires_grad_(False)"
KERAS = """
from keras import Input, Model, layers


def build():
    x = Input((6,))
    y = layers.ReLU()(layers.Dense(5, name="first", trainable=FIRST)(x))
    return Model(x, layers.Dense(3, name="second", trainable=SECOND)(y))
"""
WHOLE = TORCH.replace(FREEZES, "self.first.requires_grad_(False)")
RUN = ("--task", "train", "--no-timing", "--cases", 2, "--effort", "quick")
TRAINS = "the reference does not train first.weight, and the port does: it moves by "


def folder(tmp_path, files, recipe=""):
    (tmp_path / "spec.py").write_text(SPEC.replace("RECIPE", recipe))
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def keras(first, second):
    return KERAS.replace("FIRST", first).replace("SECOND", second)


def broken(row):
    """(check, what it says) of every check that fails."""
    return [
        (check["name"], check["says"])
        for check in row["training"]["checks"]
        if check["verdict"] not in ("EQUAL", "UNTESTED")
    ]


@pytest.mark.parametrize("recipe", ["", 'frozen=("first.weight",)'])
def test_every_layer_of_such_a_model_is_judged(xverify, tmp_path, recipe):
    model = folder(tmp_path, {"torch": TORCH, "torch-port": TORCH}, recipe)
    done = xverify("run", model, *RUN, "--subjects", "torch:eager,torch-port:eager")
    assert done.code == 0, done.out + done.err
    for row in ("torch:eager", "torch-port:eager"):
        training = done.row(row)["training"]
        assert {check["name"] for check in training["checks"]} >= {"backward", "gradients", "frozen", "update"}
        assert training["layers"]["compared"] == training["layers"]["known"] == 2


def test_a_port_in_torch_that_trains_other_parameters_is_different(xverify, tmp_path):
    files = {
        "torch": TORCH,
        "torch-more": TORCH.replace(FREEZES, ""),
        "torch-less": TORCH.replace(FREEZES, f"{FREEZES}; self.second.bias.requires_grad_(False)"),
        "torch-nothing": TORCH.replace("return Net()", "return Net().requires_grad_(False)"),
    }
    subjects = ",".join(f"{name}:eager" for name in files)
    done = xverify("run", folder(tmp_path, files), *RUN, "--subjects", subjects)
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    name, says = broken(done.row("torch-more:eager"))[0]
    assert (name, says[: len(TRAINS)]) == ("frozen", TRAINS)
    name, says = broken(done.row("torch-less:eager"))[0]
    assert name == "gradients"
    assert says.startswith("the reference trains second.bias, and the port does not: frozen")
    assert "every parameter of the model file is frozen" in done.out
    assert {done.row(f"torch-{each}:eager")["error"]["verdict"] for each in ("more", "less")} == {"DIFFERENT"}


def test_a_port_in_keras_must_freeze_the_same_layers(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    files = {
        "torch": WHOLE,
        "tensorflow": keras("False", "True"),
        "tensorflow-more": keras("True", "True"),
        "tensorflow-other": keras("True", "False"),
    }
    rows = ("tensorflow:eager", "tensorflow-more:eager", "tensorflow-other:eager")
    done = xverify("run", folder(tmp_path, files), *RUN, "--subjects", ",".join(rows))
    assert done.code == 1, done.out + done.err
    right, more, other = (done.row(name) for name in rows)
    assert (right["error"]["verdict"], broken(right)) == ("EQUAL", [])
    assert [name for name, says in broken(more) if says.startswith(TRAINS)], broken(more)
    assert broken(other)[0][1].startswith("the reference trains second.weight, second.bias, and the port does not")
