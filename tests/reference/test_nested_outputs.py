"""Models that return nested outputs, named tuples, dataclasses or None, through the command line."""

from importlib.util import find_spec

import pytest
from conftest import MODEL, write_folder

pytestmark = pytest.mark.usefixtures("in_one_process")

FAST = ("--warmup", 1, "--rerun", 4, "--cases", 2)
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(("N", 8))},
    outputs={"state.1.c": TensorSpec(("N", 6)), "y": TensorSpec(("N", 3)), "state.0": TensorSpec(("N", 6))},
)
"""
RETURNS = 'return h @ w["fc2.weight"].T + w["fc2.bias"]'
Y = RETURNS.removeprefix("return ")
PLAIN = SPEC.replace('"state.1.c"', '"c"').replace('"state.0"', '"h"')


def returning(outputs, before=""):
    """A model of numpy that returns an expression of ``y`` and ``h``."""
    assert MODEL.count(RETURNS) == 1
    return f"{before}\n{MODEL.replace(RETURNS, f'y = {Y}; return {outputs}')}"


NESTED = returning('{"y": y, "state": (h, {"c": 2 * h}), "loss": None}')
OUT = """
from dataclasses import dataclass
from typing import Any

@dataclass
class Out:
    state: Any
    y: Any = None
    loss: Any = None
"""


def run(xverify, tmp_path, spec, model, port):
    folder = write_folder(tmp_path / "port", ("numpy",), spec, model)
    write_folder(folder, ("honest",), spec, port)
    return xverify("run", folder, "--subjects", "numpy,honest", *FAST)


@pytest.mark.parametrize(
    ("spec", "model", "port"),
    [
        (SPEC, NESTED, returning("Out(state=[h, {'c': 2 * h}], y=y)", OUT)),
        (SPEC, NESTED, returning("(2 * h, [y, None], {'k': h})")),  # without names of its own, in the order of the spec
        (PLAIN, returning("(2 * h, (y, None, (h,)))"), returning("{'h': h, 'c': 2 * h, 'y': y}")),
    ],
    ids=["by path", "in order", "mapping"],
)
def test_nested_outputs_are_compared_by_path_or_in_order(xverify, tmp_path, spec, model, port):
    done = run(xverify, tmp_path, spec, model, port)
    assert done.code == 0, done.out + done.err
    error = done.row("honest")["error"]
    assert error["verdict"] in ("EQUAL", "IDENTICAL")
    assert (error["compared"], error["expected"]) == (6, 6)


@pytest.mark.parametrize(
    ("port", "code", "says"),
    [
        (
            returning("Out(state=[h, {'c': 2 * h, 'd': h}], y=y)", OUT),
            1,
            "honest.py returns state.1.d, which spec.py does not name (it names state.1.c, y, state.0)",
        ),
        (
            returning("{'y': y, 'state': (h, {'c': None})}"),
            1,
            "output 'state.1.c' is missing from what honest.py returns",
        ),
        (
            returning("{'y': y, 'state': (h, {'c': 0.5})}"),
            3,
            "honest.py returns a float as output 'state.1.c', and xverify compares tensors",
        ),
        (returning("{'y': y, 'state': (h, {'c': h}), 'state.0': h}"), 3, "two outputs have the path 'state.0'"),
        (returning("{'y': y, 'state': (2 * h, {'c': h})}"), 1, "state.0"),
    ],
    ids=["left over", "None", "a number", "two of one path", "swapped"],
)
def test_an_output_that_does_not_fit_is_named_with_its_file(xverify, tmp_path, port, code, says):
    done = run(xverify, tmp_path, SPEC, NESTED, port)
    assert done.code == code, done.out + done.err
    row = done.row("honest")
    assert says in (row["reason"] or row["error"]["reason"])


def test_outputs_of_the_reference_that_the_spec_does_not_name_are_a_usage_error(xverify, tmp_path):
    done = run(xverify, tmp_path, SPEC.replace(', "state.0": TensorSpec(("N", 6))', ""), NESTED, NESTED)
    assert done.code == 2
    assert "spec.py names the outputs ['state.1.c', 'y']; numpy returns ['state.0', 'state.1.c', 'y']" in done.err
    assert "Name every output of numpy.py, or let numpy.py return those alone" in done.err


# -- real frameworks ----------------------------------------------------------------------------------------------------

LSTM = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(("N", 7, 6))},
    outputs={"state.1": TensorSpec(("N", 8)), "y": TensorSpec(("N", 7, 5)), "state.0": TensorSpec(("N", 8))},
)
"""
FILES = {
    "torch": """
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass
class Out:
    y: Any
    state: Any
    attentions: Any = None


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 5)

    def forward(self, y):
        return Out(self.fc(y), None)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.head = Head()

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return Out(self.head(y).y, (h[0], c[0]))


def build():
    return Net()
""",
    "jittor": """
from jittor import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8)
        self.head = nn.Module()
        self.head.fc = nn.Linear(8, 5)

    def execute(self, x):
        y, (h, c) = self.lstm(x.permute(1, 0, 2))
        return {"state": [h[0], c[0]], "y": self.head.fc(y.permute(1, 0, 2)), "attentions": None}


def build():
    return Net()
""",
    "tensorflow": """
from typing import Any, NamedTuple

from keras import Model, layers, ops

from xverify.models.keras_layers import LSTM



class Out(NamedTuple):
    state: Any
    y: Any


class Net(Model):
    def __init__(self):
        super().__init__()
        self.lstm = LSTM(8, 0, name="lstm", return_state=True)
        self.fc = layers.Dense(5, name="head.fc")

    def call(self, x):
        y, h, c = self.lstm(x)
        return Out((h, c), self.fc(y))


def build():
    net = Net()
    net(ops.zeros((1, 7, 6)))
    return net
""",
}
SUBJECTS = ("torch:eager", "torch:trace", "onnxruntime", "jittor", "tensorflow:eager", "tensorflow:graph")


@pytest.mark.slow
def test_an_lstm_with_its_state_is_equal_in_every_framework(xverify, tmp_path):
    absent = [name for name in ("torch", "greenlet", "jittor", "tensorflow", "onnxruntime") if find_spec(name) is None]
    if absent:
        pytest.skip(f"{absent[0]} is not installed")
    folder = tmp_path / "port"
    folder.mkdir()
    (folder / "spec.py").write_text(LSTM)
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    done = xverify("run", folder, "--subjects", ",".join(SUBJECTS), *FAST, timeout=600)
    assert done.code == 0, done.out + done.err
    for subject in SUBJECTS:
        error = done.row(subject)["error"]
        assert error["verdict"] in ("EQUAL", "IDENTICAL"), done.out
        assert (error["compared"], error["expected"]) == (6, 6)
        assert error["layers"]["compared"] == 2, error["layers"]
