"""Entries of names.toml for layers, beside layers without an entry that have their numbers or their names."""

import pytest

from xverify.weights.names import rename_layers

pytest.importorskip("torch")

MODEL = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}
    def forward(self, x):
        return {result}
def build():
    return Net()
"""
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 6))}, outputs={"y": TensorSpec(("N", 6))}, batch=4)
"""
LIST = "self.bbox = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])"
BLOCKS = (
    "self.blocks = nn.ModuleList([nn.ModuleDict({'fc': nn.Linear(6, 6), 'act': nn.Tanh()}), "
    "nn.ModuleDict({'fc': nn.Linear(6, 6)})])"
)


@pytest.mark.parametrize(
    ("layers", "result", "own", "own_result", "table", "compared"),
    [
        # A nested Sequential, whose activation has the number of a layer of the reference.
        (LIST, "self.bbox[1](torch.relu(self.bbox[0](x)))",
         "self.box = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))", "self.box(x)",
         {"bbox.0": "box.0", "bbox.1": "box.2"}, 2),
        # The same within the reference's own names.
        (LIST, "self.bbox[1](torch.relu(self.bbox[0](x)))",
         "self.bbox = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))", "self.bbox(x)",
         {"bbox.1": "bbox.2"}, 2),
        # The number is in the middle, and the layers beside it have other functions.
        (BLOCKS, "self.blocks[1]['fc'](self.blocks[0]['act'](self.blocks[0]['fc'](x)))",
         "self.steps = nn.ModuleList([nn.ModuleDict({'fc': nn.Linear(6, 6), 'act': nn.Identity()}), "
         "nn.ModuleDict({'act': nn.Tanh(), 'fc': nn.Linear(6, 6)})])",
         "self.steps[1]['fc'](self.steps[1]['act'](self.steps[0]['act'](self.steps[0]['fc'](x))))",
         {"blocks.0.fc": "steps.0.fc", "blocks.1.fc": "steps.1.fc"}, 2),
        # Entries of weights, which also rename their layer.
        (LIST, "self.bbox[1](torch.relu(self.bbox[0](x)))",
         "self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)", "self.b(torch.relu(self.a(x)))",
         {"bbox.0.weight": "a.weight", "bbox.0.bias": "a.bias", "bbox.1": "b"}, 2),
        # One entry of a prefix.
        (BLOCKS, "self.blocks[1]['fc'](self.blocks[0]['act'](self.blocks[0]['fc'](x)))",
         BLOCKS.replace("self.blocks", "self.steps"), "self.steps[1]['fc'](self.steps[0]['act'](self.steps[0]['fc'](x)))",
         {"blocks": "steps"}, 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wrong", [False, True])
def test_a_layer_without_an_entry_is_not_taken_for_another_one(
    xverify, tmp_path, in_one_process, layers, result, own, own_result, table, compared, wrong
):
    own_result = f"{own_result} * 1.001" if wrong else own_result
    files = {
        "torch": MODEL.format(layers=layers, result=result),
        "torch-own": MODEL.format(layers=own, result=own_result),
    }
    for name, text in {**files, "spec": SPEC}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "names.toml").write_text("[torch-own]\n" + "".join(f'"{a}" = "{b}"\n' for a, b in table.items()))
    done = xverify("run", tmp_path, "--subjects", "torch:eager,torch-own:eager", "--no-timing", "--quiet")
    error = done.row("torch-own:eager")["error"]
    assert error["verdict"] == ("DIFFERENT" if wrong else "IDENTICAL"), done.out
    assert error["layers"]["compared"] >= compared
    assert {each["verdict"] for each in error["layers"]["layers"]} <= {"IDENTICAL", "EQUAL"} or wrong, done.out


def test_entries_of_weights_rename_their_layer_beside_one_of_the_canonical_name():
    table = {"lstm.*_l0_reverse": "back.*_l0"}
    assert rename_layers(["lstm", "back"], table) == {"lstm": "lstm", "back": "lstm"}
    assert rename_layers(["w"], {"weights.0": "w.0", "weights.1": "w.1"}) == {"w": "weights"}
