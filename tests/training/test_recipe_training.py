"""Training with a recipe on the command line: right ports, differences that are named, and requests that are refused."""

import pytest

from xverify import host
from xverify.framework.discovery import load

pytestmark = pytest.mark.slow
QUICK = ["--warmup", "1", "--rerun", "2"]
PORTS = [name for name in ("tensorflow", "keras-torch", "jittor") if not host.missing(load(name))]
SUBJECTS = ",".join(
    ["torch:eager", "torch:script", *({"tensorflow": "tensorflow:graph"}.get(name, name) for name in PORTS)]
)
SPEC = """from xverify import Group, ModelSpec, Recipe, Schedule, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 16))},
    outputs={"y": TensorSpec(("N", 5))},
    batch=8,
    training=Recipe(RECIPE),
)
"""
TORCH = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.relu = nn.ReLU()
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.relu(self.stem(x)))


def build():
    return Net()
"""
KERAS = """from keras import Input, Model, layers


def build():
    inputs = Input((16,), name="x")
    x = layers.ReLU(name="relu")(layers.Dense(32, name="stem")(inputs))
    return Model(inputs, layers.Dense(5, name="head")(x))
"""
NO_DECAY = 'Group("*.bias", weight_decay=0.0)'
USUAL = 'clip_norm=1.0, schedule=Schedule("cosine", steps=10, warmup=2), accumulate=2'


@pytest.fixture
def folder(tmp_path):
    """Make a model folder with this recipe."""

    def make(recipe):
        (tmp_path / "port").mkdir(exist_ok=True)
        (tmp_path / "port" / "spec.py").write_text(SPEC.replace("RECIPE", recipe))
        (tmp_path / "port" / "torch.py").write_text(TORCH)
        (tmp_path / "port" / "tensorflow.py").write_text(KERAS)
        jittor = TORCH.replace("from torch import nn", "from jittor import nn").replace("def forward", "def execute")
        (tmp_path / "port" / "jittor.py").write_text(jittor)
        return tmp_path / "port"

    return make


def run(xverify, *arguments):
    done = xverify("run", *arguments, "--task", "train", *QUICK, timeout=600)
    return done, {row["subject"]: row for row in done.result["rows"]} if done.result else {}


def found(row, what="verdict"):
    """Check -> its values over all steps, for a row."""
    values = {}
    for check in row["training"]["checks"]:
        values.setdefault(check["name"], set()).add(check[what])
    return values


def test_two_groups_warm_up_clipping_and_micro_batches(xverify, folder):
    adamw = ("--optimizer", "adamw", "--weight-decay", "0.1", "--subjects", SUBJECTS)
    done, rows = run(xverify, folder(f"groups=({NO_DECAY},), {USUAL}"), *adamw)
    assert done.code == 0, done.out + done.err
    for row in rows.values():
        assert {"accumulation", "clipping", "schedule", "groups", "update"} <= set(found(row))
        assert found(row)["accumulation"] == found(row)["groups"] == {"EQUAL"}
    for name in ("torch:eager", "torch:script"):
        assert {verdict for verdicts in found(rows[name]).values() for verdict in verdicts} == {"EQUAL"}
    for name in {"tensorflow:graph", "keras-torch"} & set(rows):
        assert "schedule of micro-batches" in found(rows[name], "difference")["schedule"]
        assert rows[name]["error"]["verdict"] == "DRIFT"
    if "jittor" in rows:
        assert "steps of micro-batches" in found(rows["jittor"], "difference")["update"]
    done, rows = run(
        xverify,
        folder(f'groups=({NO_DECAY}, Group("head.weight", lr=0.01)), {USUAL}'),
        *adamw,
        "--match-optimizer",
        "--strict",
    )
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in rows.values()} == {"EQUAL"}


def test_nesterov_with_an_average_and_frozen_parameters(xverify, folder):
    sgd = ("--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "--subjects", SUBJECTS)
    recipe = 'frozen=("stem.*",), average=0.9, schedule=Schedule("step", every=2)'
    done, rows = run(xverify, folder(recipe), *sgd)
    assert done.code == (3 if "jittor" in rows else 0), done.out + done.err  # Jittor has no average of its own
    for name, row in rows.items():
        if name != "jittor":
            assert found(row)["frozen"] == found(row)["average"] == found(row)["schedule"] == {"EQUAL"}, name
            assert row["error"]["compared"] == row["error"]["expected"] == 2
    for name in {"tensorflow:graph", "keras-torch"} & set(rows):
        assert "rates in momentum" in found(rows[name], "difference")["update"]
    if "jittor" in rows:
        assert rows["jittor"]["status"] == "unsupported"
        assert "Jittor has no moving average of weights; run with --match-optimizer" in done.out
    done, rows = run(xverify, folder(recipe), *sgd, "--match-optimizer", "--strict")
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in rows.values()} == {"EQUAL"}


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ('frozen=("sten.*",)', "frozen 'sten.*' matches no parameter; did you mean 'stem."),
        (f'groups=({NO_DECAY}, Group("head.*", lr=0.1))', "head.bias belongs to two groups, '*.bias' and 'head.*'"),
        ("clip_norm=-1.0", "clip_norm is -1.0: it must be a number above 0"),
        ("accumulate=3", "accumulate is 3, and the batch has 8 items"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_refused(xverify, folder, recipe, says):
    done = xverify("run", folder(recipe), "--task", "train", "--subjects", "torch:eager")
    assert done.code == 2, done.out + done.err
    assert says in done.err


PLAIN = """
from xverify.framework.discovery import load

class Adapter(load("torch")):
    name = "plain"
    file = "torch"
    takes_recipe = False
"""


def test_a_framework_without_recipes_says_so(xverify, tmp_path):
    (tmp_path / "plain.py").write_text(PLAIN)
    done = xverify(
        "run", "mlp", "--task", "train", *QUICK, "--subjects", "plain:eager", "--clip-norm", "1", frameworks=tmp_path
    )
    assert done.row("plain:eager")["status"] == "unsupported", done.out + done.err
    assert "the run has: norm of all gradients clipped at 1" in done.row("plain:eager")["reason"]
