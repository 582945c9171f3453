"""Convolutions of a port that return only the positions that the reference keeps, from the command line."""

import pytest

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=3, inputs={"x": TensorSpec(SHAPE, layout="LAYOUT")}, outputs={"y": TensorSpec(("N", 5))})
"""

TORCH = """
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(6, 8, 4, padding=3)
        self.second = nn.Conv1d(8, 8, 3, padding=4, dilation=2, groups=8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.silu(self.first(x)[..., : x.shape[-1]])
        x = self.second(x)[..., :-4]
        return self.fc(x.square().mean(-1))


def build():
    return Net()
"""

KERAS = """
import keras
from keras import layers, ops


def build():
    x = keras.Input((12, 6))
    y = layers.Conv1D(8, 4, padding="causal", name="first")(x)
    y = layers.Activation("silu")(y)
    y = layers.Conv1D(8, 3, padding="causal", dilation_rate=2, groups=8, name="second")(y)
    return keras.Model(x, layers.Dense(5, name="fc")(ops.mean(ops.square(y), 1)))
"""
CAUSAL = 'y = layers.Conv1D(8, 4, padding="causal", name="first")(x)'
WITHOUT_BIAS = """
class WithoutBias(layers.Conv1D):
    def call(self, x):
        return super().call(x) - self.bias
"""
PADDED_BEHIND = 'y = layers.Conv1D(8, 4, name="first")(layers.ZeroPadding1D((0, 3))(x))'
NOTES = [
    "the output of first has the first 12 of 15 positions of the reference's, and was compared with these",
    "the output of second has the first 12 of 16 positions of the reference's, and was compared with these",
]

IMAGES = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=(2, 1))
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(self.conv(x)[:, :, : x.shape[2]])
        return self.fc(x.relu().mean((2, 3)))


def build():
    return Net()
"""
CUT = "self.conv(x)[:, :, : x.shape[2]]"
# The port pads by itself, and its layer does not.
PORT = IMAGES.replace(", padding=(2, 1)", "").replace(CUT, "self.conv(F.pad(x, (1, 1, 2, 0)))")


def run(xverify, folder, framework, port, torch=TORCH, shape='("N", 6, 12)', layout="NCL"):
    spec = SPEC.replace("SHAPE", shape).replace("LAYOUT", layout)
    for name, text in (("spec", spec), ("torch", torch), (framework, port)):
        (folder / f"{name}.py").write_text(text)
    done = xverify("run", folder, "--subjects", f"torch:eager,{framework}:eager", "--no-timing", "--cases", 2)
    error = done.row(f"{framework}:eager")["error"]
    judged = {each["layer"]: each for each in error["layers"]["layers"] if each["verdict"] != "EQUAL"}
    return error["verdict"], judged, error["layers"]


def run_images(xverify, folder, port):
    return run(xverify, folder, "torch_port", port, IMAGES, '("N", 3, 7, 9)', "NCHW")


def test_causal_convolutions_are_equal_to_the_first_positions_of_padded_ones(xverify, tmp_path):
    verdict, wrong, layers = run(xverify, tmp_path, "tensorflow", KERAS)
    assert (verdict, wrong, layers["missing"], layers["notes"]) == ("EQUAL", {}, [], NOTES)
    assert {layer["layer"] for layer in layers["layers"]} == {"first", "second", "fc", "(output) y"}


def test_a_causal_convolution_that_ends_in_an_activation_is_judged_with_it(xverify, tmp_path):
    port = KERAS.replace('"causal", name="first"', '"causal", activation="silu", name="first"')
    port = port.replace('    y = layers.Activation("silu")(y)\n', "")
    verdict, wrong, layers = run(xverify, tmp_path, "tensorflow", port)
    assert (verdict, wrong, layers["missing"]) == ("EQUAL", {}, [])
    assert set(NOTES) < set(layers["notes"])
    assert run(xverify, tmp_path, "tensorflow", port.replace("silu", "gelu"))[0] == "DIFFERENT"


@pytest.mark.parametrize(
    ("port", "layer", "says"),
    [
        (KERAS.replace(CAUSAL, PADDED_BEHIND), "first", "the port pads its image by 0 and 3"),
        (
            KERAS.replace('"causal", dilation_rate=2', '"valid", dilation_rate=2'),
            "second",
            "output has shape (3, 8, 8)",
        ),
        (
            KERAS.replace("\n\ndef", WITHOUT_BIAS + "\n\ndef").replace("layers.Conv1D(8, 4", "WithoutBias(8, 4"),
            "first",
            "bias",
        ),
        (KERAS.replace("ops.square(y)", "ops.square(y[:, 1:])"), "fc", ""),
    ],
    ids=["padded behind", "not padded", "without bias", "glue code"],
)
def test_a_fault_of_a_causal_convolution_is_found(xverify, tmp_path, port, layer, says):
    verdict, wrong, _ = run(xverify, tmp_path, "tensorflow", port)
    assert (verdict, next(iter(wrong))) == ("DIFFERENT", layer)
    assert says in f"{wrong[layer]['reason']} {wrong[layer]['explanation']}"


def test_positions_that_the_reference_uses_are_missed(xverify, tmp_path):
    """The reference keeps all positions, and the port returns the first ones only."""
    reference = TORCH.replace("self.second(x)[..., :-4]", "self.second(x)")
    verdict, wrong, _ = run(xverify, tmp_path, "tensorflow", KERAS, reference)
    assert (verdict, next(iter(wrong))) == ("DIFFERENT", "fc")


SAME = KERAS.replace('"causal", dilation_rate=2', '"same", dilation_rate=2')
MIDDLE = TORCH.replace("self.second(x)[..., :-4]", "self.second(x)[..., 2:-2]")


def test_positions_in_the_middle_are_compared_where_the_reference_uses_these_alone(xverify, tmp_path):
    verdict, wrong, layers = run(xverify, tmp_path, "tensorflow", SAME, MIDDLE)
    assert (verdict, wrong, layers["missing"]) == ("EQUAL", {}, [])
    assert layers["notes"][1] == (
        "the output of second has the positions 2 to 13 of 16 of the reference's, counted from 0, and was compared with these"
    )


@pytest.mark.parametrize("kept", ["2:", ":-2", ":-4"])
def test_positions_in_the_middle_are_wrong_where_the_reference_uses_others(xverify, tmp_path, kept):
    verdict, wrong, _ = run(xverify, tmp_path, "tensorflow", SAME, MIDDLE.replace("2:-2", kept))
    assert (verdict, next(iter(wrong))) == ("DIFFERENT", "second")


def test_an_image_that_is_cropped_in_one_axis_is_equal(xverify, tmp_path):
    verdict, wrong, layers = run_images(xverify, tmp_path, PORT)
    assert (verdict, wrong, layers["missing"]) == ("EQUAL", {}, [])
    assert layers["notes"] == [
        "the output of conv has the first 7 of 9 positions of the reference's, and was compared with these"
    ]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(1, 1, 2, 0)", "(1, 1, 0, 2)"),
        ("(1, 1, 2, 0)", "(1, 1, 1, 1)"),
        ("self.conv(F.pad(x, (1, 1, 2, 0)))", "self.conv(F.pad(x, (1, 1, 2, 0))) - self.conv.bias[:, None, None]"),
        ("self.conv(F.pad(x, (1, 1, 2, 0)))", "self.conv(F.pad(x, (1, 1, 2, 0), value=0.1))"),
    ],
)
def test_a_fault_of_an_image_that_is_cropped_in_one_axis_is_found(xverify, tmp_path, right, wrong):
    verdict, judged, _ = run_images(xverify, tmp_path, PORT.replace(right, wrong))
    assert (verdict, bool(judged)) == ("DIFFERENT", True)
