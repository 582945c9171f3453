"""PaddlePaddle, by the command line: the zoo, ports of every kind of layer, planted faults, and training.

Without PaddlePaddle, in this interpreter or in an environment (``xverify env create paddle``), all of them are skipped.
"""

import json
import shutil

import pytest
from helpers import apart
from helpers.portfiles import write
from test_zoo import SMALL, agree

from xverify.workload.spec import zoo

pytestmark = [pytest.mark.slow, apart.needs("paddle", "PaddlePaddle")]
SUBJECTS = ("torch:eager", "paddle", "paddle:static")


@pytest.mark.parametrize("model", ["mlp", "resnet18", "vit-tiny", "gpt-tiny", "lstm-fused"])
def test_paddle_computes_the_same(xverify, model):
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(SUBJECTS)), model, SUBJECTS)


# -- every kind of layer with weights ---------------------------------------------------------------------------------

IMAGES = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=6,
    inputs={"image": TensorSpec(("N", 4, 12, 12), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 5))},
)
""",
    "torch": """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.BatchNorm2d(8), nn.PReLU(8), nn.ConvTranspose2d(8, 6, 3, 2, 1, 1),
        nn.GroupNorm(3, 6), nn.GELU(), nn.InstanceNorm2d(6, affine=True), nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.LayerNorm([6, 6]), nn.Flatten(), nn.Dropout(0.5), nn.Linear(216, 5),
    )
""",
    "paddle": """
from paddle import nn

def build():
    return nn.Sequential(
        nn.Conv2D(4, 8, 3, 2, 1, groups=2), nn.BatchNorm2D(8), nn.PReLU(8), nn.Conv2DTranspose(8, 6, 3, 2, 1, 1),
        nn.GroupNorm(3, 6), nn.GELU(), nn.InstanceNorm2D(6), nn.AvgPool2D(3, 2, 1),
        nn.LayerNorm([6, 6]), nn.Flatten(), nn.Dropout(0.5), nn.Linear(216, 5),
    )
""",
}
SEQUENCES = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=6,
    inputs={"tokens": TensorSpec(("N", 7), dtype="int64", low=0, high=11)},
    outputs={"logits": TensorSpec(("N", 5))},
)
""",
    "torch": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(11, 8)
        self.gru = nn.GRU(8, 6, 2, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(12, 8, batch_first=True)
        self.rnn = nn.RNN(8, 8, batch_first=True)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cell = nn.LSTMCell(8, 6)
        self.pairs = nn.Bilinear(6, 8, 5)

    def forward(self, tokens):
        x = self.lstm(self.gru(self.tok(tokens))[0])[0]
        x = self.rnn(x)[0] + self.attn(x, x, x)[0]
        h = torch.zeros_like(x[:, 0, :6])
        h, c = self.cell(x[:, 0], (h, h))
        return self.pairs(h * c, x[:, -1])

def build():
    return Net()
""",
    "paddle": """
import paddle
from paddle import nn

class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(11, 8)
        self.gru = nn.GRU(8, 6, 2, direction="bidirect")
        self.lstm = nn.LSTM(12, 8)
        self.rnn = nn.SimpleRNN(8, 8)
        self.attn = nn.MultiHeadAttention(8, 2)
        self.cell = nn.LSTMCell(8, 6)
        self.pairs = nn.Bilinear(6, 8, 5)

    def forward(self, tokens):
        x = self.lstm(self.gru(self.tok(tokens))[0])[0]
        x = self.rnn(x)[0] + self.attn(x)
        h = paddle.zeros_like(x[:, 0, :6])
        _, (h, c) = self.cell(x[:, 0], (h, h))
        return self.pairs(h * c, x[:, -1])

def build():
    return Net()
""",
}


@pytest.mark.parametrize("files", [IMAGES, SEQUENCES], ids=["images", "sequences"])
def test_every_kind_of_layer_is_judged(xverify, tmp_path, files):
    done = xverify("run", write(tmp_path / "port", files, "paddle"), *SMALL, "--subjects", ",".join(SUBJECTS))
    assert done.code == 0, done.out + done.err
    for subject in SUBJECTS[1:]:
        error = done.row(subject)["error"]
        assert error["verdict"] == "EQUAL", error["reason"]
        assert set(error["layers"]["missing"]) <= set(error["layers"]["uncalled"])


@pytest.mark.parametrize(
    ("files", "old", "new", "layer"),
    [
        (IMAGES, "nn.BatchNorm2D(8)", "nn.BatchNorm2D(8, epsilon=1e-3)", "1"),
        (IMAGES, "nn.GELU()", "nn.GELU(approximate=True)", "5"),
        (IMAGES, "nn.AvgPool2D(3, 2, 1)", "nn.AvgPool2D(3, 2, 1, exclusive=False)", "7"),
        (IMAGES, "2, 1, groups=2", "2, 1, groups=2, padding_mode='replicate'", "0"),
        (SEQUENCES, "return self.pairs(h * c", "return self.pairs(h + c", "pairs"),
        (SEQUENCES, "x[:, -1]", "x[:, 0]", "pairs"),
    ],
)
def test_a_fault_is_found_where_it_is(xverify, tmp_path, files, old, new, layer):
    port = write(tmp_path / "port", files, "paddle", old, new)
    row = xverify("run", port, *SMALL, "--subjects", "torch:eager,paddle").row("paddle")
    assert row["error"]["verdict"] == "DIFFERENT", row["error"]["reason"]
    wrong = [each["layer"] for each in row["error"]["layers"]["layers"] if each["verdict"] == "DIFFERENT"]
    assert wrong == [layer], row["error"]["reason"]


def test_every_layer_of_paddle_is_known_or_has_no_weights(tmp_path):
    """``weights/paddle.py`` knows every class of paddle.nn that takes an attribute of a parameter, but for these."""
    code = """
import inspect
import paddle
from xverify.weights import paddle as weights

known = {*weights.LAYERS, weights.RECURRENT, weights.ATTENTION}
for name in sorted(paddle.nn.__all__):
    kind = getattr(paddle.nn, name)
    if not (inspect.isclass(kind) and issubclass(kind, paddle.nn.Layer)):
        continue
    arguments = inspect.signature(kind.__init__).parameters
    held = [each for each in arguments if each.endswith("_attr")]
    if held and not known & {each.__name__ for each in kind.__mro__}:
        print(name)
"""
    strange = set(apart.inside("paddle", tmp_path, code).split())
    # Losses that hold weights, which no model of torch has as a layer; a norm that computes its weight from another one; and
    # containers of layers that are known.
    assert strange <= {
        *("HSigmoidLoss", "AdaptiveLogSoftmaxWithLoss", "SpectralNorm"),
        *("Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"),
    }


# -- training ---------------------------------------------------------------------------------------------------------


def checks(row):
    """The verdicts of the training-parity checks: (check, verdict, how it differs). A busy machine may draw no loss curve."""
    found = [each for each in row["training"]["checks"] if (each["name"], each["verdict"]) != ("curve", "UNTESTED")]
    return {(each["name"], each["verdict"], each["difference"] or "") for each in found}


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_model_learns_as_in_torch(xverify, tmp_path, optimizer):
    done = xverify("run", "mlp", *SMALL, "--task", "train", "--optimizer", optimizer, "--subjects", ",".join(SUBJECTS))
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert {verdict for _, verdict, _ in checks(row)} == {"EQUAL"}, done.out


@pytest.mark.parametrize("files", [IMAGES, SEQUENCES], ids=["images", "sequences"])
def test_every_kind_of_layer_is_trained(xverify, tmp_path, files):
    train = ("run", write(tmp_path / "port", files, "paddle"), *SMALL, "--batch", 6, "--task", "train")
    own = xverify(*train, "--subjects", "torch:eager,paddle")
    matched = xverify(*train, "--subjects", "torch:eager,paddle,paddle:static", "--match-optimizer", "--strict")
    assert (own.code, matched.code) == (0, 0), own.out + matched.out
    drifts = {(name, says) for name, verdict, says in checks(own.row("paddle")) if verdict != "EQUAL"}
    assert {name for name, _ in drifts} == ({"statistics"} if files is IMAGES else set()), drifts
    for row in matched.result["rows"]:
        assert {verdict for _, verdict, _ in checks(row)} == {"EQUAL"}, matched.out


def test_the_optimizers_of_paddle(xverify, tmp_path):
    done = xverify(
        "optimizers", "--frameworks", "torch,paddle", "--json", tmp_path / "table.json", "--quiet", timeout=900
    )
    assert done.code == 0, done.out + done.err
    table = [each for each in json.loads((tmp_path / "table.json").read_text()) if each["framework"] == "paddle"]
    assert all(each["verdict"] == "EQUAL" for each in table if each["match"])
    own = {each["settings"]["name"]: each["difference"] for each in table if not each["match"]}
    assert own == {
        "sgd": "",
        "adam": "",
        "adamw": "",
        "rmsprop": "eps-inside",
        "adagrad": "",
        "lion": "",
        "adafactor": "",
    }
    for name in ("lion", "adafactor"):
        own = next(each for each in table if each["settings"]["name"] == name and not each["match"])
        says = f"paddle.optimizer has no {name.capitalize()}; run with --match-optimizer"
        assert (own["verdict"], own["says"]) == ("UNSUPPORTED", says)


def test_paddle_can_be_the_reference(xverify, tmp_path):
    port = tmp_path / "mlp"
    shutil.copytree(zoo()["mlp"], port, ignore=shutil.ignore_patterns("torch.py"))
    done = xverify("run", port, *SMALL, "--subjects", "paddle,numpy")
    assert (done.result["reference"]["framework"], done.result["reference"]["precision"]) == ("paddle", "float64")
    assert {row["error"]["verdict"] for row in done.result["rows"]} <= {"EQUAL", "IDENTICAL"}
