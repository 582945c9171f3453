"""Recurrent layers of which a model uses the last state alone: the export has no other output of them."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("greenlet")

from helpers.replayedports import model, random, replayed

from xverify.results.verdicts import Verdict

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 7, 6))}, outputs={"y": TensorSpec(("N", 3))}, batch=4)
"""
MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.Linear(6, 8)
        self.rnn = nn.%s(8, 10, batch_first=True, %s)
        self.head = nn.Linear(%d, 3)

    def forward(self, x):
        %s
        return self.head(state.transpose(0, 1).flatten(1))


def build():
    return Net()
"""
STATE_ALONE = """
class Recurrent(nn.{kind}):
    def forward(self, x):
        _, {taken} = super().forward({scale} * x[:, :{end}])
        return state
"""
GRU = ("GRU", "bidirectional=False", 10, "_, state = self.rnn(self.before(x))")
BOTH_WAYS = ("GRU", "bidirectional=True", 20, "_, state = self.rnn(self.before(x))")
CELL_STATE = ("LSTM", "bidirectional=False", 10, "_, (_, state) = self.rnn(self.before(x))")


@pytest.mark.parametrize("settings", [GRU, BOTH_WAYS, CELL_STATE])
def test_a_layer_of_which_the_state_alone_is_used_is_judged(xverify, tmp_path, settings):
    (tmp_path / "spec.py").write_text(SPEC)
    (tmp_path / "torch.py").write_text(MODEL % settings)
    file = tmp_path / "result.json"
    done = xverify("run", tmp_path, "--subjects", "torch:eager,onnxruntime", "--no-timing", "--json", file)
    assert done.code == 0, done.out + done.err
    rows = json.loads(file.read_text())["rows"]
    layers = {row["subject"].partition(":")[0]: row["error"]["layers"] for row in rows}["onnxruntime"]
    assert {each["layer"] for each in layers["layers"]} >= {"before", "rnn", "head"}
    assert (layers["compared"], layers["known"], layers["missing"]) == (3, 3, [])


@pytest.mark.parametrize(("kind", "taken"), [("GRU", "state"), ("LSTM", "(state, _)"), ("LSTM", "(_, state)")])
@pytest.mark.parametrize("wrong", ["", "weight", "state"])
def test_a_wrong_state_is_found_at_its_layer(tmp_path, kind, taken, wrong):
    reference = model(
        f"self.rnn, self.head = nn.{kind}(8, 10, batch_first=True), nn.Linear(10, 3)",
        f"_, {taken} = self.rnn(x)\nreturn self.head(state[0])",
    )
    port = model(
        "self.rnn, self.head = Recurrent(8, 10, batch_first=True), nn.Linear(10, 3)",
        "return self.head(self.rnn(x)[0])",
        STATE_ALONE.format(
            kind=kind, taken=taken, scale=1.001 if wrong == "weight" else 1, end=-1 if wrong == "state" else 7
        ),
    )
    layers = replayed(tmp_path, reference, port, random(4, 7, 8))
    if not wrong:
        assert (layers.verdict, layers.compared, layers.missing) == (Verdict.EQUAL, 2, ())
    else:
        assert (layers.verdict, layers.first.layer, layers.first.faulty) == (Verdict.DIFFERENT, "rnn", "output")
