"""Keras 3 on torch, eager. It runs the folder's tensorflow.py."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from xverify.frameworks._keras import Keras, canonical, native
from xverify.frameworks._torch import OnTorch


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.forward(model)


class Adapter(OnTorch, Keras):
    name = "keras-torch"
    needs = {"keras": "keras", "torch": "torch"}
    modes = {"eager": eager}
    bare = "eager"
    backend = "torch"

    def __init__(self, threads: int, device: str) -> None:
        import keras
        import torch

        self.use(torch, threads, device)
        take_dotted_names()
        self.keras = keras

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        return {**super().variables(threads, device), "KERAS_TORCH_DEVICE": device}

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        return self.torch.from_numpy(native(array, layout)).to(self.device)

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        return canonical(tensor.detach().cpu().numpy(), layout)

    def environment(self) -> dict[str, Any]:
        return {
            self.name: self.keras.__version__,
            "torch": self.torch.__version__,
            "threads": self.torch.get_num_threads(),
            **self.device_facts(),
        }

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.torch.inference_mode()
        return context


def take_dotted_names() -> None:
    """Let Keras' layers be called as torch's modules are, ``layer1.0.conv1``.

    A Keras layer registers its variables with torch under their paths, ``layer1.0.conv1/kernel``, and torch takes no dot in
    the name of a parameter: KeyError. So only the name that torch gets is another; Keras' names and keys stay.
    """
    import torch
    from keras.src.backend.torch.layer import TorchLayer

    class Parameters(torch.nn.ParameterDict):
        def _key_to_attr(self, key: str) -> str:
            return key.replace(".", "·")

    def track_variables(layer: Any) -> None:
        layer._torch_params = Parameters({variable.path: variable.value for variable in layer.variables})

    TorchLayer._track_variables = track_variables
