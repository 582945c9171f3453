"""Reductions over axes, and the order of values along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..values import is_float, tensor
from .registry import Call, operator
from .rest import compute

REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceMean": torch.mean,
    "ReduceSum": torch.sum,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceSumSquare": lambda x, dim, keepdim: x.square().sum(dim=dim, keepdim=keepdim),
    "ReduceL1": lambda x, dim, keepdim: x.abs().sum(dim=dim, keepdim=keepdim),
    "ReduceL2": lambda x, dim, keepdim: x.square().sum(dim=dim, keepdim=keepdim).sqrt(),
    "ReduceLogSum": lambda x, dim, keepdim: x.sum(dim=dim, keepdim=keepdim).log(),
    "ReduceLogSumExp": torch.logsumexp,
}


def reduced_axes(call: Any, rank: int, axes: Any) -> tuple[int, ...]:
    """The axes that a reduction sums over: an attribute in older versions, an input in newer ones; all when none is given."""
    axes = call.get("axes") if axes is None else axes
    given = [] if axes is None else np.asarray(axes).reshape(-1).tolist()
    if not given and call.get("noop_with_empty_axes", 0):
        return ()
    return tuple(sorted({axis % rank for axis in given})) if given and rank else tuple(range(rank))


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def run(call: Call, x: Any, axes: Any = None) -> Any:
        if not is_float(x) or not x.size or not x.ndim:
            return compute(call, x) if axes is None else compute(call, x, axes)
        over = reduced_axes(call, x.ndim, axes)
        # No axis to reduce: the function of each value by itself, over an added axis of length one.
        values = tensor(x) if over else tensor(x).unsqueeze(-1)
        return function(values, dim=over or (-1,), keepdim=bool(call.get("keepdims", 1)) and bool(over))

    return run


for _name, _function in REDUCTIONS.items():
    operator(_name)(_reduction(_function))


@operator("TopK")
def top_k(call: Call, x: Any, k: Any = None) -> Any:
    """The largest or smallest values along an axis, and where they are; of equal ones, the first."""
    axis = call.get("axis", -1)
    count = int(call.get("k") if k is None else np.reshape(k, ()))
    values, places = torch.sort(tensor(x), dim=axis, descending=bool(call.get("largest", 1)), stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)
