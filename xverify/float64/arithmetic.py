"""Float64 arithmetic for a model of torch whose code asks for float32, as in ``t.float()`` or ``torch.arange(8.0)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from .rounding import has_no_memory, settled

WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_NARROWER = {wide: narrow for narrow, wide in WIDER.items()}
LOWER = {torch.float16: torch.float64, torch.bfloat16: torch.float64}
# Operations whose result is random numbers and nothing else.
DRAWS = {
    *("rand", "rand_like", "randn", "randn_like", "normal", "bernoulli", "multinomial"),
    *("uniform_", "normal_", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_"),
}
# Operations of torch.amp.GradScaler, which take their scale and what they found in float32 alone.
SCALING = {"_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"}

DRAWING, SCALED, WRITING, GROUPED = "drawing", "scaled", "writing", "grouped"


class _Widening(TorchDispatchMode):
    """Replaces float32 by float64 in the arguments of every operation that does not overwrite one of them.

    lower: whether to replace float16 and bfloat16, too.
    count: of the operations that it has changed in this process.
    """

    count = 0

    def __init__(self, lower: bool) -> None:
        super().__init__()
        self.wider = {**WIDER, **LOWER} if lower else WIDER

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kind, wider = _kind(func), self.wider
        named = dict(kwargs or {})
        if cuts_off(func, args, named):
            args = settled(args[0], roundings=0.5), *args[1:]
        narrow = named.get("dtype") in wider or any(_has_narrow(wider, each) for each in (*args, *named.values()))
        if kind in ("", WRITING) and not narrow:
            return func(*args, **named)
        _Widening.count += 1
        if kind == DRAWING:
            return _drawn(func, args, named)
        if kind == SCALED:
            return _scaling(func, args)
        widened = partial(_widened, wider)
        if kind == GROUPED and [each.dim() for each in args] == [2, 3, 1]:
            return _grouped_product(*tree_map(widened, args))
        if "dtype" in named:
            named["dtype"] = wider.get(named["dtype"], named["dtype"])
        if kind == WRITING:
            return func(*args, **named)
        return func(*tree_map(widened, args), **tree_map(widened, named))


def cuts_off(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether an operation cuts off the digits of float64 values."""
    name = func.overloadpacket.__name__
    if name == "_to_copy":
        dtype = named.get("dtype")
        if dtype is None or dtype.is_floating_point or dtype.is_complex or dtype is torch.bool:
            return False
    elif name not in ("floor", "ceil", "trunc"):
        return False
    return bool(args[0].dtype == torch.float64) and not has_no_memory(args[0])


@cache
def _kind(func: Any) -> str:
    """What an operation does that is not computed in float64 as it stands; "" for all others."""
    if func.overloadpacket.__name__ in DRAWS:
        return DRAWING
    if func.overloadpacket.__name__ in SCALING:
        return SCALED
    if func.overloadpacket.__name__ == "_grouped_mm":
        return GROUPED
    return WRITING if func._schema.is_mutable or func.is_view else ""  # a view must be one of the given tensor


def _has_narrow(wider: Mapping[torch.dtype, torch.dtype], value: Any) -> bool:
    """Whether an argument of an operation is a tensor with one of these dtypes, or a list with one."""
    if isinstance(value, torch.Tensor):
        return value.dtype in wider
    return isinstance(value, (list, tuple)) and any(_has_narrow(wider, each) for each in value)


def _drawn(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Random numbers as they are drawn in float32, so that a seeded table of a constructor has the same values."""
    with _default_dtype(torch.float32):
        if not func._schema.is_mutable:
            return _widened(WIDER, func(*tree_map(_narrowed, args), **tree_map(_narrowed, dict(kwargs))))
        target, *others = args
        drawn = torch.empty_like(target, dtype=_NARROWER.get(target.dtype, target.dtype))
        return target.copy_(func(drawn, *tree_map(_narrowed, others), **kwargs))


def _scaling(func: Any, args: tuple[Any, ...]) -> Any:
    """A step of a scaler of gradients. Its scale is a power of two, which float32 holds; the gradients stay in float64."""
    own = [_narrowed(value) for value in args]
    result = func(*own)
    for argument, given, value in zip(func._schema.arguments, args, own):
        if value is not given and argument.alias_info is not None:
            given.copy_(value)
    return args[0] if result is own[0] else result


def _grouped_product(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The product of each group of rows and the matrix of its group, for which torch has no kernel in float64.

    rows: (rows, in). matrices: (groups, in, out). ends: (groups,), the end of each group of rows.
    """
    sizes = ends.diff(prepend=ends.new_zeros(1)).tolist()
    left = rows.new_zeros(len(rows) - sum(sizes), matrices.shape[-1])
    parts = [part @ matrix for part, matrix in zip(rows[: sum(sizes)].split(sizes), matrices.unbind())]
    return torch.cat([*parts, left])


def _narrowed(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype is torch.float64 else value


def _widened(wider: Mapping[torch.dtype, torch.dtype], value: Any) -> Any:
    return value.to(wider[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in wider else value


def changed_operations() -> int:
    """How many operations ``float64_arithmetic`` has changed in this process."""
    return _Widening.count


def default_of_float64() -> AbstractContextManager[None]:
    """Arithmetic in float64 of code that asks for no other, which is faster than ``float64_arithmetic``."""
    return _default_dtype(torch.float64)


@contextmanager
def float64_arithmetic(lower: bool = False) -> Iterator[None]:
    """Compute everything in float64 within the context, whatever the code of the model asks for.

    Code that is written for float32 names it: a conversion of time steps, a table of frequencies, the dtype of a softmax. The
    float64 model must not round there, and a layer with float64 weights would refuse float32 inputs.

    lower: whether to compute in float64 also where the code asks for float16 or bfloat16.
    """
    with _default_dtype(torch.float64), _Widening(lower):
        yield


@contextmanager
def given_arithmetic() -> Iterator[None]:
    """Compute as the code asks within the context, although a surrounding context changes its arithmetic."""
    if torch.get_default_dtype() is torch.float32:
        yield
        return
    with _disable_current_modes(), _default_dtype(torch.float32):
        yield


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)
