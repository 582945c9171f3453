"""The named losses in torch: its own functions, and the formulas of ``workload.loss_formulas`` in its operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from xverify.framework.adapter import Array
from xverify.workload.loss_formulas import COSINE_EPS, value
from xverify.workload.losses import Loss
from xverify.workload.operations import Operations


class TorchOperations(Operations):
    """The operations of torch."""

    def __init__(self) -> None:
        super().__init__(torch)

    def maximum(self, x: Tensor, y: Tensor | float) -> Tensor:
        return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)

    def minimum(self, x: Tensor, y: Tensor | float) -> Tensor:
        return torch.minimum(x, y) if isinstance(y, Tensor) else x.clamp(max=y)

    def sum(self, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
        return x.sum() if axis is None else x.sum(axis, keepdim=keep)

    def largest(self, x: Tensor, axis: int) -> Tensor:
        return x.detach().amax(axis, keepdim=True)

    def expanded(self, x: Tensor, axis: int) -> Tensor:
        return x.unsqueeze(axis)

    def constant(self, array: Array, like: Tensor) -> Tensor:
        return torch.as_tensor(array, dtype=like.dtype, device=like.device)

    def cast(self, x: Tensor, like: Tensor) -> Tensor:
        return x.to(like.dtype)

    def ctc(self, logits: Tensor, labels: Tensor, lengths: Tensor | None, blank: int) -> Tensor:
        items, steps = logits.shape[:2]
        counts = torch.full((items,), labels.shape[1], device=labels.device) if lengths is None else lengths
        given = torch.full((items,), steps, device=labels.device)
        return functional.ctc_loss(
            logits.log_softmax(-1).transpose(0, 1), labels, given, counts, blank, reduction="none"
        )


def torch_loss(loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
    """The value of a named loss. torch's own function computes it where there is one; a mistake is computed by its formula."""
    own = OWN.get(loss.name)
    if own is None or loss.variant:
        return value(TorchOperations(), loss, x, t, axis, lengths)
    if loss.reduction == "mean":
        return own(loss, x, t, axis, "mean")
    found = own(loss, x, t, axis, "sum")
    return found / x.shape[0] if loss.reduction == "batchmean" else found


def _cross_entropy(loss: Loss, x: Tensor, t: Tensor, axis: int, reduction: str) -> Tensor:
    weight = torch.tensor(loss.class_weights, dtype=x.dtype, device=x.device) if loss.class_weights else None
    ignored = -100 if loss.ignore_index is None else loss.ignore_index
    rows = x.movedim(axis, -1).flatten(0, -2)
    return functional.cross_entropy(
        rows,
        t.flatten().long(),
        weight,
        ignore_index=ignored,
        reduction=reduction,
        label_smoothing=loss.label_smoothing,
    )


def _cosine(loss: Loss, x: Tensor, t: Tensor, axis: int, reduction: str) -> Tensor:
    return _reduced(1 - functional.cosine_similarity(x, t.to(x.dtype), axis, COSINE_EPS), reduction)


def _kl_div(loss: Loss, x: Tensor, t: Tensor, axis: int, reduction: str) -> Tensor:
    # torch warns of its own "mean", which is the one over all values
    return _reduced(functional.kl_div(x, t.to(x.dtype), reduction="none"), reduction)


def _reduced(values: Tensor, reduction: str) -> Tensor:
    return values.mean() if reduction == "mean" else values.sum()


def _info_nce(loss: Loss, x: Tensor, t: Tensor, axis: int, reduction: str) -> Tensor:
    similar = functional.normalize(x, dim=1) @ functional.normalize(t.to(x.dtype), dim=1).T / loss.temperature
    return functional.cross_entropy(similar, torch.arange(len(x), device=x.device), reduction=reduction)


def _plain(function: Callable[..., Tensor], *settings: str) -> Callable[..., Tensor]:
    """A function of torch whose target is cast to the dtype of the output. settings: fields of the loss that it takes."""
    return lambda loss, x, t, axis, reduction: function(
        x, t.to(x.dtype), reduction=reduction, **{name: getattr(loss, name) for name in settings}
    )


OWN: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": _cross_entropy,
    "bce_with_logits": _plain(functional.binary_cross_entropy_with_logits),
    "mse": _plain(functional.mse_loss),
    "l1": _plain(functional.l1_loss),
    "huber": _plain(functional.huber_loss, "delta"),
    "smooth_l1": _plain(functional.smooth_l1_loss, "beta"),
    "kl_div": _kl_div,
    "cosine": _cosine,
    "info_nce": _info_nce,
}
