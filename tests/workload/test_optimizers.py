"""The formulas against torch.optim, and the options of the command line."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from conftest import OPTIMIZERS

from xverify.errors import UsageError
from xverify.messages.codec import from_plain
from xverify.workload import optimizers
from xverify.workload.optimizers import Optimizer, optimizer
from xverify.workload.recipe import Recipe


def values(seed):
    """A weight and a gradient such as training has."""
    noise = np.random.default_rng(seed)
    w = noise.normal(0, 0.05, 5000).astype(np.float32)
    g = (10.0 ** noise.uniform(-8, -1, 5000) * noise.choice((-1, 1), 5000)).astype(np.float32)
    return w, g


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=lambda o: o.says())
def test_the_formula_is_torchs(settings):
    torch = pytest.importorskip("torch")
    from xverify.frameworks.torch.adafactor import own_adafactor
    from xverify.frameworks.torch.lion import Lion

    w, _ = values(0)
    parameter = torch.nn.Parameter(torch.from_numpy(w.astype(np.float64)))
    made = {
        "sgd": lambda o: torch.optim.SGD(
            [parameter], o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=o.nesterov
        ),
        "adam": lambda o: torch.optim.Adam([parameter], o.lr, (o.beta1, o.beta2), o.eps, o.weight_decay),
        "adamw": lambda o: torch.optim.AdamW([parameter], o.lr, (o.beta1, o.beta2), o.eps, o.weight_decay),
        "rmsprop": lambda o: torch.optim.RMSprop([parameter], o.lr, o.alpha, o.eps, o.weight_decay),
        "adagrad": lambda o: torch.optim.Adagrad([parameter], o.lr, weight_decay=o.weight_decay),
        "lion": lambda o: Lion([parameter], o),
        "adafactor": lambda o: own_adafactor([parameter], o),
    }[settings.name](settings)
    mine, optimizer_state = w.astype(np.float64), [np.zeros(w.shape) for _ in settings.state_names]
    for step in range(1, 5):
        _, g = values(step)
        parameter.grad = torch.from_numpy(g.astype(np.float64))
        made.step()
        mine, optimizer_state = optimizers.update(settings, mine, g.astype(np.float64), optimizer_state, step)
    assert np.allclose(mine, parameter.detach().numpy(), rtol=1e-12, atol=1e-15)


def test_lion_is_that_of_its_authors():
    """Algorithm 2 of the paper, with numbers by hand."""
    settings = optimizer("lion", lr=0.1, weight_decay=0.5)
    assert (settings.beta1, settings.beta2, optimizer("lion").lr) == (0.9, 0.99, 1e-4)
    w, m, g = np.array([2.0, 1.0, -1.0]), np.array([1.0, -1.0, 0.0]), np.array([-1.0, 20.0, 0.0])
    new, (state,) = optimizers.update(settings, w, g, [m], 3)
    assert np.allclose(new, [2 - 0.1 * (1 + 0.5 * 2), 1 - 0.1 * (1 + 0.5), -1 - 0.1 * (0.5 * -1)])
    assert np.allclose(state, [0.99 - 0.01, -0.99 + 0.2, 0.0])


def test_the_corrected_maximum_is_that_of_optax():
    """scale_by_amsgrad: the largest of the corrected second moments, as state, too."""
    plain = optimizer("adam", recipe=Recipe(amsgrad=True))
    settings, g, state = replace(plain, variants=("corrected maximum",)), np.array([3.0]), [np.zeros(1)] * 3
    new, state = optimizers.update(settings, np.zeros(1), g, state, 1)
    assert np.allclose(state[2], 9.0)
    new, state = optimizers.update(settings, new, g / 3, state, 2)
    first, second = (0.9 * 0.3 + 0.1) / (1 - 0.9**2), (0.999 * 0.009 + 0.001) / (1 - 0.999**2)
    assert np.allclose(state[2], max(9.0, second))
    assert np.allclose(new, -1e-3 - 1e-3 * first / 3)


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


def test_a_message_to_a_worker_keeps_the_settings():
    settings = replace(optimizer("adam"), variants=("eps-hat",))
    assert from_plain(Optimizer, json.loads(json.dumps(asdict(settings))), "optimizer") == settings
