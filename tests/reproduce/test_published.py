"""The published experiments: their records, what of them can run, scales, and how long they take."""

import pytest

from xverify.errors import UsageError
from xverify.framework import discovery as frameworks
from xverify.reference.request import resolve
from xverify.reference.subjects import offered
from xverify.report.numbers import duration
from xverify.reproduce.published import EXPERIMENTS
from xverify.reproduce.records import (
    QUICK_SECONDS,
    SCALES,
    Entry,
    Part,
    check_scale,
)
from xverify.workload.options import RunSettings
from xverify.workload.spec import find_model

PARTS = [(experiment, part) for experiment in EXPERIMENTS.values() for part in experiment.parts]
ENTRIES = [(experiment, part, entry) for experiment, part in PARTS for entry in part.entries]


def test_the_experiments_are_those_that_were_published():
    assert [*EXPERIMENTS] == [
        "mlp-mnist", "resnet50-cifar10", "resnet152-random", "jittor-method", "lstm-ptb", "tf-torch-jit", "vgg16",
    ]  # fmt: skip


@pytest.mark.parametrize(("experiment", "part"), PARTS, ids=lambda each: getattr(each, "name", None))
def test_the_engine_accepts_the_settings_of_every_part(experiment, part):
    settings = part.settings(0.5, None)
    resolve(part.model, [entry.subject for entry in part.entries], RunSettings(**settings))
    assert len({entry.subject for entry in part.entries}) == len(part.entries)
    assert (part.optimizer is not None) == (part.lr is not None) == (part.task == "train")


@pytest.mark.parametrize(
    ("experiment", "part", "entry"), ENTRIES, ids=[f"{p.model}-{p.task}-{e.subject}" for _, p, e in ENTRIES]
)
def test_every_published_row_is_a_subject_that_can_run_the_model(experiment, part, entry):
    adapter, mode = frameworks.parse_subject(entry.subject)
    folder = find_model(part.model)
    assert adapter.label(mode) == entry.subject
    assert offered(folder, adapter)
    assert set(entry.figures) <= {source.name for source in experiment.sources}
    if not entry.extra:
        assert adapter.refuses(folder, mode) == ""
    else:
        assert not entry.figures


def test_every_source_has_figures():
    assert len(EXPERIMENTS) > 1
    for experiment in EXPERIMENTS.values():
        used = {name for part in experiment.parts for entry in part.entries for name in entry.figures}
        assert used == {source.name for source in experiment.sources}


def test_experiments_about_jit_have_rows_with_and_without_it():
    for name in ("mlp-mnist", "resnet50-cifar10", "resnet152-random", "lstm-ptb", "tf-torch-jit"):
        for part in EXPERIMENTS[name].parts:
            assert {entry.jit for entry in part.entries} == {"on", "off"}
    assert Entry("tensorflow:graph", 1.0).jit == "off"
    assert Entry("tensorflow:xla", 1.0).jit == "on"


def figure(name, index, subject, source):
    """(seconds a step, items a second) of a published figure."""
    experiment = EXPERIMENTS[name]
    part = experiment.parts[index]
    [entry] = [entry for entry in part.entries if entry.subject == subject]
    [place] = [each for each in experiment.sources if each.name == source]
    found = entry.figures[source]
    return part.per_step(found, place), part.per_second(found, place)


def test_figures_are_compared_per_step_and_per_item():
    step, rate = figure("mlp-mnist", 0, "jittor", "GPU")
    assert step == pytest.approx((25 / 37_500, 26 / 37_500))
    assert rate == pytest.approx((32 * 37_500 / 26, 32 * 37_500 / 25))
    assert figure("resnet50-cifar10", 0, "tensorflow:xla", "GPU")[0] == pytest.approx((117 / 4689, 118 / 4689))
    assert figure("lstm-ptb", 0, "tensorflow:while", "CPU")[1] == pytest.approx((482.7, 482.7))
    assert figure("lstm-ptb", 1, "tensorflow:while", "CPU")[1][0] == pytest.approx(147.9)
    assert figure("vgg16", 0, "torch:eager", "CPU")[1][0] == pytest.approx(300 / 267)
    assert figure("vgg16", 0, "torch:eager", "GPU")[1][0] == pytest.approx(32 * 300 / 79)  # its batch is another


@pytest.mark.parametrize(
    ("scale", "expected"), [(1, (10, 1000)), (0.02, (1, 20)), (0.25, (2, 250)), (1e-9, (1, 2)), (0.5, (5, 500))]
)
def test_scale_multiplies_the_steps_and_leaves_a_minimum(scale, expected):
    part = Part("mlp", "forward", 8, 10, 1000, ())
    assert part.scaled(scale) == expected


@pytest.mark.parametrize("scale", [0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_scale_is_above_zero_and_at_most_one(scale):
    with pytest.raises(UsageError, match="--scale is"):
        check_scale(scale)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=[*EXPERIMENTS])
def test_the_list_names_a_scale_of_less_than_ten_minutes_or_the_smallest(experiment):
    scale = experiment.quick_scale()
    assert scale in SCALES
    assert experiment.duration(scale) < QUICK_SECONDS or scale == SCALES[-1]
    assert experiment.duration(scale) <= experiment.duration(1, experiment.repeats)
    assert experiment.default_repeats(0.5) == 1
    assert experiment.default_repeats(1) == experiment.repeats


def test_the_timeout_is_ten_times_the_expected_duration():
    assert Part("mlp", "forward", 8, 10, 100, (Entry("numpy", 1.0),)).settings(1, None)["timeout"] == 1800
    slow = Part("mlp", "forward", 8, 500, 100, (Entry("numpy", 2.0), Entry("torch:eager", 1.0)))
    assert slow.settings(1, None)["timeout"] == 10_000


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.2, "1 s"), (59, "59 s"), (300, "5 min"), (7200, "2 h"), (1e5, "28 h")]
)
def test_a_duration_has_a_suitable_unit(seconds, says):
    assert duration(seconds) == says
