"""What a user's own training step gives to the optimizers of Paddle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paddle

from xverify.framework.own_step import Update
from xverify.weights import paddle as weights


@contextmanager
def watched_updates(model: Any) -> Iterator[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls."""
    found: list[Update] = []
    named = weights.named_weights(model)
    kinds = [kind for kind in _with_subclasses(paddle.optimizer.Optimizer) if "step" in vars(kind)]
    own = {kind: kind.step for kind in kinds}
    inside: list[Any] = []  # the optimizer whose step runs: that of a class may call that of its base

    def watching(step: Any) -> Any:
        def watched(optimizer: Any, *arguments: Any, **more: Any) -> Any:
            if inside:
                return step(optimizer, *arguments, **more)
            given = {id(each): each.grad for each in _parameters(optimizer) if each.grad is not None}
            found.append(Update(optimizer, _by_name(named, given)))
            inside.append(optimizer)
            try:
                return step(optimizer, *arguments, **more)
            finally:
                inside.clear()

        return watched

    for kind in kinds:
        kind.step = watching(own[kind])
    try:
        yield found
    finally:
        for kind in kinds:
            kind.step = own[kind]


def _with_subclasses(kind: Any) -> Iterator[Any]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)


def _parameters(optimizer: Any) -> Iterator[Any]:
    """The parameters of an optimizer, also of one with groups."""
    for each in optimizer._parameter_list or ():
        yield from each["params"] if isinstance(each, dict) else [each]


def _by_name(named: list[weights.NamedWeight], given: dict[int, Any]) -> dict[str, Any]:
    """Gradients in canonical layout. given: id of a parameter -> its gradient."""
    return {
        each.name: weights.to_canonical(each, [given[id(part)].numpy() for part in each.parts])
        for each in named
        if all(id(part) in given for part in each.parts)
    }
