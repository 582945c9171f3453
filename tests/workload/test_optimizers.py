"""The formulas against torch.optim, and the judgement of a step: honest ones pass, faulty ones do not, and are told apart."""

from dataclasses import replace

import numpy as np
import pytest

from xverify.errors import UsageError
from xverify.training import optimizer_check
from xverify.workload import optimizers
from xverify.workload.optimizers import Optimizer, optimizer

ALL = [
    optimizer("sgd"),
    optimizer("sgd", momentum=0.9),
    optimizer("sgd", momentum=0.9, nesterov=True, weight_decay=0.01),
    optimizer("adam"),
    optimizer("adam", weight_decay=0.01),
    optimizer("adamw"),
    optimizer("rmsprop"),
    optimizer("rmsprop", weight_decay=0.01),
]


def state(settings, step, seed=0):
    """A weight, a gradient and optimizer_state such as training has."""
    noise = np.random.default_rng(seed)
    w = noise.normal(0, 0.05, 5000).astype(np.float32)
    g = (10.0 ** noise.uniform(-8, -1, 5000) * noise.choice((-1, 1), 5000)).astype(np.float32)
    optimizer_state = []
    for name in settings.state_names:
        value = np.square(g) * noise.uniform(0.1, 2, 5000) if name == "square" else g * noise.uniform(0.1, 2, 5000)
        optimizer_state.append(np.zeros_like(w) if step == 1 else value.astype(np.float32))
    return w, g, optimizer_state


def float32(settings, w, g, optimizer_state, step):
    new, values = optimizers.update(settings, w, g, optimizer_state, step, np.sqrt)
    return new.astype(np.float32), [value.astype(np.float32) for value in values]


def judged(settings, made, step, **more):
    w, g, optimizer_state = state(settings, step)
    after, state_after = float32(made, w, g, optimizer_state, step)
    return optimizer_check.judge(settings, w, g, optimizer_state, step, after, state_after, **more)[0]


@pytest.mark.parametrize("settings", ALL, ids=lambda o: o.says())
def test_the_formula_is_torchs(settings):
    torch = pytest.importorskip("torch")
    w, _, _ = state(settings, 1)
    parameter = torch.nn.Parameter(torch.from_numpy(w.astype(np.float64)))
    made = {
        "sgd": lambda o: torch.optim.SGD(
            [parameter], o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=o.nesterov
        ),
        "adam": lambda o: torch.optim.Adam([parameter], o.lr, (o.beta1, o.beta2), o.eps, o.weight_decay),
        "adamw": lambda o: torch.optim.AdamW([parameter], o.lr, (o.beta1, o.beta2), o.eps, o.weight_decay),
        "rmsprop": lambda o: torch.optim.RMSprop([parameter], o.lr, o.alpha, o.eps, o.weight_decay),
    }[settings.name](settings)
    mine, optimizer_state = w.astype(np.float64), [np.zeros(w.shape) for _ in settings.state_names]
    for step in range(1, 5):
        _, g, _ = state(settings, step, seed=step)
        parameter.grad = torch.from_numpy(g.astype(np.float64))
        made.step()
        mine, optimizer_state = optimizers.update(settings, mine, g.astype(np.float64), optimizer_state, step, np.sqrt)
    assert np.allclose(mine, parameter.detach().numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("step", [1, 2, 21])
@pytest.mark.parametrize("settings", ALL, ids=lambda o: o.says())
def test_an_honest_step_is_equal(settings, step):
    assert 0 < judged(settings, settings, step) <= optimizer_check.EQUAL_RHO


@pytest.mark.parametrize("step", [1, 2, 21])
@pytest.mark.parametrize(
    ("settings", "change"),
    [
        (optimizer("adam"), {"beta2": 0.99}),
        (optimizer("adam"), {"beta1": 0.95}),
        (optimizer("adam"), {"eps": 1e-7}),
        (optimizer("adam"), {"lr": 1e-3 * (1 + 2e-4)}),
        (optimizer("adam"), {"variants": ("eps-hat",)}),
        (optimizer("rmsprop"), {"variants": ("eps-inside",)}),
        (optimizer("rmsprop"), {"alpha": 0.9}),
        (optimizer("sgd", momentum=0.9, weight_decay=0.01), {"weight_decay": 0.0}),
        (optimizer("sgd", momentum=0.9, weight_decay=0.01), {"variants": ("decoupled",)}),
        (optimizer("adamw", weight_decay=0.1), {"name": "adam"}),
        (optimizer("sgd", momentum=0.9, nesterov=True), {"nesterov": False}),
        (optimizer("sgd", momentum=0.9), {"lr": 0.01 * (1 + 1e-4)}),
    ],
    ids=str,
)
def test_a_faulty_step_is_not(settings, change, step):
    assert judged(settings, replace(settings, **change), step) > optimizer_check.EQUAL_RHO


def test_the_fault_is_among_the_alternatives():
    for settings, change in [
        (optimizer("adam"), {"beta2": 0.99}),
        (optimizer("adam"), {"variants": ("eps-hat",)}),
        (optimizer("sgd", momentum=0.9, weight_decay=0.01), {"weight_decay": 0.0}),
        (optimizer("rmsprop"), {"variants": ("eps-inside",)}),
    ]:
        w, g, optimizer_state = state(settings, 2)
        after, state_after = float32(replace(settings, **change), w, g, optimizer_state, 2)
        fitting = [
            other
            for _, _, other in optimizer_check.alternatives(settings)
            if optimizer_check.judge(other, w, g, optimizer_state, 2, after, state_after)[0]
            <= optimizer_check.EQUAL_RHO
        ]
        assert fitting == [replace(settings, **change)]


def test_a_step_made_twice_is_one_of_two_parameters():
    settings = optimizer("adam")
    w, g, optimizer_state = state(settings, 1)
    new, values = float32(settings, w, g, optimizer_state, 1)
    twice = (w + 2 * (new - w)).astype(np.float32)
    assert (
        optimizer_check.judge(settings, w, g, optimizer_state, 1, twice, values, times=2)[0]
        <= optimizer_check.EQUAL_RHO
    )
    assert optimizer_check.judge(settings, w, g, optimizer_state, 1, twice, values)[0] > optimizer_check.DRIFT_RHO


def test_what_is_not_finite_is_never_equal():
    settings = optimizer("sgd")
    w, g, optimizer_state = state(settings, 1)
    new, values = float32(settings, w, g, optimizer_state, 1)
    new[7] = np.nan
    assert optimizer_check.judge(settings, w, g, optimizer_state, 1, new, values) == (float("inf"), "its change")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("adm",), "did you mean 'adam'"),
        (("sgd", -1.0), "--lr is -1"),
        (("adam", None, 0.9), "--momentum belongs to sgd"),
        (("sgd", None, None, True), "--nesterov needs --momentum"),
        (("sgd", None, None, False, float("nan")), "--weight-decay is nan"),
    ],
)
def test_settings_that_torch_would_refuse(arguments, says):
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        optimizer(*arguments)


def test_settings_survive_the_journey_to_a_worker():
    settings = replace(optimizer("adam"), variants=("eps-hat",))
    assert Optimizer.from_dict(settings.to_dict()) == settings
