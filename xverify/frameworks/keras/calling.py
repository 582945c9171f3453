"""How a Keras model takes its inputs: one by one, as a list, or as a mapping by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from xverify.errors import Failed

# Native inputs in the order of the spec -> the positional arguments of the model.
Arguments = Callable[[Sequence[Any]], tuple[Any, ...]]
WRONG_FORM = (TypeError, AttributeError)  # what a model raises that reads a list by name, or a tensor as a list


def one_by_one(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Every input is an argument."""
    return tuple(inputs)


def listed(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The only argument is a list."""
    return (list(inputs),)


def by_name(names: Sequence[str]) -> Arguments:
    """The only argument is a mapping. names: of the inputs."""
    return lambda inputs: (dict(zip(names, inputs)),)


def is_layer(model: Any) -> bool:
    """Whether a model is a layer of Keras, and no other module of TensorFlow."""
    import keras

    return isinstance(model, keras.layers.Layer)


def is_functional(model: Any) -> bool:
    """Whether a model was made of its symbolic inputs and outputs."""
    import keras

    return isinstance(model, keras.src.models.functional.Functional)


def of_functional(model: Any, names: Sequence[str]) -> Arguments:
    """How a functional model takes its inputs. Raises Failed when it takes a mapping with other names than those of the spec."""
    if not isinstance(model.input, dict):
        return lambda inputs: one_by_one(inputs) if len(inputs) == 1 else listed(inputs)
    if set(model.input) != set(names):
        own, wanted = ", ".join(map(repr, model.input)), ", ".join(map(repr, names))
        raise Failed(
            f"the Keras model takes a mapping of {own}; the inputs of spec.py are {wanted}: use the same names"
        )
    return by_name(names)


def of_call(model: Any, names: Sequence[str]) -> Iterator[tuple[str, Arguments]]:
    """The ways in which a subclassed model may take its inputs, each with its name for a message, the likeliest first.

    A ``call`` with fewer parameters than the spec has inputs takes all of them in its first parameter. A model that was called
    knows in which form.
    """
    parameters = inspect.signature(model.call).parameters.values()
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [each.name for each in parameters if each.kind in named and each.name not in ("training", "mask")]
    separate = len(taken) >= len(names) or any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    shapes = list((getattr(model, "_build_shapes_dict", None) or {}).values()) if model.built else []
    mapping = len(shapes) == 1 and isinstance(shapes[0], dict)
    if separate and not mapping:
        yield "the inputs one by one" if len(names) > 1 else "a tensor", one_by_one
    if not separate and not mapping:
        yield "a list", listed
    if mapping or len(names) == 1 or not separate:
        yield f"a mapping of {', '.join(map(repr, names))}", by_name(names)
