"""The number of compared steps of one's own: updates in some calls only, and what changes in a later step."""

import pytest
from helpers.ownsteplines import ACCUMULATED, LATER
from helpers.ownsteps import assert_port_is_wrong, checks, folder

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

UNTIMED = ("--task", "train", "--no-timing", "--subjects")
TWO = (*UNTIMED, "torch:eager,tensorflow:eager")


def steps_of(row, name="update"):
    return [check["step"] for check in row["training"]["checks"] if check["name"] == name]


def test_an_update_in_every_fourth_call_is_no_error_and_two_updates_are_seen(xverify, tmp_path):
    pytest.importorskip("jax")
    subjects = "torch:eager,tensorflow:graph,jax:jit"
    done = xverify("run", folder(tmp_path / "every-fourth", ACCUMULATED), *UNTIMED, subjects)
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "EQUAL", row["error"]
        assert steps_of(row) == list(range(8))
        assert all(verdicts == {"EQUAL"} for verdicts in checks(row).values())
    # Only JAX does not show what its optimizer is given. Where there is no update, there is no gradient to compare.
    for subject, where in (("torch:eager", [3, 7]), ("tensorflow:graph", [3, 7]), ("jax", [])):
        assert steps_of(done.row(subject), "gradients") == where


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("steps=4", "steps=3"), ["update, step 2: a.weight is changed by the step; the reference's step leaves it as it is"]),
        ((", gradient_accumulation_steps=4", ""), ["update, step 0: a.weight is changed by the step"]),
        (("steps=4", "steps=8"), ["update, step 3: the step changes no weight"]),
        (("SGD(0.1,", "SGD(0.4,"),
         ["update, step 3: a.weight", "gradients that its optimizer is given agree", "learning rate 0.4; it should be 0.1"]),
    ],
    ids=["every third", "every call", "every eighth", "another rate"],
)  # fmt: skip
def test_accumulation_over_another_number_of_calls_is_different(xverify, tmp_path, change, says):
    done = xverify("run", folder(tmp_path / "wrong", ACCUMULATED, tensorflow=change), *TWO)
    assert_port_is_wrong(done, *says)


def test_an_update_that_never_comes_is_refused_with_the_number_of_calls(xverify, tmp_path):
    files = {name: ACCUMULATED[name] for name in ("spec", "torch")}
    rare = folder(tmp_path / "rare", files, torch=("% 4", "% 400"))
    for steps, count in ((), 32), (("--steps", 10), 10):
        done = xverify("run", rare, *UNTIMED, "torch:eager", *steps)
        assert done.code == 3, done.out + done.err
        reason = done.row("torch:eager")["reason"]
        assert f"train_step of the reference changes no weight in {count} steps: compute the gradients" in reason
        assert "where it makes an update in every k-th call only, give 2 k steps or more with --steps" in reason
    done = xverify("run", folder(tmp_path / "one", files), *UNTIMED, "torch:eager", "--steps", 5)
    assert done.code == 4, done.out + done.err  # the reference alone
    assert steps_of(done.row("torch:eager")) == list(range(5))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("calls > 4, 1e-3, 1e-2", "calls > 40, 1e-3, 1e-2"),
         ["update, step 4: a.weight", " does not change; torch.py has a schedule"]),
        (("calls > 4, a, b", "calls > 40, a, b"), ["gradients, step 4: a.weight", "clipping is missing"]),
        (("calls > 5, before", "calls > 6, before"),
         ["update, step 5: a.weight is changed by the step; the reference's step leaves it as it is"]),
    ],
    ids=["a schedule", "clipping", "a frozen layer"],
)  # fmt: skip
def test_what_begins_in_a_later_step_is_found_with_enough_steps(xverify, tmp_path, change, says):
    port = folder(tmp_path / "later", LATER, tensorflow=change)
    few = xverify("run", port, *TWO)
    assert few.code == 0, few.out + few.err
    assert steps_of(few.row("tensorflow:eager")) == [0, 1, 2]
    assert_port_is_wrong(xverify("run", port, *TWO, "--steps", 8), *says)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (0, "--steps is 0: it must be at least 2"),
        (
            1001,
            "--steps 1001: the files of later make the whole step (train_step), and every step is compared; name 1000",
        ),
    ],
)
def test_numbers_of_steps_that_cannot_be_compared_are_refused(xverify, tmp_path, steps, says):
    done = xverify("run", folder(tmp_path / "later", LATER), *TWO, "--steps", steps)
    assert done.code == 2
    assert says in done.err


def test_steps_for_which_the_disk_has_no_space_are_refused(xverify, tmp_path, monkeypatch):
    from collections import namedtuple

    monkeypatch.setattr("shutil.disk_usage", lambda path: namedtuple("Usage", "total used free")(10**6, 0, 10**6))
    done = xverify("run", folder(tmp_path / "later", LATER), *TWO, "--steps", 900)
    assert done.code == 2, done.out + done.err
    assert "--steps 900: the arrays of these steps need 0.0" in done.err
