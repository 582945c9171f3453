"""What changed in a series, by the command line: every planted change is seen, and nothing else is."""

import json
import random
from dataclasses import replace

import pytest
from helpers.historyresults import BASELINE, keep, result, row, trained

from xverify.commands._main import main
from xverify.results.records import Memory
from xverify.results.training import Check

pytest.importorskip("duckdb")


@pytest.fixture
def asked(tmp_path, capsys):
    """Write results to a folder, and return the exit code and the history as JSON."""

    def ask(*results, options=()):
        keep(tmp_path / "results", *results)
        code = main(["history", "--results", str(tmp_path / "results"), "--format", "json", *options])
        return code, json.loads(capsys.readouterr().out)

    return ask


def found(history):
    """(subject, measure, effect, before, after, newest) of every change."""
    return [
        (of["subject"], *(change[name] for name in ("measure", "effect", "before", "after", "newest")))
        for of in history["series"]
        for change in of["changes"]
    ]


def test_equal_results_have_no_change(asked):
    code, history = asked(*(result(day, ratio=1.1 + day / 1000) for day in (1, 2, 3)))
    assert code == 0
    assert history["outcome"] == "NOT WORSE"
    assert found(history) == []
    assert (history["results"], history["series_asked_for"], history["series_without_a_change"]) == (3, 2, 2)


# -- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "effect", "code"),
    [
        ("EQUAL", "DIFFERENT", "worse", 1),
        ("EQUAL", "DRIFT", "worse", 1),
        ("IDENTICAL", "DRIFT", "worse", 1),
        ("DIFFERENT", "INVALID", "worse", 1),
        ("DRIFT", "UNTESTED", "worse", 1),
        ("DIFFERENT", "EQUAL", "better", 0),
        ("DRIFT", "IDENTICAL", "better", 0),
        ("IDENTICAL", "EQUAL", "other", 0),
        ("EQUAL", "IDENTICAL", "other", 0),
    ],
)
def test_a_verdict_that_changed(before, after, effect, code, asked):
    got, history = asked(result(1, verdict=before), result(2, verdict=after))
    assert found(history) == [("jittor", "verdict", effect, before, after, True)]
    assert got == code


@pytest.mark.parametrize("status", ["crashed", "timeout", "not-installed"])
def test_a_row_that_no_longer_runs_is_worse_and_one_that_runs_again_is_better(status, asked):
    gone = row(status=status, error=None, speed=None, reason="it fell")
    gone = replace(gone, speed=None, memory=Memory())
    code, history = asked(result(1), result(2, rows=(gone,)))
    assert code == 1
    assert found(history) == [("jittor", "verdict", "worse", "EQUAL", status, True)]
    assert history["series"][0]["changes"][0]["reason"] == "it fell"
    code, history = asked(result(1), result(2, rows=(gone,)), result(3))
    assert code == 0
    assert found(history)[0] == ("jittor", "verdict", "better", status, "EQUAL", True)


def test_only_the_newest_result_decides_the_exit_code(asked):
    code, history = asked(result(1), result(2, verdict="DIFFERENT"), result(3, verdict="DIFFERENT"))
    assert code == 0
    assert history["outcome"] == "NOT WORSE"
    [series] = history["series"]
    assert series["standing"] == "regressed"
    assert not series["newly_worse"]
    assert [change["newest"] for change in series["changes"]] == [False]


def test_the_order_is_that_of_the_results_and_not_of_the_files(asked):
    code, history = asked(result(3, verdict="DIFFERENT"), result(1), result(2))
    assert code == 1
    assert found(history) == [("jittor", "verdict", "worse", "EQUAL", "DIFFERENT", True)]
    assert history["series"][0]["changes"][0]["path"] == "r1.json"


# -- time ratios ------------------------------------------------------------------------------------------------------


def test_a_ratio_changed_when_the_intervals_do_not_overlap(asked):
    code, history = asked(result(1, ratio=1.10, width=0.02), result(2, ratio=1.15, width=0.02))
    assert code == 1
    assert found(history) == [("jittor", "time ratio", "worse", "1.100 (1.080–1.120)", "1.150 (1.130–1.170)", True)]
    assert asked(result(1, ratio=1.15), result(2, ratio=1.10))[0] == 0


def test_a_ratio_did_not_change_when_the_intervals_overlap(asked):
    code, history = asked(result(1, ratio=1.10, width=0.05), result(2, ratio=1.19, width=0.05))
    assert (code, found(history)) == (0, [])


def test_a_difference_of_less_than_two_percent_is_no_change(asked):
    code, history = asked(result(1, ratio=1.100, width=0.001), result(2, ratio=1.115, width=0.001))
    assert (code, found(history)) == (0, [])


def test_a_slow_drift_is_seen_although_each_result_overlaps_with_the_one_before(asked):
    code, history = asked(*(result(day, ratio=1.10 + 0.015 * day, width=0.02) for day in range(1, 5)))
    assert code == 1
    assert [each[1:3] for each in found(history)] == [("time ratio", "worse")]


@pytest.mark.parametrize(
    "other",
    [
        {"speed": "REFUSED", "ratio": 3.0},
        {"speed": None, "ratio": 3.0},  # one process run
    ],
)
def test_a_ratio_that_does_not_count_is_not_compared(other, asked):
    assert found(asked(result(1), result(2, **other))[1]) == []
    assert found(asked(result(1), result(2, **other), result(3))[1]) == []


def test_a_ratio_to_a_baseline_that_does_not_count_is_not_compared(asked):
    refused = replace(BASELINE, speed=replace(BASELINE.speed, verdict="REFUSED"))
    assert found(asked(result(1), result(2, ratio=3.0, baseline=refused))[1]) == []


def test_ratios_to_different_baselines_are_not_compared(asked):
    other = replace(BASELINE, subject="torch:compile")
    assert found(asked(result(1), result(2, ratio=3.0, baseline=other))[1]) == []


@pytest.mark.parametrize(
    "machine", [{"cpu": "another processor"}, {"cores": 8}], ids=lambda machine: next(iter(machine))
)
def test_results_of_different_machines_are_never_compared(machine, asked):
    code, history = asked(result(1), result(2, ratio=3.0, verdict="DIFFERENT", memory=900.0, host=machine))
    assert code == 4
    assert found(history) == []
    assert history["series_asked_for"] == 4


# -- memory and residuals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [(270.0, 300.0, "worse"), (300.0, 270.0, "better"), (270.0, 290.0, None), (50.0, 58.0, None)],
)
def test_a_peak_of_memory_changed_when_it_is_ten_percent_and_ten_mib_away(before, after, effect, asked):
    code, history = asked(result(1, memory=before), result(2, memory=after))
    texts = [f"{value:.0f} MiB" for value in (before, after)]
    assert found(history) == ([("jittor", "peak memory", effect, *texts, True)] if effect else [])
    assert code == (effect == "worse")


def test_the_memory_of_a_device_is_a_measure_of_its_own(asked):
    code, history = asked(result(1, device=1000.0), result(2, device=1500.0))
    assert code == 1
    assert found(history) == [("jittor", "peak memory of the device", "worse", "1,000 MiB", "1,500 MiB", True)]


@pytest.mark.parametrize(("before", "after", "seen"), [(0.5, 2.5, True), (0.1, 0.9, False), (2.0, 3.0, False)])
def test_a_residual_that_doubles_is_told_and_is_not_worse_by_itself(before, after, seen, asked):
    code, history = asked(result(1, rho=before), result(2, rho=after))
    assert code == 0
    expected = ("jittor", "residual / noise floor", "other", f"{before:g}", f"{after:g}", True)
    assert found(history) == ([expected] if seen else [])


def test_the_residual_of_a_training_run_is_that_of_its_worst_check(asked):
    assert found(asked(trained(1, ratio=1.5), trained(2, ratio=6.0))[1]) == [
        ("jittor", "residual / noise floor", "other", "1.5", "6", True)
    ]
    checks = (Check("loss", 0, "EQUAL", 0.1), Check("update", 0, "EQUAL", 1.5))
    [made] = [each for each in trained(2).rows if each.training]
    changed = replace(
        trained(2), rows=(trained(2).rows[0], replace(made, training=replace(made.training, checks=checks)))
    )
    assert found(asked(trained(1, ratio=1.5), changed)[1]) == []


# -- what a series is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"threads": 4},
        {"seed": 9},
        {"warmup": 7},
        {"pin": (2,)},
        {"allocator": "keep"},
        {"cases": 9},
        {"reference": "jax"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_that_changes_what_is_measured_makes_another_series(setting, asked):
    code, history = asked(result(1), result(2, verdict="DIFFERENT", settings=setting))
    assert (code, found(history), history["series_asked_for"]) == (4, [], 4)


@pytest.mark.parametrize(
    "setting",
    [
        {"effort": "rigorous"}, {"timeout": 7.0}, {"strict": True}, {"no_timing": True}, {"max_seconds": 9.0},
        {"model": "/elsewhere/mlp"}, {"folder_digest": "sha256:9"}, {"reference": "/a/torch"},
        {"subjects": ("torch:eager", "jittor", "jax")}, {"weights": "other.npz"}, {"notes": ("x",)},
    ],
    ids=lambda setting: next(iter(setting)),
)  # fmt: skip
def test_other_settings_belong_to_the_same_series(setting, asked):
    assert asked(result(1), result(2, verdict="DIFFERENT", settings=setting))[0] == 1


def test_the_names_of_settings_that_are_ignored_are_names_of_settings():
    from xverify.history.reading import IGNORED, PATHS
    from xverify.results.conditions import Settings

    assert {*IGNORED, *PATHS} <= set(Settings.__dataclass_fields__)


def test_the_optimizer_and_the_precision_make_another_series(asked):
    from xverify.workload.optimizers import Optimizer

    first = trained(1, optimizer=Optimizer("adam", 1e-3))
    assert asked(first, trained(2, 99.0, optimizer=Optimizer("adam", 1e-3)))[1]["series_asked_for"] == 2
    assert asked(first, trained(2, 99.0, optimizer=Optimizer("adam", 1e-2)))[1]["series_asked_for"] == 4
    [made] = [each for each in trained(2).rows if each.training]
    narrow = replace(made, training=replace(made.training, precision="bfloat16"))
    other = replace(trained(2, optimizer=Optimizer("adam", 1e-3)), rows=(BASELINE, narrow))
    assert asked(first, replace(other, tasks=("forward", "train")))[1]["series_asked_for"] == 4


def test_a_result_that_is_in_the_folder_twice_counts_once(asked, tmp_path):
    keep(tmp_path / "results" / "receipts", result(2, verdict="DIFFERENT"))
    code, history = asked(result(1), result(2, verdict="DIFFERENT"))
    assert code == 1
    assert len(found(history)) == 1
    assert history["series"][0]["results"] == 2


# -- what changed at the same time ------------------------------------------------------------------------------------


def test_versions_and_digests_that_changed_at_the_same_time_are_told(asked):
    weights = replace(result().weights, digest="sha256:" + "a" * 64)
    newer = replace(BASELINE, environment={"torch": "2.14.0", "threads": 2})
    changed = result(
        2, verdict="DIFFERENT", jittor="1.3.11", xverify="0.2.0", weights=weights, baseline=newer,
        settings={"folder_digest": "sha256:changed"}, host={"system": "Linux 7", "python": "3.12.0"},
    )  # fmt: skip
    [change] = asked(result(1), changed)[1]["series"][0]["changes"]
    assert change["meanwhile"] == [
        "Python of xverify 3.11.7 → 3.12.0", "jittor 1.3.10 → 1.3.11", "model files sha256:2 → sha256:changed",
        "system Linux → Linux 7", "weights sha256:1 → sha256:aaaaaaaaaaaa…", "xverify 0.1.0 → 0.2.0",
        "torch of the baseline 2.13.0 → 2.14.0",
    ]  # fmt: skip


def test_what_changed_before_the_last_result_is_not_told(asked):
    results = result(1), result(2, jittor="1.3.11"), result(3, jittor="1.3.11", verdict="DIFFERENT")
    assert asked(*results)[1]["series"][0]["changes"][0]["meanwhile"] == []


# -- what is asked for ------------------------------------------------------------------------------------------------


def several():
    return (
        result(1), result(5, verdict="DIFFERENT"), result(1, model="vgg16"), result(9, model="vgg16", memory=900.0),
        result(1, model="lstm", rows=(row(subject="jax:jit"),)), result(2, model="lstm", rows=(row(subject="jax:jit"),)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "measures", "code", "series"),
    [
        ((), ("peak memory", "verdict"), 1, 6),
        (("mlp",), ("verdict",), 1, 2),
        (("vgg16", "lstm"), ("peak memory",), 1, 4),
        (("lstm",), (), 0, 2),
        (("--subjects", "jittor"), ("peak memory", "verdict"), 1, 2),
        (("--subjects", "jax"), (), 0, 1),
        (("--subjects", "torch:eager,jax:jit"), (), 0, 4),
        (("--since", "2026-11-06"), ("peak memory",), 1, 2),
        (("--since", "2026-11-05T10:00:00+00:00"), ("peak memory", "verdict"), 1, 4),
        (("--since", "2026-11-05T10:00:00-01:00"), ("peak memory",), 1, 2),
        (("--since", "2027-01-01"), (), 4, 0),
    ],
    ids=str,
)
def test_models_subjects_and_a_date_are_asked_for(options, measures, code, series, asked):
    got, history = asked(*several(), options=options)
    assert (tuple(sorted({each[1] for each in found(history)})), got, history["series_asked_for"]) == (
        measures,
        code,
        series,
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("mpl",), "no result of a model 'mpl' is in the folder; did you mean 'mlp'?"),
        (("--subjects", "jitor"), "no result of 'jitor' is in the folder; did you mean 'jittor'?"),
        (("--subjects", "tor"), "no result of 'tor' is in the folder"),
    ],
)
def test_an_unknown_model_or_subject_is_an_error_with_the_nearest_name(options, says, tmp_path, capsys):
    keep(tmp_path, *several())
    assert main(["history", "--results", str(tmp_path), *options]) == 2
    assert says in capsys.readouterr().err


def test_random_noise_within_its_interval_is_rarely_a_change(asked):
    """The interval is one of 95%: two of them do not overlap in about one of 200 pairs."""
    drawn = random.Random(0)
    results = [result(day, ratio=drawn.gauss(1.1, 0.01), width=0.0196) for day in range(1, 29)]
    assert len(found(asked(*results)[1])) <= 1
