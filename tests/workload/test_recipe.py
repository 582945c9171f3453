"""The recipe of a training step: its formulas against torch's own facilities in float64, patterns, and bad input."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from xverify import Group, Recipe, Schedule
from xverify.errors import SpecError, UsageError
from xverify.messages.codec import from_plain
from xverify.reference.request import resolve
from xverify.workload.optimizers import Optimizer, optimizer, update
from xverify.workload.options import RunSettings
from xverify.workload.recipe import averaged, clip_factors, micro_batches
from xverify.workload.schedule import parse_schedule

NAMES = ("stem.weight", "stem.bias", "norm.weight", "norm.bias", "head.weight", "head.bias")
SCHEDULES = (
    Schedule("constant", warmup=3),
    Schedule("step", every=2, gamma=0.5),
    Schedule("step", every=2, gamma=0.5, warmup=3),
    Schedule("cosine", 10),
    Schedule("cosine", 10, end=0.1),
    Schedule("cosine", 10, 2),
    Schedule("cosine", 12, 4, start=0.01),
    Schedule("linear", 8),
    Schedule("linear", 8, 3, end=0.25),
    Schedule("one-cycle", 12),
    Schedule("one-cycle", 5),
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: each.says())
def test_the_rates_of_a_schedule_are_those_of_torchs_schedulers(schedule):
    torch = pytest.importorskip("torch")
    from xverify.frameworks.torch.adapter import Adapter
    from xverify.frameworks.torch.training import Learner

    model = torch.nn.Linear(3, 2)
    batch = (torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))
    settings = optimizer("sgd", lr=0.5, recipe=Recipe(schedule=schedule))
    learner = Learner(Adapter(1, "cpu"), model, "eager", batch, settings)
    for step in range(16):
        (group,) = learner.optim.param_groups
        assert group["lr"] == pytest.approx(0.5 * schedule.factor(step), rel=1e-9, abs=1e-12), step
        learner.step(*batch)
    learner.set_optimizer_state(3, {name: [] for name in learner.names})
    assert learner.optim.param_groups[0]["lr"] == pytest.approx(0.5 * schedule.factor(3), rel=1e-9)


def test_the_factors_of_the_usual_schedule():
    factors = [Schedule("cosine", 6, 2, start=0.5).factor(step) for step in range(8)]
    half = 1 / math.sqrt(2)
    assert factors == pytest.approx([0.5, 0.75, 1, (1 + half) / 2, 0.5, (1 - half) / 2, 0, 0], abs=1e-15)


@pytest.mark.parametrize(("how", "limit"), [("clip_norm", 0.5), ("clip_norm", 1e3), ("clip_each", 0.5)])
def test_norms_are_clipped_as_by_torch(how, limit):
    torch = pytest.importorskip("torch")
    arrays = [np.random.default_rng(seed).normal(size=(3, seed + 1)) for seed in range(3)]
    parameters = [torch.nn.Parameter(torch.zeros(each.shape, dtype=torch.float64)) for each in arrays]
    for parameter, array in zip(parameters, arrays):
        parameter.grad = torch.from_numpy(array.copy())
    for each in [parameters] if how == "clip_norm" else parameters:
        torch.nn.utils.clip_grad_norm_(each, limit)
    factors = clip_factors(how, limit, [np.square(each).sum() for each in arrays], math.sqrt, min)
    for parameter, array, factor in zip(parameters, arrays, factors):
        assert np.allclose(parameter.grad.numpy(), array * factor, rtol=1e-12)
    assert (max(factors) == 1.0) == (limit == 1e3)


def test_the_average_is_that_of_torchs_averaged_model():
    torch = pytest.importorskip("torch")
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = torch.nn.Linear(4, 3).double()
    kept, mine = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)), None
    for seed in range(4):
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(np.random.default_rng(seed).normal(size=(3, 4))))
        kept.update_parameters(model)
        mine = averaged(0.9, mine, model.weight.detach().numpy().copy())
        assert np.allclose(kept.module.weight.detach().numpy(), mine, rtol=1e-13)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_amsgrad_is_torchs(name):
    torch = pytest.importorskip("torch")
    settings = optimizer(name, weight_decay=0.1, recipe=Recipe(amsgrad=True))
    assert settings.state_names == ("mean", "square", "largest")
    w = np.random.default_rng(0).normal(size=50)
    parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    made, state = kind([parameter], 1e-3, weight_decay=0.1, amsgrad=True), [np.zeros(50)] * 3
    for step, size in enumerate((1.0, 1e-3, 10.0, 1e-2), 1):
        g = size * np.random.default_rng(step).normal(size=50)
        parameter.grad = torch.from_numpy(g.copy())
        made.step()
        w, state = update(settings, w, g, state, step)
    assert np.allclose(parameter.detach().numpy(), w, rtol=1e-12)
    plain = update(optimizer(name, weight_decay=0.1), w, g, state[:2], 5)[0]
    assert not np.allclose(plain, update(settings, w, g, state, 5)[0], rtol=1e-6)


def test_each_parameter_has_the_settings_of_its_group():
    recipe = Recipe(groups=(Group("*.bias", weight_decay=0.0), Group("head.weight", lr=0.5)))
    settings = optimizer("adamw", lr=0.1, weight_decay=0.2, recipe=recipe)
    found = {name: (settings.of(name).lr, settings.of(name).weight_decay) for name in NAMES}
    assert found["stem.weight"] == (0.1, 0.2)
    assert found["stem.bias"] == found["head.bias"] == (0.1, 0.0)
    assert found["head.weight"] == (0.5, 0.2)
    assert settings.of("head.weight", 0.1).lr == pytest.approx(0.05)


def test_a_framework_gets_its_own_names():
    recipe = Recipe(groups=(Group("head.*", lr=0.5),), frozen=("stem.*",))
    own = recipe.named({"a[0]": "stem.weight", "a[1]": "norm.weight", "b": "head.weight"})
    assert own.freezes("a[0]")
    assert not own.freezes("a[1]")
    assert own.group_of("b") == Group("head.*", lr=0.5, members=("b",))
    assert own.group_of("head.weight") is None


def test_micro_batches_split_every_array():
    parts = micro_batches((np.arange(8).reshape(4, 2), np.arange(4)), 2)
    assert [(x.tolist(), y.tolist()) for x, y in parts] == [([[0, 1], [2, 3]], [0, 1]), ([[4, 5], [6, 7]], [2, 3])]
    assert micro_batches((np.zeros(2), {"t": np.arange(2)}), 2)[1][1] == {"t": np.array([1])}


def test_a_recipe_survives_the_way_to_a_worker():
    settings = optimizer(
        "adam", recipe=Recipe((Group("*.bias", lr=0.5),), ("a",), 1.0, schedule=SCHEDULES[5], average=0.9)
    )
    assert from_plain(Optimizer, asdict(settings), "optimizer") == settings
    assert hash(settings) == hash(from_plain(Optimizer, asdict(settings), "optimizer"))
    assert settings.says().endswith(
        "*.bias: lr 0.5, a frozen, norm of all gradients clipped at 1, cosine schedule of 10 steps, warm-up 2, "
        "average of weights 0.9"
    )
    assert not Recipe()
    assert optimizer("adam").says() == "adam, lr 0.001, betas 0.9 and 0.999, eps 1e-08"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Recipe(clip_norm=0), "clip_norm is 0: it must be a number above 0"),
        (lambda: Recipe(clip_value=-1.0), "clip_value is -1.0: it must be a number above 0"),
        (lambda: Recipe(clip_norm=1.0, clip_each=1.0), "clip_norm and clip_each are given"),
        (lambda: Recipe(average=1.0), "average is 1.0: it must be a number between 0 and 1"),
        (lambda: Recipe(average=0.0), "average is 0.0"),
        (lambda: Recipe(accumulate=0), "accumulate is 0: it must be a whole number, at least 1"),
        (lambda: Recipe(frozen="stem.*"), "frozen is 'stem.*': it must be a tuple of patterns"),
        (lambda: Recipe(groups=Group("*.bias", lr=1.0)), "it must be a tuple of Group"),
        (lambda: Recipe(schedule="cosine"), r"write Schedule\(kind"),
        (lambda: Group("*.bias"), "changes nothing"),
        (lambda: Group("*.bias", lr=-1), "lr is -1: it must be a number, 0 or more"),
        (lambda: Schedule("cosin", 3), "did you mean 'cosine'"),
        (lambda: Schedule("cosine"), "the cosine schedule needs steps"),
        (
            lambda: Schedule("cosine", 10, warmup=10),
            "the warm-up of 10 steps is as long as the cosine schedule of 10 steps",
        ),
        (lambda: Schedule("step"), "the step schedule needs every"),
        (lambda: Schedule("step", 3, every=3), "first after 3 steps, and has 3: it needs more"),
        (lambda: Schedule("one-cycle", 3), "it needs at least 5"),
        (lambda: Schedule("one-cycle", 10, 2), "the one-cycle schedule rises by itself"),
        (lambda: Schedule("cosine", 2.5), "steps of the cosine schedule is 2.5"),
        (lambda: Schedule("linear", 5, end=2.0), "end of the linear schedule is 2.0: it must be a number from 0 to 1"),
        (lambda: parse_schedule("cosine"), "write KIND:STEPS"),
        (lambda: parse_schedule("cosine:ten"), "write KIND:STEPS"),
        (lambda: parse_schedule("cosine:1:2:3"), "write KIND:STEPS"),
        (lambda: optimizer("sgd", recipe=Recipe(amsgrad=True)), "AMSGrad belongs to adam and adamw"),
        (lambda: Recipe(precision="bfloat"), "did you mean 'bfloat16'"),
        (lambda: Recipe(precision="float16", loss_scale="on"), "loss_scale is 'on': it must be one of dynamic, off"),
        (lambda: Recipe(precision="bfloat16", loss_scale="dynamic"), "only a float16 run scales its loss"),
    ],
)
def test_bad_settings_are_refused_in_one_line(make, says):
    with pytest.raises(UsageError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        (Recipe(groups=(Group("*.biass", lr=1.0),)), "Group '\\*.biass' matches no parameter"),
        (Recipe(frozen=("sten.*",)), "frozen 'sten.\\*' matches no parameter"),
        (Recipe(frozen=("norm.running_mean",)), "matches no parameter"),
        (
            Recipe(groups=(Group("*.bias", lr=1.0), Group("head.*", lr=2.0))),
            "head.bias belongs to two groups, '\\*.bias' and 'head.\\*'",
        ),
        (Recipe(frozen=("*",)), "freezes every parameter"),
        (Recipe(accumulate=2), "norm is a batch norm"),
    ],
)
def test_a_recipe_that_does_not_fit_the_model(recipe, says):
    with pytest.raises(UsageError, match=says):
        recipe.check_model((*NAMES, "norm.running_mean", "norm.running_var"))
    Recipe(groups=(Group("*.bias", lr=1.0),), accumulate=2).check_model(NAMES)


def test_options_are_taken_in_the_place_of_the_spec():
    asked = RunSettings(
        task="train", optimizer="adam", clip_norm=2.0, schedule="step:4", accumulate=4, average=0.5, amsgrad=True
    )
    request, _ = resolve("mlp", ["torch:eager"], asked)
    assert request.optimizer is not None
    assert request.optimizer.recipe == Recipe(
        clip_norm=2.0, schedule=Schedule("step", every=4), accumulate=4, average=0.5, amsgrad=True
    )
    assert resolve("mlp", ["torch:eager"], RunSettings(task="train"))[0].optimizer == optimizer("sgd")


def test_the_precision_of_a_run():
    asked = RunSettings(task="train", precision="float16", loss_scale="off")
    request, _ = resolve("mlp", ["torch:eager"], asked)
    assert request.optimizer is not None
    recipe = request.optimizer.recipe
    assert recipe == Recipe(precision="float16", loss_scale="off")
    assert recipe.is_mixed
    assert not recipe.scales
    assert Recipe(precision="float16").scales
    assert not Recipe(precision="bfloat16").scales
    assert request.optimizer.says().endswith("computed in float16 without loss scaling")
    assert not Recipe(precision="float32")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"accumulate": 3, "batch": 8}, "accumulate is 3, and the batch has 8 items"),
        ({"average": 1.5}, "average is 1.5"),
        ({"clip_norm": 0.0}, "--clip-norm is 0: it must be above 0"),
        ({"schedule": "cosine:4:4"}, "the warm-up of 4 steps"),
        ({"amsgrad": True}, "AMSGrad belongs to adam"),
    ],
)
def test_bad_options_are_refused(asked, says):
    with pytest.raises(UsageError, match=says):
        resolve("mlp", ["torch:eager"], RunSettings(task="train", **asked))


def test_a_spec_with_a_bad_recipe_is_told_with_its_line(tmp_path):
    from xverify.workload.spec import load_folder

    (tmp_path / "spec.py").write_text(
        "from xverify import ModelSpec, Recipe, TensorSpec\n"
        "T = TensorSpec(('N', 2))\n"
        "SPEC = ModelSpec({'x': T}, {'y': T}, training=Recipe(clip_norm=-1))\n"
    )
    with pytest.raises(SpecError, match="clip_norm is -1"):
        load_folder(tmp_path)
