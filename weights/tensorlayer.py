"""TensorLayer models: weights to canonical names and layout, by a table, a kind of layer at a time.

A layer's name is the canonical name of the torch module it stands for, as in tensorflow.py, whose layouts these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xverify.errors import WeightsError

from . import tensorflow

# TensorLayer class -> {attribute: (canonical name, axes)} with canonical = weight.transpose(axes); None: as it is.
LAYERS: dict[str, dict[str, tuple[str, tuple[int, ...] | None]]] = {
    "Dense": {"W": tensorflow.LAYERS["Dense"]["kernel"], "b": tensorflow.LAYERS["Dense"]["bias"]},
    "Conv2d": {"W": tensorflow.LAYERS["Conv2D"]["kernel"], "b": tensorflow.LAYERS["Conv2D"]["bias"]},
}


def slots(model: Any) -> list[tensorflow.Slot]:
    """(canonical name, variable, axes) of every weight of the model.

    Raises WeightsError for a kind of layer that the table does not know. TensorLayer itself refuses a name that stands twice.
    """
    found = []
    for layer in model.all_layers:
        kind = type(layer).__name__
        for attribute, (suffix, axes) in LAYERS.get(kind, {}).items():
            if hasattr(layer, attribute):
                found.append((f"{layer.name}.{suffix}", getattr(layer, attribute), axes))
        if layer.all_weights and kind not in LAYERS:
            raise WeightsError(
                f"{kind} {layer.name!r} keeps weights that have no known canonical form; known layers: {', '.join(LAYERS)}"
            )
    return found


def from_model(model: Any) -> dict[str, np.ndarray]:
    """Every weight of the built model in canonical names and layout."""
    return {
        name: np.array(variable.numpy().transpose(axes) if axes else variable.numpy(), order="C")
        for name, variable, axes in slots(model)
    }


def to_model(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Assign every weight; names and shapes must have been checked."""
    for name, variable, axes in slots(model):
        variable.assign(arrays[name].transpose(np.argsort(axes)) if axes else arrays[name])
