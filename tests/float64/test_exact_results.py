"""Results that a precision holds exactly carry no noise: masks, whole numbers, comparisons of them. What rounds still has it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from xverify.float64.operations import perturbed_arithmetic  # noqa: E402
from xverify.float64.rounding import Noise, chosen, held, sums_exactly  # noqa: E402
from xverify.workload import probe  # noqa: E402

LOWEST = torch.finfo(torch.float32).min


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_precision_holds_what_it_can_store_and_what_is_beyond_its_range():
    inf, nan = float("inf"), float("nan")
    stored = doubles(1.0, 0.5, -3.0, 0.0, LOWEST, 2.0**24 + 2, inf, -inf, nan, 1e39)
    assert held(stored).all()
    assert not held(doubles(0.1, 2.0**24 + 1, 1 / 3)).any()
    assert held(doubles(257.0), 2.0**-11).all()
    assert not held(doubles(257.0), 2.0**-8).any()
    rounded = Noise(0).rounded(stored)
    assert torch.equal(rounded[:-2], stored[:-2])
    assert rounded[-2].isnan()


def test_given_values_are_perturbed_unless_they_are_masks_or_whole_numbers():
    values = doubles(1.0, 0.5, 100_001.0, -10_000.0, LOWEST, -float("inf"), 0.1, 1.2345)
    assert chosen(values).tolist() == [True] * 6 + [False] * 2
    given = Noise(0).given(values)
    assert torch.equal(given[:6], values[:6])
    assert (given[6:] != values[6:]).all()
    array = values.float().numpy()
    changed = probe.perturb({"x": array}, 0, given=True)["x"]
    assert (changed == array).tolist() == [True] * 6 + [False] * 2


def test_a_sum_is_exact_where_it_is_so_in_every_order():
    assert sums_exactly([torch.ones(9).double(), torch.arange(9).double()], 9)
    assert not sums_exactly([torch.rand(9).double()], 9)
    assert not sums_exactly([doubles(1.0, 2.0**24, -(2.0**24))], 3)  # the sum is 1 in one order and 0 in another


def test_masks_and_comparisons_of_whole_numbers_stay_as_they_are():
    with perturbed_arithmetic(Noise(0)):
        keep = torch.tensor([1.0, 1.0, 0.0])
        mask = (1.0 - keep) * LOWEST
        places = torch.ones(50).cumsum(0) * 0.5
        count = torch.ones(7, 9).sum(1)
        scores = torch.tensor([0.3, 0.1, 0.2]) * 1.1 + mask
    assert mask.tolist() == [0.0, 0.0, LOWEST]
    assert torch.equal(places, torch.arange(1, 51).double() / 2)
    assert (count == 9).all()
    assert scores[2] == LOWEST
    assert scores[0] != 0.3 * 1.1


@pytest.mark.parametrize("low", [-1e4, LOWEST, -float("inf")])
def test_a_mask_does_not_change_the_noise_of_a_softmax(low):
    torch.manual_seed(0)
    scores = torch.randn(64, 12).double()
    mask = torch.where(torch.arange(12) < 8, 0.0, low).double()

    def error(function):
        exact = function(scores + mask)[:, :8]
        with perturbed_arithmetic(Noise(0)):
            return float(((function(scores + mask)[:, :8] - exact) / exact).abs().max())

    for function in (lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.logsumexp(-1, keepdim=True)):
        assert 1e-8 < error(function) < 1e-6


def test_rows_without_any_key_stay_uniform():
    rows = torch.full((3, 8), LOWEST).double() + torch.randn(3, 8).double()
    with perturbed_arithmetic(Noise(0)):
        assert torch.equal((rows * 1.0).softmax(-1), torch.full((3, 8), 0.125).double())


def test_attention_with_a_mask_has_the_noise_of_its_operations():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 10, 8).double() for _ in range(3))
    mask = torch.where(torch.arange(10) < 6, 0.0, LOWEST).double().expand(10, 10).clone()
    mask[3] = LOWEST  # a row without any key
    attend = torch.nn.functional.scaled_dot_product_attention
    exact = attend(q, k, v, attn_mask=mask)
    with perturbed_arithmetic(Noise(0)):
        change = float((attend(q, k, v, attn_mask=mask) - exact).abs().max())
    assert 1e-8 < change < 1e-5


def test_operations_in_place_and_views_of_the_users_code_keep_working():
    torch.manual_seed(0)
    x = torch.randn(4, 6).double()

    def code(x):
        y = x * 1.1
        y[:, :2] += 0.3
        y.view(-1)[::3].mul_(0.7)
        y[1:].masked_fill_(torch.arange(6) > 4, -float("inf"))
        return y

    exact = code(x)
    with perturbed_arithmetic(Noise(0)):
        found = code(x)
    finite = exact.isfinite()
    assert torch.equal(finite, found.isfinite())
    change = ((found - exact) / exact)[finite].abs()
    assert 0 < change.max() < 1e-6


def test_a_gradient_of_a_gradient_is_perturbed():
    x = torch.randn(8).double().requires_grad_()
    (slope,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    noisy = Noise(0).rounded(slope)
    (second,) = torch.autograd.grad(noisy.sum(), x)
    assert torch.allclose(second, 6 * x.detach(), rtol=1e-6)
    assert not torch.equal(second, 6 * x.detach())


# -- graphs -------------------------------------------------------------------------------------------------------------


def graph_noise(nodes, inputs, constants=None, own=True):
    onnx = pytest.importorskip("onnx")
    from xverify.replay.graph.judge.noise import noise
    from xverify.replay.graph.model import Graph

    kinds = {"f": onnx.TensorProto.FLOAT, "u": onnx.TensorProto.UINT8}
    helper = onnx.helper
    given = [
        helper.make_tensor_value_info(name, kinds[array.dtype.kind], array.shape) for name, array in inputs.items()
    ]
    arrays = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    out = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    made = helper.make_graph([helper.make_node(*each[:3], **each[3]) for each in nodes], "g", given, out, arrays)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return noise(Graph(model), inputs, own=own)["y"]


def passes(found):
    return found.value.by_pass[1:]


def test_exact_arithmetic_of_a_graph_is_the_same_in_every_pass():
    pytest.importorskip("onnx")
    from helpers.graphresiduals import rho

    image = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 4)).astype(np.uint8)
    nodes = [
        ("Cast", ["x"], ["f"], {"to": 1}), ("Mul", ["f", "half"], ["h"], {}), ("Sub", ["h", "f"], ["d"], {}),
        ("ReduceSum", ["d", "axes"], ["s"], {"keepdims": 0}), ("Round", ["s"], ["y"], {}),
    ]  # fmt: skip
    found = graph_noise(nodes, {"x": image}, {"half": np.float32(0.5), "axes": np.array([2, 3])})
    assert all(np.array_equal(each, found.exact) for each in passes(found))
    assert rho(found, found.exact + 1) > 1e4


def test_a_value_that_rounding_takes_out_of_the_domain_of_a_function_is_undetermined():
    """a·c - a·c·b/b is zero or a rounding error of either sign, so that its square root is missing in some passes."""
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    nodes = [("Mul", ["x", "c"], ["a"], {}), ("Mul", ["a", "b"], ["p"], {}), ("Div", ["p", "b"], ["q"], {}),
             ("Sub", ["a", "q"], ["d"], {}), ("Mul", ["d", "d"], ["s"], {}), ("Add", ["s", "d"], ["t"], {}),
             ("Sqrt", ["t"], ["y"], {})]  # fmt: skip
    found = graph_noise(nodes, {"x": x}, {"c": np.float32(0.5), "b": np.float32(0.7)}, own=False)
    finite = np.isfinite(found.exact)
    assert finite.any()
    assert any(np.isnan(each[finite]).any() for each in passes(found))


def test_a_function_whose_argument_is_at_the_end_of_its_domain_stays_finite():
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    nodes = [("Mul", ["x", "c"], ["a"], {}), ("Clip", ["a", "low", "high"], ["b"], {}), ("Acos", ["b"], ["y"], {})]
    found = graph_noise(nodes, {"x": x}, {"c": np.float32(1.7), "low": np.float32(-1), "high": np.float32(1)})
    values = passes(found)
    assert len(values) > 1
    assert all(np.isfinite(each).all() for each in values)
