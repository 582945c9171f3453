"""Parameters of the model itself, such as cls_token and pos_embed, and parameters that no output depends on."""

import numpy as np
import pytest

from xverify.messages import Build, Start
from xverify.messages.reference import FindUnused
from xverify.weights import npz
from xverify.weights.names import rename, rename_layers
from xverify.worker.session import Session


@pytest.mark.parametrize("own", ["position.weight", "position.pos_embed"])
def test_names_toml_names_a_parameter_of_the_model_itself(own):
    table = {"pos_embed": own}
    assert rename([own, "fc.weight"], table) == {own: "pos_embed", "fc.weight": "fc.weight"}
    # The layer that holds it in the port is no layer of the reference.
    assert rename_layers(["position", "fc"], table) == {"position": "position", "fc": "fc"}
    assert rename_layers(["dense"], {"fc.weight": "dense.weight"}) == {"dense": "fc"}


SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 4, 6))}, outputs={"y": TensorSpec(("N", 3))})
"""
TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 6))
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 6))
        self.mask_token = nn.Parameter(torch.zeros(1, 1, 6))
        SCALE
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.fc(x * SCALED).mean(1)


def build():
    return Net()
"""
KERAS = """
from keras import Input, Model, layers, ops


class Tokens(layers.Layer):
    canonical_name = ""
    canonical_weights = {name: (name, None) for name in ("cls_token", "mask_token")}

    def build(self, shape):
        self.cls_token = self.add_weight(shape=(1, 1, shape[-1]), name="cls_token")
        self.mask_token = self.add_weight(shape=(1, 1, shape[-1]), name="mask_token")

    def call(self, x):
        return ops.concatenate([ops.broadcast_to(self.cls_token, (ops.shape(x)[0], 1, x.shape[-1])), x], 1)


class Position(layers.Layer):
    canonical_weights = {"table": ("weight", None)}

    def build(self, shape):
        self.table = self.add_weight(shape=(1, *shape[1:]), name="table")

    def call(self, x):
        return x + self.table


def build():
    x = inputs = Input((4, 6))
    x = Position(name="position")(Tokens(name="tokens")(x))
    x = ops.mean(layers.Dense(3, name="fc")(x), 1)
    return Model(inputs, x)
"""
NAMES = '[tensorflow]\n"pos_embed" = "position.weight"\n'


def test_a_weight_is_unused_only_when_no_output_depends_on_it(tmp_path):
    pytest.importorskip("torch")
    scaled = TORCH.replace("SCALED", "float(self.scale)")  # a graph has it as a constant
    (tmp_path / "torch.py").write_text(scaled.replace("SCALE", "self.scale = nn.Parameter(torch.ones(1))"))
    session = Session()
    session.ask(Start("torch", threads=1, device="cpu"))
    layouts = {"inputs": {"x": None}, "outputs": {"y": None}}
    session.ask(Build(str(tmp_path), options={}, onnx=None, names={}, **layouts))
    inputs = str(tmp_path / "inputs.npz")
    npz.save_file({"0/x": np.random.default_rng(0).standard_normal((4, 4, 6)).astype(np.float32)}, inputs)
    for names, unused in (
        (("mask_token",), ("mask_token",)),
        (("mask_token", "scale"), ("mask_token",)),
        (("scale",), ()),
    ):
        assert session.ask(FindUnused(inputs, names)) == unused


@pytest.mark.slow
def test_parameters_of_the_model_itself_and_unused_ones_by_the_command_line(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "port"
    folder.mkdir()
    torch = TORCH.replace("x * SCALED", "x").replace("        SCALE\n", "")
    files = {"spec.py": SPEC, "torch.py": torch, "tensorflow.py": KERAS, "names.toml": NAMES}
    for name, text in files.items():
        (folder / name).write_text(text)
    subjects = ("torch:eager", "onnxruntime", "tensorflow:graph")
    done = xverify("run", folder, "--subjects", ",".join(subjects), "--warmup", 1, "--rerun", 4, timeout=600)
    assert done.code == 0, done.out + done.err
    for subject in subjects:
        row = done.row(subject)
        assert row["weights_digest"] == done.result["weights"]["digest"]
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
        assert row["error"]["layers"]["compared"] == 1
    [note] = [note for note in done.result["notes"] if "unused" in note]
    assert note.startswith("unused weights of the reference, on which no output depends: 1 (mask_token)")


def test_what_a_weight_is_computed_from_belongs_to_its_layer():
    table = {"fc.parametrizations.weight.original": "fc.original", "fc.parametrizations.weight.0._u": "fc.u"}
    assert rename_layers(["fc", "other"], table) == {"fc": "fc", "other": "other"}
