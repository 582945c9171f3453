"""What a user's own training step gives to the optimizers of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from xverify.framework.own_step import Update, watched_calls


def watched_updates(framework: Any, model: Any) -> AbstractContextManager[list[Update]]:
    """The gradients that every optimizer is given within the context, in the order of its calls. It must run eagerly."""
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    trainable = framework.trainable(model)

    def note(optimizer: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Update:
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        given = [None if gradient is None else framework.dense(gradient) for gradient in grads]
        known = {id(variable) for variable in variables}
        named = [each for each in trainable if all(id(piece.variable) in known for piece in each.pieces)]
        return Update(optimizer, framework.by_name(named, variables, given))

    return watched_calls([BaseOptimizer], "apply", note)
