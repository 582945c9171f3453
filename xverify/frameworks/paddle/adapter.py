"""PaddlePaddle: eager, and as a static graph. Images are N,C,H,W, as in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import Recorder
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import Step
from xverify.framework.training import BackwardPass, Batch, Training
from xverify.frameworks.paddle.training import Learner, gathered, running_norms, trainable_weights
from xverify.weights import paddle as weights
from xverify.workload.operations import Operations
from xverify.workload.optimizers import Optimizer


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the layer directly."""
    return model


def static(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Convert the code of the layer into one static graph (full_graph=True: nothing of it stays in Python)."""
    return framework.paddle.jit.to_static(model.forward, full_graph=True)


class Adapter(Framework):
    name = "paddle"
    shows_clipped = False
    own_variants: tuple[str, ...] = ("eps-inside", "clip eps")
    weights_module = weights
    needs = {"paddlepaddle": "paddle"}
    modes = {"eager": eager, "static": static}
    implicit_mode = "eager"
    trains = True
    takes_recipe = True
    blocking = True

    def __init__(self, threads: int, device: str) -> None:
        import paddle

        paddle.set_device("cpu")
        self.paddle, self.threads = paddle, threads

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        # The first is for OpenMP, and the second for the matrix library, which Paddle gives one thread otherwise.
        return {"OMP_NUM_THREADS": str(threads), "FLAGS_paddle_num_threads": str(threads)}

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        with self._default_dtype("float64" if float64 else "float32"):
            model = self.define(source, options)
        model.eval()
        return model

    def save_weights(self, model: Any) -> dict[str, Array]:
        return {name: array.astype(np.float32, copy=False) for name, array in weights.from_model(model).items()}

    def precisions(self, model: Any) -> dict[str, str]:
        return {each.name: _dtype(each.parts[0]) for each in weights.named_weights(model)}

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.paddle.to_tensor(np.array(array), dtype=array.dtype.name)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        array: Array = tensor.numpy()
        return array

    def wait(self, outputs: Any) -> None:
        """Nothing to do: on the CPU a call returns computed outputs."""

    def layers(self, model: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = weights.layers(model)
        return found

    def environment(self) -> dict[str, object]:
        flags = self.paddle.get_flags(["FLAGS_paddle_num_threads"])
        return {
            "paddle": self.paddle.__version__,
            "threads": self.threads,
            "matrix_threads": flags["FLAGS_paddle_num_threads"],
        }

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.paddle.no_grad()
        return context

    @contextmanager
    def float64_arithmetic(self) -> Iterator[None]:
        with self.paddle.no_grad(), self._default_dtype("float64"):
            yield

    @contextmanager
    def _default_dtype(self, dtype: str) -> Iterator[None]:
        """Make this the dtype of parameters, and of tensors that are made without a dtype."""
        previous = self.paddle.get_default_dtype()
        self.paddle.set_default_dtype(dtype)
        try:
            yield
        finally:
            self.paddle.set_default_dtype(previous)

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        count = getattr(call, "get_traced_count", None)  # a static function has this method
        return None if count is None else int(count())

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        norms = running_norms(model)
        momenta = [norm._momentum for norm in norms]
        for norm in norms:
            norm._momentum = 0.0  # running statistics are then those of the last call
            norm.train()  # only batch norms; dropout stays off
        with self.inference():
            model(*inputs)
        for norm, momentum in zip(norms, momenta):
            norm._momentum = momentum
        model.eval()

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        _undo_conversion(model)
        return super().capture(model, inputs, names, recorder)

    # -- training ------------------------------------------------------------------------------------------------------

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        return Learner(self, model, mode, batch, optimizer, match)

    def own_step(self, step: Step, mode: str) -> Step:
        if mode != "eager":
            raise Unsupported("a train_step of paddle.py runs as it is written: name paddle:eager")
        return step

    def train(self, model: Any) -> None:
        model.train()
        for part in model.parameters():
            part.clear_gradient(False)  # no gradient of an earlier state is left

    def is_optimizer(self, value: Any) -> bool:
        return isinstance(value, self.paddle.optimizer.Optimizer)

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self.paddle.nn.Layer)

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        from xverify.frameworks.paddle.own_step import stored_weights

        return stored_weights(module)

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        return (model.parameters(),)

    def slots(self, value: Any) -> Iterable[Slot] | None:
        from xverify.frameworks.paddle.own_step import slots

        return slots(value) if self.is_optimizer(value) else None

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        from xverify.frameworks.paddle.own_step import watched_updates

        return watched_updates(model)

    def disable_dropout(self, model: Any) -> list[str]:
        changed = []
        for name, layer in model.named_sublayers():
            attribute = "p" if "Dropout" in type(layer).__name__ else "dropout"  # of attention and of recurrent layers
            value = getattr(layer, attribute, None)
            if isinstance(value, (int, float)) and value:
                setattr(layer, attribute, 0.0)
                changed.append(name)
        return changed

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
        return self.paddle.nn.functional.cross_entropy(logits, target)

    @cached_property
    def operations(self) -> Operations:
        from xverify.frameworks.paddle.operations import PaddleOperations

        return PaddleOperations()

    def alias(self, tensor: Any) -> Any:
        if not tensor.stop_gradient:
            return tensor.clone()
        node = tensor.detach()
        node.stop_gradient = False
        return node

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        _undo_conversion(model)
        trained = trainable_weights(model)
        outputs = model(*batch[:-1])
        loss = self.loss(outputs, batch[-1])
        nodes = list(tensors())
        parts = [part for weight in trained for part in weight.parts]
        found = self.paddle.grad([loss], [*nodes, *parts], allow_unused=True)
        gradients = dict(zip(map(id, parts), found[len(nodes) :]))
        by_name = {each.name: gathered(each, [gradients[id(part)] for part in each.parts]) for each in trained}
        return BackwardPass(outputs, float(loss), found[: len(nodes)], by_name)


def _dtype(tensor: Any) -> str:
    """The dtype of a tensor, such as "float32"."""
    return str(tensor.dtype).rpartition(".")[2]


def _undo_conversion(model: Any) -> None:
    """Give every sublayer the code that its class has. A conversion to a static graph leaves converted code in its place."""
    for layer in model.sublayers(include_self=True):
        if "forward" in layer._original_funcs:
            vars(layer).pop("forward", None)
