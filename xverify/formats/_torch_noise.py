"""Perturbs what every operation of PyTorch is given and returns, in a float64 model, as rounding to float32 would."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xverify.verdict.limits import UNIT, growth

# Operations that copy or select values, and do not round. Views are told by their schema.
COPIES = frozenset({
    "cat", "stack", "clone", "contiguous", "copy_", "_to_copy", "to", "where", "gather", "index", "index_select", "embedding",
    "relu", "relu_", "hardtanh", "clamp", "clamp_min", "clamp_max", "max_pool2d_with_indices", "maximum", "minimum", "amax",
    "amin", "neg", "abs", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d",
    "repeat", "flip", "roll", "masked_fill", "fill_", "zero_", "detach", "scatter", "index_put", "index_put_", "sort", "topk",
    "tril", "triu", "item", "_local_scalar_dense", "native_dropout", "bernoulli", "empty", "empty_like", "zeros", "zeros_like",
    "ones", "ones_like", "full", "full_like", "arange", "scalar_tensor", "lift_fresh",
})  # fmt: skip
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "mv", "dot", "addmv"})
CONVOLUTIONS = frozenset({"convolution", "_convolution", "mkldnn_convolution"})


class RoundedOperations(TorchDispatchMode):
    """A context in which operations are perturbed. TorchScript calls them through the same dispatcher.

    seed: of the random generator.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = function._schema
        name = schema.name.partition("::")[2]
        aliased = any(value.alias_info is not None for value in (*schema.arguments, *schema.returns))
        if aliased or name in COPIES:
            return function(*args, **kwargs)
        size = UNIT * growth(_terms(name, args))
        args = [self._all(value, size) for value in args]
        return self._all(function(*args, **kwargs), UNIT)

    def _all(self, value: Any, size: float) -> Any:
        """A perturbed copy of a tensor, or of a list or tuple of tensors; anything else as it is."""
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            noise = torch.empty(value.shape, dtype=value.dtype).uniform_(-size, size, generator=self.generator)
            # An infinite value, for example in a mask of attention, is not rounded.
            finite = torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
            return torch.addcmul(value, finite, noise.to(value.device))
        if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
            return type(value)(self._all(each, size) for each in value)
        return value


def _terms(name: str, args: Any) -> int:
    """The number of terms that one value of the result sums up; 1 where it is not known."""
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if name in CONVOLUTIONS and len(tensors) > 1:
        return max(1, tensors[1].numel() // max(1, tensors[1].shape[0]))
    if name in PRODUCTS and tensors:
        return int(tensors[-2 if name in ("addmm", "baddbmm") else 0].shape[-1]) if tensors[0].dim() else 1
    if name in (
        "mean",
        "sum",
        "var",
        "std",
        "_softmax",
        "native_layer_norm",
        "native_group_norm",
        "linalg_vector_norm",
    ):
        return int(tensors[0].shape[-1]) if tensors[0].dim() else 1
    return 1
