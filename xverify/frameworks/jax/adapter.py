"""JAX, compiled and eager.

A model is an object with a dictionary ``weights`` of canonical arrays, and a pure function ``apply`` of these weights and the
inputs. Names and layout are torch's:

    class Net:
        def __init__(self):
            self.weights = {"fc.weight": np.zeros((10, 784), np.float32)}

        def apply(self, weights, x):
            return x @ weights["fc.weight"].T

A model computes in the dtype of its weights. Its training changes all of them, with an optimizer of optax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Source
from xverify.framework.own_state import StoredWeight
from xverify.framework.own_step import BoundStep, Step
from xverify.frameworks.jax.base import Jax
from xverify.frameworks.jax.function import Around, Function, plainly
from xverify.frameworks.jax.ranks import as_divided
from xverify.weights.flax_layout import NamedWeight, Part
from xverify.workload.ranks import PLANS


def jit(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the model."""
    return framework.compiled(model.apply, model.weights)


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the model operation by operation."""
    return lambda *inputs: model.apply(model.weights, *inputs)


class Adapter(Jax):
    name = "jax"
    needs = {"jax": "jax"}
    modes = {"jit": jit, "eager": eager}
    implicit_mode = "jit"
    trains = True
    takes_recipe = True
    plans = tuple(PLANS)

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        self.jax.config.update("jax_enable_x64", float64)  # without this setting, arrays of 64 bits become arrays of 32
        model = self.define(source, options)
        dtype = np.float64 if float64 else np.float32
        model.weights = {name: self.jax.numpy.asarray(array, dtype) for name, array in model.weights.items()}
        return model

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        for name, array in arrays.items():
            present = model.weights[name]
            model.weights[name] = as_divided(self.jax.numpy.asarray(array, present.dtype), present)

    def save_weights(self, model: Any) -> dict[str, Array]:
        return {name: np.array(array, dtype=np.float32) for name, array in model.weights.items()}

    def precisions(self, model: Any) -> dict[str, str]:
        return {name: str(array.dtype) for name, array in model.weights.items()}

    def own_step(self, step: BoundStep, mode: str) -> Step:
        from xverify.frameworks.jax.own_step import computed

        return computed(step, mode)

    changes_in_place = False

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        return [StoredWeight(name, ((name, array),)) for name, array in module.weights.items()]

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        return (self.jax.tree.leaves(model.weights),)

    def pure(self, model: Any) -> Function:
        return Pure(model)

    def decoder_code(self, model: Any) -> Callable[..., Any]:
        code: Callable[..., Any] = model.apply
        return code

    def decoder_call(self, model: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        return model.apply(model.weights, *inputs, **given)

    def environment(self) -> dict[str, object]:
        return {"jax": self.jax.__version__, "threads": self.threads}


class Pure(Function):
    """The function ``apply`` of a model and its weights."""

    def __init__(self, model: Any) -> None:
        statistics = sorted(name for name in model.weights if name.endswith(("running_mean", "running_var")))
        if statistics:
            raise Unsupported(f"{statistics[0]} is a running statistic, which the function apply cannot change")
        self.model, self.names = model, list(model.weights)
        self.trained = [NamedWeight(name, (Part(name, None),)) for name in self.names]

    def present(self) -> tuple[list[Any], list[Any]]:
        return [self.model.weights[name] for name in self.names], []

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        self.model.weights.update(zip(self.names, trained))

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        with around(self.model):
            return self.model.apply(dict(zip(self.names, trained)), *inputs), []
