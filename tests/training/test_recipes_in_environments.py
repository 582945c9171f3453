"""Recipes and losses in JAX, Flax, Keras on JAX and PaddlePaddle, by the command line: right ports, named differences, mistakes.

They need ``xverify env create jax`` and ``xverify env create paddle``. Without these the tests are skipped.
"""

import pytest
from test_recipe_training import KERAS, NO_DECAY, QUICK, SPEC, TORCH, USUAL, found
from test_training_losses import OWN, TWO

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load


def is_installed(name):
    adapter = load(name)
    return not host.missing(adapter) or environments.chosen(adapter) is not None


INSTALLED = tuple(filter(is_installed, ("jax", "flax", "keras-jax", "paddle")))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED, reason="neither JAX nor PaddlePaddle is installed: xverify env create jax"),
]

JAX = """
import numpy as np
from jax import nn


class Net:
    def __init__(self):
        shapes = {"stem.weight": (32, 16), "stem.bias": 32, "head.weight": (5, 32), "head.bias": 5}
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

    def apply(self, w, x):
        x = nn.relu(x @ w["stem.weight"].T + w["stem.bias"])
        return x @ w["head.weight"].T + w["head.bias"]


def build():
    return Net()
"""
FLAX = """
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Linear(16, 32, rngs=rngs)
        self.head = nnx.Linear(32, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.stem(x)))


def build():
    return Net(nnx.Rngs(0))
"""
PADDLE = TORCH.replace("from torch import nn", "from paddle import nn").replace("nn.Module", "nn.Layer")

# The two outputs and the loss of its own of test_training_losses.
TWO_MORE = {
    "jax": """
import numpy as np
from jax import numpy as jnp
class Net:
    def __init__(self):
        shapes = {"body": (16, 12), "box": (4, 16), "score": (2, 16)}
        self.weights = {f"{name}.weight": np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self.weights |= {f"{name}.bias": np.zeros(shape[0], np.float32) for name, shape in shapes.items()}
    def apply(self, w, x):
        def linear(name, x):
            return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
        h = jnp.tanh(linear("body", x))
        return {"box": linear("box", h), "score": linear("score", h)}
build = Net
""",
    "flax": """
from flax import nnx
class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.body, self.box = nnx.Linear(12, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)
        self.score = nnx.Linear(16, 2, rngs=rngs)
    def __call__(self, x):
        h = nnx.tanh(self.body(x))
        return {"box": self.box(h), "score": self.score(h)}
build = Net
""",
    "paddle": """
import paddle
from paddle import nn
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.body, self.box, self.score = nn.Linear(12, 16), nn.Linear(16, 4), nn.Linear(16, 2)
    def forward(self, x):
        h = paddle.tanh(self.body(x))
        return {"box": self.box(h), "score": self.score(h)}
build = Net
""",
}
OWN_MORE = {
    "jax": """
import numpy as np, optax
from jax import numpy as jnp
class Net:
    def __init__(self):
        shapes = {"0.weight": (16, 8), "0.bias": 16, "2.weight": (5, 16), "2.bias": 5}
        self.weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    def apply(self, w, x):
        return jnp.tanh(x @ w["0.weight"].T + w["0.bias"]) @ w["2.weight"].T + w["2.bias"]
build = Net
def loss(outputs, targets):
    tags = targets["tags"]
    kept = tags != -100
    values = optax.softmax_cross_entropy_with_integer_labels(outputs["y"], jnp.maximum(tags, 0))
    return (values * kept).sum() / kept.sum()
""",
    "flax": """
import optax
from flax import nnx
from jax import numpy as jnp
def build():
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(8, 16, rngs=rngs), nnx.tanh, nnx.Linear(16, 5, rngs=rngs))
def loss(outputs, targets):
    tags = targets["tags"]
    kept = tags != -100
    values = optax.softmax_cross_entropy_with_integer_labels(outputs["y"], jnp.maximum(tags, 0))
    return (values * kept).sum() / kept.sum()
""",
    "paddle": """
from paddle import nn
def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
def loss(outputs, targets):
    tags = targets["tags"]
    return nn.functional.cross_entropy(outputs["y"], tags, reduction="sum") / (tags != -100).astype("float32").sum()
""",
}
WRONG = {
    "jax": ("return (values * kept).sum() / kept.sum()", "return (values * kept).mean()"),
    "flax": ("return (values * kept).sum() / kept.sum()", "return (values * kept).mean()"),
    "tensorflow": ("return ops.sum(values * kept) / ops.sum(kept)", "return ops.mean(values * kept)"),
    # Paddle's own mean: it counts the positions of a negative ignore_index, too.
    "paddle": (', reduction="sum") / (tags != -100).astype("float32").sum()', ")"),
}


def files(recipe):
    spec = SPEC.replace("RECIPE", recipe)
    return {"spec": spec, "torch": TORCH, "jax": JAX, "flax": FLAX, "tensorflow": KERAS, "paddle": PADDLE}


def train(xverify, folder, files, *arguments, subjects=INSTALLED, **more):
    """(the outcome, framework -> its row) of a run of torch and these frameworks."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    listed = ",".join(["torch:eager", *subjects])
    done = xverify("run", folder, "--task", "train", *QUICK, "--subjects", listed, *arguments, timeout=900, **more)
    assert done.result is not None, done.out + done.err
    return done, {row["subject"]: row for row in done.result["rows"]}


def verdicts(row):
    """The verdicts of all checks, but for layers of a function, which cannot be captured, and for curves on a busy machine."""
    checks = found(row)
    left_out = ("forward", "backward", "curve") if row["framework"] == "jax" else ("curve",)
    return {each for name, values in checks.items() for each in values if each != "UNTESTED" or name not in left_out}


def differences(rows):
    """Framework -> check -> the names of its differences, where it has any; for a row that did not run, why."""
    named = {}
    for name, row in rows.items():
        if row["status"] != "ok":
            named[name] = row["reason"]
        else:
            checks = {check: {each for each in names if each} for check, names in found(row, "difference").items()}
            named[name] = {check: names for check, names in checks.items() if names}
    return named


def installed(named):
    """What is said of the frameworks that are installed, and of torch, which has no difference."""
    return {"torch:eager": {}, **{name: named.get(name, {}) for name in INSTALLED}}


def check_matched(xverify, folder, files, *arguments):
    """With --match-optimizer every check of every framework is EQUAL."""
    done, rows = train(xverify, folder, files, *arguments, "--match-optimizer", "--strict")
    assert done.code == 0, done.out + done.err
    assert {name: verdicts(row) for name, row in rows.items()} == {name: {"EQUAL"} for name in rows}


ADAMW = ("--optimizer", "adamw", "--weight-decay", "0.1")
NESTEROV = ("--optimizer", "sgd", "--momentum", "0.9", "--nesterov")


@pytest.mark.long
def test_two_groups_warm_up_clipping_and_micro_batches(xverify, tmp_path):
    recipe = f"groups=({NO_DECAY},), {USUAL.replace('clip_norm=1.0', 'clip_norm=0.01')}"
    done, rows = train(xverify, tmp_path / "own", files(recipe), *ADAMW)
    assert done.code == 0, done.out + done.err
    for row in rows.values():
        assert {"accumulation", "clipping", "schedule", "groups", "update"} <= set(found(row))
        assert found(row)["accumulation"] == found(row)["groups"] == {"EQUAL"}
    assert differences(rows) == installed(
        {
            "keras-jax": {"schedule": {"schedule of micro-batches"}, "update": {"eps-hat"}},
            "paddle": {"clipping": {"norm of groups"}},
        }
    )
    grouped = f'groups=({NO_DECAY}, Group("head.weight", lr=0.01)), {USUAL}'
    check_matched(xverify, tmp_path / "matched", files(grouped), *ADAMW)


def test_each_group_has_its_own_rate_in_the_framework_itself(xverify, tmp_path):
    recipe = (
        f'groups=({NO_DECAY}, Group("head.weight", lr=0.01)), clip_value=0.001, schedule=Schedule("linear", steps=6)'
    )
    done, rows = train(xverify, tmp_path / "port", files(recipe), *ADAMW)
    for name, row in rows.items():
        if name == "keras-jax":
            assert "an optimizer of Keras has one learning rate, 0.001" in row["reason"]
        else:
            assert verdicts(row) == {"EQUAL"}, done.out


@pytest.mark.long
def test_nesterov_with_an_average_and_frozen_parameters(xverify, tmp_path):
    recipe = files('frozen=("stem.*",), average=0.9, schedule=Schedule("step", every=2)')
    done, rows = train(xverify, tmp_path / "port", recipe, *NESTEROV)
    says = "Paddle has no moving average of weights outside of static programs; run with --match-optimizer"
    named = {"keras-jax": {"update": {"rates in momentum"}}, "paddle": says}
    assert differences(rows) == installed(named), done.out
    for row in (row for row in rows.values() if row["status"] == "ok"):
        assert found(row)["frozen"] == found(row)["average"] == found(row)["schedule"] == {"EQUAL"}
        assert row["error"]["compared"] == row["error"]["expected"] == 2
    matched = files('frozen=("stem.*",), average=0.9, clip_each=0.01, schedule=Schedule("one-cycle", steps=12)')
    check_matched(xverify, tmp_path / "port", matched, *NESTEROV)


@pytest.mark.long
def test_amsgrad_and_one_cycle(xverify, tmp_path):
    adam = ("--optimizer", "adam", "--amsgrad")
    recipe = files('frozen=("stem.bias",), clip_value=0.001, schedule=Schedule("one-cycle", steps=12)')
    _, rows = train(xverify, tmp_path / "port", recipe, *adam)
    optax = {"schedule": {"late one-cycle"}, "update": {"corrected maximum"}}
    keras = "Keras has no schedule for this: one-cycle schedule of 12 steps; run with --match-optimizer"
    assert differences(rows) == installed({"jax": optax, "flax": optax, "keras-jax": keras})
    check_matched(xverify, tmp_path / "port", recipe, *adam)


def test_the_norm_of_each_gradient_is_clipped_where_a_framework_can(xverify, tmp_path):
    _, rows = train(xverify, tmp_path / "port", files("clip_each=0.01"))
    optax = "optax does not clip the norm of each gradient; run with --match-optimizer"
    eps = {"clipping": {"clip eps"}}
    assert differences(rows) == installed({"jax": optax, "flax": optax, "keras-jax": eps, "paddle": eps})


@pytest.mark.long
def test_lion(xverify, tmp_path):
    lion, recipe = ("--optimizer", "lion", "--weight-decay", "0.1"), files(f"groups=({NO_DECAY},)")
    done, rows = train(xverify, tmp_path / "port", recipe, *lion)
    no_lion = "paddle.optimizer has no Lion; run with --match-optimizer"
    assert differences(rows) == installed({"paddle": no_lion}), done.out
    assert {verdict for row in rows.values() if row["training"] for verdict in verdicts(row)} == {"EQUAL"}
    check_matched(xverify, tmp_path / "port", recipe, *lion)


# -- mistakes ---------------------------------------------------------------------------------------------------------

ADAPTER = """
from dataclasses import replace
from functools import partial
from xverify.framework.discovery import load


class Adapter(load("{framework}")):
    name = "mistaken_{framework}"
    file = extra = "{framework}"

    def training(self, model, mode, batch, optimizer, match):
        {before}
        learner = super().training(model, mode, batch, optimizer, match)
        {after}
        return learner
"""
NO_GROUPS = "optimizer = replace(optimizer, recipe=replace(optimizer.recipe, groups=()))"
LATER = "(lambda right: lambda *args: (lambda count, rate=right(*args): rate(count + 1)))(optax.cosine_decay_schedule)"
# Kind -> (the check, what it says, framework -> the code before and after the learner is made).
MISTAKES = {
    "decay on biases": (
        "groups",
        "bias has the weight decay 0.1; its group '*.bias' has 0",
        {"jax": (NO_GROUPS, ""), "paddle": (NO_GROUPS, "")},
    ),
    "schedule off by one": (
        "schedule",
        "it is one step ahead",
        {
            "jax": (f"import optax; optax.cosine_decay_schedule = {LATER}", ""),
            "paddle": ("", "learner.clip = learner.advance"),
        },
    ),
    "clipping absent": (
        "clipping",
        "they are not clipped",
        {
            "jax": ("import optax; optax.clip_by_global_norm = lambda limit: optax.identity()", ""),
            "paddle": ("self.paddle.nn.ClipGradByGlobalNorm = lambda limit: None", ""),
        },
    ),
    "accumulation not divided": (
        "accumulation",
        "it is the sum over 2 micro-batches, not their mean",
        {
            "jax": ("import optax; optax.MultiSteps = partial(optax.MultiSteps, use_grad_mean=False)", ""),
            "paddle": ("", "learner.share = 1.0"),
        },
    ),
}


@pytest.mark.parametrize("kind", list(MISTAKES))
def test_a_mistake_breaks_its_own_check(xverify, tmp_path, kind):
    check, says, code = MISTAKES[kind]
    (tmp_path / "adapters").mkdir()
    mistaken = [name for name in code if name in INSTALLED]
    for name in mistaken:
        before, after = (each or "pass" for each in code[name])
        text = ADAPTER.format(framework=name, before=before, after=after)
        (tmp_path / "adapters" / f"mistaken_{name}.py").write_text(text)
    subjects = [f"mistaken_{name}" for name in mistaken]
    recipe = files(f'groups=({NO_DECAY},), clip_norm=1e-4, schedule=Schedule("cosine", steps=10), accumulate=2')
    more = {"subjects": subjects, "frameworks": tmp_path / "adapters"}
    done, rows = train(xverify, tmp_path / "port", recipe, *ADAMW, **more)
    assert done.code == 1, done.out + done.err
    for name in subjects:
        broken = [each for each in rows[name]["training"]["checks"] if each["verdict"] == "DIFFERENT"]
        assert {each["name"] for each in broken} == {check}, (name, broken)
        assert says in broken[0]["says"], name


# -- losses -----------------------------------------------------------------------------------------------------------


def test_two_outputs_with_two_losses_train_equally(xverify, tmp_path):
    done, rows = train(xverify, tmp_path / "two", TWO | TWO_MORE)
    assert done.code == 0, done.out + done.err
    for row in rows.values():
        assert row["error"]["verdict"] == "EQUAL"
        assert row["training"]["loss"] == "huber of 'box', delta 0.5 + 0.25 x mse of 'score'"


@pytest.mark.long
def test_a_loss_of_the_model_file_is_used_and_a_wrong_one_is_named(xverify, tmp_path):
    done, rows = train(xverify, tmp_path / "own", OWN | OWN_MORE)
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in rows.values()} == {"EQUAL"}
    wrong = OWN | OWN_MORE
    for name, (old, new) in WRONG.items():
        assert old in wrong[name]
        wrong[name] = wrong[name].replace(old, new)
    done, rows = train(xverify, tmp_path / "own", wrong)
    for name in INSTALLED:
        assert "the mean divides by all positions, the ignored ones too" in rows[name]["error"]["reason"], name
