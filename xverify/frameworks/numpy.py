"""numpy: the reference adapter. It needs no framework, so the engine's own tests run on it.

A model is any callable of arrays with a dictionary ``weights`` of canonical arrays, computing in the dtype of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xverify.framework.adapter import Framework, Source


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    return model


class Adapter(Framework):
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

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            model.weights[name] = array.astype(model.weights[name].dtype)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return {name: np.array(array, dtype=np.float32) for name, array in model.weights.items()}

    def to_native(self, array: np.ndarray, layout: str | None) -> np.ndarray:
        return array

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        return np.asarray(tensor)

    def wait(self, outputs: Any) -> None:
        """numpy has computed everything when a call returns."""

    def environment(self) -> dict[str, Any]:
        return {"numpy": np.__version__}
