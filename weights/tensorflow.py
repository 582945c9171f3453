"""Keras and TensorFlow models: variables to canonical names and layout, by a table, a kind of layer at a time.

A Keras layer's name is the canonical name of the torch module it stands for ("layer1.0.conv1"). A tf.Module that is not
Keras' keeps canonical names and layout itself: its variable ``fc1.weight`` is the attribute ``weight`` of ``fc1``.

A Keras layer of one's own says what its variables are, as LAYERS does for Keras' layers:

    canonical_weights = {"variable": ("canonical suffix", axes or None)}     of the class or the instance
    canonical_sums = {"canonical suffix": ("part", "part")}                  as SUMS, when torch has several tensors there
    canonical_name = "lstm"                                                  when it is not the layer's own name
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
    "DepthwiseConv2D": {"kernel": ("weight", (2, 3, 0, 1)), "bias": ("bias", None)},  # HWC1 -> C1HW
    "Conv2DTranspose": {"kernel": ("weight", (3, 2, 0, 1)), "bias": ("bias", None)},  # HWOI -> IOHW
    "BatchNormalization": {
        "gamma": ("weight", None),
        "beta": ("bias", None),
        "moving_mean": ("running_mean", None),
        "moving_variance": ("running_var", None),
    },
    "LayerNormalization": {"gamma": ("weight", None), "beta": ("bias", None)},
    "Embedding": {"embeddings": ("weight", None)},
    "LSTMCell": {"kernel": ("weight_ih", (1, 0)), "recurrent_kernel": ("weight_hh", (1, 0)), "bias": ("bias", None)},
    "LSTM": {
        "kernel": ("weight_ih_l0", (1, 0)),
        "recurrent_kernel": ("weight_hh_l0", (1, 0)),
        "bias": ("bias_l0", None),
    },
}

# Keras class -> {canonical name: torch's tensors, of which Keras has the sum alone}. Gates stand in the same order i, f, g, o.
SUMS: dict[str, dict[str, tuple[str, ...]]] = {
    "LSTMCell": {"bias": ("bias_ih", "bias_hh")},
    "LSTM": {"bias_l0": ("bias_ih_l0", "bias_hh_l0")},
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
    for layer in layers:  # a layer stands before those inside it: LSTM speaks for its cell
        name, weights, _ = _form(layer)
        for variable in layer.variables:
            if variable.name in weights and id(variable) not in known:
                suffix, axes = weights[variable.name]
                known.add(id(variable))
                yield f"{name}.{suffix}", variable, axes
    for layer in layers:
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            if id(variable) not in known and "seed" not in variable.name:
                kinds = ", ".join(sorted(LAYERS))
                raise WeightsError(
                    f"{type(layer).__name__} {layer.name!r} keeps {variable.name!r}, which has no known canonical form; "
                    f"known layers: {kinds}; a layer of your own says it as canonical_weights = "
                    f'{{"{variable.name}": ("weight", None)}}'
                )


def _form(layer: Any) -> tuple[str, dict[str, Any], dict[str, tuple[str, ...]]]:
    """The torch module that a Keras layer stands for, its variables, and its sums."""
    # A subclass of a Keras layer is its parent with other behaviour: the same variables.
    kinds = (kind.__name__ for kind in type(layer).__mro__ if kind.__module__.startswith("keras."))
    kind = next((kind for kind in kinds if kind in LAYERS), "")
    return (
        getattr(layer, "canonical_name", layer.name),
        getattr(layer, "canonical_weights", LAYERS.get(kind, {})),
        getattr(layer, "canonical_sums", SUMS.get(kind, {})),
    )


def _module_slots(model: Any) -> Any:
    import tensorflow as tf

    for path, variable in model._flatten(predicate=lambda value: isinstance(value, tf.Variable), with_path=True):
        yield ".".join(str(part) for part in path), variable, None


def fused_parameters(model: Any) -> dict[str, tuple[str, ...]]:
    """What the model stores as one tensor where torch has several: canonical name -> the names whose sum it is.

    ``{"lstm.bias_l0": ("lstm.bias_ih_l0", "lstm.bias_hh_l0")}``; weights.normal_form adds them up.
    """
    import keras

    if not isinstance(model, keras.layers.Layer):
        return {}
    held = {name for name, _, _ in slots(model)}
    forms = [_form(layer) for layer in model._flatten_layers(include_self=True)]
    return {
        f"{name}.{total}": tuple(f"{name}.{part}" for part in parts)
        for name, _, sums in forms
        for total, parts in sums.items()
        if f"{name}.{total}" in held
    }


def layers(model: Any) -> dict[str, list[Any]]:
    """The Keras layers by the torch modules that they stand for; models within the model are not layers of it."""
    import keras

    found: dict[str, list[Any]] = {}
    if isinstance(model, keras.layers.Layer):
        for layer in model._flatten_layers(include_self=False):
            if not isinstance(layer, (keras.Model, keras.layers.InputLayer)):
                found.setdefault(_form(layer)[0], []).append(layer)
    return found


def from_model(model: Any) -> dict[str, np.ndarray]:
    """Every weight of the built model in canonical names and layout."""
    return {name: to_canonical(np.array(variable.numpy()), axes) for name, variable, axes in slots(model)}


def to_model(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Assign every weight; names and shapes must have been checked."""
    for name, variable, axes in slots(model):
        array = arrays[name]
        variable.assign(from_canonical(array, axes))


def to_canonical(array: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    """A variable's array in canonical layout. axes: of LAYERS."""
    return np.array(array if axes is None else array.transpose(axes), order="C")


def from_canonical(array: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    """The array as the variable holds it."""
    return np.array(array if axes is None else array.transpose(np.argsort(axes)), order="C")
