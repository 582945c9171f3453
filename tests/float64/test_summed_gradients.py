"""How gradients that are sums over the batch are rounded: measured on torch's own kernels, which add the terms one by one."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from xverify.float64.operations import perturbed_operations
from xverify.float64.rounding import Noise
from xverify.float64.summed_gradients import error_of_means, rounding_of_rows, rounding_of_sums, rounding_one_by_one

SHAPE = (8, 16, 28, 28)


def upstream(kind):
    """The gradient of a layer's output, float32."""
    rng = np.random.default_rng(0)
    each = rng.standard_normal((8, 16, 1, 1))
    drawn = {
        "drawn": rng.standard_normal(SHAPE),
        "positive": np.abs(rng.standard_normal(SHAPE)),
        "equal in an image": np.broadcast_to(each, SHAPE),
        "equal where they are not zero": each * (rng.standard_normal(SHAPE) > 0),
        "equal everywhere": np.broadcast_to(each[:1], SHAPE),
    }[kind]
    return torch.from_numpy(np.ascontiguousarray(drawn, dtype=np.float32))


def one_by_one(terms):
    """The sums of rows in float32, one term after the other."""
    return np.add.accumulate(terms.numpy().astype(np.float32), axis=1)[:, -1]


def rms(values):
    return float(np.sqrt(np.mean(np.square(np.asarray(values, np.float64)))))


KINDS = ["drawn", "positive", "equal in an image", "equal where they are not zero", "equal everywhere"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_rounding_of_a_sum_is_that_of_adding_its_terms_one_by_one(kind):
    terms = upstream(kind).transpose(0, 1).flatten(1)
    error = one_by_one(terms) - terms.double().sum(1).numpy()
    assert 0.2 < rms(error) / rms(rounding_of_rows(terms)) < 2


@pytest.mark.parametrize("kind", KINDS)
def test_no_kernel_of_torch_rounds_more(kind):
    x, g = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)), upstream(kind)
    norm, conv = nn.BatchNorm2d(16), nn.Conv2d(16, 16, 1)
    for layer in (norm, conv):
        exact = deepcopy(layer).double()
        layer(x).backward(g)
        exact(x.double()).backward(g.double())
        sums = dict(rounding_of_sums(exact, x.double(), g.double()))
        assert set(sums) == ({"bias"} if layer is conv else {"weight", "bias"})
        for name, rounding in sums.items():
            error = getattr(layer, name).grad.double() - getattr(exact, name).grad
            assert rms(error) <= 2 * rms(rounding), (layer, name)


@pytest.mark.parametrize("layer", [nn.LayerNorm(28), nn.LayerNorm((28, 28)), nn.GroupNorm(4, 16), nn.Linear(28, 5)])
def test_sums_have_the_shape_of_their_parameters(layer):
    x = torch.randn(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    layer = layer.double()
    sums = dict(rounding_of_sums(layer, x, torch.ones_like(layer(x))))
    assert sums
    assert all(rounding.shape == getattr(layer, name).shape for name, rounding in sums.items())
    assert all(bool((rounding > 0).all()) for rounding in sums.values())


def test_layers_without_such_sums_have_none():
    x = torch.ones(4, 8, dtype=torch.float64)
    assert not dict(rounding_of_sums(nn.ReLU(), x, x))
    assert not dict(rounding_of_sums(nn.Embedding(8, 8), torch.ones(4, dtype=torch.int64), x))
    assert set(dict(rounding_of_sums(nn.Linear(1, 8), torch.ones(32, 1), torch.ones(32, 8)))) == {"bias"}
    few = torch.ones(4, 8, dtype=torch.float64)
    assert not dict(rounding_of_sums(nn.Linear(8, 8), few, few))


def test_the_means_of_a_batch_norm_are_perturbed_as_their_sums_round():
    x = torch.randn(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    norm, g = nn.BatchNorm2d(16).double(), upstream("equal everywhere").double()
    error = error_of_means(norm, x, g, Noise(0))
    deviation = x.var((0, 2, 3), unbiased=False).sqrt()
    shift = error.mean((0, 2, 3)) * deviation * x[:, 0].numel()
    rounding = rounding_of_rows(g.transpose(0, 1).flatten(1))
    assert 0.5 < rms(shift) / rms(rounding) < 2


@pytest.mark.parametrize("count", [64, 1024, 4096])
@pytest.mark.parametrize("mean", [0.0, 0.3, 1.0, 5.0])
@pytest.mark.parametrize(("dtype", "unit"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_sums_in_a_lower_precision_lose_small_terms(count, mean, dtype, unit):
    terms = (torch.randn(64, count, generator=torch.Generator().manual_seed(0)) + mean).to(dtype)
    found = torch.zeros(64, dtype=dtype)
    for column in terms.T:
        found = found + column
    terms = terms.double()
    error, expected = rms(found.double() - terms.sum(1)), rms(rounding_one_by_one(terms, unit, losing=True))
    assert 0.05 < error / expected < 3
    if (count, mean, dtype) == (4096, 1.0, torch.bfloat16):  # most of the sum is lost
        assert error > 5 * rms(rounding_one_by_one(terms, unit, losing=False))


def test_the_gradient_of_a_bias_loses_terms_and_a_sum_of_the_code_does_not():
    layer, x = nn.Linear(4, 8).double(), torch.ones(4096, 4, dtype=torch.float64)
    units = {("sum", ((4096, 8),)): 2.0**-8}
    with perturbed_operations(Noise(0), units):
        output = layer(x)
        output.backward(torch.ones_like(output))
        plain = torch.ones(4096, 8, dtype=torch.float64).sum(0)
    assert layer.bias.grad is not None
    assert rms(layer.bias.grad - 4096) > 0.5 * 4096
    assert rms(plain - 4096) < 0.2 * 4096
