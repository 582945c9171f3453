"""The records of a mutation score, and how they are printed: no model is run."""

import json

import pytest

from xverify.commands import mutate
from xverify.mutation import mistakes
from xverify.mutation.precision_mistakes import PRECISION_MISTAKES
from xverify.mutation.recipe_mistakes import recipe_mistakes
from xverify.mutation.records import Score, Trial
from xverify.report.tables import markdown
from xverify.results.verdicts import Verdict
from xverify.workload.recipe import Group, Recipe


def trial(verdict="DIFFERENT", found="fc", explained="bias missing", **changes):
    values = {"model": "m", "kind": "bias missing", "layer": "fc", "says": "has no bias", "visible": 100.0} | changes
    return Trial(**values, verdict=Verdict(verdict), found=found, explained=explained)


MISSED = trial("EQUAL", None, None)
UNTESTED = trial("EQUAL", None, None, visible=0.5)
DRIFTS = trial("DRIFT", kind="float16 weights", explained="float16 weights")


def test_a_trial_is_located_in_its_own_layer_and_understood_by_its_own_kind():
    assert trial().located
    assert trial().understood
    assert not trial(found="the input of fc").located
    assert not trial(found="relu").understood
    assert not trial(explained=None).understood
    assert trial(kind="float16 weights", explained="TF32 weights").understood
    assert not trial(kind="float16 weights", explained="TF32 arithmetic").understood


def test_a_drift_is_caught_only_when_the_report_names_the_fault():
    assert (DRIFTS.outcome, DRIFTS.fails, DRIFTS.drifts) == ("CAUGHT", False, True)
    assert (trial().outcome, trial().fails, trial().drifts) == ("CAUGHT", True, False)
    for unnamed in (trial("DRIFT", explained=None), trial("DRIFT", explained="eps"), trial("DRIFT", found="relu")):
        assert (unnamed.outcome, unnamed.located, unnamed.understood) == ("MISSED", False, False)
    assert trial("DRIFT", explained=None, visible=20.0).outcome == "UNTESTED"
    assert trial("INVALID", found=None, explained=None).outcome == "CAUGHT"
    score = Score("m", (trial(), DRIFTS, trial("DRIFT", explained=None)), 1, ())
    assert (score.fails, score.drifts) == (1, 1)
    assert mutate.table([score]) == [["m", "3", "2", "1", "1", "2", "2", "0", "1", "1", "0"]]


def test_a_score_in_json_has_the_names_that_files_have():
    score = Score("m", (trial(), trial(found="relu"), MISSED, UNTESTED, trial(visible=float("inf"))), 3, ("alarm",))
    found = json.loads(json.dumps(score.to_dict(), allow_nan=False))
    trials = found.pop("trials")
    assert found == {
        "model": "m", "subject": "torch:eager", "planted": 5, "caught": 3, "untested": 1, "missed": 1,
        "exit_1": 3, "drift_named": 0, "layer_named": 2, "explained": 2,
        "clean_runs": 3, "false_alarms": ["alarm"], "not_planted": [],
    }  # fmt: skip
    assert list(trials[0]) == [
        "model", "kind", "layer", "says", "visible", "outcome", "verdict", "found", "explained", "explanation",
    ]  # fmt: skip
    assert [each["outcome"] for each in trials[1:4]] == ["CAUGHT", "MISSED", "UNTESTED"]
    assert trials[4]["visible"] is None


def test_the_table_has_a_sum_row_only_for_several_models():
    one, other = Score("a", (trial(), MISSED), 2, ()), Score("b", (trial(found="relu"),), 3, ("alarm",))
    assert mutate.table([one]) == [["a", "2", "1", "1", "0", "1", "1", "0", "1", "2", "0"]]
    assert mutate.table([one, other])[-1] == ["all", "3", "2", "2", "0", "1", "1", "0", "1", "5", "1"]
    head, rule, row = markdown(mutate.COLUMNS, mutate.table([one]))
    assert head.startswith("| model | planted | caught | exit 1 | DRIFT, named | layer named |")
    assert rule == "|---" + "|---:" * 10 + "|"
    assert row == "| a | 2 | 1 | 1 | 0 | 1 | 1 | 0 | 1 | 2 | 0 |"


def test_a_trial_that_was_not_explained_is_printed(capsys):
    mutate._print([Score("m", (trial(), MISSED, UNTESTED, trial(found="relu")), 1, ("seed 0: DIFFERENT",))], False)
    missed, untested, elsewhere, alarm, *_ = capsys.readouterr().out.splitlines()
    assert missed == "MISSED   m: bias missing in fc, 100 × its noise floor; no layer differs"
    assert untested.startswith("UNTESTED m: bias missing in fc, 0.5 ×")
    assert elsewhere.endswith("; found relu: not explained")
    assert alarm == "FALSE ALARM m: seed 0: DIFFERENT"


@pytest.mark.parametrize(
    ("scores", "code"),
    [((trial(),), 0), ((UNTESTED,), 0), ((MISSED,), 1)],
)
def test_a_missed_fault_fails(monkeypatch, capsys, scores, code):
    monkeypatch.setattr(mutate, "mutate", lambda model, **_: Score(model, scores, 1, ()))
    from xverify.commands._main import main

    assert main(["mutate", "mlp", "--quiet"]) == code


def test_a_port_of_another_framework_is_named_in_the_table_and_in_sentences(capsys):
    score = Score(
        "m", (trial(), MISSED), 1, ("seed 0: DIFFERENT",), subject="flax", unplanted=("eps in bn: why [not]",)
    )
    assert mutate.table([score])[0][0] == "m, flax"
    assert (score.to_dict()["subject"], score.to_dict()["not_planted"]) == ("flax", ["eps in bn: why [not]"])
    mutate._print([score], False)
    missed, unplanted, alarm, *_ = capsys.readouterr().out.splitlines()
    assert missed.startswith("MISSED   m, flax: bias missing in fc")
    assert unplanted == "not planted m, flax: eps in bn: why [not]"
    assert alarm.startswith("FALSE ALARM m, flax:")


@pytest.mark.parametrize("task", ["forward", "train"])
def test_every_subject_that_is_named_gets_a_score(monkeypatch, capsys, task):
    asked = []

    def scored(model, *, subject, **_):
        asked.append((model, subject))
        return Score(model, (trial(),), 1, (), subject=subject)

    monkeypatch.setattr(mutate, "mutate" if task == "forward" else "mutate_training", scored)
    from xverify.commands._main import main

    assert main(["mutate", "mlp", "--quiet", "--markdown", "--task", task, "--subjects", "flax,paddle:static"]) == 0
    assert asked == [("mlp", "flax"), ("mlp", "paddle:static")]
    assert "| mlp, paddle:static |" in capsys.readouterr().out


def test_another_framework_makes_the_mistakes_that_need_no_code_of_torch():
    known = [*mistakes.MISTAKES, *recipe_mistakes()]
    by_kind = {mistake.kind: mistakes.made(mistake, in_torch=False) for mistake in known}
    left_out = {kind for kind, made in by_kind.items() if made is None}
    of_recipes = {
        *("clipping after the step", "schedule a step ahead", "schedule a step behind", "micro-batches summed"),
        *("zeroed between micro-batches", "average before the step", "AMSGrad missing"),
    }
    assert left_out == of_recipes | {
        *("gradient not zeroed", "momentum missing", "frozen layer"),
    }
    assert by_kind["eps placement"].settings.variants == ("eps-hat",)
    assert by_kind["batch-norm momentum convention"].in_model == "momentum"
    assert [kind for kind, made in by_kind.items() if made and not made.match] == ["no Bessel correction"]
    assert all(mistakes.made(mistake, in_torch=True) for mistake in [*known, *PRECISION_MISTAKES])
    assert not any(mistakes.made(mistake, in_torch=False) for mistake in PRECISION_MISTAKES)


def test_mistakes_are_made_in_the_groups_and_the_frozen_parameters_of_the_model():
    norms = Group("*norm*", weight_decay=0.0)
    recipes = [
        each.asked.recipe
        for each in recipe_mistakes(Recipe(groups=(Group("*.bias", lr=0.1), norms), frozen=("stem.*",)))
    ]
    assert {recipe.groups[0].pattern for recipe in recipes if recipe.groups} == {"*.bias"}
    assert {recipe.groups[1] for recipe in recipes if recipe.groups} == {norms}
    assert {recipe.frozen for recipe in recipes} == {(), ("stem.*",)}
