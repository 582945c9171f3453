"""Mistakes that are made in a user's own training step of TensorFlow, with optimizers of Keras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from xverify.errors import Unsupported
from xverify.framework.generators import replaced
from xverify.framework.own_mistake import FACTOR, NOT_ZEROED, SCALED, SETTING, SKIPPED, UNCLIPPED, OwnMistake

# The settings of OwnMistake -> the attributes of Keras' optimizers.
SETTINGS = {
    "lr": "learning_rate",
    "beta1": "beta_1",
    "beta2": "beta_2",
    "eps": "epsilon",
    "momentum": "momentum",
    "alpha": "rho",
    "weight_decay": "weight_decay",
}
LIMITS = ("clipnorm", "global_clipnorm", "clipvalue")  # attributes of an optimizer that clips by itself


@contextmanager
def planted(framework: Any, mistake: OwnMistake, model: Any, optimizers: Mapping[str, Any]) -> Iterator[None]:
    """A context in which a mistake is made. optimizers: of the state, by name. Raises Unsupported where it cannot be made."""
    with ExitStack() as changes:
        if mistake.what == SETTING:
            _set(optimizers.get(mistake.optimizer), mistake)
        elif mistake.what == NOT_ZEROED:
            raise Unsupported("TensorFlow keeps no gradients from step to step")
        elif mistake.what == UNCLIPPED:
            changes.enter_context(replaced(tf, "clip_by_global_norm", _unclipped_together))
            changes.enter_context(replaced(tf, "clip_by_norm", lambda gradient, *_, **__: gradient))
            for optimizer in optimizers.values():
                for limit in LIMITS:
                    setattr(optimizer, limit, None)
        elif mistake.what == SKIPPED:
            kept = [each for each in framework.trainable(model) if each.name == mistake.parameter]
            for optimizer in optimizers.values():
                _keep(optimizer, [piece.variable for each in kept for piece in each.pieces])
        else:
            assert mistake.what == SCALED
            changes.enter_context(replaced(tf.GradientTape, "gradient", _scaled(tf.GradientTape.gradient)))
        yield


def _set(optimizer: Any, mistake: OwnMistake) -> None:
    """Change a setting of an optimizer."""
    if optimizer is None:
        raise Unsupported(f"the step of the port has no optimizer {mistake.optimizer!r}")
    name, kind = SETTINGS[mistake.setting], type(optimizer).__name__
    if not hasattr(optimizer, name):
        raise Unsupported(f"{kind} of the port has no {name}")
    try:
        setattr(optimizer, name, mistake.value)
    except TypeError as error:  # its learning rate is a schedule
        raise Unsupported(f"{name} of {kind} cannot be set: {error}") from None


def _keep(optimizer: Any, variables: Sequence[Any]) -> None:
    """Let an optimizer leave these variables as they are."""

    def apply(*args: Any, **more: Any) -> Any:
        plain = [variable if isinstance(variable, tf.Variable) else variable.value for variable in variables]
        before = [tf.identity(variable) for variable in plain]
        result = type(optimizer).apply(optimizer, *args, **more)  # looked up now, because it may be watched
        for variable, value in zip(variables, before):
            variable.assign(value)
        return result

    optimizer.apply = apply


def _unclipped_together(gradients: Sequence[Any], _limit: Any, *_: Any, **__: Any) -> tuple[Sequence[Any], Any]:
    """What ``tf.clip_by_global_norm`` returns with a limit that no gradient reaches."""
    return gradients, tf.linalg.global_norm(gradients)


def _scaled(gradient: Any) -> Any:
    """``tf.GradientTape.gradient`` of a loss that is multiplied by FACTOR."""

    def larger(gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(FACTOR * gradient.values, gradient.indices, gradient.dense_shape)
        return gradient if gradient is None else FACTOR * gradient

    def scaled(tape: Any, *args: Any, **more: Any) -> Any:
        found = gradient(tape, *args, **more)
        if isinstance(found, (list, tuple)):
            return type(found)(larger(each) for each in found)
        return larger(found)

    return scaled
