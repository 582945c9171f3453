"""Batch norms of torch that compute statistics of each part of a batch, as those of several ranks do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import SyncBatchNorm
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import Unsupported

FIRST_SHARE = "first_share"  # attribute of such a norm: of the first part, in the items of the batch


def norms_apart(model: nn.Module) -> list[str]:
    """The batch norms that use the items of their rank alone."""
    every = ((name, each) for name, each in model.named_modules() if isinstance(each, _BatchNorm))
    return [name for name, each in every if not isinstance(each, SyncBatchNorm)]


def divide_norms(model: nn.Module, items: Sequence[int]) -> None:
    """Let the batch norms of a model compute their statistics of each part in training. items: of each part, in a batch."""
    for name in norms_apart(model):
        norm: Any = model.get_submodule(name)
        setattr(norm, FIRST_SHARE, items[0] / sum(items))
        norm.forward = partial(_in_parts, name, norm, norm.forward, items)


def _in_parts(name: str, norm: Any, forward: Any, items: Sequence[int], x: Tensor) -> Tensor:
    """The output of a norm. Running statistics are those of the first part, as the first rank has them."""
    if not norm.training:
        output: Tensor = forward(x)
        return output
    unit, rest = divmod(len(x), sum(items))
    if rest:
        raise Unsupported(
            f"batch norms of ranks are compared where the first axis of their input is the batch: that of {name} has size {len(x)}"
            f", and the batch has {sum(items)} items"
        )
    stops = [unit * each for each in accumulate(items)]
    first, *others = torch.tensor_split(x, stops[:-1])
    # Without running statistics, the others leave those of the norm as they are.
    found = [batch_norm(each, None, None, norm.weight, norm.bias, True, 0.0, norm.eps) for each in others]
    return torch.cat([forward(first), *found])
