"""A training step of one's own whose state holds a momentum, an average, slow weights, a target network and counters."""

import pytest
from helpers.ownsteps import folder, judging
from test_own_state import KERAS, SPEC, TORCH, UNTIMED
from test_recipes_in_environments import is_installed

pytestmark = pytest.mark.slow

KEPT_IN_TORCH = (
    TORCH
    + """
class Ema:
    def __init__(self, model, decay):
        self.decay, self.count = decay, 0
        self.shadow = {name: each.detach().clone() for name, each in model.named_parameters()}
    def update(self, model):
        self.count += 1
        with torch.no_grad():
            for name, each in model.named_parameters():
                self.shadow[name].mul_(self.decay).add_(each, alpha=1 - self.decay)

def train_state(model):
    return {
        "sgd": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "ema": Ema(model, 0.99),
        "slow": [each.detach().clone() for each in model.parameters()],
        "target": copy.deepcopy(model).requires_grad_(False),
        "step": 0,
    }

def train_step(model, state, batch):
    logits = model(batch["x"])
    loss = F.cross_entropy(logits, batch["target"])
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    state["step"] += 1
    with torch.no_grad():
        if state["step"] % 2 == 0:
            for slow, fast in zip(state["slow"], model.parameters()):
                slow += 0.5 * (fast - slow)
                fast.copy_(slow)
        state["ema"].update(model)
        for old, new in zip(state["target"].parameters(), model.parameters()):
            old.mul_(1 - 0.005).add_(new, alpha=0.005)
    return {"loss": loss}
"""
)
# Framework -> the model file; all of them keep the same under other names and in other forms.
KEPT = {
    "spec": SPEC,
    "torch": KEPT_IN_TORCH,
    "torch-port": KEPT_IN_TORCH,
    "tensorflow": KERAS
    + """
def train_state(model):
    return {"sgd": keras.optimizers.SGD(0.1, momentum=0.9), "target": copied(model),
            "slow": [tf.Variable(each) for each in model.trainable_variables],
            "average": {each.path: tf.Variable(each) for each in model.trainable_variables},
            "step": tf.Variable(0)}

def train_step(model, state, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], model(batch["x"])))
    variables = model.trainable_variables
    state["sgd"].apply(tape.gradient(loss, variables), variables)
    state["step"].assign_add(1)
    if state["step"] % 2 == 0:
        for slow, fast in zip(state["slow"], variables):
            slow.assign_add(0.5 * (fast - slow))
            fast.assign(slow)
    for average, each in zip(state["average"].values(), variables):
        average.assign(0.99 * average + (1 - 0.99) * each)
    for old, new in zip(state["target"].trainable_variables, variables):
        old.assign((1 - 0.005) * old + 0.005 * new)
    return {"loss": loss}
""",
    "jax": """
import jax, numpy as np, optax
from jax import numpy as jnp

class Net:
    def __init__(self):
        self.weights = {"a.weight": np.zeros((24, 12), np.float32), "a.bias": np.zeros(24, np.float32),
                        "b.weight": np.zeros((5, 24), np.float32), "b.bias": np.zeros(5, np.float32)}
    def apply(self, w, x):
        return jnp.tanh(x @ w["a.weight"].T + w["a.bias"]) @ w["b.weight"].T + w["b.bias"]
build = Net
OPT = optax.sgd(0.1, momentum=0.9)

def train_state(model):
    w = model.weights
    ema = {"shadow": dict(w), "count": 0}
    return {"sgd": OPT.init(w), "ema": ema, "slow": [w[k] for k in sorted(w)], "target": dict(w), "step": 0}

def train_step(model, state, batch):
    def loss_of(w):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(w, batch["x"]), batch["target"]).mean()
    loss, g = jax.value_and_grad(loss_of)(model.weights)
    changes, state["sgd"] = OPT.update(g, state["sgd"])
    w = optax.apply_updates(model.weights, changes)
    state["step"] = state["step"] + 1
    sync = state["step"] % 2 == 0
    slow = dict(zip(sorted(w), state["slow"]))
    slow = {k: jnp.where(sync, slow[k] + 0.5 * (w[k] - slow[k]), slow[k]) for k in w}
    w = {k: jnp.where(sync, slow[k], w[k]) for k in w}
    state["slow"] = [slow[k] for k in sorted(w)]
    shadow = {k: 0.99 * e + (1 - 0.99) * w[k] for k, e in state["ema"]["shadow"].items()}
    state["ema"] = {"shadow": shadow, "count": state["ema"]["count"] + 1}
    state["target"] = {k: (1 - 0.005) * e + 0.005 * w[k] for k, e in state["target"].items()}
    model.weights = w
    return {"loss": loss}
""",
    "flax": """
import jax, optax
from flax import nnx
from jax import numpy as jnp

class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.a, self.b = nnx.Linear(12, 24, rngs=rngs), nnx.Linear(24, 5, rngs=rngs)
    def __call__(self, x):
        return self.b(jnp.tanh(self.a(x)))
build = Net

class Counter(nnx.Variable):
    pass

def train_state(model):
    target = Net()
    nnx.update(target, jax.tree.map(jnp.copy, nnx.state(model)))
    shadow = Net()
    nnx.update(shadow, jax.tree.map(jnp.copy, nnx.state(model)))
    slow = Net()
    nnx.update(slow, jax.tree.map(jnp.copy, nnx.state(model)))
    return {"opt": nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param), "shadow": shadow, "slow": slow,
            "target": target, "step": Counter(jnp.zeros((), jnp.int32))}

def train_step(model, state, batch):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(batch["x"]), batch["target"]).mean()
    loss, g = nnx.value_and_grad(loss_of)(model)
    state["opt"].update(model, g)
    state["step"][...] = state["step"][...] + 1
    sync = state["step"][...] % 2 == 0
    w = nnx.state(model, nnx.Param)
    slow = jax.tree.map(lambda s, f: jnp.where(sync, s + 0.5 * (f - s), s), nnx.state(state["slow"], nnx.Param), w)
    nnx.update(state["slow"], slow)
    nnx.update(model, jax.tree.map(lambda s, f: jnp.where(sync, s, f), slow, w))
    w = nnx.state(model, nnx.Param)
    nnx.update(state["shadow"], jax.tree.map(lambda e, f: 0.99 * e + (1 - 0.99) * f, nnx.state(state["shadow"], nnx.Param), w))
    nnx.update(state["target"], jax.tree.map(lambda e, f: (1 - 0.005) * e + 0.005 * f, nnx.state(state["target"], nnx.Param), w))
    return {"loss": loss}
""",
}

NOT_CHANGED = " is not changed by the step"
# Subject -> changes of its file that are mistakes, and what the report says of each.
WRONG = {
    "torch-port:eager": [
        ("mul_(self.decay).add_(each, alpha=1 - self.decay)", "mul_(1 - self.decay).add_(each, alpha=self.decay)",
         ['state, step 0: state["ema"].shadow.a.weight', "behaves as decay 0.01; the reference's is 0.99"]),
        ("    loss.backward()\n",
         '    loss.backward()\n    state["ema"].update(model)\n    state["ema"].update = lambda model: None\n',
         ['state, step 0: state["ema"].shadow.a.weight is changed by rounding alone', "updated before the weights are"]),
        ("old.mul_(1 - 0.005).add_(new, alpha=0.005)", "pass", ['state, step 0: state["target"].a.weight' + NOT_CHANGED]),
        ("old.mul_(1 - 0.005).add_(new, alpha=0.005)", "old.mul_(1 - 0.05).add_(new, alpha=0.05)",
         ['state, step 0: state["target"].a.weight', "behaves as decay 0.95; the reference's is 0.995"]),
        ("slow += 0.5 * (fast - slow)", "slow = slow + 0.5 * (fast - slow)",
         ['state, step 1: state["slow"].a.weight' + NOT_CHANGED]),
        ('    state["step"] += 1\n',
         '    state["step"] += 1\n    [kept["momentum_buffer"].zero_() for kept in state["sgd"].state.values()]\n',
         ['state, step 0: state["sgd"].momentum_buffer.a.weight']),
        ("self.count += 1", "self.count += 2", ['state, step 0: state["ema"].count is 2; the reference\'s is 1']),
    ],
    "tensorflow:eager": [
        ("0.99 * average + (1 - 0.99) * each", "(1 - 0.99) * average + 0.99 * each",
         ['state, step 0: state["ema"].shadow.a.weight', "behaves as decay 0.01; the reference's is 0.99"]),
        ("old.assign((1 - 0.005) * old + 0.005 * new)", "pass", ['state, step 0: state["target"].a.weight' + NOT_CHANGED]),
        ("(1 - 0.005) * old + 0.005 * new", "(1 - 0.05) * old + 0.05 * new", ["behaves as decay 0.95; the reference's is 0.995"]),
        ("slow.assign_add(0.5 * (fast - slow))", "slow = slow + 0.5 * (fast - slow)",
         ['state, step 1: state["slow"].a.weight' + NOT_CHANGED]),
        ('    state["step"].assign_add(1)\n',
         '    state["step"].assign_add(1)\n    [kept.assign(0 * kept) for kept in state["sgd"].momentums]\n',
         ['state, step 0: state["sgd"].momentum_buffer.a.weight']),
    ],
    "jax:eager": [
        ("0.99 * e + (1 - 0.99) * w[k]", "(1 - 0.99) * e + 0.99 * w[k]",
         ['state, step 0: state["ema"].shadow.a.weight', "behaves as decay 0.01; the reference's is 0.99"]),
        ("0.99 * e + (1 - 0.99) * w[k]", "0.99 * e + (1 - 0.99) * model.weights[k]",
         ['state, step 0: state["ema"].shadow.a.weight', "updated before the weights are"]),
        ("(1 - 0.005) * e + 0.005 * w[k]", "e", ['state, step 0: state["target"].a.weight' + NOT_CHANGED]),
        ("(1 - 0.005) * e + 0.005 * w[k]", "(1 - 0.05) * e + 0.05 * w[k]", ["behaves as decay 0.95; the reference's is 0.995"]),
        ('    state["slow"] = [slow[k] for k in sorted(w)]\n', "", ['state, step 1: state["slow"].a.weight' + NOT_CHANGED]),
        ("    w = optax.apply_updates(model.weights, changes)\n",
         '    w = optax.apply_updates(model.weights, changes)\n    state["sgd"] = OPT.init(w)\n',
         ['state, step 0: state["sgd"].momentum_buffer.a.weight']),
    ],
}  # fmt: skip


def need(framework):
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed")


@pytest.mark.parametrize("subject", WRONG)
def test_a_wrong_state_is_named_in_the_step_in_which_it_begins(tmp_path, subject):
    need(subject.partition(":")[0].removesuffix("-port"))
    with judging(tmp_path, KEPT, subject) as judged:
        right = judged("right", ("", ""))
        assert (right.verdict, right.reason) == ("EQUAL", None)
        for number, (text, other, says) in enumerate(WRONG[subject]):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == "DIFFERENT"
            for clause in says:
                assert clause in error.reason, error.reason


def state_checks(row):
    return [check for check in row["training"]["checks"] if check["name"] == "state"]


def test_the_same_state_under_other_names_and_in_other_forms_is_equal(xverify, tmp_path):
    done = xverify(
        "run",
        folder(tmp_path / "kept", KEPT),
        *UNTIMED[:-1],
        "torch:eager,torch-port:eager,tensorflow:eager,tensorflow:graph",
    )
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        found = state_checks(row)
        assert [check["step"] for check in found] == [0, 1, 2]
        assert {check["verdict"] for check in found} == {"EQUAL"}
        whole = row["framework"] == "torch"
        assert {(check["compared"], check["known"]) for check in found} == {(19 if whole else 17, 19)}
        of_weights = {path for path in found[0]["detection_limits"] if path.endswith((".weight", ".bias"))}
        assert len(of_weights) == 16
    left_out = done.row("tensorflow:eager")["training"]["state_left_out"]
    assert left_out['state["ema"].decay'] == "it is a number that no step changes"
    assert left_out['state["ema"].count'].startswith("the state of tensorflow:eager has no value of this name")
    matched = done.row("tensorflow:eager")["training"]["state_matched"]
    assert matched['state["ema"].shadow.b.bias'] == 'state["average"].b.bias'
    assert 'state: state["ema"].decay not compared: it is a number that no step changes' in " ".join(done.out.split())


@pytest.mark.skipif(not is_installed("flax"), reason="xverify env create jax")
def test_the_same_state_in_jax_and_flax_is_equal(xverify, tmp_path):
    done = xverify("run", folder(tmp_path / "kept", KEPT), *UNTIMED[:-1], "torch:eager,jax,jax:eager,flax,flax:eager")
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in done.result["rows"]} == {"EQUAL"}
    for row in done.result["rows"]:
        assert min(check["compared"] for check in state_checks(row)) >= 17


def test_a_state_without_a_partner_is_said_not_to_be_compared(xverify, tmp_path):
    files = {
        **KEPT,
        "torch-port": KEPT["torch-port"].replace(
            '"target": copy.deepcopy(model).requires_grad_(False)', '"target": None'
        ),
    }
    start = files["torch-port"].index("        for old, new in zip(")
    files["torch-port"] = files["torch-port"][:start] + '    return {"loss": loss}\n'
    done = xverify("run", folder(tmp_path / "lacking", files), *UNTIMED[:-1], "torch:eager,torch-port:eager")
    assert done.code == 0, done.out + done.err
    row = done.row("torch-port:eager")
    assert {check["compared"] for check in state_checks(row)} == {15}
    assert set(row["training"]["state_left_out"]) == {
        f'state["target"].{name}' for name in ("a.weight", "a.bias", "b.weight", "b.bias")
    }
    assert 'state["target"].a.weight, state["target"].a.bias' in " ".join(done.out.split())
