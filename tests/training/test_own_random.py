"""Training steps of one's own that draw random numbers, with and without a seed; they are INVALID, with their line."""

import pytest
from helpers.ownsteps import LOOP, folder

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

UNTIMED = ("--task", "train", "--no-timing", "--subjects")
IMPORTS = ("import torch\n", "import random\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\n")
INPUT, DO = 'batch["x"]', "make the noise an input or a target of spec.py"


def line_of(text, part):
    """The number of the line of a file in which a part of it begins."""
    return text[: text.index(part)].count("\n") + 1


def torch_with(expression, before="pass"):
    """(the model files without a port, whose input is this expression, the text of torch.py). before: a statement before it."""
    text = LOOP["torch"].replace(*IMPORTS).replace("    hidden =", f"    {before}\n    hidden =", 1)
    text = text.replace(INPUT, expression, 1)
    return {"spec": LOOP["spec"], "torch": text}, text


DRAWS = [
    ("batch['x'] + 0.1 * torch.randn_like(batch['x'])", "randn_like"),
    ("batch['x'] + torch.rand(16, 12)", "rand"),
    ("F.dropout(batch['x'], 0.3, training=True)", "dropout"),
    ("batch['x'] + torch.from_numpy(np.random.randn(16, 12)).to(batch['x'].dtype)", "numpy.random.randn"),
    ("batch['x'] * random.choice([0.5, 0.6, 0.7, 0.8])", "random.choice"),
    ("batch['x'][torch.randperm(16)]", "randperm"),
]


@pytest.mark.parametrize(("expression", "name"), DRAWS, ids=[name for _, name in DRAWS])
def test_a_step_that_draws_is_invalid_with_its_line(xverify, tmp_path, expression, name):
    files, text = torch_with(expression)
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED, "torch:eager")
    assert done.code == 1, done.out + done.err
    error = done.row("torch:eager")["error"]
    assert error["verdict"] == "INVALID"
    assert f"It draws random numbers: {name} in torch.py, line {line_of(text, expression)}; {DO}" in error["reason"]


SEEDS = [
    ("torch.manual_seed(0)", "torch.manual_seed", DRAWS[0][0]),
    ("torch.manual_seed(0)", "torch.manual_seed", DRAWS[2][0]),
    ("np.random.seed(0)", "numpy.random.seed", DRAWS[3][0]),
]


@pytest.mark.parametrize(("before", "name", "expression"), SEEDS, ids=["torch", "dropout", "numpy"])
def test_a_step_that_sets_a_seed_and_draws_is_invalid(xverify, tmp_path, before, name, expression):
    files, text = torch_with(expression, before)
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED, "torch:eager")
    assert done.code == 1, done.out + done.err
    error = done.row("torch:eager")["error"]
    assert error["verdict"] == "INVALID"
    assert f"It sets a seed ({name} in torch.py, line {line_of(text, before)})" in error["reason"]
    assert error["reason"].endswith(DO)


FIXED = [
    ("batch['x'] + torch.from_numpy(np.random.default_rng(0).normal(size=(16, 12))).to(batch['x'].dtype)", "pass"),
    (INPUT, "state = torch.get_rng_state(); torch.rand(3); torch.set_rng_state(state)"),
    (INPUT, "assert model.training"),
]


@pytest.mark.parametrize(("expression", "before"), FIXED, ids=["a generator of its own", "unused", "no draw"])
def test_numbers_that_are_the_same_in_every_framework_are_no_noise(xverify, tmp_path, expression, before):
    files, _ = torch_with(expression, before)
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED, "torch:eager")
    assert done.code == 4, done.out + done.err  # the reference alone
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"


def test_dropout_of_the_model_is_off_wherever_the_step_calls_it(xverify, tmp_path):
    dropped = "    def encode(self, x):\n        return F.dropout(self.body(x), 0.5, self.training)\n    def forward"
    files, _ = torch_with(INPUT)
    files["torch"] = files["torch"].replace("    def forward", dropped, 1).replace("model.body(", "model.encode(")
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED, "torch:eager")
    assert done.code == 4, done.out + done.err  # the reference alone
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"


KERAS_DRAWS = [
    ("batch['x'] + tf.random.normal((16, 12))", "random_standard_normal"),
    ("tf.nn.dropout(batch['x'], 0.3)", "random_uniform"),
    ("batch['x'] + keras.random.normal((16, 12))", "a generator of Keras"),
]


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(("expression", "name"), KERAS_DRAWS, ids=["tf.random", "dropout", "keras.random"])
def test_a_port_that_draws_is_invalid_with_its_line(xverify, tmp_path, expression, name, mode):
    pytest.importorskip("tensorflow")
    text = LOOP["tensorflow"].replace(INPUT, expression, 1)
    files = {"spec": LOOP["spec"], "torch": LOOP["torch"], "tensorflow": text}
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED, f"torch:eager,tensorflow:{mode}")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    error = done.row(f"tensorflow:{mode}")["error"]
    assert error["verdict"] == "INVALID"
    assert (
        f"It draws random numbers: {name} in tensorflow.py, line {line_of(text, expression)}; {DO}" in error["reason"]
    )
