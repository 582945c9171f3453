"""Other settings of the optimizers of a training step, in each of their updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import nn

from ..float64.own_step import Change, Optimizers, Steps
from ..float64.replaced import replaced

# The settings of a group in the n-th call of its optimizer, from 0: those that are other ones.
Values = Callable[[dict[str, Any], int], Mapping[str, Any]]


def unchanged(_model: nn.Module, _optimizers: Optimizers) -> AbstractContextManager[object]:
    """The change that changes nothing."""
    return nullcontext()


def all_of(*changes: Change) -> Change:
    """Several changes, in this order: what a later one does before an update comes before what an earlier one does."""

    @contextmanager
    def change(model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
        with ExitStack() as stack:
            for each in changes:
                stack.enter_context(each(model, optimizers))
            yield

    return change


@contextmanager
def with_settings(names: Sequence[str], values: Values, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Give optimizers other settings in each of their calls, and their own ones afterwards."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(in_groups(optimizers[name], values))
        yield


@contextmanager
def in_groups(optimizer: Any, values: Values) -> Iterator[None]:
    calls, own = 0, list[dict[str, Any]]()

    def before() -> None:
        nonlocal calls
        own[:] = [dict(group) for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group.update(values(group, calls))
        calls += 1

    def after() -> None:
        for group, right in zip(optimizer.param_groups, own):
            group.update(right)

    with around_updates(optimizer, before, after):
        yield


@contextmanager
def around_updates(optimizer: Any, before: Callable[[], None], after: Callable[[], None]) -> Iterator[None]:
    """Call functions before and after each update. Contexts within this one are undone before ``after`` is called."""
    own = optimizer.step

    @wraps(own)
    def step(*args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return own(*args, **kwargs)
        finally:
            after()

    with replaced(optimizer, step=step):
        yield


def with_inner(steps: Steps) -> Steps:
    """The same steps, with the optimizers that others hold beside those, as SAM holds the one that makes its updates."""
    start = steps.code.start

    def started(model: nn.Module) -> Any:
        step, optimizers, state = start(model)
        inner = {
            f"{name}.{key}".lstrip("."): value
            for name, each in optimizers.items()
            for key, value in vars(each).items()
            if isinstance(value, torch.optim.Optimizer)
        }
        return step, {**optimizers, **inner}, state

    return replace(steps, code=replace(steps.code, start=started))
