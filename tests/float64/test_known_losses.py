"""The loss of the reference in float64: recognised, explained, and refused where it cannot be used."""

import math

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from xverify.errors import Failed  # noqa: E402
from xverify.float64.losses import KnownLosses, check_targets, loss_in  # noqa: E402
from xverify.workload.losses import Loss, Objective  # noqa: E402

torch.manual_seed(0)
LOGITS = {"y": torch.randn(4, 6, 5, dtype=torch.float64)}
TAGS = {"t": torch.randint(0, 5, (4, 6))}
TAGS["t"][0, :3] = -100
OWN = Objective((), {"t": None}, own=True)


def masked(outputs, targets, **settings):
    return functional.cross_entropy(outputs["y"].flatten(0, 1), targets["t"].flatten(), **settings)


def alternatives(objective, loss):
    return KnownLosses(objective, {"y": None}).alternatives(LOGITS, TAGS, float(loss))


def test_a_loss_of_the_model_file_is_recognised_and_its_mistakes_explained():
    found = alternatives(OWN, masked(LOGITS, TAGS, label_smoothing=0.1))
    assert math.isclose(found["label smoothing 0.1 is missing"], float(masked(LOGITS, TAGS)))
    summed = masked(LOGITS, TAGS, label_smoothing=0.1, reduction="sum")
    assert math.isclose(found["it is the sum over all rows, not the mean over the rows"], float(summed))
    plain = alternatives(OWN, masked(LOGITS, TAGS))
    assert any("ignored positions are counted, as class 0" in says for says in plain)
    assert not any("label smoothing" in says for says in plain)


def test_a_loss_that_is_no_named_one_has_no_mistakes():
    assert alternatives(OWN, LOGITS["y"].square().sum().sqrt() * masked(LOGITS, TAGS)) == {}


def test_mistakes_that_leave_the_loss_as_it_is_are_left_out():
    flat = {"y": LOGITS["y"][:, 0]}
    target = torch.arange(4)
    objective = Objective((Loss("cross_entropy", "y", "target"),))
    exact = float(functional.cross_entropy(flat["y"], target))
    found = KnownLosses(objective, {"y": None}).alternatives(flat, {"target": target}, exact)
    assert not any("divided by the items" in says for says in found), "rows are items here"
    assert len({round(value, 9) for value in found.values()}) == len(found)


def test_a_loss_that_ignores_a_target_is_refused():
    check_targets(masked, LOGITS, TAGS)
    with pytest.raises(Failed, match="does not change when the values of its target 'm' do: it does not use it"):
        check_targets(masked, LOGITS, {**TAGS, "m": torch.randn(4, 2)})
    with pytest.raises(Failed, match="its target 't' do"):
        check_targets(lambda outputs, targets: outputs["y"].square().mean(), LOGITS, TAGS)


def test_a_loss_without_a_gradient_is_refused():
    outputs = {"y": LOGITS["y"].clone().requires_grad_()}
    assert loss_in(masked, outputs, TAGS, float64=True).dtype == torch.float64
    with pytest.raises(Failed, match="the loss has no gradient"):
        loss_in(lambda outputs, targets: outputs["y"].detach().mean(), outputs, TAGS, float64=True)


def test_a_loss_that_asks_for_float32_is_computed_in_float64():
    outputs = {"y": LOGITS["y"].clone().requires_grad_()}
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 0.1])

    def narrow(outputs, targets):
        return masked({"y": outputs["y"].float()}, targets, weight=weights)

    exact = masked(LOGITS, TAGS, weight=weights.double())
    assert math.isclose(loss_in(narrow, outputs, TAGS, float64=True).item(), float(exact), rel_tol=1e-12)
