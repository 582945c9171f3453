"""The formula of Adafactor for weights with several axes, and its state in other layouts."""

import numpy as np
import pytest

from xverify.workload import adafactor, optimizers
from xverify.workload.optimizers import optimizer


def gradient(step, shape):
    noise = np.random.default_rng(step)
    return 10.0 ** noise.uniform(-8, -1, shape) * noise.choice((-1, 1), shape)


@pytest.mark.parametrize("shape", [(30, 20), (8, 4, 3, 3), (5, 1, 7), (1, 6), (11,)], ids=str)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_step_of_a_weight_is_torchs(shape, decay):
    torch = pytest.importorskip("torch")
    from xverify.frameworks.torch.adafactor import own_adafactor

    settings = optimizer("adafactor", lr=0.5, weight_decay=decay)
    w = np.random.default_rng(9).normal(0, 0.05, shape)
    parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
    made, state = own_adafactor([parameter], settings), [np.zeros(shape) for _ in settings.state_names]
    for step in range(1, 8):
        parameter.grad = torch.from_numpy(gradient(step, shape))
        made.step()
        w, state = optimizers.update(settings, w, gradient(step, shape), state, step)
        assert np.allclose(w, parameter.detach().numpy(), rtol=1e-12, atol=1e-15)
    own = made.state[parameter]
    for name, array in zip(("row_var", "col_var", "variance"), state):
        assert np.allclose(array, np.broadcast_to(own[name].numpy(), shape) if name in own else 0.0, rtol=1e-12, atol=0)


def test_the_axes_of_the_formula_are_those_of_the_layout():
    """A kernel of torch, and the same kernel with its axes in another order."""
    settings, order = optimizer("adafactor"), (2, 3, 1, 0)
    w, g = np.random.default_rng(0).normal(size=(6, 5, 3, 2)), gradient(1, (6, 5, 3, 2))
    state = [np.zeros(w.shape) for _ in settings.state_names]
    right, values = optimizers.update(settings, w, g, state, 1)
    turned = [array.transpose(order) for array in (w, g, *state)]
    axes = adafactor.native_axes((3, 2, 0, 1), (2, 3))
    assert axes == (0, 1)
    found, others = optimizers.update(settings, *turned[:2], turned[2:], 1, axes=axes)
    assert np.allclose(found, right.transpose(order))
    for one, other in zip(values, others):
        assert np.allclose(other, one.transpose(order))


def test_the_order_of_axes_is_found_from_the_layout():
    def turned(array):
        return array.transpose(3, 2, 0, 1)

    assert adafactor.order_of_axes(turned, (3, 3, 5, 6)) == (3, 2, 0, 1)
    assert adafactor.canonical_axes((3, 2, 0, 1), (2, 3)) == (0, 1)
    assert adafactor.order_of_axes(lambda array: array, (7,)) == (0,)
    assert adafactor.order_of_axes(lambda array: array.reshape(4, 6), (4, 2, 3)) is None
    assert adafactor.order_of_axes(lambda array: array[:, ::-1], (4, 2)) is None


def test_a_state_becomes_that_of_other_axes():
    """The estimate of torch's state has the means that an optimizer with other axes would keep."""
    settings, shape = optimizer("adafactor"), (6, 5, 3, 2)
    state = [np.zeros(shape) for _ in settings.state_names]
    _, (row, column, square) = optimizers.update(settings, np.ones(shape), gradient(1, shape), state, 1)
    estimate = row * column / row.mean(-2, keepdims=True)
    first, second, nothing = adafactor.refactored([row, column, square], (0, 1))
    assert np.allclose(first, np.broadcast_to(estimate.mean(1, keepdims=True), shape))
    assert np.allclose(second, np.broadcast_to(estimate.mean(0, keepdims=True), shape))
    assert not nothing.any()
    whole = adafactor.refactored([row, column, square], ())
    assert not whole[0].any()
    assert np.allclose(whole[2], estimate)
    assert not any(each.any() for each in adafactor.refactored(state, (0, 1)))
