"""A training step of one's own with the optimizers of another framework: their known differences, and their own clipping."""

from pathlib import Path

import pytest
from helpers.ownsteps import checks, folder, judging
from test_own_clipping import JAX, PLAIN, with_clipping
from test_own_state import UNTIMED
from test_recipes_in_environments import is_installed

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow
STEPS = Path(__file__).parents[1] / "steps"

SGD, OF_KERAS = "torch.optim.SGD(model.parameters(), lr=0.1)", "keras.optimizers.SGD(0.1)"


def with_optimizers(files, own, of_keras):
    """The same with other optimizers in torch.py and in tensorflow.py."""
    assert SGD in files["torch"]
    assert OF_KERAS in files["tensorflow"]
    return {
        **files,
        "torch": files["torch"].replace(SGD, own),
        "tensorflow": files["tensorflow"].replace(OF_KERAS, of_keras),
    }


RMSPROP = with_optimizers(
    PLAIN, "torch.optim.RMSprop(model.parameters(), lr=0.01)", "keras.optimizers.RMSprop(0.01, rho=0.99, epsilon=1e-8)"
)
DECAY = with_optimizers(
    PLAIN,
    "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)",
    "keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1)",
)
ADAM = with_optimizers(
    PLAIN,
    "torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-5, weight_decay=0.1)",
    "keras.optimizers.Adam(0.01, epsilon=1e-5, weight_decay=0.1)",
)
ADAMW = with_optimizers(
    PLAIN,
    "torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)",
    "keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-8)",
)


@pytest.mark.parametrize(
    ("files", "difference"),
    [(RMSPROP, "eps-inside"), (DECAY, "decoupled"), (ADAM, "eps-hat, decoupled")],
    ids=["rmsprop", "sgd with decay", "adam with decay"],
)
def test_a_known_difference_of_keras_has_the_name_that_it_has_with_a_recipe(xverify, tmp_path, files, difference):
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED)
    assert done.code == 0, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    row = done.row("tensorflow:eager")
    assert row["error"]["verdict"] == "DRIFT", row["error"]
    found = checks(row)
    assert found["update"] <= {"EQUAL", difference}
    assert difference in found["update"]
    assert found["gradients"] == {"EQUAL"}


# Model -> change of its port, the verdict, and what the report says.
OTHER = {
    "rmsprop": (RMSPROP, [
        ("", "", "DRIFT", "eps-inside"),
        ("rho=0.99", "rho=0.9", "DIFFERENT", "behaves as alpha 0.9; torch.py says 0.99"),
        ("RMSprop(0.01,", "RMSprop(0.0103,", "DIFFERENT", "behaves as learning rate 0.0103; it should be 0.01"),
    ]),
    # The rate that the changes show is a little off, because the floors of eps and of the decay are in them.
    "adamw": (ADAMW, [
        ("AdamW(0.01,", "AdamW(0.013,", "DIFFERENT", "behaves as learning rate 0.013; it should be 0.01"),
        ("AdamW(0.01,", "AdamW(0.0103,", "DIFFERENT", "behaves as learning rate 0.0103; it should be 0.01"),
        ("AdamW(0.01,", "AdamW(0.01234567,", "DIFFERENT", "behaves as learning rate 0.01234"),
        ("weight_decay=0.1", "weight_decay=0.05", "DIFFERENT", "behaves as weight decay 0.05; torch.py says 0.1"),
    ]),
    "sgd with decay": (DECAY, [
        ("weight_decay=0.1", "weight_decay=0.09", "DIFFERENT", "update, step 0"),
        (", weight_decay=0.1", "", "DIFFERENT", "behaves as weight decay 0; torch.py says 0.1"),
    ]),
    "clipped in torch.py": (with_clipping("nn.utils.clip_grad_norm_(model.parameters(), 0.1)"), [
        ("SGD(0.1)", "SGD(0.1, global_clipnorm=0.1)", "EQUAL", ""),
        ("SGD(0.1)", "SGD(0.1, clipnorm=0.1)", "DIFFERENT", "the step clips the gradient of each parameter by its own norm at 0.1"),
        ("SGD(0.1)", "SGD(0.1, global_clipnorm=0.13)", "DIFFERENT", "clipped at norm 0.13; torch.py clips them at 0.1"),
    ]),
    "values clipped in torch.py": (with_clipping("nn.utils.clip_grad_value_(model.parameters(), 0.01)"), [
        ("SGD(0.1)", "SGD(0.1, clipvalue=0.01)", "EQUAL", ""),
    ]),
    "not clipped in torch.py": (PLAIN, [
        ("SGD(0.1)", "SGD(0.1, clipnorm=0.1)", "DIFFERENT", "clipped at 0.1 (the gradient of each parameter by its own norm)"),
        ("SGD(0.1)", "SGD(0.1, clipvalue=0.01)", "DIFFERENT", "clipped at 0.01 (each value of the gradients), which"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("files", "changes"), OTHER.values(), ids=OTHER)
def test_other_settings_are_told_from_known_differences(tmp_path, files, changes):
    assert changes
    with judging(tmp_path, files, "tensorflow:eager") as judged:
        for number, (text, other, verdict, says) in enumerate(changes):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == verdict
            assert says in (error.reason or "")
            assert "other gradients" not in (error.reason or "")
            assert "cannot tell which" not in (error.reason or "")


@pytest.mark.skipif(not is_installed("jax"), reason="xverify env create jax")
def test_the_known_difference_of_optax(xverify, tmp_path):
    files = {
        "spec": PLAIN["spec"],
        "torch": PLAIN["torch"].replace(SGD, "torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)"),
        "jax": JAX.replace("optax.sgd(0.1)", "optax.amsgrad(0.01)"),
    }
    assert "optax.amsgrad" in files["jax"]
    done = xverify("run", folder(tmp_path / "jax", files), *UNTIMED[:-1], "torch:eager,jax:eager")
    assert done.code == 0, done.out + done.err
    row = done.row("jax:eager")
    assert row["error"]["verdict"] == "DRIFT", row["error"]
    assert "corrected maximum" in checks(row)["update"]


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        # The discriminator is updated between its passes, with eps where Keras has it, and its running statistics see that.
        ("dcgan", ("--seed", 3), "biased variance: "),
        # The moments add up what a clipping without torch's 1e-6 changes; one update does not show it.
        ("ppo", ("--steps", 20, "--threads", 1), "clip eps: "),
    ],
)
def test_what_a_known_difference_changes_later_is_no_mistake(xverify, kind, settings, says):
    done = xverify("run", STEPS / kind, "--task", "train", "--no-timing", "--subjects", "tensorflow:eager", *settings)
    assert done.code == 0, done.out + done.err
    assert done.row("tensorflow:eager")["error"]["verdict"] == "DRIFT"
    assert "eps-hat: " in done.out
    assert says in done.out
