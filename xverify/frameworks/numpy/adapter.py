"""numpy: the smallest adapter. It needs no framework, so the tests of the engine run on it.

A model is a callable of arrays with a dictionary ``weights`` of canonical arrays. It computes in the dtype of its weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.runner import OnArrays


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the model directly."""
    return model


class Adapter(OnArrays, Framework):
    name = "numpy"
    needs = {"numpy": "numpy"}
    modes = {"eager": eager}
    implicit_mode = "eager"

    def __init__(self, threads: int, device: str) -> None:
        self.threads = threads

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        model = self.define(source, options)
        if float64:
            model.weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
        return model

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        for name, array in arrays.items():
            model.weights[name] = array.astype(model.weights[name].dtype)

    def save_weights(self, model: Any) -> dict[str, Array]:
        return {name: np.array(array, dtype=np.float32) for name, array in model.weights.items()}

    def precisions(self, model: Any) -> dict[str, str]:
        return {name: array.dtype.name for name, array in model.weights.items()}

    def to_native(self, array: Array, layout: str | None) -> Array:
        return array

    def environment(self) -> dict[str, object]:
        return {"numpy": np.__version__}
