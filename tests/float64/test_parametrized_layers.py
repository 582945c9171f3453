"""Layers whose weight torch computes by a weight norm, a spectral norm, or another parametrization."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

from xverify.float64 import parametrized as parametrized  # noqa: E402
from xverify.float64.layer_kinds import is_torch_layer, leaves  # noqa: E402
from xverify.float64.linear import owners_of  # noqa: E402
from xverify.float64.perturbation import Noise, perturbed_layer  # noqa: E402
from xverify.float64.stepping import Models  # noqa: E402
from xverify.float64.tables import tables  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # the older forms are deprecated


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).T


class Net(nn.Module):
    """One layer of every kind: both forms of both norms, a parametrization of the user's, and a plain layer."""

    def __init__(self):
        super().__init__()
        self.normed = parametrizations.weight_norm(nn.Linear(6, 6))
        self.older = nn.utils.weight_norm(nn.Linear(6, 6))
        self.spectral = parametrizations.spectral_norm(nn.Linear(6, 6))
        self.older_spectral = nn.utils.spectral_norm(nn.Linear(6, 6))
        self.symmetric = nn.Linear(6, 6)
        parametrize.register_parametrization(self.symmetric, "weight", Symmetric())
        self.plain = nn.Linear(6, 6)

    def forward(self, x):
        for layer in (self.normed, self.older, self.spectral, self.older_spectral, self.symmetric):
            x = torch.tanh(layer(x))
        return self.plain(x)


LAYERS = ["normed", "older", "spectral", "older_spectral", "symmetric"]


def net():
    torch.manual_seed(0)
    return Net().eval()


def rows():
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


def test_every_computed_weight_is_found_with_what_it_is_computed_from():
    found = {each.name: each.parts for each in parametrized.computed(net())}
    assert found == {
        "normed.weight": tuple(f"normed.parametrizations.weight.original{k}" for k in (0, 1)),
        "older.weight": ("older.weight_g", "older.weight_v"),
        "spectral.weight": tuple(f"spectral.parametrizations.weight.{end}" for end in ("original", "0._u", "0._v")),
        "older_spectral.weight": tuple(f"older_spectral.weight_{end}" for end in ("orig", "u", "v")),
        "symmetric.weight": ("symmetric.parametrizations.weight.original",),
    }
    assert {part for parts in found.values() for part in parts} <= set(net().state_dict())


def test_a_parametrized_layer_is_one_layer():
    model = net()
    assert list(leaves(model)) == [*LAYERS, "plain"]
    assert all(map(is_torch_layer, leaves(model).values()))
    assert set(owners_of(model).values()) == {model.plain}  # no other weight has an identity
    assert not tables(model)


def test_a_class_of_the_model_with_a_parametrization_is_none_of_torch_s():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3))

    layer = parametrizations.spectral_norm(Own())
    assert is_torch_layer(layer) is False
    assert parametrized.own_class(layer) is Own


def test_folding_makes_plain_layers_that_compute_the_same():
    model, other = net(), net()
    before, state = other(rows()), copy.deepcopy(model.state_dict())
    values = {each.name: each.value().detach().clone() for each in parametrized.computed(model)}
    parametrized.fold(model)
    assert torch.equal(model(rows()), before)
    assert all(type(getattr(model, name)) is nn.Linear for name in LAYERS)
    assert set(model.state_dict()) == {f"{name}.{end}" for name in [*LAYERS, "plain"] for end in ("weight", "bias")}
    assert all(torch.equal(model.get_parameter(name), value) for name, value in values.items())
    # Another model of the same classes stays as it is.
    assert torch.equal(other(rows()), before)
    assert all(torch.equal(other.state_dict()[name], value) for name, value in state.items())


def test_inference_does_not_change_a_spectral_norm():
    model = net()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model(rows())
    assert [each.value() for each in parametrized.computed(model)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_iterations_are_those_of_a_pass_in_training_mode_and_can_be_stopped():
    model, stopped, trained = net(), net(), net().train()
    for each in (model, stopped, trained):
        with torch.no_grad():
            each.spectral.parametrizations.weight.original.mul_(torch.linspace(0.1, 3, 6))
            each.older_spectral.weight_orig.mul_(torch.linspace(0.1, 3, 6))
    before = copy.deepcopy(model.state_dict())
    trained(rows())
    parametrized.iterate(model)
    after = trained.state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert len(changed) == 4
    assert all(torch.equal(value, after[name]) for name, value in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    stopped.train()
    with parametrized.without_iterations(stopped):
        stopped(rows())
    assert all(torch.equal(value, before[name]) for name, value in stopped.state_dict().items())
    assert all(module.training for module in stopped.modules())


def test_a_folded_weight_is_restored_in_float64():
    exact, single = net().double(), net()
    parametrized.fold(exact)
    parametrized.fold(single)
    right = exact.normed.weight.detach().clone()
    with perturbed_layer(exact.normed, Noise(0), 1e-7):
        change = (exact.normed.weight / right - 1).detach()
        assert float(change.abs().max()) > 1e-8
        # The rounding of a norm changes all values of a row alike.
        assert float(change.mean(1).std()) > 0.3 * float(change.std())
    assert torch.equal(exact.normed.weight, right)


def test_a_weight_that_a_hook_computes_is_computed_again_in_every_call():
    exact, single = net().double(), net()
    models = Models(exact, single)
    layer, args = models.layers["older"], ((rows().double(),), {})
    first = models.compute(layer, args)
    with torch.no_grad():
        layer.weight = layer.weight * 1.5  # as another pass leaves it
    assert torch.equal(models.compute(layer, args), first)
