"""Training with nn.value_and_grad and mlx.optimizers, as MLX's documentation writes it, and one pass with gradients of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from mlx import core, nn

from xverify.framework.adapter import Array
from xverify.framework.adding import Adding
from xverify.framework.capture import TrainingRecorder
from xverify.framework.structures import leaves, without_classes
from xverify.framework.training import Batch, Training, Used
from xverify.frameworks.mlx.adapter import Compiled
from xverify.frameworks.mlx.optimizers import Flat, flat, made
from xverify.weights import mlx as weights
from xverify.weights.flax_layout import NamedWeight, join, split
from xverify.workload.adafactor import check_no_sums
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, mean_of_parts, micro_batches


def trainable_weights(model: Any) -> list[NamedWeight]:
    """Every weight that is trained: those that MLX does not hold frozen."""
    trained = flat(model.trainable_parameters())
    return [each for each in weights.named_weights(model) if all(part.path in trained for part in each.parts)]


def by_name(named: Sequence[NamedWeight], arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Canonical name -> canonical array. arrays: path -> array of MLX; weights of which a part has none are left out."""
    return {
        each.name: join(each, [np.array(arrays[part.path]) for part in each.parts])
        for each in named
        if all(part.path in arrays for part in each.parts)
    }


def by_path(named: Sequence[NamedWeight], arrays: Mapping[str, Array]) -> Flat:
    """Path -> array of MLX, for canonical arrays by the names of weights."""
    found: Flat = {}
    for each in named:
        shapes = [tuple(part.variable.value.shape) for part in each.parts]
        found |= {
            part.path: core.array(array) for part, array in zip(each.parts, split(each, arrays[each.name], shapes))
        }
    return found


class Learner(Training):
    """Training with mlx.optimizers, or with an exact equivalent of torch's. With ``compile``, a whole step is one graph."""

    def __init__(self, framework: Any, model: Any, mode: str, optimizer: Optimizer, match: bool) -> None:
        self.framework, self.model, self.compiles = framework, model, mode == "compile"
        self.recipe = optimizer.recipe
        model.train()
        self.frozen = [each for each in trainable_weights(model) if self.recipe.freezes(each.name)]
        self._freeze(True)
        self.weights = trainable_weights(model)
        self.names = [each.name for each in self.weights]
        fused = framework.fused_parameters(model)
        if match and optimizer.name == "adafactor":
            check_no_sums(fused)
        self.optim = made(optimizer, model, self.weights, fused, match)
        self.optimizer = self.optim.optimizer
        self.averaged: Flat = {}
        if self.recipe.average is not None:
            self.averaged = {path: core.zeros_like(array) for path, array in self._present().items()}
        self.counted = {
            "steps": core.array(0)
        }  # an array, because a graph holds the value that a number has when it is traced
        # What a step reads and changes.
        self.state = [model.state, self.optim.state, self.averaged, self.counted, core.random.state]
        self.differentiated = nn.value_and_grad(model, self._loss)
        self.compiled_step = self._wrapped(lambda *batch: self._whole(*batch)[0])
        self.compiled_whole, self.compiled_gradients = self._wrapped(self._whole), self._wrapped(self.differentiated)

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Compiled(core, function, self.state, self.state) if self.compiles else function

    def _freeze(self, frozen: bool) -> None:
        """Freeze the weights that the recipe does not train, or release them."""
        for each in self.frozen:
            for part in each.parts:
                owner, key = weights.module_of(self.model, part.path)
                (owner.freeze if frozen else owner.unfreeze)(recurse=False, keys=[key])

    def _present(self) -> Flat:
        return flat(self.model.trainable_parameters())

    # -- the step -----------------------------------------------------------------------------------------------------

    def _loss(self, *batch: Any) -> Any:
        return self.framework.loss(self.model(*batch[:-1]), batch[-1])

    def _whole(self, *batch: Any) -> tuple[Any, Flat, Flat]:
        """Make a step: (the loss, the gradients, the clipped ones)."""
        losses, parts = [], []
        for part in micro_batches(batch, self.recipe.accumulate):
            loss, gradients = self.differentiated(*part)
            losses.append([loss])
            parts.append(flat(gradients))
        mean = dict(zip(parts[0], mean_of_parts([list(each.values()) for each in parts])))
        clipped = self.optim.clip(mean)
        self.optim.update(self.model, clipped)
        self._take_average()
        return mean_of_parts(losses)[0], mean, clipped

    def _take_average(self) -> None:
        """Take the weights in to their average, by torch's formula."""
        decay = self.recipe.average
        first = self.counted["steps"] == 0
        self.counted["steps"] = self.counted["steps"] + 1
        if decay is not None:
            for path, weight in self._present().items():
                self.averaged[path] = core.where(first, weight, averaged(decay, self.averaged[path], weight))

    def step(self, *batch: Any) -> Any:
        loss = self.compiled_step(*batch)
        core.eval(loss, self.state)
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss, gradients = self.compiled_gradients(*batch)
        core.eval(self.state)
        return loss.item(), by_name(self.weights, flat(gradients))

    def observe(self, *batch: Any) -> Used:
        _, accumulated, clipped = self.compiled_whole(*batch)
        core.eval(self.state)
        used = Used(by_name(self.weights, accumulated), by_name(self.weights, clipped))
        rates = self.optim.rates()
        for each in self.weights:
            used.rates[each.name] = float(np.float32(rates[each.parts[0].path]))
            used.decays[each.name] = self.optimizer.of(each.name).weight_decay
        return used

    def apply(self, gradients: Mapping[str, Array]) -> None:
        self.optim.update(self.model, by_path(self.weights, gradients))
        self._take_average()
        core.eval(self.state)

    def graphs(self) -> int | None:
        """The number of graphs that were compiled for a step; None when the mode makes none."""
        return self.compiled_step.graphs if isinstance(self.compiled_step, Compiled) else None

    @contextmanager
    def unfrozen(self) -> Iterator[None]:
        names, trained, wrapped = self.names, self.weights, self.compiled_gradients
        self._freeze(False)
        self.weights, self.compiled_gradients = trainable_weights(self.model), self.differentiated
        self.names = [each.name for each in self.weights]
        try:
            yield
        finally:
            self._freeze(True)
            self.names, self.weights, self.compiled_gradients = names, trained, wrapped

    # -- the state ----------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        fields = {part.path: self.optim.read(part.path) for each in self.weights for part in each.parts}
        count = len(self.optimizer.state_names)
        arrays = [by_name(self.weights, {path: kept[index] for path, kept in fields.items()}) for index in range(count)]
        return self.counted["steps"].item(), {name: [each[name] for each in arrays] for name in self.names}

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        count = len(self.optimizer.state_names)
        fields = [by_path(self.weights, {name: state[name][index] for name in self.names}) for index in range(count)]
        paths = [part.path for each in self.weights for part in each.parts]
        self.optim.write(steps, {path: [field[path] for field in fields] for path in paths})
        self.counted["steps"] = core.array(steps)

    def averages(self) -> dict[str, Array]:
        return by_name(self.weights, self.averaged) if self.averaged else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        self.averaged.update(by_path(self.weights, averages))
        self.counted["steps"] = core.array(steps)


def gradients_of_pass(framework: Any, model: Any, batch: Batch) -> tuple[Any, Any, dict[str, Array]]:
    """One forward and backward pass in training mode: (outputs, loss, gradients by name)."""
    model.train()

    def loss(*batch: Any) -> tuple[Any, Any]:
        outputs = model(*batch[:-1])
        return framework.loss(outputs, batch[-1]), without_classes(outputs)

    (value, outputs), gradients = nn.value_and_grad(model, loss)(*batch)
    return outputs, value, by_name(trainable_weights(model), flat(gradients))


def captured_step(
    framework: Any,
    model: Any,
    batch: Batch,
    record: Callable[[Any], AbstractContextManager[Any]],
    recorder: TrainingRecorder,
) -> tuple[Any, float, dict[str, Array]]:
    """Record the layers in one pass, and compute the gradients of what was recorded in another one.

    MLX has no gradient with respect to a value inside of a function. So the second pass adds a zero to each recorded array, and the
    gradient is the one with respect to this zero.

    record: makes a context that records the layers with a recorder.
    """
    model.train()
    present = model.trainable_parameters()
    before = _others(model)
    with record(recorder):
        core.eval(leaves(model(*batch[:-1])))
    zeros = [core.zeros_like(array) for array in recorder.tensors()]
    for place, array in before:  # both passes have the same running statistics
        place.put(array)

    def loss(trained: Any, zeros: Sequence[Any]) -> tuple[Any, Any]:
        model.update(trained)
        with record(Adding(zeros, lambda array: core.issubdtype(array.dtype, core.floating))):
            outputs = model(*batch[:-1])
        return framework.loss(outputs, batch[-1]), without_classes(outputs)

    (value, outputs), (gradients, of_arrays) = core.value_and_grad(loss, argnums=(0, 1))(present, zeros)
    recorder.take(of_arrays)
    return outputs, value.item(), by_name(trainable_weights(model), flat(gradients))


def _others(model: Any) -> list[tuple[weights.Place, Any]]:
    """The arrays that are not trained, such as running statistics, with their places."""
    trained = flat(model.trainable_parameters())
    places = [(node.path, node.value) for node in weights.nodes(model) if isinstance(node.value, weights.Place)]
    return [(place, place.value) for path, place in places if path not in trained]
