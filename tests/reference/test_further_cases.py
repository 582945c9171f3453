"""Through the command line: layers are judged in every input case whose outputs are not within the plain limit."""

import pytest
from conftest import write_folder

pytestmark = pytest.mark.usefixtures("in_one_process")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"x": TensorSpec(SHAPE), "task": TensorSpec((1,), dtype="int64", low=0, high=4)},
    outputs={"y": TensorSpec(("N", 3))},
)
"""
EXPERTS = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 16)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(4))
        self.head = nn.Linear(16, 3)

    def forward(self, x, task):
        task = int(task)
        h = self.trunk(x)
        h = self.experts[task](h)
        return self.head(h)

def build():
    return Net()
"""
LOOP = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.again = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x, task):
        task = int(task)
        h = self.conv(x)
        for step in range(task):
            h = torch.tanh(self.again(h))
        return self.head(h.mean((2, 3)))

def build():
    return Net()
"""


def judged(xverify, tmp_path, shape, model, *changes):
    """The verdicts on a torch model's port, which is the same model with these changes of its source."""
    spec = SPEC.replace("SHAPE", shape)
    port = model
    for old, new in changes:
        assert old in port
        port = port.replace(old, new, 1)
    folder = write_folder(tmp_path / "port", ("torch",), spec=spec, model=model)
    write_folder(folder, ("torch_port",), spec=spec, model=port)
    done = xverify("run", folder, "--subjects", "torch:eager,torch_port:eager", "--no-timing", "--details")
    return done, done.row("torch_port:eager")["error"]


# The drawn tasks are 1, 3, 0 and 2 in the input cases 0 to 3.


@pytest.mark.slow
def test_a_fault_that_another_case_alone_shows_has_its_place(xverify, tmp_path):
    wrong = ("h = self.experts[task](h)", "h = self.experts[task](h)\n        h = h + 0.01 if task == 2 else h")
    done, error = judged(xverify, tmp_path, '("N", 8)', EXPERTS, wrong)
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert error["layers"]["cases"] == [0, 3]
    assert error["layers"]["equal_cases"] == [0]
    assert error["reason"].startswith("Fault between `experts.2.1` and `head`")
    assert error["reason"].endswith("(input case 3)")
    assert [layer["case"] for layer in error["layers"]["layers"] if layer["verdict"] != "EQUAL"] == [3]


@pytest.mark.slow
def test_a_layer_that_only_another_case_calls_is_named(xverify, tmp_path):
    wrong = ("self.head = ", 'self.experts[2][1] = nn.GELU("tanh")\n        self.head = ')
    done, error = judged(xverify, tmp_path, '("N", 8)', EXPERTS, wrong)
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert error["layers"]["cases"] == [0, 3]
    found = next(layer for layer in error["layers"]["layers"] if layer["layer"] == "experts.2.1")
    assert (found["verdict"], found["case"]) == ("DIFFERENT", 3)
    assert "tanh" in found["explanation"]
    assert "experts.2.1: " in error["reason"]
    assert "in input cases 0, 3, captured from torch_port:eager" in " ".join(done.out.split())


@pytest.mark.slow
def test_faults_of_two_cases_are_both_told(xverify, tmp_path):
    early = ("h = self.conv(x)", "h = self.conv(x)\n        h = 1.02 * h if task == 1 else h")
    late = (
        "return self.head(h.mean((2, 3)))",
        "h = h.mean((2, 3))\n        return self.head(1.1 * h if task == 3 else h)",
    )
    done, error = judged(xverify, tmp_path, '("N", 2, 6, 6)', LOOP, early, late)
    assert done.code == 1
    assert error["layers"]["cases"] == [0, 1]
    wrong = {layer["layer"]: layer["case"] for layer in error["layers"]["layers"] if layer["verdict"] == "DIFFERENT"}
    assert wrong == {"again": 0, "head": 1}


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "model"), [('("N", 8)', EXPERTS), ('("N", 2, 6, 6)', LOOP)], ids=["experts", "loop"])
def test_a_right_port_is_judged_at_the_layers_of_the_first_case(xverify, tmp_path, shape, model):
    done, error = judged(xverify, tmp_path, shape, model)
    assert done.code == 0
    assert error["layers"]["cases"] == [0]
