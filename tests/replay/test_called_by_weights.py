"""Linear layers that are never called, because functions are given their weights, are captured and judged like others."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("greenlet")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=3, inputs={"x": TensorSpec(("N", 7, 12))}, outputs={"y": TensorSpec(("N", 5))})
"""

MODEL = """
import torch.nn.functional as F
from torch import nn


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(12, 12)

    def forward(self, x):
        return F.linear(x, self.value.weight, self.value.bias).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.mixed = Mixed()
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        return self.fc(self.mixed(self.encoder(x)).mean(1))


def build():
    return Net()
"""

# The same layers, with attention written by hand.
BY_HAND = """
class Attention(nn.MultiheadAttention):
    def forward(self, x, *more, **options):
        n, length, dim = x.shape
        q, k, v = F.linear(x, self.in_proj_weight, self.in_proj_bias).reshape(n, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v
        return self.out_proj(y.transpose(1, 2).reshape(n, length, dim)), None


class Net(nn.Module):
"""
SWAP = """
        for each in self.encoder.layers:
            each.self_attn.__class__ = Attention
        self.mixed = Mixed()
"""


def run(xverify, folder, port):
    for name, text in (("spec", SPEC), ("torch", MODEL), ("torch_port", port)):
        (folder / f"{name}.py").write_text(text)
    return xverify(
        "run", folder, "--subjects", "torch:eager,torch_port:eager", "--warmup", 1, "--rerun", 2, "--cases", 2
    )


def by_hand():
    changed = MODEL.replace("class Net(nn.Module):\n", BY_HAND.lstrip()).replace(
        "        self.mixed = Mixed()\n", SWAP[1:]
    )
    assert "self.out_proj(y" in changed
    assert "__class__ = Attention" in changed
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("port", [MODEL, by_hand()], ids=["as torch has it", "by hand"])
def test_every_layer_is_judged(xverify, tmp_path, port):
    done = run(xverify, tmp_path, port)
    assert done.code == 0, done.out
    for subject in ("torch:eager", "torch_port:eager"):
        layers = done.row(subject)["error"]["layers"]
        names = {layer["layer"] for layer in layers["layers"]}
        assert {"mixed.value", "encoder.layers.0.self_attn.out_proj", "encoder.layers.1.self_attn.out_proj"} <= names
        assert (layers["missing"], layers["compared"]) == ([], layers["known"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "place", "faulty"),
    [
        ("self.out_proj(y.transpose", "self.out_proj(1.01 * y.transpose", "encoder.layers.0.self_attn.out_proj", "input"),
        ("return self.out_proj(", "return 1.01 * self.out_proj(", "encoder.layers.0.dropout1", "input"),
        # The port does not compute with the layer's weight, so the layer did not run.
        ("self.value.weight, self.value.bias)", "self.value.weight.flip(0), self.value.bias)", "mixed.value", "output"),
    ],
)  # fmt: skip
def test_a_fault_around_such_a_layer_is_placed(xverify, tmp_path, old, new, place, faulty):
    port = by_hand()
    assert port.count(old) == 1
    done = run(xverify, tmp_path, port.replace(old, new))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    first = next(layer for layer in error["layers"]["layers"] if layer["verdict"] == "DIFFERENT")
    assert (first["layer"], first["faulty"]) == (place, faulty)
