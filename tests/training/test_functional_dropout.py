"""Dropout that a model of torch applies by F.dropout, on the command line and by itself."""

import gc

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from xverify.frameworks.torch.functional_dropout import switch_off, switched_on, watched  # noqa: E402

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 5))}, batch=16)
"""
LAYERS = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(8, 24), nn.Dropout(0.4), nn.Linear(24, 5)

    def forward(self, x):
        return self.fc2(self.drop(torch.relu(self.fc1(x))))


def build():
    return Net()
"""
FUNCTIONS = LAYERS.replace("self.drop(", "self.dropped(").replace(
    "    def forward", "    def dropped(self, x):\n        return F.dropout(x, 0.4, self.training)\n\n    def forward"
)
TRAIN = ("--task", "train", "--no-timing", "--batch", 16)


def run(xverify, folder, torch_file, port, subject, *options):
    for name, text in (("spec", SPEC), ("torch", torch_file), ("torch_port", port)):
        (folder / f"{name}.py").write_text(text)
    return xverify("run", folder, *TRAIN, "--subjects", f"torch:eager,{subject}", *options).row(subject)


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["torch_port:eager", "torch:compile", "torch:script"])
def test_functions_that_drop_values_are_off_in_training(xverify, tmp_path, subject):
    row = run(xverify, tmp_path, FUNCTIONS, LAYERS, subject)
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL"), row["reason"]
    assert {check["verdict"] for check in row["training"]["checks"]} <= {"EQUAL", "IDENTICAL"}


@pytest.mark.slow
def test_a_wrong_port_of_a_model_with_functional_dropout_is_found(xverify, tmp_path):
    row = run(xverify, tmp_path, FUNCTIONS, LAYERS.replace("torch.relu", "F.gelu"), "torch_port:eager")
    assert row["error"]["verdict"] == "DIFFERENT"


@pytest.mark.slow
@pytest.mark.parametrize(("reference", "port"), [(FUNCTIONS, LAYERS), (LAYERS, FUNCTIONS)])
def test_functions_get_no_masks(xverify, tmp_path, reference, port):
    row = run(xverify, tmp_path, reference, port, "torch_port:eager", "--dropout-masks")
    (check,) = (each for each in row["training"]["checks"] if each["name"] == "dropout")
    assert check["verdict"] == "UNTESTED"
    assert "calls dropout of torch.nn.functional" in check["says"]


def test_functions_are_off_while_a_model_exists():
    model, ones = nn.Linear(2, 2), torch.ones(1000)
    assert (F.dropout(ones) == 0).any()
    switch_off(model)
    switch_off(model)
    assert torch.equal(F.dropout(ones), ones)
    with switched_on():
        assert (nn.Dropout(0.5)(ones) == 0).any()
    assert torch.equal(F.dropout2d(ones[None, :, None, None]), ones[None, :, None, None])
    del model
    gc.collect()
    assert (F.dropout(ones) == 0).any()


class Dropping(nn.Module):
    def forward(self, x):
        return F.dropout(x)


def test_a_step_may_drop_values_itself():
    models, ones = [Dropping(), nn.Linear(2, 2)], torch.ones(1000)  # a frame whose locals are read keeps them
    switch_off(models[1])
    switch_off(models[0])
    switch_off(models[0], own_step=True)
    inside = models[0](ones)
    assert torch.equal(inside, ones)
    assert (F.dropout(ones) == 0).any()
    del models[0]
    gc.collect()
    assert torch.equal(F.dropout(ones), ones)
    models.clear()
    gc.collect()
    assert (F.dropout(ones) == 0).any()


def test_only_functions_outside_of_layers_are_noted():
    ones = torch.ones(10)
    with watched() as called:
        nn.Dropout(0.5)(ones)
        F.dropout(ones, 0.0)
        F.dropout(ones, 0.5, training=False)
        F.alpha_dropout(ones, 0.1)
    assert called == ["dropout", "alpha_dropout"]
