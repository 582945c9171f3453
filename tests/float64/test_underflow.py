"""Gradients that became zero in float16, and the precision of a captured step."""

import torch

from xverify.float64.precision import Precision
from xverify.float64.underflow import underflow, unit_scale
from xverify.framework.capture import LayerCall, lower_dtype

EXACT = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3e-8


def in_float16(exact, scale=1.0):
    return (exact * scale).half().float() / scale


def test_small_gradients_that_became_zero_are_explained():
    found = underflow(in_float16(EXACT), EXACT, 1.0)
    assert found.kind == "underflow"
    assert "without loss scaling" in found.says
    share = float((in_float16(EXACT) == 0).double().mean())
    assert f"{share:.0%} of its gradient is smaller than the smallest number of float16, 6e-08" in found.says
    assert "GradScaler" in found.says
    found = underflow(in_float16(EXACT * 1e-3, 1024.0), EXACT * 1e-3, 1024.0)
    assert "at the loss scale 1024" in found.says


def test_nothing_is_explained_that_is_no_underflow():
    assert underflow(in_float16(EXACT, 2.0**20), EXACT, 2.0**20) is None
    assert underflow(1.3 * in_float16(EXACT * 1e6), EXACT * 1e6, 1.0) is None
    half_zero = EXACT.float() * 1e6
    half_zero[:32] = 0  # values that float16 holds
    assert underflow(half_zero, EXACT * 1e6, 1.0) is None


def test_a_scale_brings_the_largest_value_to_one():
    assert 1 <= float(EXACT.abs().max()) * unit_scale([EXACT, None]) < 2
    assert unit_scale([torch.zeros(3), None]) == unit_scale([]) == 1


def test_layers_are_judged_by_the_dtype_of_what_they_return():
    records = [
        LayerCall("conv", 0, (), (), output_dtype="bfloat16"),
        LayerCall("norm", 0, (), (), input_dtype="bfloat16"),
        LayerCall("table", 0, (), ()),
    ]
    found = Precision.of("bfloat16", records, 1.0)
    assert [found.forward_unit(each.name) for each in records] == [2**-8, 2**-24, 2**-24]
    assert [found.backward_unit(each.name) for each in records] == [2**-8, 2**-8, 2**-24]
    assert found.unit == 2**-8
    assert Precision.of("float32", records, 1.0) == Precision()


def test_the_dtypes_of_tensors_are_read_from_themselves():
    assert lower_dtype((torch.ones(1), {"a": torch.ones(1, dtype=torch.bfloat16)})) == "bfloat16"
    assert lower_dtype([torch.ones(1).half()]) == "float16"
    assert not lower_dtype([torch.ones(1), torch.ones(1).double(), None])
