"""A training step of one's own in the model files: a GAN with two optimizers, and a loop with a custom loss; right and wrong."""

from importlib.util import find_spec

import pytest
from helpers.ownsteps import GAN, LOOP, ON_TORCH, QUICK, checks, folder, judging

pytestmark = pytest.mark.slow


def need(framework):
    """Skip the test where a framework is not installed. Jittor is not imported: only its adapter sets what it needs first."""
    if find_spec({"keras-torch": "keras"}.get(framework, framework)) is None:
        pytest.skip(f"{framework} is not installed")


@pytest.mark.parametrize("framework", ["tensorflow", "jittor"])
def test_a_gan_with_two_optimizers_trains_equally(xverify, tmp_path, framework):
    need(framework)
    subjects = {"tensorflow": ["tensorflow:eager", "tensorflow:graph"]}.get(framework, [framework])
    port = folder(tmp_path / "gan", {name: GAN[name] for name in ("spec", "torch", framework)})
    done = xverify("run", port, *QUICK, "--subjects", ",".join(["torch:eager", *subjects]))
    assert done.code == 0, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    for subject in subjects:
        found = checks(done.row(subject))
        assert found.pop("update") <= {"EQUAL", "eps-hat"}
        assert found.pop("statistics") == {"biased variance"}
        assert found == {"weights": {"EQUAL"}, "loss": {"EQUAL"}, "gradients": {"EQUAL"}, "state": {"EQUAL"}}
        assert done.row(subject)["speed"]["fps"] > 0
    assert "with train_step of the model files" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("files", "subjects"),
    [
        (LOOP, ["tensorflow:graph", "tensorflow:xla"]),
        (LOOP, ["jittor"]),
        (ON_TORCH, ["keras-torch"]),
    ],
    ids=["tensorflow", "jittor", "keras-torch"],
)
def test_a_loop_of_ones_own_trains_equally(xverify, tmp_path, files, subjects):
    need(subjects[0].partition(":")[0])
    done = xverify("run", folder(tmp_path / "loop", files), *QUICK, "--subjects", ",".join(["torch:eager", *subjects]))
    assert done.code == 0, done.out + done.err
    for row in done.result["rows"]:
        assert row["error"]["verdict"] == "EQUAL", row["error"]
        assert {check["step"] for check in row["training"]["checks"]} == {0, 1, 2}
        assert set(checks(row)) == {"weights", "loss", "gradients", "update", "state"}


# Framework of the port: text of its file -> what stands there in a wrong one, and what a report says then.
WRONG_GAN = {
    "tensorflow": [
        ("tape.gradient(g_loss, g_vars)", "[-each for each in tape.gradient(g_loss, g_vars)]",
         ["gradients, step 0: G.0.weight (optimizer 'g')", "it has the opposite sign",
          "only weights that loss 'g_loss' trains differ"]),
        ('"g": keras.optimizers.Adam(1e-3, beta_1=0.5', '"g": keras.optimizers.Adam(1e-3, beta_1=0.9',
         ["update, step 1: G.0.weight (optimizer 'g')",
          "the gradients that its optimizer is given agree, so the optimizer differs",
          "optimizer 'g' behaves as beta1 0.9; torch.py says 0.5", "only weights that loss 'g_loss' trains differ"]),
        ('"d": keras.optimizers.Adam(2e-3', '"d": keras.optimizers.Adam(2.2e-3',
         ["update, step 0: D.0.weight (optimizer 'd')", "behaves as learning rate 0.0022; it should be 0.002"]),
        (", epsilon=1e-8", "", ["update, step 0: D.0.weight", "eps is 1e-07, the default of Keras"]),
        ("training=True)", "training=False)", ["statistics, step 0", "batch norm is in inference mode"]),
    ],
    "jittor": [
        ("""    state["d"].step(d_loss)
    g_loss = bce(model.D(fake), 1.0)
""", """    g_loss = bce(model.D(fake), 1.0)
    state["d"].step(d_loss)
""", ["loss, step 0: loss 'g_loss'", "'d_loss' agrees",
      "the gradients of optimizer 'g' are computed with stale weights: those before the update of optimizer 'd'"]),
        ('state["g"].step(g_loss)', 'state["g"].step(-g_loss)', ["it has the opposite sign", "'g_loss' trains"]),
    ],
}  # fmt: skip
WRONG_LOOP = {
    "tensorflow": [
        ("tf.stop_gradient(logits)", "logits", ["gradients, step 0: body.weight", "a detach is missing"]),
        ("momentum=0.9", "momentum=0.5", ["update, step 1", "the optimizer behaves as momentum 0.5; torch.py says 0.9"]),
        ("label + 0.5 * pupil", "label", ["gradients, step 0: body.weight"]),
        ("    optimizer.apply(gradients, variables)\n", "", ["the step changes no weight"]),
        ('"pupil": pupil}', '"other": pupil}',
         ["the step returns the losses 'label', 'other'; the reference's returns 'label', 'pupil'"]),
        ("loss = label", "label /= 1 - tf.cast(optimizer.iterations, tf.float32)\n        loss = label",
         ["loss, step 1: loss 'label' is inf"]),
        ('model.body(batch["x"])', 'model.body(batch["x"] + tf.random.normal((12,)))', ["its train_step is random"]),
    ],
    "jittor": [("optimizer.clip_grad_norm(0.5)", "pass", ["gradients, step 0: body.weight", "clipping is missing"])],
}  # fmt: skip
WRONG_ON_TORCH = {
    "keras-torch": [
        ("    model.zero_grad()\n", "", ["gradients, step 1", "the gradients of the optimizer are not zeroed"])
    ]
}
INVALID = ("returns the losses", "is inf", "is random")


@pytest.mark.parametrize(
    ("files", "wrong", "subject"),
    [
        pytest.param(GAN, WRONG_GAN, "tensorflow:graph", marks=pytest.mark.long),
        (GAN, WRONG_GAN, "jittor"),
        pytest.param(LOOP, WRONG_LOOP, "tensorflow:graph", marks=pytest.mark.long),
        (LOOP, WRONG_LOOP, "jittor"),
        (ON_TORCH, WRONG_ON_TORCH, "keras-torch"),
    ],
    ids=["gan in tensorflow", "gan in jittor", "loop in tensorflow", "loop in jittor", "loop in keras on torch"],
)
def test_a_wrong_step_is_different_and_said_to_be(tmp_path, files, wrong, subject):
    framework = subject.partition(":")[0]
    need(framework)
    assert wrong[framework]
    with judging(tmp_path, files, subject) as judged:
        for number, (text, other, says) in enumerate(wrong[framework]):
            error = judged(number, (text, other))
            print(number, error.verdict, error.reason)
            assert error.verdict == ("INVALID" if any(each in says[0] for each in INVALID) else "DIFFERENT")
            for clause in says:
                assert clause in error.reason, error.reason


RETURNED = 'return {"label": label_loss.item(), "pupil": pupil_loss}'


@pytest.mark.parametrize(
    ("right", "wrong", "code", "says"),
    [
        (RETURNED, "return label_loss", 3, "must return a dictionary of its losses: name -> one number; it returns a Tensor"),
        (RETURNED, 'return {"label": logits}', 3, "'label' is a tensor of shape (16, 5): return its mean or its sum"),
        ("optimizer.step()", "pass", 3, "train_step of the reference changes no weight"),
        ('cross_entropy(logits, batch["target"])', '(logits * float("nan")).mean()', 3, "loss 'label' is nan at step 0"),
        ('model.body(batch["x"])', 'model.body(batch["x"] + torch.randn(12))', 1,
         "the reference is random: two runs of its train_step"),
    ],
    ids=["no dictionary", "no number", "no update", "not a number", "random"],
)  # fmt: skip
def test_a_step_of_the_reference_that_cannot_be_compared_is_one_clear_line(xverify, tmp_path, right, wrong, code, says):
    bad = folder(tmp_path / "bad", {name: LOOP[name] for name in ("spec", "torch")}, torch=(right, wrong))
    done = xverify("run", bad, *QUICK, "--subjects", "torch:eager")
    assert done.code == code, done.out + done.err
    row = done.row("torch:eager")
    assert says in (row["reason"] or row["error"]["reason"])


def test_the_command_line_tells_a_wrong_step_and_a_missing_one(xverify, tmp_path):
    need("tensorflow")
    text, other, says = WRONG_GAN["tensorflow"][0]
    port = folder(tmp_path / "wrong", GAN, tensorflow=(text, other), jittor=("def train_step", "def another"))
    done = xverify("run", port, *QUICK, "--subjects", "torch:eager,tensorflow:graph,jittor")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    for clause in says:
        assert clause in done.row("tensorflow:graph")["error"]["reason"]
        assert clause in " ".join(done.out.split())
    row = done.row("jittor")
    assert row["status"] == "unsupported"
    assert row["reason"].startswith(
        "torch.py defines train_step(model, state, batch), and jittor.py does not: write the function"
    )


def test_settings_of_an_optimizer_have_no_place_beside_a_step_of_ones_own(xverify, tmp_path):
    port = folder(tmp_path / "loop", {name: LOOP[name] for name in ("spec", "torch")})
    done = xverify("run", port, *QUICK, "--optimizer", "adam")
    assert done.code == 2
    assert "--optimizer has no effect on loop: its files make the whole step (train_step)" in done.err
    done = xverify("run", port, *QUICK, "--dropout-masks")
    assert done.code == 2
    assert "--dropout-masks is not supported for loop, whose files make the whole step (train_step)" in done.err
    done = xverify("run", port, *QUICK, "--subjects", "torch:trace")
    assert done.row("torch:trace")["status"] == "unsupported"
    assert "name torch:eager" in done.row("torch:trace")["reason"]
