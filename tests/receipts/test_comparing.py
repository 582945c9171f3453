"""Every verdict and every condition of two results is compared, and each difference is told."""

from dataclasses import replace

import pytest
from helpers.sampleresults import ABSENT, FORWARD, LAYERS, RESULT, TRAINED

from xverify.receipts.comparing import adapters, compare, packages
from xverify.results.records import Check
from xverify.results.verdicts import Outcome, Verdict
from xverify.workload.ranks import ONE_PROCESS


def with_rows(*rows):
    return replace(RESULT, rows=rows)


def says(found):
    return [str(each) for each in found.differing]


def test_a_result_agrees_with_itself():
    found = compare(RESULT, RESULT)
    assert (found.outcome, says(found), found.differences) == (Outcome.PASS, [], ())
    assert found.counts() == "3 of 3 rows, 2 of 2 checks, 4 of 4 layers"


def test_a_check_a_layer_and_an_output_that_differ_are_named():
    checks = (Check("weights", 0, Verdict.DIFFERENT), *TRAINED.training.checks[1:])
    first, second = LAYERS.layers
    layers = replace(LAYERS, layers=(replace(first, verdict=Verdict.DRIFT), second))
    tensor = replace(FORWARD.error.tensors[0], verdict=Verdict.EQUAL)
    old = with_rows(replace(FORWARD, error=replace(FORWARD.error, tensors=(tensor,))), TRAINED, ABSENT)
    worse = replace(FORWARD.error, layers=layers, tensors=(replace(tensor, verdict=Verdict.INVALID),))
    new = with_rows(
        replace(FORWARD, error=worse), replace(TRAINED, training=replace(TRAINED.training, checks=checks)), ABSENT
    )
    found = compare(old, new)
    assert says(found) == [
        "jittor, forward, layer fc1: EQUAL → DRIFT",
        "jittor, forward, output logits, case 0: EQUAL → INVALID",
        "keras-jax, train, check weights, step 0: EQUAL → DIFFERENT",
    ]
    assert found.outcome == Outcome.FAIL
    assert found.counts() == "3 of 3 rows, 1 of 2 checks, 3 of 4 layers, 0 of 1 output"


def test_a_check_that_is_missing_differs():
    short = replace(TRAINED, training=replace(TRAINED.training, checks=TRAINED.training.checks[:1]))
    assert says(compare(with_rows(TRAINED), with_rows(short))) == ["keras-jax, train, check update, step 0: DRIFT → -"]


def row(verdict=None, status="ok"):
    error = replace(FORWARD.error, verdict=verdict, layers=None, tensors=()) if verdict else None
    return replace(FORWARD, status=status, error=error)


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        (row(Verdict.EQUAL), row(Verdict.IDENTICAL), Outcome.PASS),
        (row(Verdict.DIFFERENT), row(Verdict.DIFFERENT), Outcome.PASS),
        (row(Verdict.EQUAL), row(Verdict.DRIFT), Outcome.FAIL),
        (row(Verdict.DIFFERENT), row(Verdict.EQUAL), Outcome.FAIL),
        (row(Verdict.EQUAL), row(status="not-installed"), Outcome.ERROR),
        (row(status="crashed"), row(Verdict.EQUAL), Outcome.FAIL),
        (row(status="crashed"), row(status="crashed"), Outcome.INCONCLUSIVE),
        (row(status="crashed"), row(status="timeout"), Outcome.ERROR),
    ],
)
def test_the_outcome_follows_from_the_rows(old, new, outcome):
    assert compare(with_rows(old), with_rows(new)).outcome == outcome


def test_a_row_that_only_one_result_has_differs():
    found = compare(with_rows(row(Verdict.EQUAL), TRAINED), with_rows(row(Verdict.EQUAL)))
    assert (says(found), found.outcome) == (["keras-jax, train: DRIFT → -"], Outcome.ERROR)


def test_a_row_that_is_there_for_its_speed_alone_is_not_missing_where_nothing_is_timed():
    old = with_rows(replace(TRAINED, subject=f"torch:eager{ONE_PROCESS}"), replace(TRAINED, subject="torch:eager"))
    new = with_rows(replace(TRAINED, subject="torch:eager"))
    assert says(compare(old, new)) == [f"torch:eager{ONE_PROCESS}, train: DRIFT → -"]
    judged = replace(new, settings=replace(new.settings, no_timing=True))
    assert says(compare(old, judged)) == []
    assert says(compare(judged, old)) == [f"torch:eager{ONE_PROCESS}, train: - → DRIFT"]


def test_versions_settings_machine_and_digests_that_differ_are_told():
    new = replace(
        RESULT,
        xverify="0.2.0",
        host=replace(RESULT.host, cores=8, load=None),
        settings=replace(RESULT.settings, batch=64, model="elsewhere"),
        weights=replace(RESULT.weights, digest="sha256:9"),
        rows=(replace(FORWARD, environment={**FORWARD.environment, "jittor": "1.4"}), TRAINED, ABSENT),
    )
    assert compare(RESULT, new, ["one more"]).differences == (
        "one more",
        "xverify was 0.1.0, is 0.2.0",
        "machine: cores was 2, is 8",
        "jittor: jittor was 1.3, is 1.4",
        "forward: setting batch was 32, is 64",
        "forward: digest of the weights was sha256:1, is sha256:9",
    )


def test_packages_that_differ_are_counted_and_the_first_are_named():
    old = {"": {"numpy": "1.26", "torch": "2.13"}, "/env/python": {"jax": "0.9"}, "/gone": {"a": "1"}}
    new = {"": {"numpy": "2.0", "torch": "2.13", "zstd": "1"}, "/env/python": {"jax": "0.9"}, "/gone": {}}
    assert list(packages(old, new)) == [
        "packages: 2 differ: numpy 1.26 → 2.0, zstd absent → 1",
        "packages of /gone: not known now",
    ]
    many = {f"p{number}": "1" for number in range(30)}
    [sentence] = packages({"": many}, {"": dict.fromkeys(many, "2")})
    assert sentence.startswith("packages: 30 differ: p0 1 → 2, ")
    assert sentence.endswith(", and 18 more")


def test_adapters_that_differ_are_told():
    assert list(adapters({"mine": "sha256:1"}, {"mine": "sha256:1"})) == []
    assert list(adapters({"mine": "sha256:1"}, {})) == ["adapter mine: its file was sha256:1, is xverify's own"]
