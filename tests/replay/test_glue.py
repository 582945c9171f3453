"""Glue code on integers, padding before a convolution, layers that never ran: through the command line, with a port in torch."""

import pytest

pytest.importorskip("torch")

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


def run(xverify, tmp_path, spec, reference, port):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in (("spec", spec), ("torch", reference), ("torch_port", port)):
        (folder / f"{name}.py").write_text(text)
    done = xverify("run", folder, "--subjects", "torch:eager,torch_port:eager", "--warmup", 0, "--rerun", 1, "--layers")
    assert done.result is not None, done.err
    return done, done.row("torch_port:eager")["error"]


@pytest.mark.parametrize(
    ("reference", "port"),
    [
        (embedding(), embedding(POWERS)),
        (embedding(), embedding(USES, TABLE)),
        (embedding(USES, BUFFER), embedding()),  # the table is no weight: float64 computes it in float64
    ],
)
def test_another_formula_of_an_embedding_of_integer_times_is_equal(xverify, tmp_path, reference, port):
    done, error = run(xverify, tmp_path, TIMES, reference, port)
    assert done.code == 0, done.out
    assert error["verdict"] == "EQUAL", error["reason"]
    assert error["layers"]["compared"] == 3
    given = next(layer for layer in error["layers"]["layers"] if layer["layer"] == "fc1")
    assert 0 < given["input_ratio"] < 3


@pytest.mark.parametrize(
    "port",
    [
        embedding(REFERENCE.replace("10000", "1000")),
        embedding(order="torch.sin(angles), torch.cos(angles)"),
        embedding(REFERENCE.replace("/ 32", "/ 31")),
    ],
)
def test_a_fault_in_an_embedding_is_placed_in_the_lines_that_compute_it(xverify, tmp_path, port):
    done, error = run(xverify, tmp_path, TIMES, embedding(), port)
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    line = embedding().splitlines().index("        " + REFERENCE) + 1
    says = f"between the model's inputs and `fc1` (torch.py:{line}-{line + 3})"
    assert error["reason"].startswith(f"Fault {says}: the input of `fc1` is already wrong")
    assert f"fc1: is given a wrong input: the fault is {says}" in " ".join(done.out.split())


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


def layer(error, name):
    return next(each for each in error["layers"]["layers"] if each["layer"] == name)


@pytest.mark.parametrize("pads", ["1, 1, 1, 1", "1, 0, 1, 0"])  # with a stride of 2, the last row and column are not read
def test_a_port_that_pads_before_its_convolution_is_equal(xverify, tmp_path, pads):
    _, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, PADS_ITSELF.replace("PADS", pads))
    assert error["verdict"] in ("EQUAL", "IDENTICAL"), error["reason"]
    assert layer(error, "down")["input_ratio"] > 0, "the image inside of the padding was compared"


def test_a_fault_before_a_padded_convolution_is_no_fault_of_the_convolution(xverify, tmp_path):
    port = PADS_ITSELF.replace("PADS", "1, 1, 1, 1").replace("0.5 * torch.tanh", "0.25 * torch.tanh")
    _, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, port)
    down = layer(error, "down")
    assert (down["verdict"], down["faulty"], down["after"]) == ("DIFFERENT", "input", "block.conv2")
    assert down["ratio"] < 4 < 40 < down["input_ratio"]
    assert "between `block.conv2` and `down` (torch.py:14, torch.py:24-26)" in error["reason"]


@pytest.mark.parametrize(
    ("port", "says"),
    [
        (PADS_ITSELF.replace("PADS", "0, 1, 0, 1"), "pads its image by 0 and 1, 0 and 1 (before and behind each axis)"),
        (PADS_ITSELF.replace("PADS", "1, 1, 1, 1").replace("value=0.0", "value=0.5"), "with values from 0.5 to 0.5"),
    ],
)
def test_a_wrong_padding_before_a_convolution_is_a_wrong_input(xverify, tmp_path, port, says):
    _, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, port)
    down = layer(error, "down")
    assert (down["verdict"], down["faulty"]) == ("DIFFERENT", "input")
    assert down["ratio"] < 4, "the convolution is right for what it was given"
    assert says in error["reason"]


def test_a_block_that_never_ran_is_the_first_thing_that_is_said(xverify, tmp_path):
    port = IMAGE_MODEL.replace("self.block(self.stem(x))", "self.stem(x)")
    done, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, port)
    assert done.code == 1
    says = "block.conv1: did not run, and neither did the 2 after it, up to `block.conv2`: the port never calls it"
    assert error["reason"].startswith(says)
    wrong = [each["layer"] for each in error["layers"]["layers"] if each["verdict"] == "DIFFERENT"]
    assert wrong == ["block.conv1", "down"]


def test_a_layer_without_weights_did_not_run_when_the_next_one_is_given_its_input(xverify, tmp_path):
    port = IMAGE_MODEL.replace("self.relu(self.conv1(x))", "self.conv1(x)")
    _, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, port)
    assert error["reason"].startswith("block.relu: did not run: the port never calls it")


def test_a_function_in_place_of_a_layer_did_run(xverify, tmp_path):
    port = IMAGE_MODEL.replace("self.relu(self.conv1(x))", "torch.relu(self.conv1(x))")
    wrong = port.replace("torch.relu(self.conv1(x))", "2 * torch.relu(self.conv1(x))")
    _, error = run(xverify, tmp_path, IMAGES, IMAGE_MODEL, wrong)
    assert "did not run" not in error["reason"]
    assert "between `block.conv1` and `block.conv2` (torch.py:13-14)" in error["reason"]
