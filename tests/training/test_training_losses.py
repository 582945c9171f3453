"""Losses of training on the command line: several outputs, losses of the model files, wrong losses, and unusable ones."""

import json

import pytest

pytestmark = pytest.mark.slow
QUICK = ["--task", "train", "--warmup", "1", "--rerun", "2"]

TWO = {
    "spec": """
from xverify import Loss, ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"box": TensorSpec(("N", 4)), "score": TensorSpec(("N", 2))},
    targets={"place": TensorSpec(("N", 4)), "value": TensorSpec(("N", 2), low=-2, high=2)},
    loss=[Loss("huber", "box", "place", delta=0.5), Loss("mse", "score", "value", weight=0.25)],
)
""",
    "torch": """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.box, self.score = nn.Linear(12, 16), nn.Linear(16, 4), nn.Linear(16, 2)
    def forward(self, x):
        h = torch.tanh(self.body(x))
        return {"box": self.box(h), "score": self.score(h)}
build = Net
""",
    "tensorflow": """
import keras
from keras.layers import Dense
def build():
    x = keras.Input((12,))
    h = keras.ops.tanh(Dense(16, name="body")(x))
    return keras.Model(x, {"box": Dense(4, name="box")(h), "score": Dense(2, name="score")(h)})
""",
    "jittor": """
import jittor as jt
from jittor import nn
class Net(nn.Module):
    def __init__(self):
        self.body, self.box, self.score = nn.Linear(12, 16), nn.Linear(16, 4), nn.Linear(16, 2)
    def execute(self, x):
        h = jt.tanh(self.body(x))
        return {"box": self.box(h), "score": self.score(h)}
build = Net
""",
}
# Tags of tokens, some of which are ignored. The loss is in the model files.
OWN = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 6, 8))},
    outputs={"y": TensorSpec(("N", 6, 5))},
    targets={"tags": TensorSpec(("N", 6), "int64", low=0, high=5, ignore_index=-100)},
    batch=4,
)
""",
    "torch": """
from torch import nn
def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs["y"].flatten(0, 1), targets["tags"].flatten())
""",
    "tensorflow": """
import keras
from keras import ops
def build():
    x = keras.Input((6, 8))
    h = keras.layers.Dense(16, activation="tanh", name="0")(x)
    return keras.Model(x, keras.layers.Dense(5, name="2")(h))
def loss(outputs, targets):
    tags = targets["tags"]
    kept = ops.cast(tags != -100, "float32")
    values = keras.losses.sparse_categorical_crossentropy(ops.maximum(tags, 0), outputs["y"], from_logits=True)
    return ops.sum(values * kept) / ops.sum(kept)
""",
}
TORCHS = 'return nn.functional.cross_entropy(outputs["y"].flatten(0, 1), targets["tags"].flatten())'
RIGHT = "return ops.sum(values * kept) / ops.sum(kept)"


def folder(path, files, **changes):
    """A model folder. changes: framework -> (text, text in its place)."""
    path.mkdir()
    for name, text in files.items():
        old, new = changes.get(name, ("", ""))
        assert old in text
        (path / f"{name}.py").write_text(text.replace(old, new) if old else text)
    return path


def test_two_outputs_with_two_losses_train_equally(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    subjects = "torch:eager,torch:trace,keras-torch,tensorflow:graph"
    done = xverify("run", folder(tmp_path / "two", TWO), *QUICK, "--subjects", subjects)
    assert done.code == 0, done.out + done.err
    assert [row["error"]["verdict"] for row in done.result["rows"]] == ["EQUAL"] * 4
    assert done.result["rows"][1]["training"]["loss"] == "huber of 'box', delta 0.5 + 0.25 x mse of 'score'"
    assert "loss huber of 'box', delta 0.5 + 0.25 x mse of 'score'" in " ".join(done.out.split())


def test_losses_of_the_model_files_are_compared_and_a_wrong_one_is_named(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    subjects = ["--subjects", "torch:eager,tensorflow:graph"]
    done = xverify("run", folder(tmp_path / "own", OWN), *QUICK, *subjects)
    assert done.code == 0, done.out + done.err
    assert [row["error"]["verdict"] for row in done.result["rows"]] == ["EQUAL", "EQUAL"]
    wrong = folder(tmp_path / "wrong", OWN, tensorflow=(RIGHT, "return ops.mean(values * kept)"))
    done = xverify("run", wrong, *QUICK, *subjects)
    assert done.code == 1
    assert "the mean divides by all positions, the ignored ones too" in done.result["rows"][1]["error"]["reason"]
    assert done.result["rows"][1]["error"]["reason"].startswith("loss, step 0")
    absent = folder(tmp_path / "absent", OWN, tensorflow=("def loss", "def another"))
    done = xverify("run", absent, *QUICK, *subjects)
    assert done.code == 3
    row = done.result["rows"][1]
    assert (row["status"], done.result["rows"][0]["error"]["verdict"]) == ("unsupported", "EQUAL")
    assert row["reason"].startswith("torch.py defines loss(outputs, targets), and tensorflow.py does not")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (TORCHS[:-1] + ', reduction="none")', "returns a tensor of shape (24,): a training step needs one number"),
        (
            'return outputs["y"].square().mean()',
            "the reference's loss does not change when the values of its target 'tags'",
        ),
        (TORCHS.replace('["y"]', '["y"].detach()'), "the loss has no gradient"),
        ('return (outputs["y"] - 1e9).log().mean()', "the loss is nan at step 0: it begins in the loss"),
        ("return 1.5", "loss(outputs, targets) of torch.py returns a float"),
    ],
)
def test_a_loss_that_cannot_be_used_is_one_clear_line(xverify, tmp_path, body, says):
    bad = folder(tmp_path / "bad", {name: OWN[name] for name in ("spec", "torch")}, torch=(TORCHS, body))
    done = xverify("run", bad, *QUICK, "--subjects", "torch:eager")
    assert done.code == 3, done.out + done.err
    assert says in done.result["rows"][0]["reason"]


def test_a_spec_whose_loss_does_not_fit_is_bad_input(xverify, tmp_path):
    spec = {"spec": ('Loss("mse"', 'Loss("mes"')}
    done = xverify("run", folder(tmp_path / "two", TWO, **spec), *QUICK)
    assert done.code == 2
    assert "unknown loss 'mes'; did you mean 'mse'?" in done.err


@pytest.mark.long
def test_mistakes_in_a_loss_are_planted_and_named(xverify, tmp_path):
    loss = 'loss=Loss("cross_entropy", label_smoothing=0.1, ignore_index=255, class_weights=(1, 2, 3, 4, 5))'
    spec = OWN["spec"].replace("import ModelSpec", "import Loss, ModelSpec").replace(", ignore_index=-100", "")
    files = {"spec": spec.replace("batch=4", f"batch=4, {loss}"), "torch": OWN["torch"].split("def loss")[0]}
    path = tmp_path / "found.json"
    done = xverify("mutate", folder(tmp_path / "tags", files), "--task", "train", "--json", path)
    assert done.code == 0, done.out + done.err
    (score,) = json.loads(path.read_text())
    trials = {trial["kind"]: trial for trial in score["trials"]}
    kinds = {"label smoothing missing", "class weights missing", "wrong ignored index", "ignored positions counted"}
    kinds |= {"softmax applied twice", "from_logits forgotten", "loss summed, not averaged", "mean over the wrong axis"}
    assert kinds <= set(trials)
    assert all(trials[kind]["found"] == "loss" and trials[kind]["explained"] == kind for kind in kinds)
