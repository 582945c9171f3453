"""Keras 3 on JAX, compiled and eager. It builds its model from the folder's tensorflow.py."""

from __future__ import annotations

from typing import Any

from xverify.framework.adapter import Array
from xverify.frameworks._jax import Jax
from xverify.frameworks._keras import Keras, canonical, native


def jit(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the model, with its variables as arguments."""
    forward = framework.forward(model)

    def stateless(values: list[Any], *inputs: Any) -> Any:
        with framework.keras.StatelessScope(list(zip(model.variables, values))):
            return forward(*inputs)

    return framework.compiled(stateless, [variable.value for variable in model.variables])


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the model operation by operation."""
    return framework.forward(model)


class Adapter(Keras, Jax):
    name = "keras-jax"
    needs = {"keras": "keras", "jax": "jax"}
    modes = {"jit": jit, "eager": eager}
    implicit_mode = "jit"
    backend = "jax"

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        import keras

        self.keras = keras

    def to_native(self, array: Array, layout: str | None) -> Any:
        return super().to_native(native(array, layout), layout)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(super().to_numpy(tensor, layout), layout)

    def environment(self) -> dict[str, object]:
        return {self.name: self.keras.__version__, "jax": self.jax.__version__, "threads": self.threads}
