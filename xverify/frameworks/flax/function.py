"""A model of Flax as a pure function, for its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xverify.frameworks.jax.function import Around, Function, plainly
from xverify.weights import flax as weights


class Pure(Function):
    """A module of Flax as a function of its variables. It computes with a copy of the module, so that the module stays as it is."""

    def __init__(self, model: Any) -> None:
        import jax
        from flax import nnx

        self.jax, self.nnx = jax, nnx
        self.definition, state = nnx.split(model)
        self.values, self.structure = jax.tree.flatten(state)
        named = weights.named_weights(model)
        self.trained = [each for each in named if isinstance(each.parts[0].variable, nnx.Param)]
        self.parts = [part for each in self.trained for part in each.parts]
        self.others = [part for each in named for part in each.parts if not isinstance(part.variable, nnx.Param)]

    def present(self) -> tuple[list[Any], list[Any]]:
        return [part.variable[...] for part in self.parts], [part.variable[...] for part in self.others]

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        for part, value in zip([*self.parts, *self.others], [*trained, *others]):
            part.variable.set_value(value)

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        # Variables belong to the pass in which they are made, so they are made again from their values.
        copy = self.nnx.merge(self.definition, self.jax.tree.unflatten(self.structure, self.values))
        variables = [weights.reach(copy, part.path) for part in (*self.parts, *self.others)]
        for variable, value in zip(variables, [*trained, *others]):
            variable.set_value(value)
        with around(copy):
            outputs = copy(*inputs)
        return outputs, [variable[...] for variable in variables[len(self.parts) :]]


def match_norms(model: Any) -> None:
    """Make the batch norms of a model compute as torch's do, permanently.

    Flax computes the variance as E[x²] - E[x]², unless it is told otherwise, and its running variance lacks the factor n/(n - 1).
    """
    from flax import nnx

    for node in weights.nodes(model):
        if isinstance(node.value, nnx.BatchNorm):
            node.value.use_fast_variance = False
            object.__setattr__(node.value, "__class__", _unbiased(type(node.value)))


def _unbiased(kind: Any) -> Any:
    """A class of batch norms whose running variance takes the unbiased variance. kind: the class that it is derived from."""

    def call(norm: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        old, momentum = norm.var[...], norm.momentum
        y = kind.__call__(norm, x, *args, **kwargs)
        if not norm.use_running_average:
            # Flax computes new = m * old + (1 - m) * biased. Torch's value is larger by (1 - m) * biased / (n - 1).
            new, terms = norm.var[...], x.size // x.shape[norm.axis]
            norm.var.set_value(new + (new - momentum * old) / max(1, terms - 1))
        return y

    return type(kind.__name__, (kind,), {"__call__": call})
