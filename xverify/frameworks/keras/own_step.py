"""What a user's own training step gives to the optimizers of Keras, what they keep, and what the step draws."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from xverify.framework.generators import Noted, replaced, watched
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import Update, watched_calls
from xverify.weights import tensorflow as weights
from xverify.weights.canonical import Array

# Class of an optimizer -> attribute -> torch's name of what is kept there, where the formula is torch's. The momentum of SGD is a
# multiple of torch's.
KINDS: Mapping[str, Mapping[str, str]] = {
    "Adam": {"_momentums": "exp_avg", "_velocities": "exp_avg_sq", "_velocity_hats": "max_exp_avg_sq"},
    "Nadam": {"_momentums": "exp_avg", "_velocities": "exp_avg_sq"},
    "Adamax": {"_m": "exp_avg"},
    "Lion": {"_momentums": "exp_avg"},
    "SGD": {"momentums": "momentum_buffer"},
    "RMSprop": {"_velocities": "square_avg", "_average_gradients": "grad_avg"},
    "Adagrad": {"_accumulators": "sum"},
    "Adadelta": {"_accumulated_grads": "square_avg", "_accumulated_delta_vars": "acc_delta"},
}
SETTINGS = ("_learning_rate",)  # of an optimizer; variables that are none of its state

# The modules with the operations of TensorFlow that draw from a generator; those that are given a seed are in others.
DRAWING = ("tensorflow.python.ops.gen_random_ops", "tensorflow.python.ops.gen_stateful_random_ops")


@contextmanager
def watched_updates(framework: Any, model: Any) -> Iterator[list[Update]]:
    """The gradients that every optimizer uses within the context, in the order of its calls.

    Nothing is compiled in it, as ``fit`` and ``train_on_batch`` would do.
    """
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    trainable = framework.trainable(model)

    def note(optimizer: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Update:
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        used = _used(optimizer, grads, variables)
        given = [None if gradient is None else framework.dense(gradient) for gradient in used]
        known = {id(variable) for variable in variables}
        named = [each for each in trainable if all(id(piece.variable) in known for piece in each.pieces)]
        return Update(optimizer, framework.by_name(named, variables, given))

    with watched_calls([BaseOptimizer], "apply", note) as found, framework.uncompiled():
        yield found


@contextmanager
def watched_draws(note: Noted) -> Iterator[None]:
    """Within the context, ``note`` is told the name of every function that draws: of Keras, TensorFlow, numpy and python."""
    from keras.src.random.seed_generator import SeedGenerator

    places: list[tuple[Any, str]] = [(SeedGenerator, "next")]
    for module in (sys.modules[name] for name in DRAWING if name in sys.modules):
        places += [(module, name) for name, value in vars(module).items() if name.islower() and _is_operation(value)]
    with watched(note), ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(replaced(owner, name, _noting(getattr(owner, name), note)))
        yield


def _is_operation(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and getattr(value, "__module__", "") in DRAWING


def _noting(function: Callable[..., Any], note: Noted) -> Callable[..., Any]:
    @wraps(function)
    def noting(*arguments: Any, **more: Any) -> Any:
        note("a generator of Keras" if function.__name__ == "next" else function.__name__)
        return function(*arguments, **more)

    return noting


def _used(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """The gradients after the optimizer's own clipping, which clips their mean where it accumulates; None where there is none."""
    steps = optimizer.gradient_accumulation_steps
    clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
    if not clips or (steps and (int(optimizer._iterations) + 1) % steps):
        return list(gradients)
    pairs = [(gradient, each) for gradient, each in zip(gradients, variables) if gradient is not None]
    if steps:
        sums = optimizer._accumulated_gradients
        pairs = [((gradient + sums[optimizer._get_variable_index(each)]) / steps, each) for gradient, each in pairs]
    clipped = iter(optimizer._clip_gradients([gradient for gradient, _ in pairs]))
    return [None if each is None else next(clipped) for each in gradients]


def stored_weights(module: Any) -> list[StoredWeight]:
    """Every weight of a model or layer, in the layout of Keras."""
    return [
        StoredWeight(each.name, tuple((piece.variable.path, piece.variable) for piece in each.pieces), _joining(each))
        for each in weights.named_variables(module)
    ]


def _joining(named: weights.NamedVariable) -> Any:
    """The function that makes the canonical weight of the arrays of its pieces."""

    def join(arrays: Sequence[Array]) -> Array:
        of = {id(piece.variable): array for piece, array in zip(named.pieces, arrays)}
        return weights.canonical(named, lambda variable: of[id(variable)])

    return join


def weight_orders(model: Any) -> Iterable[Iterable[Any]]:
    """The variables of a model as Keras lists them."""
    return [
        list(getattr(model, name)) for name in ("trainable_variables", "weights", "variables") if hasattr(model, name)
    ]


def slots(optimizer: Any) -> Iterator[Slot]:
    """What an optimizer keeps: lists of variables beside those that it trains, counters, and an optimizer within it."""
    if not optimizer.built:
        return
    trained = list(optimizer._trainable_variables)
    kinds = {key: kind for name in _classes(optimizer) for key, kind in KINDS.get(name, {}).items()}
    yield Slot("step", optimizer.iterations)
    for key, value in vars(optimizer).items():
        if key in ("_iterations", "_trainable_variables", "_variables", *SETTINGS) or key.startswith("_self_"):
            continue
        if isinstance(value, (list, tuple)) and len(value) == len(trained):
            pairs = [
                (own, each) for own, each in zip(trained, value) if hasattr(each, "shape") and each.shape == own.shape
            ]
            if pairs:
                yield Slot(kinds.get(key, key.strip("_")), of=pairs)
                value = [
                    each for own, each in zip(trained, value) if not hasattr(each, "shape") or each.shape != own.shape
                ]
        if hasattr(value, "shape") or (isinstance(value, (list, tuple)) and value) or key == "inner_optimizer":
            yield Slot(key.strip("_"), value, nested=True)


def _classes(optimizer: Any) -> list[str]:
    """The names of the classes of an optimizer, its own last."""
    return [kind.__name__ for kind in reversed(type(optimizer).__mro__)]
