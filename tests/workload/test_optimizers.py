"""The formulas against torch.optim, and the options of the command line."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import OPTIMIZERS

from xverify.errors import UsageError
from xverify.worker.codec import from_plain, to_plain
from xverify.workload import optimizers
from xverify.workload.optimizers import Optimizer, optimizer


def values(seed):
    """A weight and a gradient such as training has."""
    noise = np.random.default_rng(seed)
    w = noise.normal(0, 0.05, 5000).astype(np.float32)
    g = (10.0 ** noise.uniform(-8, -1, 5000) * noise.choice((-1, 1), 5000)).astype(np.float32)
    return w, g


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=lambda o: o.says())
def test_the_formula_is_torchs(settings):
    torch = pytest.importorskip("torch")
    w, _ = values(0)
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
        _, g = values(step)
        parameter.grad = torch.from_numpy(g.astype(np.float64))
        made.step()
        mine, optimizer_state = optimizers.update(settings, mine, g.astype(np.float64), optimizer_state, step, np.sqrt)
    assert np.allclose(mine, parameter.detach().numpy(), rtol=1e-12, atol=1e-15)


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
    assert from_plain(Optimizer, json.loads(json.dumps(to_plain(settings))), "optimizer") == settings
