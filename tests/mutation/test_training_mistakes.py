"""Mistakes of training code, in models with a loss, groups and an average of their own: each is caught, placed and named."""

from pathlib import Path

import pytest
from test_replaced import runs

pytestmark = pytest.mark.slow

MODELS = Path(__file__).parent / "models"
SUBJECTS = [runs(name) for name in ("torch:eager", "tensorflow:graph", "keras-torch", "jittor")]
# What is made in every framework, and in torch alone.
RECIPES = {
    *("weight decay of biases", "rate of a group missing", "clipping missing", "values clipped, not the norm"),
    *("each gradient clipped by itself", "warm-up missing", "average with 1 - decay", "average missing"),
    *("frozen parameters move", "weight decay missing", "weight decay decoupled", "weight decay coupled"),
}
IN_TORCH = {
    *("clipping after the step", "schedule a step ahead", "schedule a step behind", "micro-batches summed"),
    *("zeroed between micro-batches", "average before the step", "AMSGrad missing", "gradient not zeroed"),
}
LOSSES = {
    "masked-language-model": {
        *("wrong ignored index", "ignored positions counted", "softmax applied twice", "from_logits forgotten"),
        *("loss summed, not averaged", "mean over the wrong axis", "label smoothing missing"),
    },
    "two-outputs": {
        *("loss summed, not averaged, box", "mean over the wrong axis, score", "other delta, box"),
        *("term missing, box", "term missing, score", "weight missing, score", "l1 for mse, score"),
    },
}


@pytest.mark.parametrize("framework", SUBJECTS)
@pytest.mark.parametrize("model", LOSSES)
@pytest.mark.long
def test_every_mistake_of_training_code_is_caught_and_named(scored, model, framework):
    _, (score,) = scored(MODELS / model, framework, "--task", "train", "--batch", 8, timeout=1800)
    wanted = RECIPES | LOSSES[model] | (IN_TORCH if framework == "torch:eager" else set())
    assert wanted - {trial["kind"] for trial in score["trials"]} == set()
    assert [trial for trial in score["trials"] if trial["outcome"] != "CAUGHT"] == []
    assert [trial for trial in score["trials"] if trial["explained"] != trial["kind"]] == []
    assert score["planted"] == score["caught"] == score["layer_named"] == score["explained"]
    assert (score["false_alarms"], score["not_planted"]) == ([], [])
    assert score["clean_runs"] >= 20


def test_a_mistake_that_a_later_step_shows_is_caught_where_steps_are_slow(monkeypatch):
    from xverify.mutation import training
    from xverify.training import curve

    def chosen(*given):
        return tuple(each for each in real(*given) if each.kind == "schedule a step behind")

    real = training.recipe_mistakes
    monkeypatch.setattr(curve, "LONG_STEP", 0.0)
    monkeypatch.setattr(training, "recipe_mistakes", chosen)
    for others in ("MISTAKES", "PRECISION_MISTAKES"):
        monkeypatch.setattr(training, others, ())
    score = training.mutate_training("mlp", batch=8)
    (trial,) = score.trials
    assert (trial.verdict, trial.found) == ("DIFFERENT", "schedule"), trial
