"""Mistakes with copies of the model in the state of a user's own training step: the model itself is called in place of a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch import nn

from ..float64.own_step import Optimizers
from ..float64.replaced import replaced
from .own_mistake import Case, Mistake
from .own_recording import norms
from .own_statistics import BIASED, with_biased_variance
from .own_updates import all_of


def copies(case: Case) -> Iterator[Mistake]:
    """Calls of the model where torch.py calls a copy of it, such as a target network or a frozen reference."""
    says = "the step computes with the model itself where torch.py computes with a copy of it, which its state holds"
    for more, through in (("", False), (", and lets the gradient through", True)):
        yield Mistake("copy", f"{says}{more}", partial(_itself, through))
        if norms(case.model):
            change = all_of(with_biased_variance, partial(_itself, through))
            yield Mistake("copy", f"{says}{more}, and {BIASED}", change)


@contextmanager
def _itself(through: bool, model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """Call the part of the model that a module is a copy of. through: whether ``torch.no_grad()`` does nothing."""
    call, own = nn.Module.__call__, set(model.modules())
    originals: dict[nn.Module, nn.Module | None] = {}

    def original(module: nn.Module) -> nn.Module | None:
        if module not in originals:
            shapes = _shapes(module)
            same = (each for each in model.modules() if type(each) is type(module) and _shapes(each) == shapes)
            originals[module] = next(same, None) if shapes else None
        return originals[module]

    @wraps(call)
    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        other = None if module in own else original(module)
        return call(module if other is None else other, *args, **kwargs)

    with replaced(nn.Module, __call__=called), replaced(torch, no_grad=nullcontext) if through else nullcontext():
        yield


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in module.named_parameters()}
