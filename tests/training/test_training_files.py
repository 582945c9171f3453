"""Checkpoints of torch that cannot be used, or that say more than they convert. Workers answer within this process."""

import pickle

import pytest
from helpers import resumed

torch = pytest.importorskip("torch")

from xverify.errors import WeightsError  # noqa: E402
from xverify.frameworks.torch.checkpoint import TorchCheckpoint  # noqa: E402


@pytest.fixture
def opened(tmp_path):
    """Write a checkpoint of an optimizer, change its content, and open it."""

    def run(make, change=lambda stored: stored, grouped=False):
        model, _, path = resumed.checkpoint(tmp_path, make, 2, grouped)
        torch.save(change(torch.load(path, weights_only=True)), path)
        checkpoint = TorchCheckpoint()
        checkpoint.path = path
        return checkpoint.open(path, model)

    return run


def adam(parameters):
    return torch.optim.Adam(parameters, 1e-3)


def _without(*names):
    def change(stored):
        for name in names:
            del stored["optimizer"]["state"][name]
        return stored

    return change


def _changed(number, key, value):
    def change(stored):
        stored["optimizer"]["state"][number][key] = value
        return stored

    return change


def _option(**options):
    def change(stored):
        stored["optimizer"]["param_groups"][0].update(options)
        return stored

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without(2), "the parameter a.weight has no optimizer state"),
        (_changed(2, "exp_avg", torch.zeros(6, 5)), r"exp_avg of a.weight has the shape \(6, 5\)"),
        (_changed(2, "step", torch.tensor(7.0)), "conv.weight has made 2 steps and a.weight 7"),
        (_option(maximize=True), "maximize is True"),
        (lambda stored: {"model": stored["model"]}, "holds no state_dict of one optimizer"),
        (lambda stored: [1], "holds a list, not a checkpoint"),
        (_option(params=[0, 1]), "its optimizer has 2 parameters, and the model 8"),
    ],
)
def test_an_unusable_state_is_refused(opened, change, says):
    with pytest.raises(WeightsError, match=says):
        opened(adam, change)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.NAdam(p),
        lambda p: torch.optim.Adamax(p),
        lambda p: torch.optim.Adadelta(p),
        lambda p: torch.optim.RAdam(p),
    ],
)
def test_another_optimizer_is_refused(opened, make):
    with pytest.raises(WeightsError, match="an optimizer that is not converted"):
        opened(make)


def test_dampening_is_refused(opened):
    with pytest.raises(WeightsError, match=r"dampening is 0\.5"):
        opened(lambda p: torch.optim.SGD(p, 0.1, 0.9, dampening=0.5))


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Runs:
        def __reduce__(self):
            return (print, ("run",))

    path = tmp_path / "evil.pt"
    torch.save({"optimizer": Runs()}, path, pickle_module=pickle)
    with pytest.raises(WeightsError, match="could run any code"):
        TorchCheckpoint().open(path, torch.nn.Linear(2, 2))


def test_settings_are_read(opened):
    found = opened(lambda p: torch.optim.AdamW(p, 1e-3, (0.8, 0.95), 1e-6, 0.2, amsgrad=True))
    assert found.steps == 2
    assert found.left == ("epoch",)
    assert found.settings == {
        "name": "adamw", "lr": 1e-3, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.2, "amsgrad": True,
    }  # fmt: skip


def test_groups_are_told_apart_by_shapes(opened):
    found = opened(lambda p: torch.optim.AdamW(p, 1e-3), grouped=True)
    assert {each.pattern for each in found.groups} == {"conv.bias", "a.bias", "b.bias", "c.bias"}
    assert {each.weight_decay for each in found.groups} == {0.0}


def test_groups_that_shapes_do_not_tell_apart_are_refused(opened):
    def change(stored):
        first, second = stored["optimizer"]["param_groups"]
        first["params"], second["params"] = (
            first["params"][:-1] + second["params"][:1],
            second["params"][1:] + first["params"][-1:],
        )
        return stored

    with pytest.raises(WeightsError, match="2 parameter groups without names"):
        opened(adam, change, grouped=True)


def test_an_older_file_does_not_tell_adam_from_adamw(opened):
    def change(stored):
        del stored["optimizer"]["param_groups"][0]["decoupled_weight_decay"]
        return stored

    assert "name" not in opened(adam, change).settings
