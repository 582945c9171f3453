"""TensorLayer models: their weights in canonical names and layout, by a table with one entry per kind of layer.

The name of a layer is the canonical name of the torch module that it corresponds to. Layouts are those of tensorflow.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Arrays
from .keras_table import LAYERS as KERAS_LAYERS
from .keras_table import Place
from .tensorflow import NamedVariable, assign, canonical, single

# TensorLayer class -> {attribute: (canonical suffix, axes)}.
LAYERS: dict[str, dict[str, Place]] = {
    "Dense": {"W": KERAS_LAYERS["Dense"]["kernel"], "b": KERAS_LAYERS["Dense"]["bias"]},
    "Conv2d": {"W": KERAS_LAYERS["Conv2D"]["kernel"], "b": KERAS_LAYERS["Conv2D"]["bias"]},
}


def named_variables(model: Any) -> list[NamedVariable]:
    """Every weight of the model.

    Raises WeightsError for a kind of layer that is not in the table. TensorLayer itself refuses a model in which two layers have
    the same name.
    """
    found = []
    for layer in model.all_layers:
        kind = type(layer).__name__
        for attribute, (suffix, axes) in LAYERS.get(kind, {}).items():
            if hasattr(layer, attribute):
                found.append(single(f"{layer.name}.{suffix}", getattr(layer, attribute), axes))
        if layer.all_weights and kind not in LAYERS:
            raise WeightsError(
                f"{kind} {layer.name!r} keeps weights that have no known canonical form; known layers: {', '.join(LAYERS)}"
            )
    return found


def from_model(model: Any) -> Arrays:
    """Every weight of the built model in canonical names and layout."""
    return {each.name: canonical(each, lambda variable: np.array(variable.numpy())) for each in named_variables(model)}


def to_model(model: Any, arrays: Arrays) -> None:
    """Assign every weight. arrays: canonical; names and shapes must have been checked."""
    assign(named_variables(model), arrays)
