"""Training steps of one's own that call Keras' train_on_batch and fit, which compile what they run; and those without a value."""

import pytest
from helpers.ownsteplines import SPEC
from helpers.ownsteplines import TORCH as NET
from helpers.ownsteps import assert_port_is_wrong, folder

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

TORCH = (
    NET
    + """
def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

def train_step(model, optimizer, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
"""
)
KERAS = """
import keras
from keras.layers import Dense

def build():
    return keras.Sequential([keras.Input((12,)), Dense(24, activation="tanh", name="a"), Dense(5, name="b")])

def train_state(model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss=loss)

def train_step(model, state, batch):
    x, y = batch["x"], batch["target"]
    model.reset_metrics()
    LOSS
"""
STEPS = {
    "train_on_batch": 'return {"loss": model.train_on_batch(x, y)}',
    "its dictionary": "return model.train_on_batch(x, y, return_dict=True)",
    "fit": 'return {"loss": model.fit(x, y, batch_size=16, shuffle=False, verbose=0).history["loss"][0]}',
}


def run(xverify, path, step, subject="tensorflow:eager", change=("", "")):
    files = {"spec": SPEC, "torch": TORCH, "tensorflow": KERAS.replace("LOSS", step)}
    port = folder(path / "port", files, tensorflow=change)
    return xverify("run", port, "--task", "train", "--no-timing", "--subjects", f"torch:eager,{subject}")


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_a_step_that_lets_keras_train_is_compared(xverify, tmp_path, step):
    done = run(xverify, tmp_path, step)
    assert done.code == 0, done.out + done.err
    row = done.row("tensorflow:eager")
    assert row["error"]["verdict"] == "EQUAL"
    assert {check["name"] for check in row["training"]["checks"]} == {"weights", "loss", "gradients", "update", "state"}


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_another_momentum_is_found_behind_it(xverify, tmp_path, step):
    done = run(xverify, tmp_path, step, change=("momentum=0.9", "momentum=0.5"))
    assert_port_is_wrong(done, "update, step 1", "behaves as momentum 0.5; torch.py says 0.9")


def test_a_loss_without_a_value_is_one_clear_line(xverify, tmp_path):
    done = run(xverify, tmp_path, 'return {"loss": model.outputs[0]}')
    assert done.code == 3
    says = "'loss' is a KerasTensor, which has no value: return the result of a call"
    assert says in done.row("tensorflow:eager")["reason"]


LION = """
class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99)})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for each in group["params"]:
                mean = self.state[each].setdefault("mean", torch.zeros_like(each))
                each.sub_(group["lr"] * (first * mean + (1 - first) * each.grad).sign())
                mean.mul_(second).add_(each.grad, alpha=1 - second)

def train_state(model):
    return Lion(model.parameters(), lr=1e-2)
"""
SCALED = """
def train_state(model):
    return {
        "sgd": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        "scaler": torch.amp.GradScaler("cpu", init_scale=1024.0),
    }

def train_step(model, state, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    state["sgd"].zero_grad()
    state["scaler"].scale(loss).backward()
    UNSCALE
    state["scaler"].step(state["sgd"])
    state["scaler"].update()
    return {"loss": loss}
"""


def torch_and_keras(xverify, path, state, change=("", "")):
    """A run of torch with another state beside a port with ``train_on_batch``. change: of the port."""
    text = TORCH.partition("def train_state")[0] + state
    if "def train_step" not in state:
        text += "\ndef train_step" + TORCH.partition("def train_step")[2]
    files = {"spec": SPEC, "torch": text, "tensorflow": KERAS.replace("LOSS", STEPS["train_on_batch"])}
    port = folder(path / "port", files, tensorflow=change)
    subjects = "torch:eager,tensorflow:eager"
    return xverify("run", port, "--task", "train", "--no-timing", "--subjects", subjects)


@pytest.mark.parametrize(("beta", "says"), [(0.99, ""), (0.9, "update, step 1"), (0.5, "update, step 1")])
def test_an_optimizer_with_betas_and_without_eps_is_judged(xverify, tmp_path, beta, says):
    other = f"Lion(1e-2, beta_1=0.9, beta_2={beta})"
    done = torch_and_keras(xverify, tmp_path, LION, ("SGD(0.05, momentum=0.9)", other))
    if says:
        assert_port_is_wrong(done, says)
    else:
        assert done.code == 0, done.out + done.err


@pytest.mark.parametrize("unscale", ["pass", 'state["scaler"].unscale_(state["sgd"])'], ids=["at its step", "before"])
def test_a_scaler_of_gradients_in_the_state_is_no_difference(xverify, tmp_path, unscale):
    done = torch_and_keras(xverify, tmp_path, SCALED.replace("UNSCALE", unscale))
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in done.result["rows"]} == {"EQUAL"}
