"""Training steps of one's own that differentiate twice, by torch.func or in forward mode; a port with another penalty is wrong."""

import pytest
from helpers.ownsteplines import KERAS as KERAS_NET
from helpers.ownsteplines import SPEC
from helpers.ownsteplines import TORCH as NET
from helpers.ownsteps import assert_port_is_wrong, folder

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

UNTIMED = ("--task", "train", "--no-timing", "--subjects")
TORCH = (
    NET
    + """
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap

def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def train_step(model, optimizer, batch):
    x, y = batch["x"], batch["target"]
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}

def inner(model, parameters, x, y):
    return cross_entropy(functional_call(model, parameters, (x,)), y)

def penalty(model, x):
    x = (0.5 * x).requires_grad_(True)
    y = model(x)
    (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    return ((slope.norm(dim=1) - 1) ** 2).mean()

def adapted(model, x, y):
    parameters = dict(model.named_parameters())
    slopes = torch.autograd.grad(inner(model, parameters, x[:8], y[:8]), list(parameters.values()), create_graph=True)
    return inner(model, {k: p - 0.5 * g for (k, p), g in zip(parameters.items(), slopes)}, x[8:], y[8:])

def adapted_by_func(model, x, y):
    parameters = dict(model.named_parameters())
    slopes = grad(lambda p: inner(model, p, x[:8], y[:8]))(parameters)
    return inner(model, {k: p - 0.5 * slopes[k] for k, p in parameters.items()}, x[8:], y[8:])

def each(model, x, y):
    parameters = dict(model.named_parameters())
    found = vmap(grad(lambda p, x, y: inner(model, p, x[None], y[None])), (None, 0, 0))(parameters, x, y)
    return sum((value ** 2).sum() for value in found.values()) / len(x)

def tangent(model, x):
    return (jvp(model, (x,), (x.flip(1),))[1] ** 2).mean()

def jacobian(model, x):
    return (vmap(jacrev(model))(x) ** 2).mean()

def curvature(model, x):
    return (vmap(hessian(lambda one: model(one).square().sum()))(x) ** 2).mean()

def in_place(model, x):
    hidden = model.a((0.5 * x).requires_grad_(True))
    hidden[:, ::2] *= 2.0
    hidden.view(len(x), 2, 12)[:, 0].mul_(1.5)
    return model.b(torch.relu_(hidden)).square().mean()

def of_the_batch(model, x):
    x.mul_(0.5).requires_grad_(True)
    (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    return (slope ** 2).mean()
"""
)
LOSSES = {
    "gradient penalty": "cross_entropy(model(x), y) + penalty(model, x)",
    "inner loop": "adapted(model, x, y)",
    "inner loop by torch.func": "adapted_by_func(model, x, y)",
    "gradients of each item": "cross_entropy(model(x), y) + each(model, x, y)",
    "forward mode": "cross_entropy(model(x), y) + tangent(model, x)",
    "jacobian": "cross_entropy(model(x), y) + jacobian(model, x)",
    "hessian": "cross_entropy(model(x), y) + curvature(model, x)",
    "in place": "cross_entropy(model(x), y) + in_place(model, x)",
    "changes its batch": "of_the_batch(model, x) + cross_entropy(model(x), y)",
}
KERAS = (
    KERAS_NET
    + """
def train_state(model):
    return keras.optimizers.SGD(0.1)

def train_step(model, optimizer, batch):
    x = 0.5 * batch["x"]
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            inner.watch(x)
            squares = tf.reduce_sum(model(x) ** 2)
        slope = inner.gradient(squares, x)
        loss = tf.reduce_mean((tf.norm(slope, axis=1) - 1) ** 2)
        loss += tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["target"], model(batch["x"])))
    variables = model.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    return {"loss": loss}
"""
)
PENALTY = TORCH.replace("LOSS", LOSSES["gradient penalty"])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_a_step_with_derivatives_of_derivatives_is_judged(xverify, tmp_path, loss):
    files = {"spec": SPEC, "torch": TORCH.replace("LOSS", loss)}
    done = xverify("run", folder(tmp_path / "port", files), *UNTIMED, "torch:eager")
    assert done.code == 4, done.out + done.err  # the reference alone
    row = done.row("torch:eager")
    assert row["error"]["verdict"] == "EQUAL"
    # Its noise is that of rounding, so that a fault of a thousandth of the loss or of a gradient shows.
    limits = [
        limit
        for check in row["training"]["checks"]
        if check["name"] in ("loss", "gradients")
        for limit in check["detection_limits"].values()
    ]
    assert limits
    assert max(limits) < 2e-3


@pytest.mark.parametrize("change", [("", ""), ("(tf.norm(slope, axis=1) - 1)", "(tf.norm(slope, axis=1) - 0.99)")])
def test_a_port_with_a_gradient_penalty_is_judged(xverify, tmp_path, change):
    pytest.importorskip("tensorflow")
    files = {"spec": SPEC, "torch": PENALTY, "tensorflow": KERAS}
    done = xverify("run", folder(tmp_path / "port", files, tensorflow=change), *UNTIMED, "torch:eager,tensorflow:eager")
    if change[0]:
        assert_port_is_wrong(done, "loss 'loss'")
    else:
        assert done.code == 0, done.out + done.err
        assert done.row("tensorflow:eager")["error"]["verdict"] == "EQUAL"
