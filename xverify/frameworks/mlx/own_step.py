"""A user's own training step in MLX, what it gives to the optimizers, and what they keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mlx import core, nn, optimizers

from xverify.errors import Unsupported
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import BoundStep, Step, Update, optimizers_by_name, watched_calls
from xverify.framework.structures import Natives
from xverify.frameworks.mlx.adapter import Compiled
from xverify.frameworks.mlx.optimizers import flat
from xverify.frameworks.mlx.training import by_name
from xverify.weights import mlx as weights
from xverify.weights.flax_layout import join

# Class of an optimizer -> array of its state -> torch's name of what is kept there, where the formula is torch's.
KINDS = {
    "SGD": {"v": "momentum_buffer"},
    "Adam": {"m": "exp_avg", "v": "exp_avg_sq"},
    "Lion": {"m": "exp_avg"},
    "RMSprop": {"v": "square_avg"},
    "Adagrad": {"v": "sum"},
}


def computed(step: BoundStep, mode: str) -> Step:
    """The step in a mode, with everything computed that it changes.

    In the mode compile, ``mx.compile`` makes one graph of the whole step, which reads and changes the model and the optimizers.
    """
    found = list(
        optimizers_by_name(step.state, step.model, lambda value: isinstance(value, optimizers.Optimizer)).values()
    )
    kept = step.state if isinstance(step.state, (dict, list)) else []
    held = [step.model.state, [each.state for each in found], kept, core.random.state]
    function: Any = step
    if mode == "compile":
        if not all(_initialized(each) for each in found):
            raise Unsupported(
                "a compiled step reads the state of its optimizers from the start: call "
                "optimizer.init(model.trainable_parameters()) in train_state, or name mlx:eager"
            )
        function = Compiled(core, step, held, held)

    def call(batch: Natives) -> Any:
        losses = function(batch)
        core.eval(losses, held)
        return losses

    return call


def _initialized(optimizer: Any) -> bool:
    if isinstance(optimizer, optimizers.MultiOptimizer):
        return all(map(_initialized, optimizer.optimizers))
    return bool(optimizer._initialized)


@contextmanager
def watched_updates(model: Any) -> Iterator[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls. Nothing is compiled in it."""
    places = {id(node.value): node.path for node in weights.nodes(model) if isinstance(node.value, nn.Module)}
    named = weights.named_weights(model)

    def note(optimizer: Any, gradients: Any, parameters: Any, /, **_: Any) -> Update | None:
        if isinstance(parameters, nn.Module) and id(parameters) not in places:
            return None
        place = places.get(id(parameters), "")
        found = {".".join(filter(None, (place, path))): array for path, array in flat(gradients).items()}
        return Update(optimizer, by_name(named, found))

    core.disable_compile()
    try:
        with watched_calls([optimizers.Optimizer, optimizers.MultiOptimizer], "apply_gradients", note) as found:
            yield found
    finally:
        core.enable_compile()


def stored_weights(module: Any) -> list[StoredWeight]:
    """Every weight of a module, in the layout of MLX."""
    return [
        StoredWeight(each.name, tuple((part.path, part.variable.value) for part in each.parts), partial(join, each))
        for each in weights.named_weights(module)
    ]


def slots(optimizer: Any) -> Iterator[Slot]:
    """What an optimizer keeps of every parameter, by the names of its state."""
    if isinstance(optimizer, optimizers.MultiOptimizer):
        for number, each in enumerate(optimizer.optimizers):
            yield Slot(str(number), each, nested=True)
        return
    kinds = {key: kind for each in type(optimizer).__mro__ for key, kind in KINDS.get(each.__name__, {}).items()}
    found: dict[str, dict[str, Any]] = {}
    for path, array in flat(optimizer.state).items():
        place, _, key = path.rpartition(".")
        if place:
            found.setdefault(key, {})[place] = array
    yield Slot("step", optimizer.step)
    for key, arrays in found.items():
        yield Slot(kinds.get(key, key), arrays)
