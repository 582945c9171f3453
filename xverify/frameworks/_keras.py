"""What the adapters that run Keras 3 share, whatever its backend.

All of them build their model from the folder's tensorflow.py, and take images as N,H,W,C.
"""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, BackwardPass, Batch, Framework, Source, Training
from xverify.weights import tensorflow as weights
from xverify.weights.tensorflow import NamedVariable
from xverify.workload.optimizers import Optimizer, update

NATIVE_LAYOUT = {"NCHW": "NHWC", "NCL": "NLC"}  # canonical layout -> Keras' layout


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


class Keras(Framework):
    """The base class of the adapters. A subclass adds what depends on the backend: tensors, waiting, threads, gradients."""

    file = "tensorflow"
    layer_method = "call"
    channels_last = True
    # The value of KERAS_BACKEND.
    backend: ClassVar[str]

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        return {**super().variables(threads, device), "KERAS_BACKEND": cls.backend}

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        import keras

        if float64 and not keeps_float64():
            raise Unsupported(f"Keras {keras.__version__} converts float64 to float32 on {self.backend}")
        previous = keras.config.floatx()
        keras.config.set_floatx("float64" if float64 else "float32")
        keras.config.set_dtype_policy("float64" if float64 else "float32")
        try:
            return self.define(source, options)
        finally:
            keras.config.set_floatx(previous)
            keras.config.set_dtype_policy(previous)

    def forward(self, model: Any, training: bool = False) -> Any:
        """The model as a function of its inputs. training: in training mode instead of inference mode."""
        import keras

        if not isinstance(model, keras.Model):
            return model
        if isinstance(model, keras.src.models.functional.Functional):
            return lambda *inputs: model(inputs[0] if len(inputs) == 1 else list(inputs), training=training)
        return lambda *inputs: model(*inputs, training=training)

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, Array]:
        arrays: dict[str, Array] = weights.from_model(model)
        return arrays

    def differentiate(
        self, forward: Any, batch: Batch, variables: Sequence[Any], tensors: Callable[[], Sequence[Any]] = list
    ) -> Gradients:
        """Run one forward and one backward pass.

        forward: the model as a function of its inputs. variables, tensors: what the gradients are computed with respect to;
        ``tensors`` is called after the forward pass.
        """
        raise NotImplementedError

    def dense(self, gradient: Any) -> Any:
        """Convert a gradient to a plain tensor of the shape of its variable."""
        raise NotImplementedError

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

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        trainable = self.trainable(model)
        found = self.differentiate(
            self.forward(model, training=True), batch, [each.variable for each in trainable], tensors
        )
        parameter_gradients = self.by_name(trainable, found.variables)
        return BackwardPass(found.outputs, float(found.loss), found.tensors, parameter_gradients)

    def trainable(self, model: Any) -> list[NamedVariable]:
        """The variables that a training step changes."""
        return [each for each in weights.named_variables(model) if each.variable.trainable]

    def by_name(self, variables: Sequence[NamedVariable], gradients: Sequence[Any]) -> dict[str, Array]:
        """Canonical name -> gradient in canonical layout. It is zero for a variable on which the loss does not depend."""
        result = {}
        for (name, variable, axes), gradient in zip(variables, gradients):
            array = np.zeros(tuple(variable.shape), np.float32) if gradient is None else self.to_numpy(gradient, None)
            result[name] = weights.to_canonical(array, axes)
        return result

    def layers(self, model: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = weights.layers(model)
        return found

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = weights.fused_parameters(model)
        return found


class Learner(Training):
    """Training with an optimizer of Keras, or with an exact equivalent of torch.optim.

    wrap: turns a Python function of native tensors into what the mode runs, e.g. tf.function.
    """

    # Optimizer -> attributes of Keras' optimizer that hold what Optimizer.state_names names, in the same order.
    STATE_NAMES = {
        "sgd": ("momentums",),
        "adam": ("_momentums", "_velocities"),
        "adamw": ("_momentums", "_velocities"),
        "rmsprop": ("_velocities",),
    }

    def __init__(
        self, framework: Keras, model: Any, wrap: Callable[[Any], Any], optimizer: Optimizer, match: bool
    ) -> None:
        self.framework, self.match = framework, match
        self.trainable = framework.trainable(model)
        self.names = [each.name for each in self.trainable]
        self.variables = [each.variable for each in self.trainable]
        if match:
            fused = framework.fused_parameters(model)
            parts = [len(fused.get(name, (name,))) for name in self.names]
            self.optimizer, self.optim = _equivalent_optimizer(optimizer, parts)
        else:
            self.optimizer, self.optim = _keras_optimizer(optimizer)
        self.optim.build(self.variables)
        self.norms = _MatchedNorms(model) if match else None
        self.forward = framework.forward(model, training=True)
        self.wrapped_step, self.wrapped_gradients = wrap(self._step), wrap(self._gradients)

    def _step(self, *batch: Any) -> Any:
        before = self.norms.variances() if self.norms else []
        found = self.framework.differentiate(self.forward, batch, self.variables)
        gradients = self._dense(found.variables) if self.match else found.variables
        self.optim.apply(gradients, self.variables)
        if self.norms:
            self.norms.correct(before)
        return found.loss

    def _gradients(self, *batch: Any) -> Any:
        found = self.framework.differentiate(self.forward, batch, self.variables)
        if not self.match:
            in_rows = [type(gradient).__name__ == "IndexedSlices" for gradient in found.variables]
            self.sparse = [name for name, rows in zip(self.names, in_rows) if rows]
        return found.loss, self._dense(found.variables)

    def _dense(self, gradients: Sequence[Any]) -> list[Any]:
        return [None if gradient is None else self.framework.dense(gradient) for gradient in gradients]

    @property
    def step(self) -> Callable[..., Any]:
        """The callable of the mode itself, so that the timed call includes nothing else."""
        step: Callable[..., Any] = self.wrapped_step
        return step

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss, found = self.wrapped_gradients(*batch)
        return float(loss), self.framework.by_name(self.trainable, found)

    def apply(self, gradients: Mapping[str, Array]) -> None:
        arrays = [weights.from_canonical(gradients[name], axes) for name, _, axes in self.trainable]
        self.optim.apply([self.framework.to_native(array, None) for array in arrays], self.variables)

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        state = {}
        for index, (name, _, axes) in enumerate(self.trainable):
            arrays = [np.array(self.framework.to_numpy(each.value, None)) for each in self._state_variables(index)]
            state[name] = [weights.to_canonical(array / np.float32(self._scale), axes) for array in arrays]
        return int(self.optim.iterations.numpy()), state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.optim.iterations.assign(steps)
        for index, (name, _, axes) in enumerate(self.trainable):
            for variable, array in zip(self._state_variables(index), state[name]):
                variable.assign(weights.from_canonical(array * np.float32(self._scale), axes))

    def _state_variables(self, index: int) -> list[Any]:
        """The optimizer state of the parameter with this index, in the order of Optimizer.state_names."""
        if self.match:
            return [variables[index] for variables in self.optim.state_variables]
        names = self.STATE_NAMES[self.optimizer.name][: len(self.optimizer.state_names)]
        return [getattr(self.optim, name)[index] for name in names]

    @property
    def _scale(self) -> float:
        """Keras' state divided by torch's: Keras' SGD stores -lr times the momentum."""
        return -self.optimizer.lr if self.optimizer.name == "sgd" and not self.match else 1.0


def _keras_optimizer(o: Optimizer) -> tuple[Optimizer, Any]:
    """The settings with Keras' formula variants, and Keras' own optimizer."""
    from keras import optimizers

    decay = o.weight_decay or None
    decoupled = ("decoupled",) if decay and o.name != "adamw" else ()
    if o.name == "sgd":
        return replace(o, variants=decoupled), optimizers.SGD(o.lr, float(o.momentum), o.nesterov, weight_decay=decay)
    if o.name == "rmsprop":
        variants = ("eps-inside", *decoupled)
        return replace(o, variants=variants), optimizers.RMSprop(o.lr, o.alpha, epsilon=o.eps, weight_decay=decay)
    kind = optimizers.Adam if o.name == "adam" else optimizers.AdamW
    made = kind(learning_rate=o.lr, beta_1=o.beta1, beta_2=o.beta2, epsilon=o.eps, weight_decay=decay)
    return replace(o, variants=("eps-hat", *decoupled)), made


def _equivalent_optimizer(o: Optimizer, parts: Sequence[int]) -> tuple[Optimizer, Any]:
    """The settings without variants, and torch's formulas in Keras' operations.

    parts: for each variable, the number of torch's parameters that it is the sum of; 1 for most.
    """
    import keras
    from keras import ops

    class Equivalent(keras.optimizers.Optimizer):
        def build(self, variables: Any) -> None:
            if not self.built:
                super().build(variables)
                self.state_variables = [self.add_optimizer_variables(variables, name) for name in o.state_names]

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            index = self._get_variable_index(variable)
            state_variables = [variables[index] for variables in self.state_variables]
            w, g, *state = (ops.convert_to_tensor(value) for value in (variable, gradient, *state_variables))
            step = ops.cast(self.iterations + 1, "float32")
            new_w, new_state = update(o, w, g, state, step, ops.sqrt)
            # Each of the parts changes by the same amount, so their sum changes by a multiple of it.
            self.assign(variable, new_w if parts[index] == 1 else w + parts[index] * (new_w - w))
            for state_variable, value in zip(state_variables, new_state):
                self.assign(state_variable, value)

    return o.plain, Equivalent(learning_rate=o.lr)


class _MatchedNorms:
    """Makes the batch norms of a model compute as torch's do.

    Keras computes the variance as E[x²] - E[x]², and its running variance lacks the factor n/(n - 1).
    """

    def __init__(self, model: Any) -> None:
        import keras

        layers = model._flatten_layers(include_self=False) if isinstance(model, keras.layers.Layer) else ()
        self.norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
        self.terms: dict[int, int] = {}  # id of a norm -> n, the number of values in each of its means
        for norm in self.norms:
            norm.call = self._counting(norm, norm.call)
            norm._moments = partial(_moments, norm)

    def _counting(self, norm: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """The method ``call`` of a norm, which also sets ``terms``."""

        def counted(x: Any, *args: Any, **kwargs: Any) -> Any:
            self.terms[id(norm)] = int(np.prod(list(x.shape)) // x.shape[norm.axis])
            return call(x, *args, **kwargs)

        return counted

    def variances(self) -> list[Any]:
        """Copies of the running variances."""
        from keras import ops

        return [ops.copy(norm.moving_variance.value) for norm in self.norms]

    def correct(self, before: Sequence[Any]) -> None:
        """Correct the running variances after a step. before: the running variances before the step.

        Keras computes new = m·old + (1 - m)·biased, where m is the momentum. Torch's value is larger by (1 - m)·biased/(n - 1).
        """
        for norm, old in zip(self.norms, before):
            new = norm.moving_variance.value
            norm.moving_variance.assign(new + (new - norm.momentum * old) / max(1, self.terms[id(norm)] - 1))


def _moments(norm: Any, x: Any, mask: Any) -> tuple[Any, Any]:
    """The mean and the biased variance of each channel, in two passes. mask: without effect."""
    from keras import ops

    axes = [axis for axis in range(len(x.shape)) if axis != norm.axis % len(x.shape)]

    def mean_over(x: Any) -> Any:
        for axis in reversed(axes):  # a single float32 sum over all axes loses digits
            x = ops.mean(x, axis, keepdims=True)
        return x

    mean = mean_over(x)
    variance = mean_over(ops.square(x - mean))
    return ops.squeeze(mean, axes), ops.squeeze(variance, axes)


def keeps_float64() -> bool:
    """Whether a product of float64 tensors is float64: Keras promotes to 64 bits on the TensorFlow backend only."""
    import keras

    one = keras.ops.ones((1, 1), "float64")
    return str(keras.backend.standardize_dtype(keras.ops.matmul(one, one).dtype)) == "float64"


def native(array: Array, layout: str | None) -> Array:
    """A copy of a canonical array in Keras' layout. layout: the canonical axes, e.g. "NCHW"."""
    if layout in NATIVE_LAYOUT:
        array = array.transpose([layout.index(axis) for axis in NATIVE_LAYOUT[layout]])
    return np.array(array, order="C")


def canonical(array: Array, layout: str | None) -> Array:
    """An array of Keras in canonical layout. layout: the canonical axes, e.g. "NCHW"."""
    if layout in NATIVE_LAYOUT:
        array = array.transpose([NATIVE_LAYOUT[layout].index(axis) for axis in layout])
    return array
