"""Faults and mistakes that are planted in a port that stores the weights of three layers in one."""

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.long]

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 5, 8))}, outputs={"y": TensorSpec(("N", 5, 4))}, batch=3)
"""
TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(18, 4)
        LAYERS

    def forward(self, x):
        x = self.first(x)
        q, k, v = PARTS
        return self.last(torch.cat([q.tanh(), k.relu(), v], -1))


def build():
    return Net()
"""
FILES = {
    "spec.py": SPEC,
    "torch.py": TORCH.replace("LAYERS", "self.q, self.k, self.v = (nn.Linear(8, 6) for _ in range(3))").replace(
        "PARTS", "self.q(x), self.k(x), self.v(x)"
    ),
    "torch-fused.py": TORCH.replace("LAYERS", "self.qkv = nn.Linear(8, 18)").replace(
        "PARTS", "self.qkv(x).chunk(3, -1)"
    ),
    "names.toml": '[torch-fused.stored]\n"qkv" = { fuse = ["q", "k", "v"] }\n',
}
# What an optimizer cannot do with one weight in place of three.
REFUSED = {"decay rate of Adafactor", "clipping of Adafactor", "each gradient clipped by itself"}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_fault_of_one_part_is_planted_in_its_channels_and_named(scored, folder):
    _, (score,) = scored(folder, "torch-fused:eager", "--per-kind", 4, "--quiet")
    assert {"q", "k", "v", "first", "last"} == {trial["layer"] for trial in score["trials"]}
    assert score["missed"] == 0
    assert score["layer_named"] == score["explained"] == score["caught"] >= 30
    assert score["false_alarms"] == []
    assert [text for text in score["not_planted"] if "changes the shape" not in text] == []


def test_mistakes_of_training_are_made_in_torch_and_those_that_this_form_refuses_are_listed(scored, folder):
    _, (score,) = scored(folder, "torch-fused:eager", "--task", "train", "--quiet", timeout=1800)
    kinds = {trial["kind"] for trial in score["trials"]}
    assert kinds >= {"frozen parameters move", "eps placement", "frozen layer", "clipping missing", "momentum missing"}
    assert score["planted"] == score["caught"] >= 36
    assert {trial["kind"] for trial in score["trials"] if trial["explained"] != trial["kind"]} == set()
    # The sum over micro-batches is a wrong loss, too, which an earlier check says.
    early = {(trial["kind"], trial["found"]) for trial in score["trials"] if trial["found"] != trial["layer"]}
    assert early <= {("micro-batches summed", "loss")}
    assert score["false_alarms"] == []
    assert {text.partition(":")[0] for text in score["not_planted"]} == REFUSED
