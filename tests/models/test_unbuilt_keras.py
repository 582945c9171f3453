"""Keras models that have no weights before their first call, from the command line."""

import pytest
from conftest import TORCH_MODEL

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={
        "tokens": TensorSpec(("N", 7), dtype="int32", low=0, high=11),
        "image": TensorSpec(("N", 3, 5, 6), layout="NCHW"),
    },
    outputs={"y": TensorSpec(("N", 4))},
)
"""

TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.conv = nn.Conv2d(3, 5, 3)
        self.fc = nn.Linear(11, 4)

    def forward(self, tokens, image):
        x = self.embedding(tokens).mean(1)
        y = self.conv(image).relu().mean((2, 3))
        return self.fc(torch.cat([x, y], 1))


def build():
    return Net()
"""

# The check in ``call`` shows with what it is called first: with the batch of the run, and with the channels last.
KERAS = """
import keras
from keras import layers, ops


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(11, 6, name="embedding")
        self.conv = layers.Conv2D(5, 3, name="conv")
        self.fc = layers.Dense(4, name="fc")

    def call(self, tokens, image):
        if (tuple(tokens.shape), tuple(image.shape), "int32" in str(tokens.dtype)) != ((3, 7), (3, 5, 6, 3), True):
            raise ValueError(f"called with {tokens.shape}, {image.shape}")
        x = ops.mean(self.embedding(tokens), 1)
        y = ops.mean(ops.relu(self.conv(image)), (1, 2))
        return self.fc(ops.concatenate([x, y], 1))


def build():
    return Net()
"""

SEQUENCE = """
from keras import Sequential, layers


def build():
    return Sequential([layers.Dense(6, activation="tanh", name="fc1"), layers.Dense(3, name="fc2")])
"""
SEQUENCE_SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 3))})
"""


def run(xverify, folder, subject, keras, spec=SPEC, torch=TORCH, *options):
    for name, text in (("spec", spec), ("torch", torch), ("tensorflow", keras)):
        (folder / f"{name}.py").write_text(text)
    flags = ("--subjects", f"torch:eager,{subject}", "--batch", 3, "--cases", 2, *options)
    return xverify("run", folder, *flags).row(subject)


@pytest.mark.parametrize("subject", ["tensorflow:eager", "tensorflow:graph", "keras-torch"])
def test_a_subclassed_model_is_called_once_before_its_weights_are_read(xverify, tmp_path, subject):
    row = run(xverify, tmp_path, subject, KERAS, SPEC, TORCH, "--no-timing")
    assert (row["error"] or {}).get("verdict") == "EQUAL", row["reason"]
    judged = {layer["layer"]: layer["verdict"] for layer in row["error"]["layers"]["layers"]}
    assert judged == dict.fromkeys(["embedding", "conv", "fc", "(output) y"], "EQUAL")


LIST = KERAS.replace("def call(self, tokens, image):", "def call(self, inputs):\n        tokens, image = inputs")
MAPPING = KERAS.replace(
    "def call(self, tokens, image):", "def call(self, x):\n        tokens, image = x['tokens'], x['image']"
)
ZEROS = '{"tokens": ops.zeros((3, 7), "int32"), "image": ops.zeros((3, 5, 6, 3))}'
CALLED = MAPPING.replace("return Net()", f"model = Net()\n    model({ZEROS})\n    return model")
# The order of the mapping is not that of the spec.
FUNCTIONAL = """
import keras
from keras import layers, ops


def build():
    image, tokens = keras.Input((5, 6, 3)), keras.Input((7,), dtype="int32")
    x = ops.mean(layers.Embedding(11, 6, name="embedding")(tokens), 1)
    y = ops.mean(layers.Conv2D(5, 3, activation="relu", name="conv")(image), (1, 2))
    y = layers.Dense(4, name="fc")(ops.concatenate([x, y], 1))
    return keras.Model({"image": image, "tokens": tokens}, y)
"""


@pytest.mark.parametrize(
    ("subject", "port"),
    [
        *(("tensorflow:graph", port) for port in (LIST, MAPPING, CALLED, FUNCTIONAL)),
        *(("keras-jax", port) for port in (MAPPING, FUNCTIONAL)),
    ],
)
def test_a_model_may_take_all_inputs_in_a_list_or_a_mapping(xverify, tmp_path, subject, port):
    row = run(xverify, tmp_path, subject, port, SPEC, TORCH, "--no-timing")
    assert (row["error"] or {}).get("verdict") == "EQUAL", row["reason"]
    judged = {layer["layer"]: layer["verdict"] for layer in row["error"]["layers"]["layers"]}
    assert judged == dict.fromkeys(["embedding", "conv", "fc", "(output) y"], "EQUAL")


@pytest.mark.parametrize(
    ("port", "says"),
    [
        (
            LIST.replace("tokens, image = inputs", "tokens = inputs.missing"),
            "it takes neither a list nor a mapping of 'tokens', 'image'",
        ),
        (MAPPING.replace("x['tokens']", "x['words']"), "KeyError: words ("),
        (
            FUNCTIONAL.replace('"tokens": tokens', '"words": tokens'),
            "mapping of 'image', 'words'; the inputs of spec.py are 'tokens'",
        ),
    ],
)
def test_inputs_that_a_model_does_not_take_are_told(xverify, tmp_path, port, says):
    assert says in run(xverify, tmp_path, "tensorflow:eager", port, SPEC, TORCH, "--no-timing")["reason"]


@pytest.mark.parametrize("subject", ["tensorflow:eager", "keras-torch"])
def test_a_dropped_bias_of_a_subclassed_model_is_found(xverify, tmp_path, subject):
    port = KERAS.replace("ops.relu(self.conv(image))", "ops.relu(self.conv(image) - self.conv.bias)")
    row = run(xverify, tmp_path, subject, port, SPEC, TORCH, "--no-timing")
    assert (row["error"] or {}).get("verdict") == "DIFFERENT", row["reason"]


@pytest.mark.parametrize(("port", "verdict"), [(SEQUENCE, "EQUAL"), (SEQUENCE.replace("tanh", "relu"), "DIFFERENT")])
def test_a_sequential_model_without_an_input_is_called_once(xverify, tmp_path, port, verdict):
    row = run(xverify, tmp_path, "tensorflow:eager", port, SEQUENCE_SPEC, TORCH_MODEL, "--no-timing")
    assert (row["error"] or {}).get("verdict") == verdict, row["reason"]


def test_an_unbuilt_model_is_trained(xverify, tmp_path):
    options = ("--task", "train", "--no-timing")
    row = run(xverify, tmp_path, "keras-torch", SEQUENCE, SEQUENCE_SPEC, TORCH_MODEL, *options)
    assert (row["error"] or {}).get("verdict") == "EQUAL", row["reason"]
