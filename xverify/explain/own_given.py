"""A user's own training step whose optimizers are given the gradients that a port's optimizers were given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from ..float64.fused_scaling import scale_left
from ..float64.own_step import Change, Optimizers
from ..weights.canonical import Array
from .own_updates import around_updates


def given_gradients(
    names: Mapping[str, str], watched: Mapping[str, Array], fused: Mapping[str, tuple[str, ...]]
) -> Change:
    """A change of the reference's steps. It must be made after all others, of which some change the gradients.

    names: name of a parameter -> its canonical name. watched: a port's steps, see TakeOwnSteps. fused: see
        Framework.fused_parameters.
    """
    own = {part: name for name, parts in fused.items() for part in parts}
    keys = dict[str, list[tuple[int, int, str]]]()  # name -> (step, number of the update in it, key) of each gradient
    for key in watched:
        step, what, rest = key.split("/", 2)
        if what == "gradient":
            number, name = rest.split("/", 1)
            keys.setdefault(name, []).append((int(step), int(number), key))

    @contextmanager
    def change(model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
        canonical = {id(parameter): names.get(name, name) for name, parameter in model.named_parameters()}
        left = {place: iter(sorted(keys.get(own.get(name, name), []))) for place, name in canonical.items()}

        def give(optimizer: Any) -> None:
            for each in (each for group in optimizer.param_groups for each in group["params"]):
                found = next(left.get(id(each), iter(())), None)
                if found is not None and (array := watched[found[2]]).shape == each.shape:
                    each.grad = torch.tensor(array).to(each.dtype) * scale_left(optimizer)

        with ExitStack() as stack:
            for optimizer in optimizers.values():
                stack.enter_context(around_updates(optimizer, partial(give, optimizer), lambda: None))
            yield

    return change
