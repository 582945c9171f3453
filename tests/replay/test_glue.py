"""Glue code on integers, padding before a convolution, layers that never ran: replayed here, and once each by the command line."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import replayed  # noqa: E402
from torch import nn  # noqa: E402

from xverify.float64.stepping import Models  # noqa: E402
from xverify.replay.causes import Causes  # noqa: E402
from xverify.replay.glue import GlueCode  # noqa: E402
from xverify.replay.tape import Tape  # noqa: E402
from xverify.replay.tensors import Floors, Place, judge  # noqa: E402

TIMES = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4, inputs={"t": TensorSpec(("N",), "int64", low=0, high=1000)}, outputs={"y": TensorSpec(("N", 8))}
)
"""
EMBEDDING = """
import math
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 8)
        {constructor}

    def forward(self, t):
        {frequencies}
        angles = t.float()[:, None] * frequencies
        table = torch.cat([{order}], -1)
        return self.fc2(self.act(self.fc1(table)))


def build():
    return Net()
"""
REFERENCE = "frequencies = torch.exp(-math.log(10000.0) * torch.arange(32, dtype=torch.float32) / 32)"
POWERS = "frequencies = 1 / torch.tensor(10000.0) ** (torch.arange(32) * (1 / 32))"
TABLE = "self.table = torch.from_numpy(np.exp(np.arange(32, dtype=np.float32) * np.float32(-math.log(10000.0) / 32)))"
BUFFER = 'self.register_buffer("table", 10000.0 ** (-torch.arange(32).float() / 32), persistent=False)'
USES = "frequencies = self.table"


def embedding(frequencies=REFERENCE, constructor="", order="torch.cos(angles), torch.sin(angles)"):
    return EMBEDDING.format(frequencies=frequencies, constructor=constructor, order=order)


TIMES_CASE = torch.tensor([3, 250, 700, 999])


def run(xverify, tmp_path, spec, reference, port):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in (("spec", spec), ("torch", reference), ("torch_port", port)):
        (folder / f"{name}.py").write_text(text)
    done = xverify("run", folder, "--subjects", "torch:eager,torch_port:eager", "--warmup", 0, "--rerun", 1, "--layers")
    assert done.result is not None, done.err
    return done, done.row("torch_port:eager")["error"]


def layer(layers, name):
    return next(each for each in layers.layers if each.layer == name)


@pytest.mark.parametrize(
    ("reference", "port"),
    [
        (embedding(), embedding(POWERS)),
        (embedding(), embedding(USES, TABLE)),
        (embedding(USES, BUFFER), embedding()),  # the table is no weight: float64 computes it in float64
    ],
)
def test_another_formula_of_an_embedding_of_integer_times_is_equal(tmp_path, reference, port):
    layers = replayed(tmp_path, reference, port, TIMES_CASE)
    assert layers.verdict == "EQUAL"
    assert layers.compared == 3
    assert 0 < layer(layers, "fc1").input_ratio < 3


FAULTS = [
    embedding(REFERENCE.replace("10000", "1000")),
    embedding(order="torch.sin(angles), torch.cos(angles)"),
    embedding(REFERENCE.replace("/ 32", "/ 31")),
    embedding(REFERENCE.replace("10000.0", "10010.0")),  # a relative change of 1e-3
]
LINE = embedding().splitlines().index("        " + REFERENCE) + 1
PLACE = f"between the model's inputs and `fc1` (torch.py:{LINE}-{LINE + 3})"


@pytest.mark.parametrize("port", FAULTS)
def test_a_fault_in_an_embedding_is_placed_in_the_lines_that_compute_it(tmp_path, port):
    layers = replayed(tmp_path, embedding(), port, TIMES_CASE)
    assert layers.verdict == "DIFFERENT"
    assert layers.describe(layers.first).startswith(f"Fault {PLACE}: the input of `fc1` is already wrong")


@pytest.mark.slow
def test_an_embedding_by_the_command_line(xverify, tmp_path):
    done, error = run(xverify, tmp_path, TIMES, embedding(USES, BUFFER), embedding(POWERS))
    assert (done.code, error["verdict"], error["layers"]["compared"]) == (0, "EQUAL", 3), error["reason"]


@pytest.mark.slow
def test_a_fault_in_an_embedding_by_the_command_line(xverify, tmp_path):
    done, error = run(xverify, tmp_path, TIMES, embedding(), FAULTS[0])
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert error["reason"].startswith(f"Fault {PLACE}")
    out = " ".join(done.out.split())
    assert out.count(PLACE) == 1, "the fault is told once"
    assert f"Fault {PLACE}: the input of `fc1` is already wrong" in out


IMAGES = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4, inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))}
)
"""
IMAGE_MODEL = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.relu = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        y = self.relu(self.conv1(x))
        return x + self.conv2(y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block = nn.Conv2d(3, 4, 3, padding=1), Block()
        self.down, self.fc = nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.Linear(4, 5)

    def forward(self, x):
        x = self.block(self.stem(x))
        x = 0.5 * torch.tanh(x)
        x = self.down(x)
        return self.fc(x.mean((2, 3)))


def build():
    return Net()
"""
PADS_ITSELF = IMAGE_MODEL.replace("stride=2, padding=1", "stride=2").replace(
    "self.down(x)", "self.down(nn.functional.pad(x, (PADS), value=0.0))"
)


IMAGE = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "pads", ["1, 1, 1, 1", "1, 0, 1, 0"]
)  # with a stride of 2, the last row and column are not read
def test_a_port_that_pads_before_its_convolution_is_equal(tmp_path, pads):
    layers = replayed(tmp_path, IMAGE_MODEL, PADS_ITSELF.replace("PADS", pads), IMAGE)
    assert layers.verdict == "EQUAL"
    assert layer(layers, "down").joined == "", "the image inside of the padding was compared"


@pytest.mark.slow
def test_a_fault_before_a_padded_convolution_is_no_fault_of_the_convolution(xverify, tmp_path):
    port = PADS_ITSELF.replace("PADS", "1, 1, 1, 1").replace("0.5 * torch.tanh", "0.25 * torch.tanh")
    done, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, port)
    down = next(each for each in error["layers"]["layers"] if each["layer"] == "down")
    assert (done.code, down["verdict"], down["faulty"], down["after"]) == (1, "DIFFERENT", "input", "block.conv2")
    assert down["ratio"] < 4 < 40 < down["input_ratio"]
    assert "between `block.conv2` and `down` (torch.py:14, torch.py:24-26)" in error["reason"]


@pytest.mark.parametrize(
    ("port", "says"),
    [
        (PADS_ITSELF.replace("PADS", "0, 1, 0, 1"), "pads its image by 0 and 1, 0 and 1 (before and behind each axis)"),
        (PADS_ITSELF.replace("PADS", "1, 1, 1, 1").replace("value=0.0", "value=0.5"), "with values from 0.5 to 0.5"),
    ],
)
def test_a_wrong_padding_before_a_convolution_is_a_wrong_input(tmp_path, port, says):
    layers = replayed(tmp_path, IMAGE_MODEL, port, IMAGE)
    down = layer(layers, "down")
    assert (down.verdict, down.faulty) == ("DIFFERENT", "input")
    assert down.ratio < 4, "the convolution is right for what it was given"
    assert says in layers.describe(layers.first)


def test_a_layer_whose_input_cannot_be_compared_is_not_blamed_alone(tmp_path):
    port = IMAGE_MODEL.replace("self.down(x)", "self.down(0.9 * x[:, :, 1:])")
    port = port.replace("self.down, self.fc = nn.Conv2d", "self.down, self.fc = Wide")
    port = port.replace("class Net", WIDE + "\n\nclass Net")
    layers = replayed(tmp_path, IMAGE_MODEL, port, IMAGE)
    down = layer(layers, "down")
    assert down.verdict == "DIFFERENT"
    assert "the port gives it (4, 4, 7, 8), the reference (4, 4, 8, 8)" in down.joined
    assert "between `block.conv2` and `down` (torch.py:14, torch.py:24-26) or in it" in layers.describe(down)


WIDE = """
class Wide(nn.Conv2d):
    def forward(self, x):
        return super().forward(nn.functional.pad(x, (0, 0, 1, 0)))
"""


@pytest.mark.slow
def test_a_block_that_never_ran_is_the_first_thing_that_is_said(xverify, tmp_path):
    port = IMAGE_MODEL.replace("self.block(self.stem(x))", "self.stem(x)")
    done, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, port)
    assert done.code == 1
    says = "block.conv1: did not run, and neither did the 2 after it, up to `block.conv2`: the port never calls it"
    assert error["reason"].startswith(says)
    wrong = [each["layer"] for each in error["layers"]["layers"] if each["verdict"] == "DIFFERENT"]
    assert wrong == ["block.conv1", "down"]


def test_a_layer_without_weights_did_not_run_when_the_next_one_is_given_its_input(tmp_path):
    layers = replayed(tmp_path, IMAGE_MODEL, IMAGE_MODEL.replace("self.relu(self.conv1(x))", "self.conv1(x)"), IMAGE)
    assert layers.describe(layers.first) == "block.relu: did not run: the port never calls it"


def test_a_function_in_place_of_a_layer_did_run(tmp_path):
    right = IMAGE_MODEL.replace("self.relu(self.conv1(x))", "torch.relu(self.conv1(x))")
    assert replayed(tmp_path, IMAGE_MODEL, right, IMAGE).verdict == "EQUAL"
    layers = replayed(tmp_path, IMAGE_MODEL, right.replace("torch.relu", "2 * torch.relu"), IMAGE)
    assert "did not run" not in layers.describe(layers.first)
    assert "between `block.conv1` and `block.conv2` (torch.py:13-14)" in layers.describe(layers.first)


def test_noise_that_was_small_by_chance_is_measured_by_more_samples():
    """Few values of the tail of GELU, where the error function leaves few digits, and a sample with almost no error in them."""
    x = torch.full((2, 64), 1.5)
    x[0, :16] = torch.linspace(-3.4, -3.1, 16)
    linear = nn.Linear(1, 1)
    models, tape = Models(copy.deepcopy(linear).double(), linear, 0), Tape()
    glue = GlueCode(models, tape, Causes(models, None, None, tape), recorded=True)
    with glue.arithmetic():
        exact = nn.functional.gelu(x.double())
    found, sample = nn.functional.gelu(x), nn.functional.gelu(x).double()
    sample[0, :16] = exact[0, :16] * (1 + 1e-8)
    floors = Floors.between(exact, sample, sample, 1)
    place = Place("b", 0, 0, "Linear", "input")
    assert judge(place, found, floors, 1, 1).verdict != "EQUAL"
    assert glue.judged(place, found, floors, 1).verdict == "EQUAL"
    wrong = found.clone()
    wrong[0, :16] = nn.functional.gelu(x[0, :16] * 1.0001)
    assert glue.judged(place, wrong, floors, 1).verdict != "EQUAL"
