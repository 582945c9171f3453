"""Keras and TensorFlow models: their variables in canonical names and layout, by a table with one entry per kind of layer.

The name of a Keras layer is the canonical name of the torch module that it corresponds to ("layer1.0.conv1"). A tf.Module that is
not a Keras layer uses canonical names and layout itself: its variable ``fc1.weight`` is the attribute ``weight`` of ``fc1``.

A user's Keras layer declares its variables with attributes of the class or of the instance, which are like entries of the tables:

    canonical_weights = {"variable": ("canonical suffix", axes or None)}     as an entry of LAYERS
    canonical_sums = {"canonical suffix": ("part", "part")}                  as an entry of SUMS, where torch has several tensors
    canonical_name = "lstm"                                                  where it differs from the name of the layer

``canonical_name = ""`` says that the variables belong to the model itself: ``cls_token``, and not ``tokens.cls_token``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays

# Order of axes with canonical = variable.transpose(axes); None: the layouts are the same.
Axes = tuple[int, ...] | None

# Keras class -> {variable: (canonical suffix, axes)}.
LAYERS: dict[str, dict[str, tuple[str, Axes]]] = {
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

# Keras class -> {canonical suffix: torch's tensors whose sum Keras stores}. Both have the gates in the order i, f, g, o.
SUMS: dict[str, dict[str, tuple[str, ...]]] = {
    "LSTMCell": {"bias": ("bias_ih", "bias_hh")},
    "LSTM": {"bias_l0": ("bias_ih_l0", "bias_hh_l0")},
}


class NamedVariable(NamedTuple):
    """A variable of a model with its canonical name and layout.

    name: canonical name. variable: the framework's variable. axes: see Axes.
    """

    name: str
    variable: Any
    axes: Axes


class Declaration(NamedTuple):
    """What is known about a Keras layer.

    module: canonical name of the torch module. weights: an entry of LAYERS. sums: an entry of SUMS.
    """

    module: str
    weights: Mapping[str, tuple[str, Axes]]
    sums: Mapping[str, tuple[str, ...]]


def named_variables(model: Any) -> list[NamedVariable]:
    """Every weight of the model.

    Raises WeightsError for a kind of layer that is not in the table, or when two variables have the same name.
    """
    import keras

    of_model = _keras_variables if isinstance(model, keras.layers.Layer) else _module_variables
    found = list(of_model(model))
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WeightsError(f"two variables are called {twice[0]!r}: give every layer the name of its torch module")
    return found


def _keras_variables(model: Any) -> Iterator[NamedVariable]:
    layers = list(model._flatten_layers(include_self=True))
    known: set[int] = set()
    for layer in layers:  # a layer precedes the layers inside it, so an LSTM declares the variables of its cell
        declared = _declaration(layer)
        for variable in layer.variables:
            if variable.name in declared.weights and id(variable) not in known:
                suffix, axes = declared.weights[variable.name]
                known.add(id(variable))
                yield NamedVariable(_inside(declared.module, suffix), variable, axes)
    for layer in layers:
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            if id(variable) not in known and "seed" not in variable.name:
                raise WeightsError(
                    f"{type(layer).__name__} {layer.name!r} has the variable {variable.name!r}, whose canonical form is not "
                    f"known; known layers: {', '.join(sorted(LAYERS))}; in a layer of your own, declare "
                    f'canonical_weights = {{"{variable.name}": ("weight", None)}}'
                )


def _inside(module: str, name: str) -> str:
    """The canonical name of something in a module. module: its canonical name; "" for the model itself."""
    return f"{module}.{name}" if module else name


def _module_variables(model: Any) -> Iterator[NamedVariable]:
    import tensorflow as tf

    for path, variable in model._flatten(predicate=lambda value: isinstance(value, tf.Variable), with_path=True):
        yield NamedVariable(".".join(str(part) for part in path), variable, None)


def _declaration(layer: Any) -> Declaration:
    """The declaration of a layer: its own attributes and, where it has none, the entries of the tables."""
    # A subclass of a Keras layer has the variables of its parent.
    kinds = (kind.__name__ for kind in type(layer).__mro__ if kind.__module__.startswith("keras."))
    kind = next((kind for kind in kinds if kind in LAYERS), "")
    return Declaration(
        getattr(layer, "canonical_name", layer.name),
        getattr(layer, "canonical_weights", LAYERS.get(kind, {})),
        getattr(layer, "canonical_sums", SUMS.get(kind, {})),
    )


def fused_parameters(model: Any) -> dict[str, tuple[str, ...]]:
    """Weights that the model stores as one tensor where torch has several: canonical name -> names of the tensors whose sum it is.

    For example ``{"lstm.bias_l0": ("lstm.bias_ih_l0", "lstm.bias_hh_l0")}``; ``normal_form`` computes the sum.
    """
    import keras

    if not isinstance(model, keras.layers.Layer):
        return {}
    names = {each.name for each in named_variables(model)}
    return {
        _inside(declared.module, total): tuple(_inside(declared.module, part) for part in parts)
        for declared in map(_declaration, model._flatten_layers(include_self=True))
        for total, parts in declared.sums.items()
        if _inside(declared.module, total) in names
    }


def layers(model: Any) -> dict[str, list[Any]]:
    """Canonical name of a torch module -> the Keras layers that correspond to it.

    Models inside the model are no layers, and neither are layers that only hold parameters of the model itself.
    """
    import keras

    found: dict[str, list[Any]] = {}
    if isinstance(model, keras.layers.Layer):
        for layer in model._flatten_layers(include_self=False):
            module = _declaration(layer).module
            if module and not isinstance(layer, (keras.Model, keras.layers.InputLayer)):
                found.setdefault(module, []).append(layer)
    return found


def from_model(model: Any) -> Arrays:
    """Every weight of the built model in canonical names and layout."""
    return {each.name: to_canonical(np.array(each.variable.numpy()), each.axes) for each in named_variables(model)}


def to_model(model: Any, arrays: Arrays) -> None:
    """Assign every weight. arrays: canonical; names and shapes must have been checked."""
    for name, variable, axes in named_variables(model):
        variable.assign(from_canonical(arrays[name], axes))


def to_canonical(array: Array, axes: Axes) -> Array:
    """The array of a variable in canonical layout. axes: see Axes."""
    return np.array(array if axes is None else array.transpose(axes), order="C")


def from_canonical(array: Array, axes: Axes) -> Array:
    """The canonical array in the layout of the variable. axes: see Axes."""
    return np.array(array if axes is None else array.transpose(np.argsort(axes)), order="C")
