"""Training with paddle.optimizer, or with an exact equivalent of torch.optim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework
from xverify.framework.training import Batch, Training
from xverify.frameworks.paddle.optimizers import STATE_NAMES, Equivalent, paddle_optimizer, torch_axes
from xverify.weights import paddle as weights
from xverify.workload.optimizers import Optimizer


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


class Learner(Training):
    """Training with paddle.optimizer, or with an exact equivalent of torch.optim. The loss and the update are eager."""

    def __init__(
        self, framework: Framework, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool
    ) -> None:
        import paddle

        self.framework, self.paddle, self.model = framework, paddle, model
        model.train()
        self.weights = trainable_weights(model)
        self.names = [each.name for each in self.weights]
        self.parts = [part for each in self.weights for part in each.parts]
        self.cross_entropy = paddle.nn.functional.cross_entropy
        self.norms = _MatchedNorms(framework, model, batch) if match else None
        self.forward = framework.modes[mode](framework, model, batch[:-1])
        self.optimizer, self.optim = self._make_optimizer(optimizer, match)
        if not match:
            self._make_state()
        self.steps = 0

    def _make_optimizer(self, o: Optimizer, match: bool) -> tuple[Optimizer, Any]:
        """The settings with the formula variants, and the optimizer."""
        if match:
            return o.plain, Equivalent(self.paddle, o, self.parts, axes=torch_axes(o, self.weights))
        return paddle_optimizer(self.paddle, o, self.parts)

    def _make_state(self) -> None:
        """Make the optimizer create its state, which it does in its first step."""
        for part in self.parts:
            part.grad = self.paddle.zeros_like(part)
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)

    def _loss(self, batch: Batch) -> Any:
        """The loss of a batch, with its graph of gradients."""
        before = self.norms.variances() if self.norms else []
        outputs, objective = self.forward(*batch[:-1]), self.framework.setup.objective
        loss = objective(outputs, batch[-1]) if objective else self.cross_entropy(outputs, batch[-1])
        if self.norms:
            self.norms.correct(before)
        return loss

    def step(self, *batch: Any) -> Any:
        loss = self._loss(batch)
        loss.backward()
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)
        self.steps += 1
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss = self._loss(batch)
        loss.backward()
        found = {each.name: gathered(each, [part.grad for part in each.parts]) for each in self.weights}
        self.optim.clear_grad(set_to_zero=False)
        return float(loss), found

    def apply(self, gradients: Mapping[str, Array]) -> None:
        for each in self.weights:
            for part, array in zip(each.parts, weights.from_canonical(each, gradients[each.name])):
                part.grad = self.framework.to_native(array, None)
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)
        self.steps += 1

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        keys = self.optimizer.keys(STATE_NAMES)
        state = {
            each.name: [gathered(each, [self.optim._get_accumulator(key, part) for part in each.parts]) for key in keys]
            for each in self.weights
        }
        return self.steps, state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.steps = steps
        for each in self.weights:
            for key, array in zip(self.optimizer.keys(STATE_NAMES), state[each.name]):
                for part, own in zip(each.parts, weights.from_canonical(each, array)):
                    self.optim._get_accumulator(key, part).set_value(own)
        if isinstance(self.optim, Equivalent):
            self.optim.steps = steps
        elif self.optimizer.name in ("adam", "adamw"):
            self._set_powers(steps)

    def _set_powers(self, steps: int) -> None:
        """Set what Adam keeps beside the state: the powers of its betas for the next step."""
        for key, beta in (("beta1_pow_acc", self.optimizer.beta1), ("beta2_pow_acc", self.optimizer.beta2)):
            power = np.array([beta ** (steps + 1)], np.float32)
            for part in self.parts:
                self.optim._get_accumulator(key, part).set_value(power)


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
