"""Mistakes in a training step of the model files: each that changes the step is caught, and named by the check that it breaks."""

import json

import pytest
from helpers.ownsteplines import ACCUMULATED
from helpers.ownsteps import GAN, LOOP, folder

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

OF_GAN = {
    f"{what}, optimizer {name!r}"
    for name in "dg"
    for what in ("other learning rate", "other beta1", "other beta2", "gradients not zeroed")
}


def score_of(xverify, tmp_path, files, subject):
    framework = subject.partition(":")[0]
    port = folder(tmp_path / "port", {name: files[name] for name in dict.fromkeys(("spec", "torch", framework))})
    file = tmp_path / "score.json"
    done = xverify("mutate", port, "--task", "train", "--batch", 16, "--subjects", subject, "--json", file)
    (score,) = json.loads(file.read_text())
    print(done.out, json.dumps(score, indent=1))
    assert done.code == 0, done.out + done.err
    assert (score["subject"], score["clean_runs"], score["false_alarms"], score["missed"]) == (subject, 2, [], 0)
    assert score["planted"] == score["caught"] + score["untested"]
    return score


@pytest.mark.long
def test_mistakes_in_a_gan_of_torch_are_caught_and_named(xverify, tmp_path):
    score = score_of(xverify, tmp_path, GAN, "torch:eager")
    assert {trial["kind"] for trial in score["trials"]} >= {*OF_GAN, "loss times 1.1", "parameter not updated"}
    assert score["not_planted"] == []
    assert [trial for trial in score["trials"] if trial["outcome"] == "CAUGHT" and trial["explained"] is None] == []
    # A step without clipping has none that could be missing.
    assert "clipping missing" not in {trial["kind"] for trial in score["trials"]}


@pytest.mark.long
def test_mistakes_in_a_loop_of_tensorflow_are_caught_and_named(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    score = score_of(xverify, tmp_path, LOOP, "tensorflow:graph")
    kinds = {trial["kind"] for trial in score["trials"]}
    assert kinds == {
        "other learning rate",
        "other momentum",
        "clipping missing",
        "loss times 1.1",
        "parameter not updated",
    }
    assert score["not_planted"] == ["gradients not zeroed: TensorFlow keeps no gradients from step to step"]
    assert [trial for trial in score["trials"] if trial["outcome"] == "CAUGHT" and trial["explained"] is None] == []


def test_a_framework_that_cannot_make_mistakes_in_a_step_says_which_can(xverify, tmp_path):
    if host.missing(load("jax")) and environments.chosen(load("jax")) is None:
        pytest.skip("xverify env create jax")
    port = folder(tmp_path / "port", {name: ACCUMULATED[name] for name in ("spec", "torch", "jax")})
    xverify("mutate", port, "--task", "train", "--subjects", "jax", "--json", tmp_path / "score.json")
    (score,) = json.loads((tmp_path / "score.json").read_text())
    assert (score["planted"], score["clean_runs"], score["false_alarms"]) == (0, 2, [])
    assert all(
        "xverify makes no mistakes in a train_step of jax: name torch or tensorflow" in each
        for each in score["not_planted"]
    )
