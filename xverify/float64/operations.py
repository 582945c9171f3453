"""The operations of code that runs in PyTorch, with the rounding of each.

A result is perturbed by its own rounding where the precision does not hold it exactly, and what a sum adds up by the growth of
rounding in a sum. So a perturbed pass contains the conditioning of the code: for an angle t·f with t up to 1000, one unit roundoff
of f is up to 1000 unit roundoffs of the angle, although the inputs are whole numbers, which have no rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from ..verdict.limits import UNIT, growth
from .arithmetic import cuts_off, float64_arithmetic
from .rounding import (
    Noise,
    has_no_memory,
    rounded_log_softmax,
    rounded_logsumexp,
    rounded_softmax,
    settled,
    sums_exactly,
)
from .summed_gradients import rounding_one_by_one

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
REDUCTIONS = frozenset(("sum", "mean", "prod", "var", "std", "var_mean", "linalg_vector_norm", "norm"))
SOFTMAXES = {
    "_softmax": rounded_softmax, "_safe_softmax": rounded_softmax, "softmax": rounded_softmax,
    "_log_softmax": rounded_log_softmax, "log_softmax": rounded_log_softmax,
}  # fmt: skip
# Functions that libraries approximate with an absolute precision: results near 0 have few digits. -> what it is relative to. ONNX
# Runtime's sigmoid has an error of up to three unit roundoffs of 1, and XLA computes it as half of 1 + tanh(x/2).
# The gradient of GELU, Φ(x) + x·φ(x), has the absolute error of the error function; with tanh, x·(1 − tanh²) has that of tanh, too.
APPROXIMATED: Mapping[str, Callable[..., Tensor]] = {
    "sigmoid": torch.ones_like,
    "silu": torch.abs,
    "gelu": lambda x, **_: x.abs(),
    "gelu_backward": lambda g, x, approximate="none": (
        g.abs() * (x.abs().clamp(min=1.0) if approximate == "tanh" else 1.0)
    ),
}
GRADIENTS = ("gelu_backward",)  # those of APPROXIMATED that are gradients
ENDS = 90.0  # beyond this argument, a sigmoid is 0 or 1 in float32
ONE_ROUNDING = 4  # terms of a sum up to which its growth is that of a single rounding


Key = tuple[str, tuple[tuple[int, ...], ...]]  # an operation: its name, and the shapes of its first arguments


def key_of(name: str, args: tuple[Any, ...]) -> Key:
    """An operation by which it is found again when the same code runs in another precision."""
    return name, tuple(tuple(each.shape) for each in args if isinstance(each, Tensor))


# Parts of the names of operations whose sums ``_terms`` does not count.
OTHER_SUMS = (
    "scatter", "index_add", "bag", "fft", "rnn", "lstm", "gru", "linalg", "dist", "pool", "norm", "logcum", "trace", "upsample",
    "attention", "solve", "inverse",
)  # fmt: skip


class Counting(TorchDispatchMode):
    """Counts the terms of the longest sum among the operations that run. terms: it; 0 where one is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        softmax = name in SOFTMAXES and args[0].dim()
        terms = int(args[0].shape[args[1]]) if softmax else _terms(name.rstrip("_"), args)
        known = terms > 1 or not any(part in name for part in OTHER_SUMS)
        self.terms = max(self.terms, terms) if known and self.terms else 0
        return func(*args, **(kwargs or {}))


class _Perturbing(TorchDispatchMode):
    """Perturbs the results of every operation that rounds, and the arguments of sums by the growth of their rounding.

    units: operation -> unit roundoff, of those that compute in a lower precision than float32. settles: see ``Models``.
    """

    def __init__(self, noise: Noise, units: Mapping[Key, float], settles: bool = True) -> None:
        super().__init__()
        self.noise, self.units, self.settles = noise, units, settles

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._perturbed(func, args, dict(kwargs or {}))

    def _perturbed(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        name = func._schema.name.partition("::")[2]
        if func.is_view or name in COPIES:
            if self.settles and cuts_off(func, args, named):
                args = settled(args[0], self.noise.unit), *args[1:]
            return func(*args, **named)
        unit = self.units.get(key_of(name, args)) if self.units else None
        if unit is not None:
            return self._lower(func, name, args, named, unit)
        if name in SOFTMAXES or name == "logsumexp":
            return self._softmax(func, name, args, named)
        if name.rstrip("_") in APPROXIMATED:
            size = _size(name.rstrip("_"), args, named)
            found = _changed(func(*args, **named), self.noise.round_)
            return found if size is None else found.add_(self._approximation(size, found))
        terms = 1 if func._schema.is_mutable else _terms(name, args)
        change = self.noise.round_
        if terms > 1 and not sums_exactly(_tensors(args), terms, self.noise.unit):
            change = self.noise.perturb_
            if terms > ONE_ROUNDING:
                size = self.noise.rounding(terms)
                args = tree_map_only(Tensor, lambda tensor: self.noise.argument(tensor, size), args)
        return tree_map_only(Tensor, lambda tensor: _changed(tensor, change), func(*args, **named))

    def _lower(self, func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any], unit: float) -> Any:
        """An operation in a lower precision: what it takes and what it returns is rounded.

        Products are added up in float32, and so their rounding does not grow; a plain sum is added up in the precision by some
        frameworks.
        """
        size = unit * growth(_terms(name, args)) if name in REDUCTIONS and name != "sum" else unit
        if not func._schema.is_mutable:
            args = tree_map_only(Tensor, lambda tensor: self.noise.argument(tensor, size), args)
        found = func(*args, **named)
        if name == "sum":
            found = found + self._added_up(args[0], _axes(args), unit).view_as(found)
        elif name == "convolution_backward" and found[2] is not None:  # the last is the gradient of the bias
            axes = [0, *range(2, args[0].dim())]
            found = *found[:2], found[2] + self._added_up(args[0], axes, unit)
        return tree_map_only(Tensor, lambda tensor: _changed(tensor, partial(self.noise.perturb_, size=unit)), found)

    def _added_up(self, x: Tensor, axes: Sequence[int], unit: float) -> Tensor:
        """The error of a plain sum over these axes, of which each addition rounds the sum so far.

        In a backward pass, where it is the gradient of a bias, it loses small terms: TensorFlow adds up such gradients alone so.
        """
        kept = [axis for axis in range(x.dim()) if axis not in axes]
        terms = x.permute(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)
        in_backward = torch._C._current_graph_task_id() >= 0  # torch has no public name for it
        size = rounding_one_by_one(terms, unit, losing=in_backward) * math.sqrt(
            3
        )  # uniform: its mean square is a third
        return self.noise.perturbed(size, 1.0) - size

    def _approximation(self, size: Tensor, found: Tensor) -> Tensor:
        """The error of an approximated function. Where all results are small, it counts as an error of this size and no larger."""
        size = torch.fmin(size, found.square().mean().sqrt())
        return self.noise.perturbed(size, UNIT) - size

    def _softmax(self, func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A softmax or logsumexp with the rounding of its parts."""
        x = args[0]
        if named or x.dtype != torch.float64 or not x.numel() or not x.dim():
            return tree_map_only(Tensor, lambda tensor: _changed(tensor, self.noise.round_), func(*args, **named))
        if name == "logsumexp":
            axes = [axis % x.dim() for axis in args[1]] or list(range(x.dim()))
            return rounded_logsumexp(x, axes, len(args) > 2 and bool(args[2]), self.noise)
        found = SOFTMAXES[name](x, args[1], self.noise)
        if name == "_safe_softmax":  # of a row of nothing but -inf: zeros
            found = torch.where((x == -math.inf).all(args[1], keepdim=True), 0.0, found)
        return found


class _PerturbingUncompiled(_Perturbing):
    """The same for code that is not compiled. It does not import torch's compiler, which takes a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # torch's own switch
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._perturbed(func, args, dict(kwargs or {}))


class _PerturbingGradients(_Perturbing):
    """Perturbs the results of approximated gradients alone."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in GRADIENTS:
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def _size(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor | None:
    """What the error of an approximated function of x is relative to; None for a result without noise."""
    x = args[1] if name in GRADIENTS else args[0]
    if x.dtype != torch.float64 or not x.numel() or has_no_memory(x):
        return None
    return torch.where(x.abs() < ENDS, APPROXIMATED[name](*args, **named), 0.0)


def _changed(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """A result of an operation, changed in place."""
    if tensor.is_complex():
        _changed(torch.view_as_real(tensor), change)
    elif tensor.dtype == torch.float64 and tensor.numel() and not has_no_memory(tensor):
        if tensor.is_contiguous():
            change(tensor)
        else:  # it may be a part of a larger tensor that an operation overwrote
            tensor.copy_(change(tensor.clone(memory_format=torch.contiguous_format)))
    return tensor


def _tensors(args: Any) -> list[Tensor]:
    return [value for value in tree_iter(args) if isinstance(value, Tensor)]


def _terms(name: str, args: tuple[Any, ...]) -> int:
    """The number of terms that one value of an operation's result sums up; 1 for an operation that is no sum."""
    tensors = _tensors(args)
    if not tensors or not all(tensor.is_floating_point() for tensor in tensors) or not tensors[0].dim():
        return 1
    first = tensors[0]
    if name in ("mm", "bmm", "mv", "dot"):
        return int(first.shape[-1])
    if name in ("addmm", "baddbmm", "addmv"):
        return int(tensors[1].shape[-1])
    if name == "cumsum":
        return int(first.shape[args[1]])
    if name in REDUCTIONS:
        return math.prod(first.shape[axis] for axis in _axes(args))
    if name == "native_layer_norm":
        return math.prod(args[1])
    if name in ("convolution", "_convolution"):
        return math.prod(tensors[1].shape[1:])
    if name.startswith("_scaled_dot_product"):
        return int(max(first.shape[-1], tensors[1].shape[-2]))
    return 1


def _axes(args: tuple[Any, ...]) -> list[int]:
    """The axes of its first argument over which a reduction sums up."""
    count = args[0].dim()
    given = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) and args[1] else range(count)
    return [axis % count for axis in given]


@contextmanager
def perturbed_operations(
    noise: Noise, units: Mapping[Key, float] | None = None, compiled: bool = True, settles: bool = True
) -> Iterator[None]:
    """Compute with the rounding of every operation. Attention is split into its operations: its mask does not round.

    units: operation -> unit roundoff, of those that compute in a lower precision than float32.
    compiled: whether a part of the code may be compiled by torch. settles: see ``Models``.
    """
    mode = _Perturbing if compiled else _PerturbingUncompiled
    with mode(noise, units or {}, settles), sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def perturbed_arithmetic(
    noise: Noise, units: Mapping[Key, float] | None = None, lower: bool = False, settles: bool = True
) -> Iterator[None]:
    """Compute in float64, with the rounding of every operation: the arithmetic of a perturbed pass.

    units: see ``perturbed_operations``. lower: see ``float64_arithmetic``. settles: see ``Models``.
    """
    with (
        perturbed_operations(noise, units, settles=settles),
        float64_arithmetic(lower),
    ):  # the inner one sees an operation first
        yield


@contextmanager
def perturbed_gradients(noise: Noise | None) -> Iterator[None]:
    """A backward pass in which gradients that libraries approximate have their error. None: nothing is perturbed."""
    with nullcontext() if noise is None else _PerturbingGradients(noise, {}):
        yield
