"""The operations of the reference's own code, which is glue code and layers that are not torch's, with their rounding.

The perturbed pass perturbs the result of each of these operations by its own rounding, and what a sum adds up by the growth of
rounding in a sum. So the pass contains the conditioning of this code: for an angle t·f with t up to 1000, one unit roundoff of
f is up to 1000 unit roundoffs of the angle, although the inputs are whole numbers, which have no rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..frameworks._float64 import float64_arithmetic
from .perturbation import Noise
from .structures import flatten, map_tensors

# Operations that copy, select or compare values, or whose results float32 holds exactly.
COPIES = frozenset((
    "_to_copy", "clone", "copy", "copy_", "lift_fresh", "detach", "contiguous", "_unsafe_view", "_reshape_copy",
    "view_copy", "cat", "stack", "split", "chunk", "index", "index_put", "index_put_", "index_select", "index_copy",
    "gather", "take", "embedding", "where", "masked_fill", "masked_fill_", "masked_select", "masked_scatter",
    "scatter", "scatter_", "select_scatter", "slice_scatter", "constant_pad_nd", "reflection_pad1d",
    "reflection_pad2d", "replication_pad1d", "replication_pad2d", "flip", "roll", "rot90", "repeat",
    "repeat_interleave", "tile", "tril", "triu", "diag_embed", "relu", "relu_", "threshold", "clamp", "clamp_",
    "clamp_min", "clamp_max", "hardtanh", "maximum", "minimum", "max", "min", "amax", "amin", "fmax", "fmin",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "sort", "topk", "kthvalue", "median",
    "cummax", "cummin", "argsort", "unique", "neg", "neg_", "abs", "sign", "sgn", "floor", "ceil", "round", "trunc",
    "relu6", "zeros", "zeros_like", "ones", "ones_like", "new_zeros", "new_ones", "empty", "empty_like", "new_empty",
    "empty_strided", "fill", "fill_", "zero_", "eye", "one_hot", "bernoulli", "native_dropout", "pixel_shuffle",
    "pixel_unshuffle", "upsample_nearest1d", "upsample_nearest2d", "_upsample_nearest_exact2d", "im2col",
    "_local_scalar_dense", "item", "complex", "view_as_complex", "view_as_real", "real", "imag", "conj",
))  # fmt: skip
# Operations that sum up all values of their first argument, or those of the axes that they are given.
REDUCTIONS = frozenset(("sum", "mean", "prod", "var", "std", "var_mean", "logsumexp", "linalg_vector_norm", "norm"))


class _Perturbing(TorchDispatchMode):
    """Perturbs the results of every operation that rounds, and the arguments of sums by the growth of their rounding."""

    def __init__(self, noise: Noise) -> None:
        super().__init__()
        self.noise = noise

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name = func._schema.name.partition("::")[2]
        if func.is_view or name in COPIES:
            return func(*args, **named)
        terms = 1 if func._schema.is_mutable else _terms(name, args)
        if terms > 4:  # up to 4 terms, the growth is that of a single rounding
            size = self.noise.rounding(terms)
            args = map_tensors(args, lambda tensor: self.noise.perturbed(tensor, size))
        return map_tensors(func(*args, **named), self._rounded)

    def _rounded(self, tensor: Tensor) -> Tensor:
        """Perturb the values of a result in place."""
        if tensor.is_complex():
            self._rounded(torch.view_as_real(tensor))
        elif tensor.is_floating_point() and tensor.numel():
            if tensor.is_contiguous():
                self.noise.perturb_(tensor)
            else:  # it may be a part of a larger tensor that an operation overwrote
                tensor.copy_(self.noise.perturbed(tensor))
        return tensor


def _terms(name: str, args: tuple[Any, ...]) -> int:
    """The number of terms that one value of an operation's result sums up; 1 for an operation that is no sum."""
    tensors = flatten(args)
    if not tensors or not all(tensor.is_floating_point() for tensor in tensors) or not tensors[0].dim():
        return 1
    first = tensors[0]
    if name in ("mm", "bmm", "mv", "dot"):
        return int(first.shape[-1])
    if name in ("addmm", "baddbmm", "addmv"):
        return int(tensors[1].shape[-1])
    if name in ("_softmax", "_log_softmax", "_safe_softmax", "cumsum"):
        return int(first.shape[args[1]])
    if name in REDUCTIONS:
        axes = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) and args[1] else range(first.dim())
        return math.prod(first.shape[axis] for axis in axes)
    if name == "native_layer_norm":
        return math.prod(args[1])
    if name in ("convolution", "_convolution"):
        return math.prod(tensors[1].shape[1:])
    if name.startswith("_scaled_dot_product"):
        return int(max(first.shape[-1], tensors[1].shape[-2]))
    return 1


@contextmanager
def perturbed_arithmetic(noise: Noise) -> Iterator[None]:
    """Compute in float64, with the rounding of every operation."""
    with _Perturbing(noise), float64_arithmetic():  # the inner one sees an operation first
        yield
