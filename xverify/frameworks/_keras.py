"""Keras 3 on any of its backends: what the adapters share. All of them build the folder's tensorflow.py; images are N,H,W,C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Batch, Framework, Source, Training
from xverify.weights import tensorflow as weights
from xverify.workload.optimizers import Optimizer, update

NATIVE_LAYOUT = {"NCHW": "NHWC", "NCL": "NLC"}


class Keras(Framework):
    """An adapter but for what is the backend's own: tensors, waiting, threads."""

    file = "tensorflow"
    layer_method = "call"
    channels_last = True
    backend: ClassVar[str]

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        return {**super().variables(threads, device), "KERAS_BACKEND": cls.backend}

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        import keras

        if float64 and not keeps_float64():
            raise Unsupported(f"Keras {keras.__version__} makes float32 of float64 on {self.backend}")
        previous = keras.config.floatx()
        keras.config.set_floatx("float64" if float64 else "float32")
        keras.config.set_dtype_policy("float64" if float64 else "float32")
        try:
            return self.define(source, options)
        finally:
            keras.config.set_floatx(previous)
            keras.config.set_dtype_policy(previous)

    def forward(self, model: Any, training: bool = False) -> Any:
        """The model as a function of its inputs, in inference or training mode."""
        import keras

        if not isinstance(model, keras.Model):
            return model
        if isinstance(model, keras.src.models.functional.Functional):
            return lambda *inputs: model(inputs[0] if len(inputs) == 1 else list(inputs), training=training)
        return lambda *inputs: model(*inputs, training=training)

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def differentiate(
        self, forward: Any, batch: Batch, variables: Sequence[Any], tensors: Callable[[], Sequence[Any]] = list
    ) -> tuple[Any, Any, list[Any], list[Any]]:
        """(outputs, loss, gradients of ``tensors()``, of the variables), as the backend's own tensors."""
        raise NotImplementedError

    def dense(self, gradient: Any) -> Any:
        """A gradient as a plain tensor."""
        raise NotImplementedError

    def disable_dropout(self, model: Any) -> list[str]:
        import keras

        held = []
        for layer in model._flatten_layers(include_self=False) if isinstance(model, keras.layers.Layer) else ():
            if "Dropout" in type(layer).__name__ and getattr(layer, "rate", None):
                layer.rate = 0.0
                held.append(layer.name)
            elif getattr(layer, "dropout", 0) and isinstance(layer.dropout, float):
                layer.dropout = 0.0
                held.append(layer.name)
        return held

    def backward(
        self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]
    ) -> tuple[Any, float, list[Any], dict[str, np.ndarray]]:
        learnt = self.trainable(model)
        variables = [variable for _, variable, _ in learnt]
        outputs, loss, nodes, own = self.differentiate(self.forward(model, True), batch, variables, tensors)
        return outputs, float(loss), nodes, self.named(learnt, own)

    def trainable(self, model: Any) -> list[weights.Slot]:
        """(canonical name, variable, axes) of what a step moves."""
        return [slot for slot in weights.slots(model) if slot[1].trainable]

    def named(self, learnt: Sequence[weights.Slot], gradients: Sequence[Any]) -> dict[str, np.ndarray]:
        """Gradients by canonical name, in canonical layout; zeros for what the loss does not depend on."""
        arrays = [
            np.zeros(tuple(variable.shape), np.float32) if found is None else self.to_numpy(found, None)
            for (_, variable, _), found in zip(learnt, gradients)
        ]
        return {name: weights.to_canonical(array, axes) for (name, _, axes), array in zip(learnt, arrays)}

    def layers(self, model: Any) -> dict[str, list[Any]]:
        return weights.layers(model)

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        return weights.fused_parameters(model)


class Learner(Training):
    """Keras' optimizer on the model's variables. wrap: makes a function of native tensors what the mode runs."""

    # The attributes of Keras' optimizers that hold what Optimizer.state_names names.
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
        self.learnt = framework.trainable(model)
        self.names = [name for name, _, _ in self.learnt]
        self.variables = [variable for _, variable, _ in self.learnt]
        parts = framework.fused_parameters(model)
        times = [len(parts.get(name, "x")) for name in self.names]
        self.optimizer, self.optim = _exact(optimizer, times) if match else _own(optimizer)
        self.optim.build(self.variables)
        norms = _Norms(model) if match else None
        forward = framework.forward(model, True)

        def step(*batch: Any) -> Any:
            before = norms.before() if norms else []
            _, loss, _, found = framework.differentiate(forward, batch, self.variables)
            if match:
                found = [gradient if gradient is None else framework.dense(gradient) for gradient in found]
            self.optim.apply(found, self.variables)
            if norms:
                norms.correct(before)
            return loss

        def gradients(*batch: Any) -> Any:
            _, loss, _, found = framework.differentiate(forward, batch, self.variables)
            rows = [type(gradient).__name__ == "IndexedSlices" for gradient in found]
            self.sparse = [name for name, sparse in zip(self.names, rows) if sparse and not match]
            return loss, [None if gradient is None else framework.dense(gradient) for gradient in found]

        self.stepped, self.compute = wrap(step), wrap(gradients)

    @property
    def step(self) -> Callable[..., Any]:
        """The mode's own callable: nothing stands between it and the clock."""
        stepped: Callable[..., Any] = self.stepped
        return stepped

    def gradients(self, *batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        loss, found = self.compute(*batch)
        return float(loss), self.framework.named(self.learnt, found)

    def apply(self, gradients: Mapping[str, np.ndarray]) -> None:
        arrays = [weights.from_canonical(gradients[name], axes) for name, _, axes in self.learnt]
        self.optim.apply([self.framework.to_native(array, None) for array in arrays], self.variables)

    def _held(self, index: int) -> list[Any]:
        if self.match:
            return [kept[index] for kept in self.optim.kept]
        names = self.STATE_NAMES[self.optimizer.name][: len(self.optimizer.state_names)]
        return [getattr(self.optim, name)[index] for name in names]

    @property
    def _scale(self) -> float:
        """Keras' SGD keeps -lr times the momentum."""
        return -self.optimizer.lr if self.optimizer.name == "sgd" and not self.match else 1.0

    def optimizer_state(self) -> tuple[int, dict[str, list[np.ndarray]]]:
        kept = {}
        for index, (name, _, axes) in enumerate(self.learnt):
            arrays = [np.array(self.framework.to_numpy(slot.value, None)) for slot in self._held(index)]
            kept[name] = [weights.to_canonical(array / np.float32(self._scale), axes) for array in arrays]
        return int(self.optim.iterations.numpy()), kept

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[np.ndarray]]) -> None:
        self.optim.iterations.assign(steps)
        for index, (name, _, axes) in enumerate(self.learnt):
            for held, array in zip(self._held(index), state[name]):
                held.assign(weights.from_canonical(array * np.float32(self._scale), axes))


def _own(o: Optimizer) -> tuple[Optimizer, Any]:
    """Keras' own optimizer, and the settings with its variants."""
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


def _exact(o: Optimizer, times: Sequence[int]) -> tuple[Optimizer, Any]:
    """torch's mathematics in Keras' operations. times: how many of torch's parameters each variable is the sum of."""
    import keras
    from keras import ops

    class Exact(keras.optimizers.Optimizer):
        def build(self, variables: Any) -> None:
            if not self.built:
                super().build(variables)
                self.kept = [self.add_optimizer_variables(variables, slot) for slot in o.state_names]

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            index = self._get_variable_index(variable)
            held = [kept[index] for kept in self.kept]
            w, g, *slots = (ops.convert_to_tensor(value) for value in (variable, gradient, *held))
            step = ops.cast(self.iterations + 1, "float32")
            new, values = update(o, w, g, slots, step, ops.sqrt)
            self.assign(variable, new if times[index] == 1 else w + times[index] * (new - w))
            for slot, value in zip(held, values):
                self.assign(slot, value)

    return o.plain, Exact(learning_rate=o.lr)


class _Norms:
    """Batch norms that compute as torch's: Keras' variance is E[x²] - E[x]², and its running variance lacks n/(n - 1)."""

    def __init__(self, model: Any) -> None:
        import keras

        flat = model._flatten_layers(include_self=False) if isinstance(model, keras.layers.Layer) else ()
        self.layers = [layer for layer in flat if isinstance(layer, keras.layers.BatchNormalization)]
        self.terms: dict[int, int] = {}
        for layer in self.layers:
            layer.call = self._noting(layer, layer.call)
            layer._moments = self._two_passes(layer)

    def _noting(self, layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(x: Any, *args: Any, **kwargs: Any) -> Any:
            self.terms[id(layer)] = int(np.prod(list(x.shape)) // x.shape[layer.axis])
            return call(x, *args, **kwargs)

        return noted

    def _two_passes(self, layer: Any) -> Callable[..., Any]:
        from keras import ops

        def mean_over(x: Any, axes: list[int]) -> Any:
            for axis in reversed(axes):  # one float32 sum over all axes loses digits
                x = ops.mean(x, axis, keepdims=True)
            return x

        def moments(x: Any, mask: Any) -> Any:
            axes = [axis for axis in range(len(x.shape)) if axis != layer.axis % len(x.shape)]
            mean = mean_over(x, axes)
            variance = mean_over(ops.square(x - mean), axes)
            return ops.squeeze(mean, axes), ops.squeeze(variance, axes)

        return moments

    def before(self) -> list[Any]:
        from keras import ops

        return [ops.copy(layer.moving_variance.value) for layer in self.layers]

    def correct(self, before: Sequence[Any]) -> None:
        """new = m·old + (1 - m)·biased; what is missing is (1 - m)·biased/(n - 1)."""
        for layer, old in zip(self.layers, before):
            new = layer.moving_variance.value
            layer.moving_variance.assign(new + (new - layer.momentum * old) / max(1, self.terms[id(layer)] - 1))


def keeps_float64() -> bool:
    """Whether a product of float64 is float64: Keras' rules of promotion have no 64 bits on backends but TensorFlow."""
    import keras

    one = keras.ops.ones((1, 1), "float64")
    return str(keras.backend.standardize_dtype(keras.ops.matmul(one, one).dtype)) == "float64"


def native(array: np.ndarray, layout: str | None) -> np.ndarray:
    """A canonical array in Keras' layout, in memory of its own."""
    if layout in NATIVE_LAYOUT:
        array = array.transpose([layout.index(axis) for axis in NATIVE_LAYOUT[layout]])
    return np.array(array, order="C")


def canonical(array: np.ndarray, layout: str | None) -> np.ndarray:
    """An array in Keras' layout in the canonical one."""
    if layout in NATIVE_LAYOUT:
        array = array.transpose([NATIVE_LAYOUT[layout].index(axis) for axis in layout])
    return array
