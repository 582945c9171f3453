"""Training with paddle.optimizer and Paddle's own facilities for a recipe, or with an exact equivalent of torch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework
from xverify.framework.eager import EagerLearner
from xverify.framework.training import Batch, Used
from xverify.frameworks.paddle.optimizers import (
    STATE_NAMES,
    Equivalent,
    paddle_clip,
    paddle_optimizer,
    paddle_scheduler,
)
from xverify.weights import paddle as weights
from xverify.workload.optimizers import Optimizer
from xverify.workload.recipe import averaged, clipped, micro_batches


def trainable_weights(model: Any) -> list[weights.NamedWeight]:
    """Every weight that is trained. A tied one occurs once."""
    return [each for each in weights.named_weights(model) if not any(part.stop_gradient for part in each.parts)]


def gathered(weight: weights.NamedWeight, tensors: Sequence[Any]) -> Array:
    """The gradient or state of a weight in canonical layout. tensors: of its parts; None stands for zeros."""
    arrays = [np.zeros(part.shape, np.float32) if t is None else t.numpy() for part, t in zip(weight.parts, tensors)]
    array: Array = weights.to_canonical(weight, arrays)
    return array


def running_norms(model: Any) -> list[Any]:
    """The batch norms that keep running statistics."""
    layers = model.sublayers(include_self=True)
    return [layer for layer in layers if hasattr(layer, "_variance") and not layer._use_global_stats]


class Learner(EagerLearner):
    """Training with paddle.optimizer and Paddle's own facilities, or with an exact equivalent of torch's.

    The loss and the update are eager.
    """

    def __init__(
        self, framework: Framework, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool
    ) -> None:
        import paddle

        super().__init__(framework, optimizer, match)
        self.paddle, self.model = paddle, model
        model.train()
        trainable = trainable_weights(model)
        self.frozen = [part for each in trainable if self.recipe.freezes(each.name) for part in each.parts]
        self.freeze(True)
        self.weights = [each for each in trainable if not self.recipe.freezes(each.name)]
        self.names = [each.name for each in self.weights]
        self.parts = [part for each in self.weights for part in each.parts]
        self.settings = {id(part): optimizer.of(each.name) for each in self.weights for part in each.parts}
        self.cross_entropy = paddle.nn.functional.cross_entropy
        batch = micro_batches(batch, self.recipe.accumulate)[0]
        self.norms = _MatchedNorms(framework, model, batch) if match else None
        self.forward = framework.modes[mode](framework, model, batch[:-1])
        self.own_clip = None if match else paddle_clip(optimizer)
        if match:
            self.optimizer, self.optim = optimizer.plain, Equivalent(optimizer, self.weights)
        else:
            self.optimizer, self.optim = paddle_optimizer(optimizer, self.weights, self.own_clip)
            self._make_state()
        self.averaged: dict[int, Any] = {}
        if self.recipe.average is not None:
            self.averaged = {id(part): paddle.zeros_like(part) for part in self.parts}
        self.start_schedule(0)

    def _make_state(self) -> None:
        """Make the optimizer create its state, which it does in its first step."""
        for part in self.parts:
            part.grad = self.paddle.zeros_like(part)
        self.update()

    # -- the schedule -------------------------------------------------------------------------------------------------

    def set_factor(self, factor: float) -> None:
        self.optim.factor = factor

    def own_scheduler(self) -> Any:
        scheduler = paddle_scheduler(self.optimizer)
        if scheduler is not None:
            self.optim.set_lr_scheduler(scheduler)
        return scheduler

    # -- the step -----------------------------------------------------------------------------------------------------

    def batch_loss(self, batch: Batch) -> Any:
        before = self.norms.variances() if self.norms else []
        outputs, objective = self.forward(*batch[:-1]), self.framework.setup.objective
        loss = objective(outputs, batch[-1]) if objective else self.cross_entropy(outputs, batch[-1])
        if self.norms:
            self.norms.correct(before)
        return loss

    def update(self) -> None:
        self.optim.step()
        self.clear()

    def clear(self) -> None:
        self.optim.clear_grad(set_to_zero=False)

    def clip(self) -> None:
        """Clip the gradients by torch's formula. Paddle's optimizer clips them itself."""
        if not (self.match and self.recipe.clip):
            return
        present = [each.parts for each in self.weights if all(part.grad is not None for part in each.parts)]
        owners = [owner for owner, parts in enumerate(present) for _ in parts]
        trained = [part for parts in present for part in parts]
        with self.paddle.no_grad():
            gradients = [part.grad for part in trained]
            for part, new in zip(trained, clipped(self.recipe.clip, gradients, self.framework.operations, owners)):
                part.grad = new

    def take_average(self) -> None:
        """Take the weights in to their average, by torch's formula."""
        decay = self.recipe.average
        if decay is not None:
            with self.paddle.no_grad():
                for part in self.parts:
                    average = self.averaged[id(part)]
                    average.set_value(averaged(decay, None if self.steps == 1 else average, part))

    @contextmanager
    def watched(self, used: Used) -> Iterator[None]:
        with super().watched(used), self._clipped_by_optimizer() as seen:
            yield
        known = [each for each in self.weights if all(id(part) in seen for part in each.parts)]
        used.clipped |= {each.name: gathered(each, [seen[id(part)] for part in each.parts]) for each in known}

    def note(self, used: Used) -> None:
        used.clipped = self.gradient_arrays()
        used.rates = {each.name: self._rate(each.parts[0]) for each in self.weights}
        used.decays = {each.name: self.settings[id(each.parts[0])].weight_decay for each in self.weights}

    def gradient_arrays(self) -> dict[str, Array]:
        return self._by_name({id(part): part.grad for part in self.parts})

    def set_gradients(self, gradients: Mapping[str, Array]) -> None:
        for part, array in self._native(gradients):
            part.grad = self.framework.to_native(array, None)

    def _rate(self, part: Any) -> float:
        if self.match:
            return self.settings[id(part)].lr * self.optim.factor
        return float(np.float32(self.optim.get_lr()) * np.float32(part.optimize_attr["learning_rate"]))

    @contextmanager
    def _clipped_by_optimizer(self) -> Iterator[dict[int, Any]]:
        """The gradients that Paddle's clip returns within the context, by parameter."""
        clipped: dict[int, Any] = {}
        own = self.own_clip
        if own is None:
            yield clipped
            return
        clip = own._dygraph_clip

        def recorded(pairs: Sequence[tuple[Any, Any]]) -> Any:
            within = clip(pairs)
            # The memory of a gradient is free as soon as the update is made.
            clipped.update({id(part): gradient.clone() for part, gradient in within})
            return within

        own._dygraph_clip = recorded
        try:
            yield clipped
        finally:
            del own._dygraph_clip

    def _by_name(self, of_parts: Mapping[int, Any]) -> dict[str, Array]:
        return {each.name: gathered(each, [of_parts[id(part)] for part in each.parts]) for each in self.weights}

    def _native(self, arrays: Mapping[str, Array]) -> Iterator[tuple[Any, Array]]:
        """(parameter, its array) for canonical arrays by the names of weights."""
        for each in self.weights:
            yield from zip(each.parts, weights.from_canonical(each, arrays[each.name]))

    # -- the state ----------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        keys = self.optimizer.keys(STATE_NAMES)
        state = {
            each.name: [gathered(each, [self.optim._get_accumulator(key, part) for part in each.parts]) for key in keys]
            for each in self.weights
        }
        return self.steps, state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.steps = steps
        for index, key in enumerate(self.optimizer.keys(STATE_NAMES)):
            for part, array in self._native({name: arrays[index] for name, arrays in state.items()}):
                self.optim._get_accumulator(key, part).set_value(array)
        if isinstance(self.optim, Equivalent):
            self.optim.steps = steps
        elif self.optimizer.name in ("adam", "adamw"):
            self._set_powers(steps)
        self.start_schedule(steps)

    def _set_powers(self, steps: int) -> None:
        """Set what Adam keeps beside the state: the powers of its betas for the next step."""
        for key, beta in (("beta1_pow_acc", self.optimizer.beta1), ("beta2_pow_acc", self.optimizer.beta2)):
            power = np.array([beta ** (steps + 1)], np.float32)
            for part in self.parts:
                self.optim._get_accumulator(key, part).set_value(power)

    def averages(self) -> dict[str, Array]:
        return self._by_name(self.averaged) if self.averaged else {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        for part, array in self._native(averages):
            self.averaged[id(part)].set_value(array)

    def freeze(self, frozen: bool) -> None:
        for part in self.frozen:
            part.stop_gradient = frozen


class _MatchedNorms:
    """Makes the running variances of batch norms what torch's are: Paddle's lack the factor n/(n - 1)."""

    def __init__(self, framework: Framework, model: Any, batch: Batch) -> None:
        self.norms = running_norms(model)
        self.terms: dict[int, int] = {}  # id of a norm -> n, the number of values in each of its means
        hooks = [norm.register_forward_pre_hook(self._count) for norm in self.norms]
        with framework.inference():
            model(*batch[:-1])
        for hook in hooks:
            hook.remove()

    def _count(self, norm: Any, inputs: tuple[Any, ...]) -> None:
        if id(norm) in self.terms:
            raise Unsupported("a batch norm that is called twice in one pass cannot be matched with torch's")
        self.terms[id(norm)] = int(np.prod(inputs[0].shape)) // norm._variance.shape[0]

    def variances(self) -> list[Any]:
        """Copies of the running variances."""
        return [norm._variance.clone() for norm in self.norms]

    def correct(self, before: Sequence[Any]) -> None:
        """Correct the running variances after a forward pass. before: the running variances before it.

        Paddle computes new = m·old + (1 - m)·biased, where m is the momentum. Torch's value is larger by (1 - m)·biased/(n - 1).
        """
        for norm, old in zip(self.norms, before):
            if id(norm) in self.terms:
                new = norm._variance
                new.set_value(new + (new - norm._momentum * old) / max(1, self.terms[id(norm)] - 1))
