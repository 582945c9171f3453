"""Mistakes of a user's own training step that change the gradients which its optimizers are given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.own_changes import without_zero_grad
from ..float64.own_step import Optimizers
from ..float64.replaced import hooked, replaced
from .own_mistake import Case, Mistake, the

LEAST_SCALE = 16.0  # a power of two from here on is the scale of a loss in half precision, not another mistake


def gradients(case: Case) -> Iterator[Mistake]:
    """The mistakes that change what an optimizer is given."""
    optimizers = case.optimizers
    for name in optimizers:
        one = len(optimizers) == 1
        yield Mistake(
            "zeroing", f"the gradients of {the(name)} are not zeroed", partial(without_zero_grad, [name], one)
        )
    if len(optimizers) > 1:
        yield Mistake("zeroing", "gradients are not zeroed", partial(without_zero_grad, list(optimizers), True))
    yield Mistake(
        "detach", "a detach is missing, so that a loss also trains weights that it must not train", _without_detach
    )
    says = "torch.no_grad is missing, so that gradients flow through what torch.py computes without"
    yield Mistake("detach", says, _without_no_grad)
    for late, other in permutations(optimizers, 2):
        says = f"the gradients of {the(other)} are computed with stale weights: those before the update of {the(late)}"
        yield Mistake("order", says, partial(_late_update, late, other))
    says = "only the last backward pass of a step counts: the gradients of those before it are zeroed or overwritten"
    yield Mistake("accumulation", says, _last_pass)
    says = (
        "the update is given the gradients of the first backward pass of a step; torch.py gives it those of a later one"
    )
    yield Mistake("first pass", says, around=_first_pass)
    says = (
        "the gradients that torch.autograd.grad returns are taken as constants, as without create_graph (first order)"
    )
    yield Mistake("first order", says, _first_order)


def scales(case: Case) -> Iterator[Mistake]:
    """Gradients that are the same multiple of the right ones in all steps, without the loss that is returned."""
    factor = case.port.factor
    if not math.isfinite(factor) or not factor or abs(factor - 1) <= 1e-3:
        return
    rounded = float(f"{factor:.4g}")
    says = f"the gradients of {' and '.join(map(the, case.names))} are {rounded:g} times those of torch.py, and the loss is right"
    power = math.log2(abs(rounded)) if rounded > 0 else math.nan
    if rounded == -1:
        says = f"the gradients of {' and '.join(map(the, case.names))} have the opposite sign"
    elif rounded >= LEAST_SCALE and power == round(power):
        says += ", such as those of a scaled loss (loss scale) that are not unscaled"
    yield Mistake("scale of gradients", says, partial(_scaled, case.names, rounded))


@contextmanager
def _scaled(names: Sequence[str], factor: float, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Multiply the gradients that optimizers are given."""

    def before(optimizer: Any, *_: Any) -> None:
        for each in (each for group in optimizer.param_groups for each in group["params"] if each.grad is not None):
            each.grad = each.grad * factor  # a new tensor: the step may add to the old one

    with hooked([optimizers[name].register_step_pre_hook(before) for name in names]):
        yield


@contextmanager
def _last_pass(_model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Every backward pass begins with gradients of zero."""
    backward = Tensor.backward

    @wraps(backward)
    def first_zeroing(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        backward(tensor, *args, **kwargs)

    with replaced(Tensor, backward=first_zeroing):
        yield


@contextmanager
def _first_pass(model: nn.Module) -> Iterator[None]:
    """Every later backward pass of a step leaves the gradients of the first one."""
    backward, first = Tensor.backward, list[tuple[nn.Parameter, Tensor]]()

    @wraps(backward)
    def keeping(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        backward(tensor, *args, **kwargs)
        if not first:
            first.extend((each, each.grad.clone()) for each in model.parameters() if each.grad is not None)
        for each, gradient in first:
            each.grad = gradient.clone()

    with replaced(Tensor, backward=keeping):
        yield


@contextmanager
def _first_order(_model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """``torch.autograd.grad`` returns tensors through which no gradient flows."""
    grad = torch.autograd.grad

    @wraps(grad)
    def constant(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        return tuple(each if each is None else each.detach() for each in grad(*args, **kwargs))

    with replaced(torch.autograd, grad=constant):
        yield


@contextmanager
def _without_detach(_model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """``detach`` returns the tensor itself. A graph is then used by several backward passes, and must be kept."""
    detach, backward = Tensor.detach, Tensor.backward

    def attached(tensor: Tensor) -> Tensor:
        return detach(tensor) if tensor.is_leaf else tensor

    @wraps(backward)
    def keeping(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        backward(tensor, *args, **{**kwargs, "retain_graph": True})

    with replaced(Tensor, detach=attached, backward=keeping):
        yield


@contextmanager
def _without_no_grad(_model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """``torch.no_grad()`` does nothing in the user's code. torch itself has it in decorators, which are made."""
    with replaced(torch, no_grad=nullcontext):
        yield


@contextmanager
def _late_update(late: str, other: str, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Make the update of an optimizer only when the other one makes its own."""
    first, second = optimizers[late], optimizers[other]
    update_first, update_second = first.step, second.step
    pending: list[list[tuple[Tensor, Tensor]]] = []

    def keep(*_: Any) -> None:
        given = [each for group in first.param_groups for each in group["params"] if each.grad is not None]
        pending.append([(each, each.grad.clone()) for each in given])

    def both(*args: Any, **kwargs: Any) -> Any:
        for gradients in pending:
            own = [each.grad for each, _ in gradients]
            for each, gradient in gradients:
                each.grad = gradient
            update_first()
            for (each, _), gradient in zip(gradients, own):
                each.grad = gradient
        pending.clear()
        return update_second(*args, **kwargs)

    with replaced(first, step=keep), replaced(second, step=both):
        yield
