"""Weights that a port holds with other values: norms plus one, and folded batch norms."""

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.weights.arrangement import read_table
from xverify.weights.changes import changes

PLACE = "names.toml: [x.stored]"
SHAPES = {
    "conv1.weight": (4, 3, 2, 2), "bn1.weight": (4,), "bn1.bias": (4,), "bn1.running_mean": (4,), "bn1.running_var": (4,),
    "conv2.weight": (4, 3, 2, 2), "conv2.bias": (4,), "bn2.running_mean": (4,), "bn2.running_var": (4,),
    "l.0.norm.weight": (5,), "l.1.norm.weight": (5,), "odd.running_var": (3,),
}  # fmt: skip


def found(table):
    return {each.name: each for each in changes(read_table(table, PLACE), SHAPES, PLACE)}


def arrays():
    random = np.random.default_rng(0)
    return {name: random.uniform(0.5, 2, shape).astype(np.float32) for name, shape in SHAPES.items()}


def test_a_number_is_added_to_every_norm_that_a_line_names():
    made, given = found({"h.*.norm.scale": {"of": "l.*.norm.weight", "add": -1}}), arrays()
    assert set(made) == {"l.0.norm.weight", "l.1.norm.weight"}
    array = made["l.1.norm.weight"].compute(given)
    assert array.dtype == np.float32
    assert np.array_equal(array, (given["l.1.norm.weight"].astype(np.float64) - 1).astype(np.float32))
    assert made["l.1.norm.weight"].says == "l.1.norm.weight - 1"
    assert made["l.1.norm.weight"].uses == ()


@pytest.mark.parametrize("number", [1, 2])
def test_a_folded_batch_norm_computes_what_both_layers_do(number):
    torch = pytest.importorskip("torch")
    made, given = found({"c*": {"of": "conv*", "batch_norm": "bn*", "eps": 1e-3}}), arrays()
    assert set(made) == {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"}
    assert made["conv1.bias"].shape == (4,)
    assert made["conv1.bias"].uses == ("bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var")
    t = {name: torch.from_numpy(array).double() for name, array in given.items()}
    conv, bn = f"conv{number}", f"bn{number}"
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    y = torch.nn.functional.conv2d(x, t[f"{conv}.weight"], t.get(f"{conv}.bias"))
    statistics = (t[f"{bn}.running_mean"], t[f"{bn}.running_var"], t.get(f"{bn}.weight"), t.get(f"{bn}.bias"))
    wanted = torch.nn.functional.batch_norm(y, *statistics, eps=1e-3)
    weight, bias = (torch.from_numpy(made[f"{conv}.{kind}"].compute(given)).double() for kind in ("weight", "bias"))
    assert torch.allclose(torch.nn.functional.conv2d(x, weight, bias), wanted, atol=1e-5)
    other = found({"c*": {"of": "conv*", "batch_norm": "bn*"}})[f"{conv}.weight"].compute(given)
    assert not np.array_equal(other, weight.numpy())


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"n": {"of": "norm.weight", "add": 1}}, "'norm.weight' is no weight of the reference; did you mean 'l.1.norm.weight'"),
        ({"n": {"of": "l.0.norm", "add": 1}}, "'l.0.norm' is no weight of the reference"),
        ({"c": {"of": "conv", "batch_norm": "bn1"}}, "'conv' is no layer with a weight of the reference"),
        ({"c": {"of": "conv1", "batch_norm": "bn"}}, "'bn' is no batch norm of the reference"),
        ({"c": {"of": "conv1", "batch_norm": "odd"}}, "conv1.weight has 4 channels along axis 0, and odd has 3"),
        ({"c": {"of": "conv1", "batch_norm": "bn1", "axis": 1}}, "conv1.weight has 3 channels along axis 1, and bn1 has 4"),
        ({"a": {"of": "l.0.norm.weight", "add": 1}, "b": {"of": "l.*.norm.weight", "add": 2}},
         "'b': l.0.norm.weight is changed by two lines"),
    ],
)  # fmt: skip
def test_a_line_that_fits_no_weight_says_so(table, says):
    with pytest.raises(WeightsError) as failure:
        found(table)
    assert str(failure.value).startswith(PLACE)
    assert says in str(failure.value)
