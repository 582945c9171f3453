"""MLX, by the command line: the zoo, ports of every kind of layer, planted faults, and training.

Without MLX, in this interpreter or in an environment (``xverify env create mlx``), all of them are skipped.
"""

import json

import pytest
from helpers import apart
from helpers.marks import with_long
from helpers.portfiles import write
from test_zoo import SMALL, agree

pytestmark = [pytest.mark.slow, apart.needs("mlx", "MLX")]
SUBJECTS = ("torch:eager", "mlx", "mlx:compile")


@pytest.mark.parametrize(
    "model",
    with_long(["mlp", "resnet50-cifar10", "vit-tiny", "gpt-tiny", "lstm-fused"], "resnet50-cifar10", "gpt-tiny"),
)
def test_mlx_computes_the_same(xverify, model):
    agree(xverify("run", model, *SMALL, "--subjects", ",".join(SUBJECTS), timeout=1800), model, SUBJECTS)


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
        nn.GroupNorm(3, 6), nn.GELU(), nn.InstanceNorm2d(6, affine=True), nn.AvgPool2d(3, 2, 1), nn.Flatten(),
        nn.LayerNorm(216), nn.Dropout(0.5), nn.Linear(216, 5),
    )
""",
    "mlx": """
from mlx import nn
from xverify.models.mlx_layers import Flatten

def build():
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.BatchNorm(8), nn.PReLU(8),
        nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1), nn.GroupNorm(3, 6, pytorch_compatible=True), nn.GELU(),
        nn.InstanceNorm(6, affine=True), nn.AvgPool2d(3, 2, 1), Flatten(), nn.LayerNorm(216), nn.Dropout(0.5),
        nn.Linear(216, 5),
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
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.gru = nn.GRU(8, 6, bias=False, batch_first=True)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.rnn = nn.RNN(8, 8, batch_first=True)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.RMSNorm(8, 1e-5)
        self.scale = nn.Parameter(torch.ones(8))
        self.pairs = nn.Bilinear(8, 8, 5)

    def forward(self, tokens):
        x = self.tok(tokens)
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        x = self.lstm(self.gru(x)[0])[0]
        x = self.rnn(x)[0] + self.attn(x, x, x)[0]
        x = self.norm(x) * self.scale
        return self.pairs(x[:, 0], x[:, -1])

def build():
    return Net()
""",
    "mlx": """
import mlx.core as mx
from mlx import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.gru = nn.GRU(8, 6, bias=False)
        self.lstm = nn.LSTM(6, 8)
        self.rnn = nn.RNN(8, 8)
        self.attn = nn.MultiHeadAttention(8, 2, bias=True)
        self.norm = nn.RMSNorm(8)
        self.scale = mx.ones(8)
        self.pairs = nn.Bilinear(8, 8, 5)

    def __call__(self, tokens):
        x = self.conv(self.tok(tokens))
        x = self.lstm(self.gru(x))[0]
        x = self.rnn(x) + self.attn(x, x, x)
        x = self.norm(x) * self.scale
        return self.pairs(x[:, 0], x[:, -1])

def build():
    return Net()
""",
}


@pytest.mark.parametrize("files", [IMAGES, SEQUENCES], ids=["images", "sequences"])
def test_every_kind_of_layer_is_judged(xverify, tmp_path, files):
    done = xverify("run", write(tmp_path / "port", files, "mlx"), *SMALL, "--subjects", ",".join(SUBJECTS))
    assert done.code == 0, done.out + done.err
    for subject in SUBJECTS[1:]:
        error = done.row(subject)["error"]
        assert error["verdict"] == "EQUAL", error["reason"]
        assert set(error["layers"]["missing"]) <= set(error["layers"]["uncalled"])


@pytest.mark.parametrize(
    ("files", "old", "new", "layer"),
    [
        (IMAGES, "nn.BatchNorm(8)", "nn.BatchNorm(8, eps=1e-3)", "1"),
        (IMAGES, "3, 6, pytorch_compatible=True", "3, 6", "4"),
        (IMAGES, "nn.GELU()", "nn.GELU('tanh')", "5"),
        (SEQUENCES, "nn.RMSNorm(8)", "nn.RMSNorm(8, 1e-2)", "norm"),
    ],
)
def test_a_fault_is_found_where_it_is(xverify, tmp_path, files, old, new, layer):
    port = write(tmp_path / "port", files, "mlx", old, new)
    row = xverify("run", port, *SMALL, "--subjects", "torch:eager,mlx").row("mlx")
    assert row["error"]["verdict"] == "DIFFERENT", row["error"]["reason"]
    wrong = [each["layer"] for each in row["error"]["layers"]["layers"] if each["verdict"] == "DIFFERENT"]
    assert wrong == [layer], row["error"]["reason"]


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ("nn.GRU(8, 6)", "GRU 'gru' cannot be given torch's weights: MLX stores the sum of two of torch's biases"),
        (
            "nn.QuantizedLinear(64, 64)",
            "QuantizedLinear 'gru' cannot be given torch's weights: its weight is quantised",
        ),
    ],
)
def test_a_layer_without_a_counterpart_is_refused_with_the_reason(xverify, tmp_path, layer, says):
    port = write(tmp_path / "port", SEQUENCES, "mlx", "nn.GRU(8, 6, bias=False)", layer)
    done = xverify("run", port, *SMALL, "--subjects", "torch:eager,mlx")
    assert done.code == 3
    assert says in done.row("mlx")["reason"]


def test_every_layer_of_mlx_is_known_or_has_no_weights(tmp_path):
    """``weights/mlx.py`` knows every class of mlx.nn whose constructor makes an array, but for these."""
    code = """
import inspect
from mlx import nn
from xverify.weights import mlx as weights

known = {*weights.LAYERS, *weights.COMPUTED, *weights.UNKNOWN}
for name, kind in sorted(vars(nn).items()):
    if not (inspect.isclass(kind) and issubclass(kind, nn.Module)) or "__init__" not in vars(kind):
        continue
    makes = "mx." in inspect.getsource(kind.__init__)
    if makes and not known & {each.__name__ for each in kind.__mro__}:
        print(name)
"""
    strange = set(apart.inside("mlx", tmp_path, code).split())
    pools = {f"{kind}Pool{count}d" for kind in ("Avg", "Max") for count in (1, 2, 3)}  # the value that they pad with
    # The constants of the encoding are no parameters, and the weights of a sharded module are those of what it holds.
    assert strange <= {"SinusoidalPositionalEncoding", "FullyShardedModule", *pools}


# -- training ---------------------------------------------------------------------------------------------------------


def checks(row):
    """The verdicts of the training-parity checks: (check, verdict, how it differs). A busy machine may draw no loss curve."""
    found = [each for each in row["training"]["checks"] if (each["name"], each["verdict"]) != ("curve", "UNTESTED")]
    return {(each["name"], each["verdict"], each["difference"] or "") for each in found}


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_model_learns_as_in_torch(xverify, optimizer):
    done = xverify("run", "mlp", *SMALL, "--task", "train", "--optimizer", optimizer, "--subjects", ",".join(SUBJECTS))
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert {verdict for _, verdict, _ in checks(row)} == {"EQUAL"}, done.out


@pytest.mark.parametrize("files", [IMAGES, SEQUENCES], ids=["images", "sequences"])
def test_every_kind_of_layer_is_trained(xverify, tmp_path, files):
    train = ("run", write(tmp_path / "port", files, "mlx"), *SMALL, "--batch", 6, "--task", "train")
    done = xverify(*train, "--subjects", ",".join(SUBJECTS), "--match-optimizer")
    assert done.code in (0, 4), done.out + done.err  # the update of a weight of few values may be too uncertain
    for row in done.result["rows"]:
        assert {verdict for _, verdict, _ in checks(row)} == {"EQUAL"}, done.out


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("self.rnn(x) + self.attn", "mx.stop_gradient(self.rnn(x)) + self.attn", "gradients"),
        (
            "class Net(",
            "from mlx import optimizers\nAdam = optimizers.Adam.__init__\n"
            "optimizers.Adam.__init__ = lambda own, rate, betas, eps, **more: Adam(own, rate, betas, 1e-3, **more)\n"
            "class Net(",
            "update",
        ),
    ],
    ids=["gradient", "optimizer"],
)
@pytest.mark.parametrize("mode", ["mlx", "mlx:compile"])
def test_a_mistake_in_training_is_found_where_it_is(xverify, tmp_path, old, new, check, mode):
    port = write(tmp_path / "port", SEQUENCES, "mlx", old, new)
    train = ("run", port, *SMALL, "--batch", 6, "--task", "train", "--optimizer", "adam")
    row = xverify(*train, "--subjects", f"torch:eager,{mode}").row(mode)
    wrong = {name for name, verdict, _ in checks(row) if verdict == "DIFFERENT"}
    assert check in wrong, row["training"]["checks"]
    assert not {"forward", "loss"} & wrong


def test_the_optimizers_of_mlx(xverify, tmp_path):
    done = xverify("optimizers", "--frameworks", "mlx", "--json", tmp_path / "table.json", "--quiet", timeout=900)
    assert done.code == 0, done.out + done.err
    table = json.loads((tmp_path / "table.json").read_text())
    assert all(each["verdict"] == "EQUAL" for each in table if each["match"])
    own = [each for each in table if not each["match"]]
    assert {each["difference"] for each in own} == {""}
    says = {each["settings"]["name"]: each["says"] for each in own if each["verdict"] == "UNSUPPORTED"}
    assert {each["verdict"] for each in own} == {"EQUAL", "UNSUPPORTED"}
    assert says == {
        "adam": "MLX's Adam has no AMSGrad; run with --match-optimizer",
        "adafactor": "the means of MLX's Adafactor are taken over other axes of kernels, and its weight decay is scaled; run with "
        "--match-optimizer",
    }


def test_mlx_is_no_reference_in_float64(xverify, tmp_path):
    port = write(tmp_path / "port", {name: text for name, text in SEQUENCES.items() if name != "torch"})
    done = xverify("run", port, *SMALL, "--subjects", "mlx,mlx:compile")
    assert done.result is None or done.result["reference"]["precision"] != "float64"
