"""What a user's own training step gives to the optimizers of Paddle, and what they keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import paddle

from xverify.framework.adapter import Array
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import Update, watched_calls
from xverify.weights import paddle as weights

# Class of an optimizer -> accumulator -> torch's name of what is kept there, where the formula is torch's.
KINDS = {
    # The kernel takes 1 - beta2 in float32, so moment2 is a multiple of torch's: it has no partner, and the update judges it.
    "Adam": {"moment1": "exp_avg"},
    "Momentum": {"velocity": "momentum_buffer"},
    "RMSProp": {"mean_square": "square_avg", "mean_grad": "grad_avg"},
    "Adagrad": {"moment": "sum"},
}


def watched_updates(model: Any) -> AbstractContextManager[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls."""
    named = weights.named_weights(model)

    def note(optimizer: Any, *_: Any, **more: Any) -> Update:
        given = {id(each): each.grad for each in _parameters(optimizer) if each.grad is not None}
        return Update(optimizer, _by_name(named, given))

    kinds = [kind for kind in _with_subclasses(paddle.optimizer.Optimizer) if "step" in vars(kind)]
    return watched_calls(kinds, "step", note)


def _with_subclasses(kind: Any) -> Iterator[Any]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)


def _parameters(optimizer: Any) -> Iterator[Any]:
    """The parameters of an optimizer, also of one with groups."""
    for each in optimizer._parameter_list or ():
        yield from each["params"] if isinstance(each, dict) else [each]


def _by_name(named: list[weights.NamedWeight], given: dict[int, Any]) -> dict[str, Array]:
    """Gradients in canonical layout. given: id of a parameter -> its gradient."""
    return {
        each.name: weights.to_canonical(each, [given[id(part)].numpy() for part in each.parts])
        for each in named
        if all(id(part) in given for part in each.parts)
    }


def stored_weights(module: Any) -> list[StoredWeight]:
    """Every weight of a layer, in the layout of Paddle."""
    return [
        StoredWeight(each.name, tuple((part.name, part) for part in each.parts), partial(weights.to_canonical, each))
        for each in weights.named_weights(module)
    ]


def slots(optimizer: Any) -> Iterator[Slot]:
    """What an optimizer keeps of every parameter, by the names of Paddle's accumulators."""
    kinds = {key: kind for each in type(optimizer).__mro__ for key, kind in KINDS.get(each.__name__, {}).items()}
    parameters = {each.name: each for each in _parameters(optimizer)}
    for key, kept in optimizer._accumulators.items():
        pairs = [(parameters[name], value) for name, value in kept.items() if name in parameters]
        alike = [(own, value) for own, value in pairs if tuple(own.shape) == tuple(value.shape)]
        if alike:
            yield Slot(kinds.get(key, key), of=alike)
