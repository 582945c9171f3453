"""The formula of every named loss, in float64: against torch's own functions, and against numbers made by hand."""

import math

import numpy as np
import pytest
from helpers.losscases import CASES, REDUCTIONS, SOME_IGNORED, WEIGHTS, real

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from xverify.float64.named_losses import TorchOperations, torch_loss  # noqa: E402
from xverify.workload.loss_formulas import value  # noqa: E402
from xverify.workload.losses import Loss  # noqa: E402


def torchs(loss, x, t, axis):
    """The loss by torch's own function, and its reduction."""
    reduction = "sum" if loss.reduction in ("none", "batchmean") else loss.reduction
    name, t = loss.name, t if loss.name in ("cross_entropy", "ctc") else t.double()
    if name == "cross_entropy":
        weight = torch.tensor(loss.class_weights, dtype=torch.float64) if loss.class_weights else None
        ignored = -100 if loss.ignore_index is None else loss.ignore_index
        found = functional.cross_entropy(
            x.movedim(axis, 1),
            t,
            weight,
            ignore_index=ignored,
            label_smoothing=loss.label_smoothing,
            reduction=reduction,
        )
    elif name == "cosine":
        ones = torch.ones(len(x), dtype=torch.float64)
        found = functional.cosine_embedding_loss(x, t, ones, reduction=reduction)
    elif name == "info_nce":
        similar = functional.cosine_similarity(x[:, None], t[None], dim=-1) / loss.temperature
        found = functional.cross_entropy(similar, torch.arange(len(x)), reduction=reduction)
    elif name == "ctc":
        steps, labels = torch.full((len(x),), x.shape[1]), torch.full((len(x),), t.shape[1])
        found = functional.ctc_loss(x.log_softmax(2).transpose(0, 1), t, steps, labels, reduction=reduction)
    else:
        settings = {key: getattr(loss, key) for key in {"huber": ["delta"], "smooth_l1": ["beta"]}.get(name, [])}
        plain = {"bce_with_logits": "binary_cross_entropy_with_logits", "kl_div": "kl_div"}.get(name, f"{name}_loss")
        if name == "kl_div" and reduction == "mean":
            return getattr(functional, plain)(x, t, reduction="sum") / x.numel()
        found = getattr(functional, plain)(x, t, **settings, reduction=reduction)
    return found / len(x) if loss.reduction == "batchmean" else found


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_value_and_gradient_are_torchs(case, reduction):
    loss, x, t, axis = CASES[case]
    loss = Loss(**{**loss.__dict__, "reduction": reduction})
    x, t = torch.tensor(x), torch.tensor(t)
    found = []
    for compute in (
        torchs,
        lambda loss, x, t, axis: value(TorchOperations(), loss, x, t, axis),
        lambda loss, x, t, axis: torch_loss(loss, x, t, axis, None),
    ):
        own = x.clone().requires_grad_()
        result = compute(loss, own, t, axis)
        result.backward()
        found.append((float(result.detach()), own.grad.numpy()))
    assert len(found) == 3
    for result, gradient in found[1:]:
        assert math.isclose(result, found[0][0], rel_tol=1e-12)
        np.testing.assert_allclose(gradient, found[0][1], rtol=1e-9, atol=1e-13)


def test_ctc_counts_the_labels_of_each_item():
    x, t = torch.tensor(real(2, 9, 5)), torch.tensor([[1, 2, 3], [4, 1, 1]])
    lengths = torch.tensor([3, 1])
    right = functional.ctc_loss(x.log_softmax(2).transpose(0, 1), t, torch.tensor([9, 9]), lengths)
    assert math.isclose(float(value(TorchOperations(), Loss("ctc"), x, t, -1, lengths)), float(right), rel_tol=1e-12)


def test_each_variant_is_the_mistake_that_it_names():
    ops, axis = TorchOperations(), -1
    x, t = torch.tensor(real(4, 3, 5)), torch.tensor(SOME_IGNORED)
    kept = t != -100
    surprise = -x.log_softmax(-1).gather(-1, t.clamp(min=0)[..., None])[..., 0]

    def variant(name, **settings):
        return float(value(ops, Loss("cross_entropy", variant=name, ignore_index=-100, **settings), x, t, axis))

    assert math.isclose(variant("ignored counted"), float((surprise * kept).sum() / t.numel()))
    assert math.isclose(variant("ignored is class 0"), float(surprise.mean()))
    assert math.isclose(variant("items summed"), float((surprise * kept).sum() / 3))
    again = functional.cross_entropy(x.softmax(-1).flatten(0, 1), t.flatten())
    assert math.isclose(variant("softmax twice"), float(again))
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)
    total = functional.cross_entropy(x.flatten(0, 1), t.flatten(), weight, reduction="sum") / kept.sum()
    assert math.isclose(variant("plain mean", class_weights=WEIGHTS), float(total))
    p = torch.tensor([[0.2, 0.3, 0.5]]).double()
    taken = value(ops, Loss("cross_entropy", variant="not from logits"), p, torch.tensor([2]), axis)
    assert math.isclose(float(taken), -math.log(0.5), rel_tol=1e-7)
    sure = value(ops, Loss("bce", variant="not from logits"), torch.tensor([0.25]).double(), torch.tensor([1.0]), axis)
    assert math.isclose(float(sure), -math.log(0.25))
