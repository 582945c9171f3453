"""Flax on JAX, compiled and eager. Images are fed in its native layout, N,H,W,C.

A model is a ``flax.nnx.Module`` whose attributes have the names of torch's modules; weights/flax.py has the table of its layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from xverify.framework.adapter import Array, Source
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import BoundStep, Step
from xverify.framework.training import Batch, Training
from xverify.frameworks.flax.function import Pure, match_norms
from xverify.frameworks.jax.base import Jax
from xverify.frameworks.jax.function import Function
from xverify.frameworks.jax.ranks import as_divided
from xverify.frameworks.keras.base import canonical, native
from xverify.weights import flax as weights
from xverify.workload.optimizers import Optimizer
from xverify.workload.ranks import PLANS


def jit(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the model as a function of its variables, which are taken out of the module once.

    It is the fast way to call a model of Flax: ``nnx.jit`` takes them out in every call.
    """
    definition, variables = framework.nnx.split(model)

    def pure(variables: Any, *inputs: Any) -> Any:
        return framework.nnx.merge(definition, variables)(*inputs)

    return framework.compiled(pure, variables)


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the module, which runs operation by operation."""
    return model


class Adapter(Jax):
    name = "flax"
    weights_module = weights
    needs = {"flax": "flax", "jax": "jax"}
    libraries = ("flax",)
    modes = {"jit": jit, "eager": eager}
    implicit_mode = "jit"
    layer_method = "__call__"
    channels_last = True
    trains = True
    takes_recipe = True
    plans = tuple(PLANS)

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        import flax
        from flax import nnx

        self.flax, self.nnx = flax, nnx

    def is_model(self, made: Any) -> bool:
        return isinstance(made, self.nnx.Module)

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        self.jax.config.update("jax_enable_x64", float64)  # without this setting, arrays of 64 bits become arrays of 32
        model = self.define(source, options)
        model.eval()
        if float64:
            self._widen(model)
        return model

    def _widen(self, model: Any) -> None:
        """Make a model float64: its weights, and what its layers are told to compute in."""
        wide = self.jax.numpy.float64
        for node in weights.nodes(model):
            if isinstance(node.value, self.nnx.Variable):
                continue
            for setting in ("dtype", "param_dtype"):  # the second is that of the first state of a recurrent layer, too
                said = getattr(node.value, setting, None)
                if said is not None and np.dtype(said) == np.float32:
                    setattr(node.value, setting, wide)
        for weight in weights.named_weights(model):
            for part in weight.parts:
                part.variable.set_value(self.jax.numpy.asarray(part.variable[...], wide))

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        if self.ranked is None:
            super().load_weights(model, arrays)
            return
        function = self.pure(model)
        before = function.present()
        super().load_weights(model, arrays)
        function.write(*(list(map(as_divided, *each)) for each in zip(function.present(), before)))

    def precisions(self, model: Any) -> dict[str, str]:
        return {each.name: str(each.parts[0].variable[...].dtype) for each in weights.named_weights(model)}

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = weights.fused_parameters(model)
        return found

    def layers(self, model: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = weights.layers(model)
        return found

    def to_native(self, array: Array, layout: str | None) -> Any:
        return super().to_native(native(array, layout), layout)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        tensor = tensor[...] if isinstance(tensor, self.nnx.Variable) else tensor
        return canonical(super().to_numpy(tensor, layout), layout)

    def disable_dropout(self, model: Any) -> list[str]:
        changed = []
        for node in weights.nodes(model):
            for setting in ("rate", "dropout_rate"):  # of nnx.Dropout, and of nnx.MultiHeadAttention
                named = setting == "dropout_rate" or isinstance(node.value, self.nnx.Dropout)
                if named and isinstance(node.value, self.nnx.Module) and getattr(node.value, setting, None):
                    setattr(node.value, setting, 0.0)
                    changed.append(node.name)
        return changed

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        model.train()
        if match:
            match_norms(model)
        return super().training(model, mode, batch, optimizer, match)

    def own_step(self, step: BoundStep, mode: str) -> Step:
        from xverify.frameworks.flax.own_step import computed

        return computed(step, mode)

    def train(self, model: Any) -> None:
        model.train()

    def is_optimizer(self, value: Any) -> bool:
        return isinstance(value, self.nnx.Optimizer)

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self.nnx.Module)

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        from xverify.frameworks.flax.own_step import stored_weights

        return stored_weights(module)

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        from xverify.frameworks.flax.own_step import weight_orders

        return weight_orders(model)

    def slots(self, value: Any) -> Iterable[Slot] | None:
        if self.is_optimizer(value):
            return [Slot("step", value.step), Slot("opt_state", value.opt_state, nested=True)]
        return super().slots(value)

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        from xverify.frameworks.flax.own_step import watched_updates

        return watched_updates(model)

    def pure(self, model: Any) -> Function:
        return Pure(model)

    def alias(self, tensor: Any) -> Any:
        return tensor[...] if isinstance(tensor, self.nnx.Variable) else tensor

    def environment(self) -> dict[str, object]:
        return {"flax": self.flax.__version__, "jax": self.jax.__version__, "threads": self.threads}
