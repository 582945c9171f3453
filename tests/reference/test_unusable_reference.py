"""Through the command line: references that seed themselves, keep something from call to call, or branch on the dtype."""

import pytest
from conftest import MODEL, SPEC, write_folder

pytestmark = pytest.mark.usefixtures("in_one_process")

NET = """
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 6), nn.Linear(6, 3)
        self.calls, self.last = 0, 0.0

    def forward(self, x):
        h = torch.tanh(self.fc1(x))
        BODY
        return self.fc2(h)

def build():
    return Net()
"""
CONVOLUTION = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)
        self.fc = nn.Linear(24, 3)

    def forward(self, x):
        h = self.conv(x[:, None]).flatten(1)
        BODY
        return self.fc(h)

def build():
    return Net()
"""
PORT = """
import numpy as np

class Net:
    def __init__(self):
        shapes = {"conv.weight": (4, 1, 3), "conv.bias": (4,), "fc.weight": (3, 24), "fc.bias": (3,)}
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def __call__(self, x):
        w = self.weights
        windows = np.stack([x[:, i : i + 6] for i in range(3)], -1)
        h = np.einsum("nik,ck->nci", windows, w["conv.weight"][:, 0]) + w["conv.bias"][:, None]
        return h.reshape(len(x), 24) @ w["fc.weight"].T + w["fc.bias"]

def build():
    return Net()
"""


def judged(xverify, folder, *extra):
    done = xverify("run", folder, "--subjects", "torch:eager,numpy", "--no-timing", *extra)
    return done, [row["error"] for row in done.result["rows"]]


def written(tmp_path, body, model=NET, port=MODEL):
    """A folder whose torch model has these lines of code before its last layer, and whose port has none of them."""
    text = model.replace("BODY", body.replace("\n", "\n        "))
    return write_folder(write_folder(tmp_path / "port", ("torch",), model=text), ("numpy",), model=port)


SEEDED = {
    "dropout": ("torch.manual_seed(0)\nh = F.dropout(h, 0.5, True)", "torch.manual_seed in torch.py"),
    "forked": (
        "with torch.random.fork_rng():\n    torch.manual_seed(1)\n    h = h + 0.1 * torch.randn_like(h)",
        "torch.manual_seed in torch.py",
    ),
    "numpy's": (
        "np.random.seed(0)\nh = h * torch.from_numpy(np.random.uniform(0.5, 1.5, 6)).to(h)",
        "numpy.random.seed in torch.py",
    ),
    "python's": ("random.seed(3)\nh = h * random.uniform(0.5, 1.5)", "random.seed in torch.py"),
    "by its calls": (
        "self.calls += 1\ntorch.manual_seed(self.calls)\nh = F.dropout(h, 0.5, True)",
        "first differ in the glue code between `fc1` and `fc2`",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEEDED)
def test_a_reference_that_seeds_itself_is_random_and_nothing_is_equal_beside_it(xverify, tmp_path, kind):
    body, says = SEEDED[kind]
    done, errors = judged(xverify, written(tmp_path, body))
    assert done.code == 1
    assert [error["verdict"] for error in errors] == ["INVALID", "INVALID"]
    assert says in errors[1]["reason"]
    assert "the glue code between `fc1` and `fc2`" in errors[1]["reason"]


@pytest.mark.slow
def test_a_convolution_that_seeds_itself_is_random_too(xverify, tmp_path):
    body = "torch.manual_seed(0)\nh = h + torch.randn_like(h)"
    done, errors = judged(xverify, written(tmp_path, body, CONVOLUTION, PORT))
    assert (done.code, errors[1]["verdict"]) == (1, "INVALID")
    assert "(randn_like in torch.py, line 15), by" in errors[1]["reason"]
    assert "than the one that it sets (torch.manual_seed in torch.py, line 14)" in errors[1]["reason"]


KERAS = """
import keras
import tensorflow as tf

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = keras.layers.Dense(6, name="fc1"), keras.layers.Dense(3, name="fc2")

    def call(self, x):
        h = tf.tanh(self.fc1(x))
        tf.random.set_seed(0)
        h = h + SCALE * tf.random.uniform(tf.shape(h), dtype=h.dtype)
        return self.fc2(h)

def build():
    model = Net()
    model(keras.ops.zeros((1, 8)))
    return model
"""


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "verdict"), [("0.1", "INVALID"), ("0.0", "EQUAL")])
def test_a_reference_of_keras_that_seeds_itself_is_random(xverify, tmp_path, scale, verdict):
    folder = write_folder(tmp_path / "port", ("tensorflow",), model=KERAS.replace("SCALE", scale))
    write_folder(folder, ("numpy",))
    done = xverify("run", folder, "--subjects", "tensorflow:eager,numpy", "--no-timing")
    error = done.row("numpy")["error"]
    assert error["verdict"] == verdict, done.out
    assert verdict == "EQUAL" or "(tensorflow.random.set_seed in tensorflow.py, line 12)" in error["reason"]


@pytest.mark.slow
def test_a_training_step_that_seeds_itself_is_random(xverify, tmp_path):
    folder = written(tmp_path, "torch.manual_seed(0)\nh = h + torch.rand_like(h) * float(self.training)")
    write_folder(folder, (), spec=SPEC.replace("batch=4,", 'batch=4, task="classification",'))
    command = ("run", folder, "--subjects", "torch:eager", "--no-timing")
    done = xverify(*command, "--task", "train")
    assert (done.code, done.row("torch:eager")["error"]["verdict"]) == (1, "INVALID")
    assert (
        "than the one that it sets (torch.manual_seed in torch.py, line" in done.row("torch:eager")["error"]["reason"]
    )
    done = xverify(*command)  # it is off in inference, where the reference alone is inconclusive
    assert (done.code, done.row("torch:eager")["error"]["verdict"]) == (4, "IDENTICAL")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "port"), [(NET, MODEL), (CONVOLUTION, PORT)], ids=["linear layers", "a convolution"])
def test_numbers_that_change_nothing_are_no_randomness(xverify, tmp_path, model, port):
    body = "torch.manual_seed(0)\ntorch.rand(3)\nF.dropout(h, 0.5, True)"
    done, errors = judged(xverify, written(tmp_path, body, model, port))
    assert done.code == 0, done.out
    assert [error["verdict"] for error in errors] == ["IDENTICAL", "EQUAL"]


KEPT = {
    "a counter of two": "self.calls += 1\nh = h * (1 + 0.5 * (self.calls % 2))",
    "a counter of four": "self.calls += 1\nh = h * (1 + 0.5 * (self.calls % 4 == 0))",
    "the last input": "h, self.last = h + self.last, h.detach().mean()",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEPT)
def test_a_reference_that_keeps_something_from_call_to_call_is_random(xverify, tmp_path, kind):
    done, errors = judged(xverify, written(tmp_path, KEPT[kind]))
    assert done.code == 1
    assert [error["verdict"] for error in errors] == ["INVALID", "INVALID"]
    assert "the glue code between `fc1` and `fc2`" in errors[1]["reason"]


BRANCHES = {
    "the dtype": "h = h * (2 if x.dtype == torch.float64 else 1)",
    "the weights' dtype": "h = h * (1 + 1e-4 * (self.fc1.weight.dtype == torch.float64))",
    "the eps of the dtype": "h = h + 1e5 * torch.finfo(h.dtype).eps",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BRANCHES)
def test_nothing_is_equal_beside_a_reference_that_branches_on_the_dtype(xverify, tmp_path, kind):
    port = MODEL.replace("return h @", "return 1.5 * h @")
    done, errors = judged(xverify, written(tmp_path, BRANCHES[kind], port=port))
    assert done.code == 1
    assert [error["verdict"] for error in errors] == ["INVALID", "INVALID"]
    assert errors[0]["reason"] == done.result["reference"]["inconsistent"]
    assert "x what rounding explains, first in the glue code between `fc1` and `fc2`" in errors[1]["reason"]


SCALE = """class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(24))

    def forward(self, x):
        return x * self.scale * (2 if x.dtype == torch.float64 else 1)"""


@pytest.mark.slow
def test_a_layer_that_branches_on_the_dtype_is_named(xverify, tmp_path):
    layer = SCALE + "\n\nclass Net"
    model = CONVOLUTION.replace("class Net", layer, 1).replace("self.fc = ", "self.scale = Scale()\n        self.fc = ")
    port = PORT.replace('"fc.bias": (3,)', '"fc.bias": (3,), "scale.scale": (24,)').replace(
        "h.reshape(len(x), 24)", '(h.reshape(len(x), 24) * w["scale.scale"])'
    )
    done, errors = judged(xverify, written(tmp_path, "h = self.scale(h)", model, port))
    assert (done.code, errors[1]["verdict"]) == (1, "INVALID")
    assert "first in layer `scale`" in errors[1]["reason"]


@pytest.mark.slow
def test_a_model_that_names_float32_in_its_code_is_consistent(xverify, tmp_path):
    body = "h = (h.float() * torch.arange(6.0).to(torch.float32)).to(h.dtype)"
    done, errors = judged(
        xverify, written(tmp_path, body, port=MODEL.replace("return h @", "return (h * np.arange(6, dtype=h.dtype)) @"))
    )
    assert done.code == 0, done.out
    assert errors[1]["verdict"] == "EQUAL"


# -- outputs that are not finite ----------------------------------------------------------------------------------------

TASKS = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(("N", 8)), "task": TensorSpec((1,), dtype="int64", low=0, high=4)},
    outputs={"y": TensorSpec(("N", 3))},
)
"""


def divided(xverify, tmp_path, divisor, fault=""):
    """The rows of a model whose output is divided by this function of the task, which is 3, 0, 1 and 2 in the input cases."""
    model = NET.replace("forward(self, x)", "forward(self, x, task)").replace("BODY", "")
    model = model.replace("return self.fc2(h)", f"return self.fc2(h) / ({divisor})")
    port = MODEL.replace("__call__(self, x)", "__call__(self, x, task)").replace("return h @", "return (h @")
    port = port.replace('w["fc2.bias"]\n', f'w["fc2.bias"]) {fault} / ({divisor}).astype(np.float32)\n')
    folder = write_folder(tmp_path / "port", ("torch",), spec=TASKS, model=model)
    done, errors = judged(xverify, write_folder(folder, ("numpy",), spec=TASKS, model=port))
    return done, errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("case", [0, 3])
def test_an_input_case_without_a_finite_value_is_left_out_and_the_others_decide(xverify, tmp_path, case):
    done, error = divided(xverify, tmp_path, f"task - {(3, 0, 1, 2)[case]}")
    assert (done.code, error["verdict"]) == (0, "EQUAL"), done.out
    assert error["reason"].endswith(f"neither has this one: output 'y' of input case {case}")
    assert error["compared"] == 3
    done, error = divided(xverify, tmp_path, f"task - {(3, 0, 1, 2)[case]}", "* np.float32(1.001)")
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")


@pytest.mark.slow
def test_nothing_is_judged_where_no_case_has_a_finite_value(xverify, tmp_path):
    done, error = divided(xverify, tmp_path, "0 * task", "* np.float32(1.001)")
    assert (done.code, error["verdict"]) == (1, "INVALID")
    assert error["reason"] == "output 'y' has no finite value, and neither has the reference's"
