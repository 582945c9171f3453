"""MLX: eager, and compiled with mx.compile. Images are fed in its native layout, N,H,W,C.

A model is a ``mlx.nn.Module`` whose attributes have the names of torch's modules; weights/mlx.py has the table of its layers.
MLX computes when a value is needed: a call returns arrays that ``mx.eval`` computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import TrainingRecorder, recording
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import BoundStep, Step
from xverify.framework.structures import leaves, without_classes
from xverify.framework.training import BackwardPass, Batch, Training
from xverify.frameworks.keras.base import canonical, native
from xverify.weights import mlx as weights
from xverify.workload.operations import Operations
from xverify.workload.optimizers import Optimizer


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the module: it records operations, which are computed when the outputs are waited for."""
    return model


def compiled(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the module with ``mx.compile``. Its arrays are inputs of the graph, so that it computes with their present values."""
    return Compiled(framework.core, lambda *inputs: without_classes(model(*inputs)), [model.state])


class Compiled:
    """A compiled function that counts its graphs. inputs, outputs: containers of arrays that it reads and that it changes."""

    def __init__(self, core: Any, function: Callable[..., Any], inputs: Any, outputs: Any = None) -> None:
        self.graphs = 0

        def traced(*arguments: Any) -> Any:  # it runs once for each graph
            self.graphs += 1
            return function(*arguments)

        self.call = core.compile(traced, inputs=inputs, outputs=outputs)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)


class Adapter(Framework):
    name = "mlx"
    weights_module = weights
    needs = {"mlx": "mlx"}
    modes = {"eager": eager, "compile": compiled}
    implicit_mode = "eager"
    layer_method = "__call__"
    channels_last = True
    trains = True
    takes_recipe = True
    changes_in_place = False  # an update puts new arrays into a model

    def __init__(self, threads: int, device: str) -> None:
        from mlx import core, nn

        self.core, self.nn, self.threads = core, nn, threads
        core.set_default_device(core.cpu)

    @classmethod
    def refuses(cls, folder: Any, mode: str) -> str:
        flow = folder.spec.control_flow
        if mode == "compile" and flow:
            return f"{flow}, and a compiled graph holds one path only"
        return super().refuses(folder, mode)

    def is_model(self, made: Any) -> bool:
        return isinstance(made, self.nn.Module)

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if float64:
            raise Unsupported(
                "MLX has no convolution in float64, and its exp and erf have the precision of float32 there: it is no reference"
            )
        model = self.define(source, options)
        model.eval()
        return model

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = weights.fused_parameters(model)
        return found

    def precisions(self, model: Any) -> dict[str, str]:
        return {each.name: _dtype(each.parts[0].variable.value) for each in weights.named_weights(model)}

    def to_native(self, array: Array, layout: str | None) -> Any:
        array = native(array, layout)
        return self.core.array(array, getattr(self.core, array.dtype.name, None))

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        if tensor.dtype == self.core.bfloat16:  # numpy has no such type
            tensor = tensor.astype(self.core.float32)
        return canonical(np.array(tensor), layout)

    def wait(self, outputs: Any) -> None:
        """Compute these outputs, which is what evaluating a model means in MLX, and wait for the device."""
        self.core.eval(leaves(outputs))
        self.core.synchronize()

    def layers(self, model: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = weights.layers(model)
        return found

    def environment(self) -> dict[str, object]:
        return {"mlx": self.core.__version__, "threads": self.threads, "mlx_device": str(self.core.default_device())}

    def release_memory(self) -> None:
        self.core.clear_cache()

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        if isinstance(call, Compiled):
            return call.graphs
        owner: Any = getattr(call, "__self__", None)  # of Learner.step
        return owner.graphs() if hasattr(owner, "graphs") else None

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        norms = [layer for layer in model.modules() if isinstance(layer, self.nn.BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 1.0  # running statistics are then those of the last call
            norm.train()  # only batch norms; dropout stays off
        self.core.eval(leaves(model(*inputs)))
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
        model.eval()

    # -- training ------------------------------------------------------------------------------------------------------

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        from xverify.frameworks.mlx.training import Learner

        return Learner(self, model, mode, optimizer, match)

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
        return self.nn.losses.cross_entropy(logits, target, reduction="mean")

    @cached_property
    def operations(self) -> Operations:
        from xverify.frameworks.mlx.operations import MlxOperations

        return MlxOperations()

    def alias(self, tensor: Any) -> Any:
        """The array itself: ``captured_step`` tells the two apart in another way."""
        return tensor

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        from xverify.frameworks.mlx.training import gradients_of_pass

        outputs, loss, gradients = gradients_of_pass(self, model, batch)
        if tensors():
            raise Unsupported("MLX has no gradient with respect to an array inside of a model")
        return BackwardPass(outputs, loss.item(), (), gradients)

    def capture_training(
        self, model: Any, batch: Batch, names: Mapping[str, str], recorder: TrainingRecorder
    ) -> tuple[Any, float, Mapping[str, Array]]:
        from xverify.frameworks.mlx.training import captured_step

        layers = self._differentiated_layers(model, names)

        def record(listener: Any) -> AbstractContextManager[Any]:
            return recording(layers, self.layer_method, listener)

        return captured_step(self, model, batch, record, recorder)

    def dropouts(self, model: Any) -> dict[str, Any]:
        kinds = (self.nn.Dropout, self.nn.Dropout2d, self.nn.Dropout3d)
        return {name: parts[0] for name, parts in weights.layers(model).items() if isinstance(parts[0], kinds)}

    def drop(self, layer: Any, x: Any) -> Any:
        layer.train()
        outputs = layer(x)
        self.core.eval(outputs)
        layer.eval()
        return outputs

    def disable_dropout(self, model: Any) -> list[str]:
        changed = []
        for name, layer in self.dropouts(model).items():
            if layer._p_1 != 1:
                layer._p_1 = 1  # the share of the values that are kept
                changed.append(name)
        return changed

    # -- a training step of the model file ------------------------------------------------------------------------------

    def own_step(self, step: BoundStep, mode: str) -> Step:
        from xverify.frameworks.mlx.own_step import computed

        return computed(step, mode)

    def train(self, model: Any) -> None:
        model.train()

    def is_optimizer(self, value: Any) -> bool:
        import mlx.optimizers

        return isinstance(value, mlx.optimizers.Optimizer)

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self.nn.Module)

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        from xverify.frameworks.mlx.own_step import stored_weights

        return stored_weights(module)

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        from xverify.frameworks.mlx.optimizers import flat

        return flat(model.trainable_parameters()).values(), flat(model.parameters()).values()

    def slots(self, value: Any) -> Iterable[Slot] | None:
        from xverify.frameworks.mlx.own_step import slots

        return slots(value) if self.is_optimizer(value) else None

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        from xverify.frameworks.mlx.own_step import watched_updates

        return watched_updates(model)


def _dtype(array: Any) -> str:
    """The dtype of an array, such as "float32"."""
    return str(array.dtype).rpartition(".")[2]
