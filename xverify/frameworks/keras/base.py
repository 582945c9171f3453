"""Code that all adapters of Keras 3 share, for any backend.

All of them build their model from the folder's tensorflow.py, and take images as N,H,W,C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import lower_dtype
from xverify.framework.generators import Noted
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.structures import map_leaves
from xverify.framework.training import BackwardPass, Batch
from xverify.frameworks.keras import calling, own_step
from xverify.weights import tensorflow as weights
from xverify.weights.tensorflow import NamedVariable
from xverify.workload.operations import Operations


@dataclass(frozen=True)
class Gradients:
    """The results of one forward and one backward pass, all as tensors of the backend.

    outputs, loss: of the model.
    tensors: gradients with respect to the requested tensors. variables: gradients with respect to the variables. A gradient is
        None where the loss does not depend on the tensor or variable.
    """

    outputs: Any
    loss: Any
    tensors: Sequence[Any]
    variables: Sequence[Any]


@dataclass(frozen=True)
class Pass:
    """One forward and one backward pass.

    forward: what ``Keras.in_training`` returns. batch: the inputs, then the targets.
    variables, tensors: what the gradients are computed with respect to; ``tensors`` is called after the forward pass.
    scale: what the loss is multiplied by for the gradients; None: nothing.
    """

    forward: Any
    batch: Batch
    variables: Sequence[Any]
    tensors: Callable[[], Sequence[Any]] = list
    scale: Any = None

    def scaled(self, loss: Any) -> Any:
        """The loss that is differentiated."""
        return loss if self.scale is None else loss * self.scale


class Keras(Framework):
    """The base class of the adapters. A subclass adds what depends on the backend: tensors, waiting, threads, gradients."""

    file = "tensorflow"
    weights_module = weights
    layer_method = "call"
    decodes = True
    channels_last = True
    own_variants: tuple[str, ...] = ("eps-hat", "eps-inside", "decoupled", "clip eps")
    # The value of KERAS_BACKEND.
    backend: ClassVar[str]
    # How each subclassed model takes its inputs.
    arguments: ClassVar[WeakKeyDictionary[Any, calling.Arguments]] = WeakKeyDictionary()

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        return {**super().variables(threads, device), "KERAS_BACKEND": cls.backend}

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        import keras

        if float64 and not keeps_float64():
            raise Unsupported(f"Keras {keras.__version__} converts float64 to float32 on {self.backend}")
        previous = keras.config.floatx()
        policy = "float32" if self.setup.precision == "float32" else f"mixed_{self.setup.precision}"
        keras.config.set_floatx("float64" if float64 else "float32")
        keras.config.set_dtype_policy("float64" if float64 else policy)
        try:
            return self._called(lambda: self.define(source, options), float64)
        finally:
            keras.config.set_floatx(previous)
            keras.config.set_dtype_policy(previous)

    def _called(self, define: Callable[[], Any], float64: bool) -> Any:
        """Build a model, note how a subclassed one takes its inputs, and call it on zeros where it has no weights before.

        A way of calling that it does not take is followed by the next one, with a new model.
        """
        model = define()
        if self.setup.zeros is None or not calling.is_layer(model) or calling.is_functional(model):
            return model
        refused: list[tuple[str, Exception]] = []
        for way, arguments in list(calling.of_call(model, self.setup.inputs)):
            model = define() if refused else model
            self.arguments[model] = arguments
            if model.built:
                return model
            try:
                self.forward(model)(*self.setup.zeros(float64))
                return model
            except calling.WRONG_FORM as error:
                refused.append((way, error))
        ways = " nor ".join(way for way, _ in refused)
        raise Failed(f"the model cannot be called: it takes neither {ways}") from refused[0][1]

    def forward(self, model: Any, training: bool = False) -> Any:
        """The model as a function of its inputs. training: in training mode instead of inference mode."""
        import keras

        if not isinstance(model, keras.Model):
            return model
        arguments = self._arguments(model)
        return lambda *inputs: model(*arguments(inputs), training=training)

    def user_call(self, model: Any) -> Callable[..., Any] | None:
        """``model(x)``: without the argument ``training``, which overrides what the layers themselves say."""
        import keras

        if not isinstance(model, keras.Model):
            return None
        arguments = self._arguments(model)
        return lambda *inputs: model(*arguments(inputs))

    def _arguments(self, model: Any) -> calling.Arguments:
        """How a model takes its inputs."""
        if calling.is_functional(model):
            return calling.of_functional(model, self.setup.inputs)
        return self.arguments.get(model, calling.one_by_one)

    def decoder_code(self, model: Any) -> Callable[..., Any]:
        if not calling.is_layer(model) or calling.is_functional(model):
            raise Unsupported(
                "a decoder of Keras is a subclass of keras.Model, whose call takes a cache: the inputs of this model are fixed"
            )
        return super().decoder_code(model)

    def decoder_call(self, model: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        return model(*self._arguments(model)(inputs), training=False, **given)

    def taken(self, tensor: Any, places: Sequence[int], axis: int) -> Any:
        from keras import ops

        return ops.take(tensor, list(places), axis)

    def precisions(self, model: Any) -> dict[str, str]:
        import keras

        return {
            each.name: keras.backend.standardize_dtype(each.pieces[0].variable.dtype)
            for each in weights.named_variables(model)
        }

    def in_training(self, model: Any) -> Any:
        """The model in training mode, as ``differentiate`` takes it."""
        return self.forward(model, training=True)

    @cached_property
    def operations(self) -> Operations:
        from xverify.frameworks.keras.operations import KerasOperations

        return KerasOperations()

    def is_optimizer(self, value: Any) -> bool:
        import keras

        return isinstance(value, keras.optimizers.Optimizer)

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        return own_step.watched_updates(self, model)

    def is_module(self, value: Any) -> bool:
        import keras

        return isinstance(value, keras.layers.Layer)

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        return own_step.stored_weights(module)

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        return own_step.weight_orders(model)

    def slots(self, value: Any) -> Iterable[Slot] | None:
        return own_step.slots(value) if self.is_optimizer(value) else None

    def state_array(self, tensor: Any) -> Array:
        import keras

        return self.to_numpy(tensor.value if isinstance(tensor, keras.Variable) else tensor, None)

    def uncompiled(self) -> AbstractContextManager[None]:
        """The context in which functions that the user's code compiles run as they are written."""
        return nullcontext()

    def watched_draws(self, note: Noted) -> AbstractContextManager[None]:
        return own_step.watched_draws(note)

    def differentiate(self, asked: Pass) -> Gradients:
        """Run one forward and one backward pass."""
        raise NotImplementedError

    def dense(self, gradient: Any) -> Any:
        """Convert a gradient to a plain tensor of the shape of its variable."""
        return gradient

    def disable_dropout(self, model: Any) -> list[str]:
        import keras

        changed = []
        for layer in model._flatten_layers(include_self=False) if isinstance(model, keras.layers.Layer) else ():
            if "Dropout" in type(layer).__name__ and getattr(layer, "rate", None):
                layer.rate = 0.0
                changed.append(layer.name)
            elif getattr(layer, "dropout", 0) and isinstance(layer.dropout, float):
                layer.dropout = 0.0
                changed.append(layer.name)
        return changed

    def dropouts(self, model: Any) -> Mapping[str, Any]:
        named = ((name, part) for name, parts in self.layers(model).items() for part in parts)
        return {name: part for name, part in named if "Dropout" in type(part).__name__}

    def drop(self, layer: Any, x: Any) -> Any:
        return layer(x, training=True)

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        trainable = self.trainable(model)
        variables = weights.variables(trainable)
        scale = self.setup.loss_scale if self.setup.loss_scale != 1.0 else None
        passed = self.differentiate(Pass(self.in_training(model), batch, variables, tensors, scale))
        parameter_gradients = self.by_name(trainable, variables, [self._unscaled(each) for each in passed.variables])
        tensor_gradients = [self._unscaled(each) for each in passed.tensors]
        return BackwardPass(passed.outputs, float(passed.loss), tensor_gradients, parameter_gradients)

    def _unscaled(self, gradient: Any) -> Any:
        """A gradient without the scale of the loss."""
        if gradient is None or self.setup.loss_scale == 1.0:
            return gradient
        from keras import ops

        return ops.cast(self.dense(gradient), "float32") / self.setup.loss_scale

    def loss(self, outputs: Any, targets: Any) -> Any:
        """Outputs in a lower precision become float32 first, as in the losses of Keras."""
        if self.setup.precision != "float32":
            from keras import ops

            outputs = map_leaves(outputs, lambda value: ops.cast(value, "float32") if lower_dtype(value) else value)
        return super().loss(outputs, targets)

    def trainable(self, model: Any) -> list[NamedVariable]:
        """The weights that a training step changes."""
        named: list[NamedVariable] = weights.named_variables(model)
        return [each for each in named if all(variable.trainable for variable, _ in each.pieces)]

    def by_name(
        self, named: Sequence[NamedVariable], variables: Sequence[Any], gradients: Sequence[Any]
    ) -> dict[str, Array]:
        """Canonical name -> gradient in canonical layout. It is zero for a variable on which the loss does not depend.

        named: the weights. variables: those that they consist of. gradients: of each variable.
        """
        arrays: dict[int, Array] = {}
        for variable, gradient in zip(variables, gradients):
            zero = gradient is None
            arrays[id(variable)] = (
                np.zeros(tuple(variable.shape), np.float32) if zero else self.to_numpy(gradient, None)
            )
        return {each.name: weights.canonical(each, lambda variable: arrays[id(variable)]) for each in named}

    def layers(self, model: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = weights.layers(model)
        return found

    def advice_on_axes(self, model: Any, name: str, shape: tuple[int, ...]) -> str:
        clause: str = weights.advice(model, name, shape)
        return clause

    def side_by_side(self, parts: Sequence[Any]) -> bool:
        return len({bool(getattr(part, "go_backwards", False)) for part in parts}) == 2

    def joined_outputs(self, parts: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Two recurrent layers, one of which goes backwards, are torch's bidirectional layer: its sequence, or its last states."""
        from keras import ops

        if not self.side_by_side(parts):
            return None
        of_direction = {bool(part.go_backwards): output for part, output in zip(parts, outputs)}
        forward, backward = (
            each[0] if isinstance(each, (tuple, list)) else each for each in (of_direction[False], of_direction[True])
        )
        if len(forward.shape) == 2:
            return ops.stack([forward, backward])
        return ops.concatenate([forward, ops.flip(backward, 1)], -1)

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = weights.fused_parameters(model)
        return found


def keeps_float64() -> bool:
    """Whether a product of float64 tensors is float64: Keras promotes to 64 bits on the TensorFlow backend only."""
    import keras

    one = keras.ops.ones((1, 1), "float64")
    return str(keras.backend.standardize_dtype(keras.ops.matmul(one, one).dtype)) == "float64"


def native_layout(layout: str | None) -> str | None:
    """Keras' order of the axes, which has the channels last: "NDHWC" for "NCDHW". layout: the canonical axes, or None."""
    if layout is None or layout.count("C") != 1 or layout.startswith("C"):
        return layout
    return layout.replace("C", "") + "C"


def native(array: Array, layout: str | None) -> Array:
    """A copy of a canonical array in Keras' layout. layout: the canonical axes, e.g. "NCHW"."""
    own = native_layout(layout)
    if layout is not None and own is not None:
        array = array.transpose([layout.index(axis) for axis in own])
    return np.array(array, order="C")


def canonical(array: Array, layout: str | None) -> Array:
    """An array of Keras in canonical layout. layout: the canonical axes, e.g. "NCHW"."""
    own = native_layout(layout)
    if layout is not None and own is not None:
        array = array.transpose([own.index(axis) for axis in layout])
    return array
