"""Keras and TensorFlow models: variables to canonical names and layout, by a table, a kind of layer at a time.

A Keras layer's name is the canonical name of the torch module it stands for ("layer1.0.conv1"). A tf.Module that is not
Keras' keeps canonical names and layout itself: its variable ``fc1.weight`` is the attribute ``weight`` of ``fc1``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xverify.errors import WeightsError

# Keras class -> {variable: (canonical name, axes)} with canonical = variable.transpose(axes); None: as it is.
LAYERS: dict[str, dict[str, tuple[str, tuple[int, ...] | None]]] = {
    "Dense": {"kernel": ("weight", (1, 0)), "bias": ("bias", None)},
    "Conv1D": {"kernel": ("weight", (2, 1, 0)), "bias": ("bias", None)},
    "Conv2D": {"kernel": ("weight", (3, 2, 0, 1)), "bias": ("bias", None)},  # HWIO -> OIHW
    "Conv2DTranspose": {"kernel": ("weight", (3, 2, 0, 1)), "bias": ("bias", None)},  # HWOI -> IOHW
    "BatchNormalization": {
        "gamma": ("weight", None),
        "beta": ("bias", None),
        "moving_mean": ("running_mean", None),
        "moving_variance": ("running_var", None),
    },
    "LayerNormalization": {"gamma": ("weight", None), "beta": ("bias", None)},
    "Embedding": {"embeddings": ("weight", None)},
}

Slot = tuple[str, Any, tuple[int, ...] | None]


def slots(model: Any) -> list[Slot]:
    """(canonical name, variable, axes) of every weight of the model.

    Raises WeightsError for a kind of layer that the table does not know, or a name that stands twice.
    """
    import keras

    found = list(_keras_slots(model)) if isinstance(model, keras.layers.Layer) else list(_module_slots(model))
    names = [name for name, _, _ in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WeightsError(f"two variables are called {twice[0]!r}: give every layer the name of its torch module")
    return found


def _keras_slots(model: Any) -> Any:
    layers = list(model._flatten_layers(include_self=True))
    known: set[int] = set()
    for layer in layers:
        # A subclass of a Keras layer is its parent with other behaviour: the same variables.
        table = next((LAYERS[kind.__name__] for kind in type(layer).__mro__ if kind.__name__ in LAYERS), None)
        if table is None:
            continue
        for variable in layer.variables:
            if variable.name in table:
                name, axes = table[variable.name]
                known.add(id(variable))
                yield f"{layer.name}.{name}", variable, axes
    for layer in layers:
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            if id(variable) not in known and "seed" not in variable.name:
                kinds = ", ".join(sorted(LAYERS))
                raise WeightsError(
                    f"{type(layer).__name__} {layer.name!r} keeps {variable.name!r}, which has no known canonical form; "
                    f"known layers: {kinds}"
                )


def _module_slots(model: Any) -> Any:
    import tensorflow as tf

    for path, variable in model._flatten(predicate=lambda value: isinstance(value, tf.Variable), with_path=True):
        yield ".".join(str(part) for part in path), variable, None


def from_model(model: Any) -> dict[str, np.ndarray]:
    """Every weight of the built model in canonical names and layout."""
    return {name: _to_canonical(np.array(variable.numpy()), axes) for name, variable, axes in slots(model)}


def to_model(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Assign every weight; names and shapes must have been checked."""
    for name, variable, axes in slots(model):
        array = arrays[name]
        variable.assign(np.ascontiguousarray(array if axes is None else array.transpose(np.argsort(axes))))


def _to_canonical(array: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    return np.ascontiguousarray(array if axes is None else array.transpose(axes))
