"""A user's own training step in Flax, and what it gives to the optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from xverify.framework.adapter import Array
from xverify.framework.own_state import StoredWeight
from xverify.framework.own_step import BoundStep, Step, Update, watched_calls
from xverify.framework.structures import Natives
from xverify.weights import flax as weights
from xverify.weights.flax_layout import join


def computed(step: BoundStep, mode: str) -> Step:
    """The step in a mode, with everything computed that it changes.

    In the mode jit, ``nnx.jit`` compiles the whole step: it takes the variables out of the model and of the optimizers, and writes
    them back.
    """
    function = nnx.jit(step.function) if mode == "jit" else step.function
    variables = [part.variable for each in weights.named_weights(step.model) for part in each.parts]

    def call(batch: Natives) -> Any:
        losses = function(step.model, step.state, batch)
        jax.block_until_ready([variable[...] for variable in variables])
        return losses

    return call


@contextmanager
def watched_updates(model: Any) -> Iterator[list[Update]]:
    """The gradients that every nnx.Optimizer is given within the context, in the order of its calls. Nothing is compiled in it."""
    places = {id(node.value): node.path for node in weights.nodes(model)}
    named = weights.named_weights(model)

    def note(optimizer: Any, trained: Any, grads: Any, /, **_: Any) -> Update | None:
        if id(trained) not in places:
            return None
        return Update(optimizer, _by_name(named, _by_path(places[id(trained)], grads)))

    with watched_calls([nnx.Optimizer], "update", note) as found, jax.disable_jit():
        yield found


def _by_path(place: str, grads: Any) -> dict[str, Array]:
    """Gradients by the paths of their variables in the whole model. place: the path of the module that they are of."""
    found = {}
    for path, value in nnx.to_flat_state(nnx.state(grads)):
        array = value[...] if isinstance(value, nnx.Variable) else value
        found[".".join(map(str, (*[place] * bool(place), *path)))] = np.asarray(array)
    return found


def _by_name(named: list[Any], found: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients by the names of weights, in canonical layout; those of a weight of which a variable has none are left out."""
    return {
        each.name: join(each, [found[part.path] for part in each.parts])
        for each in named
        if all(part.path in found for part in each.parts)
    }


def stored_weights(module: Any) -> list[StoredWeight]:
    """Every weight of a module, in the layout of Flax."""
    return [
        StoredWeight(each.name, tuple((part.path, part.variable) for part in each.parts), partial(join, each))
        for each in weights.named_weights(module)
    ]


def weight_orders(model: Any) -> Iterable[Iterable[Any]]:
    """The variables of a model as ``nnx.state`` lists them: the parameters, and all of them."""
    variables = {part.path: part.variable for each in weights.named_weights(model) for part in each.parts}
    paths = [
        [".".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(model, *kind))]
        for kind in ((nnx.Param,), ())
    ]
    return [[variables.get(path) for path in each] for each in paths]
