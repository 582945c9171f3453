"""Keras 3 on torch, eager. It builds its model from the folder's tensorflow.py."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from xverify.errors import Failed
from xverify.framework.adapter import Array
from xverify.framework.generators import Noted
from xverify.framework.objective import NOT_DIFFERENTIABLE
from xverify.framework.own_step import Step
from xverify.framework.training import Batch, Training
from xverify.frameworks.keras.base import Gradients, Keras, Pass, canonical, native
from xverify.frameworks.keras.learner import learner
from xverify.frameworks.torch.base import TrainsOnTorch
from xverify.workload.optimizers import Optimizer


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the model directly."""
    return framework.forward(model)


class Adapter(TrainsOnTorch, Keras):
    name = "keras-torch"
    needs = {"keras": "keras", "torch": "torch"}
    modes = {"eager": eager}
    implicit_mode = "eager"
    backend = "torch"
    trains = True
    takes_recipe = True
    mixed = ("bfloat16", "float16")

    def __init__(self, threads: int, device: str) -> None:
        import keras
        import torch

        self.use(torch, threads, device)
        take_dotted_names()
        self.keras = keras

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        return {**super().variables(threads, device), "KERAS_TORCH_DEVICE": device}

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.torch.from_numpy(native(array, layout)).to(self.device)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(self.array(tensor), layout)

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        return learner(self, model, lambda function, variables: function, optimizer, match)

    def own_step(self, step: Step, mode: str) -> Step:
        return step

    @contextmanager
    def watched_draws(self, note: Noted) -> Iterator[None]:
        from xverify.frameworks.torch import random

        with super().watched_draws(note), random.watched_draws(note):
            yield

    def train(self, model: Any) -> None:
        for variable in model.trainable_variables:
            variable.value.grad = None  # no gradient of an earlier state is left

    def differentiate(self, asked: Pass) -> Gradients:
        outputs = asked.forward(*asked.batch[:-1])
        loss = self.loss(outputs, asked.batch[-1])
        if not loss.requires_grad:
            raise Failed(NOT_DIFFERENTIABLE)
        nodes = list(asked.tensors())
        values = [variable.value for variable in asked.variables]
        found = self.torch.autograd.grad(asked.scaled(loss), [*nodes, *values], allow_unused=True)
        return Gradients(outputs, loss.detach(), found[: len(nodes)], found[len(nodes) :])

    def environment(self) -> dict[str, object]:
        return {
            self.name: self.keras.__version__,
            "torch": self.torch.__version__,
            "threads": self.torch.get_num_threads(),
            **self.device_settings(),
        }

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.torch.inference_mode()
        return context


def take_dotted_names() -> None:
    """Allow dots in the names of Keras' layers, as in torch's ``layer1.0.conv1``.

    A Keras layer registers its variables with torch under their paths, e.g. ``layer1.0.conv1/kernel``, and torch allows no dot in
    the name of a parameter (KeyError). This changes only the name that torch gets; Keras' own names and keys stay.
    """
    import torch
    from keras.src.backend.torch.layer import TorchLayer

    class Parameters(torch.nn.ParameterDict):
        def _key_to_attr(self, key: str) -> str:
            return key.replace(".", "·")

    def track_variables(layer: Any) -> None:
        layer._torch_params = Parameters({variable.path: variable.value for variable in layer.variables})

    TorchLayer._track_variables = track_variables
