"""The loss curves and the end losses over seeds of a training step of one's own: those of every loss that the step returns."""

import pytest
from helpers.ownsteplines import LATER
from helpers.ownsteps import GAN, folder

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

UNTIMED = ("--task", "train", "--no-timing", "--subjects", "torch:eager,torch-port:eager")


def with_port(path, files, *change):
    """A folder with a second file of torch. change: (text, text in its place) in that."""
    return folder(
        path, {"spec": files["spec"], "torch": files["torch"], "torch-port": files["torch"]}, **{"torch-port": change}
    )


def test_every_loss_has_a_curve_beside_the_band_and_end_losses(xverify, tmp_path):
    picture, page = tmp_path / "curves.svg", tmp_path / "page.html"
    drawn = ("--curve", picture, "--html", page, "--details")
    done = xverify("run", with_port(tmp_path / "gan", GAN, "", ""), *UNTIMED, "--steps", 12, "--seeds", 2, *drawn)
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        training = row["training"]
        curves = [training["curve"], *training["other_curves"]]
        assert [(curve["loss"], curve["verdict"], len(curve["losses"])) for curve in curves] == [
            ("d_loss", "EQUAL", 12), ("g_loss", "EQUAL", 12),
        ]  # fmt: skip
        assert all(curve["losses"] == curve["reference"] for curve in curves)  # which is a port of torch itself
        assert all(low <= loss <= high for c in curves for low, loss, high in zip(c["low"], c["reference"], c["high"]))
        ends = [training["end_losses"], *training["other_end_losses"]]
        assert [(each["loss"], each["verdict"], each["steps"]) for each in ends] == [
            ("d_loss", "SAME", 12), ("g_loss", "SAME", 12),
        ]  # fmt: skip
        assert {check["step"] for check in training["checks"]} == set(range(12))
    assert "each cell is the worst of steps 0 to 11" in done.out
    for title in ("loss 'd_loss' by step", "loss 'g_loss' by step"):
        assert title in done.out
    assert all(label in picture.read_text() for label in ("loss d_loss", "loss g_loss"))
    assert all(title in page.read_text() for title in ("Loss d_loss by step", "Loss g_loss by step"))


NOT_A_NUMBER = (
    '    return {"loss": loss}',
    '    return {"loss": loss / (state["calls"] != 7) * (state["calls"] != 7)}',
)


@pytest.mark.parametrize(
    ("change", "verdict", "code", "says"),
    [
        (("StepLR(adam, 4", "StepLR(adam, 6"), "DRIFT", 0, "loss curve of 'loss': at step 5 the loss is"),
        (NOT_A_NUMBER, "INVALID", 1, "loss curve of 'loss': the loss is nan at step 6"),
    ],
    ids=["a schedule", "not a number"],
)
def test_a_curve_shows_what_begins_after_the_compared_steps(xverify, tmp_path, change, verdict, code, says):
    done = xverify("run", with_port(tmp_path / "later", LATER, *change), *UNTIMED)
    row = done.row("torch-port:eager")
    assert (done.code, row["error"]["verdict"]) == (code, verdict), row["error"]
    assert says in row["error"]["reason"]
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    assert {check["verdict"] for check in row["training"]["checks"]} == {"EQUAL"}


def test_end_losses_that_differ_are_told_by_their_loss(xverify, tmp_path):
    port = with_port(
        tmp_path / "other", LATER, "Adam(model.parameters(), lr=1e-2)", "Adam(model.parameters(), lr=3e-2)"
    )
    done = xverify("run", port, *UNTIMED, "--steps", 24, "--seeds", 4)
    assert done.code == 1, done.out + done.err
    right, wrong = (done.row(subject)["training"]["end_losses"] for subject in ("torch:eager", "torch-port:eager"))
    assert (right["verdict"], wrong["verdict"]) == ("SAME", "LOWER")
    assert wrong["says"].startswith("loss 'loss': end losses LOWER by")


def test_a_reference_that_diverges_in_its_free_training_is_refused(xverify, tmp_path):
    text = LATER["torch"].replace('    return {"loss": loss}', '    return {"loss": loss / (state["calls"] < 8)}')
    port = tmp_path / "diverging"
    folder(port, {"spec": LATER["spec"], "torch": text})
    done = xverify("run", port, *UNTIMED[:-1], "torch:eager", "--seeds", 4)
    assert done.code == 3, done.out + done.err
    says = "its own training diverges: a loss is inf at step 7"
    assert says in done.row("torch:eager")["reason"]
    # Nobody asked for step 7 here, and the compared steps are judged.
    done = xverify("run", port, *UNTIMED[:-1], "torch:eager")
    assert done.code == 4, done.out + done.err  # the reference alone
    curve = next(check for check in done.row("torch:eager")["training"]["checks"] if check["name"] == "curve")
    assert curve["verdict"] == "UNTESTED"
    assert says in curve["says"]
