"""The loss of a training step in float64, what it would be with known mistakes, and whether it depends on its targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import Failed
from ..framework.objective import NOT_DIFFERENTIABLE, class_axis
from ..framework.structures import named_outputs
from ..workload.loss_formulas import value
from ..workload.loss_mistakes import wrong_losses
from ..workload.losses import ALIKE, OF_CLASSES, Loss, Objective
from .arithmetic import float64_arithmetic
from .named_losses import TorchOperations
from .operations import perturbed_arithmetic
from .perturbation import Noise
from .structures import as_float32, as_float64, flatten

# A function of the outputs and targets: Framework.loss.
LossOf = Callable[[Any, Any], Tensor]
APART = 1e-4  # two losses that differ by less than this share cannot be told apart in float32
SAME = 1e-12  # two losses in float64 that differ by less than this share are one


def cross_entropy_of(logits: Any, target: Tensor) -> Tensor:
    """The mean cross-entropy of logits of shape (..., classes)."""
    (first,) = flatten(logits)
    return nn.functional.cross_entropy(first.flatten(0, -2), target.flatten())


def loss_in(loss: LossOf, outputs: Any, targets: Any, float64: bool, noise: Noise | None = None) -> Tensor:
    """The loss in the arithmetic of a pass.

    targets: the last entry of a Batch. float64: whether the outputs are float64. noise: perturbs every operation of a float64 loss
    that the user says.
    """
    context: AbstractContextManager[None] = nullcontext()
    if isinstance(targets, Mapping):
        targets = {name: (as_float64 if float64 else as_float32)(tensor) for name, tensor in targets.items()}
        if float64:
            context = float64_arithmetic() if noise is None else perturbed_arithmetic(noise)
    with context:
        found = loss(outputs, targets)
    if not found.requires_grad:
        raise Failed(NOT_DIFFERENTIABLE)
    return found


def summed_values(outputs: Any, targets: Any) -> int:
    """The number of values that a loss sums: the classes of a row of logits, or all values where the user says the loss."""
    tensors = flatten(outputs)
    return max(tensor.numel() for tensor in tensors) if isinstance(targets, Mapping) else int(tensors[0].shape[-1])


def subtracted(outputs: Any, targets: Any) -> float:
    """The size of the two numbers whose difference is the cross-entropy of one item: the logarithm of a sum, and the item's logit.

    Their rounding is all that remains of a small loss, in frameworks that compute it so. It is an rms over the items, divided by
    the root of their number, because the loss is their mean. 0.0 where the user says the loss, whose every operation is perturbed.
    """
    if isinstance(targets, Mapping):
        return 0.0
    logits = flatten(outputs)[0].detach().flatten(0, -2)
    own = logits.gather(-1, targets.flatten().long().unsqueeze(-1))
    return float(own.double().square().mean().sqrt()) / math.sqrt(max(1, len(own)))


class KnownLosses:
    """The named loss of a step, with which a wrong loss is explained.

    objective: of the reference. None, and one whose loss the model file says, are recognised by their value.
    outputs: name -> layout.
    named: the loss as a sum of named losses, once ``alternatives`` was called; None when it is another one.
    """

    def __init__(self, objective: Objective | None, outputs: Mapping[str, str | None]) -> None:
        self.objective, self.layouts = objective, outputs
        self.named: Objective | None = None

    def alternatives(self, outputs: Any, targets: Any, exact: float) -> dict[str, float]:
        """What a report says about a mistake -> the loss with it, for every mistake that changes the loss, in float64.

        Of mistakes that give the same loss, the first is returned.
        """
        named = {name: tensor.detach() for name, tensor in named_outputs(outputs, list(self.layouts)).items()}
        given = targets if isinstance(targets, Mapping) else {"target": targets}
        known = {**named, **{name: as_float64(tensor) for name, tensor in given.items()}}
        objective = self.named = self._named(known, set(given), exact)
        if objective is None:
            return {}
        found: dict[str, float] = {}
        for wrong in wrong_losses(objective):
            changed = self._value(wrong.objective, known)
            others = [exact, *found.values()]
            if math.isfinite(changed) and all(abs(changed - other) > APART * abs(changed) for other in others):
                found[wrong.says] = changed
        return found

    def _named(self, known: Mapping[str, Tensor], targets: set[str], exact: float) -> Objective | None:
        """The objective as a sum of named losses; None when it is another one."""
        if self.objective is not None and not self.objective.own:
            return self.objective
        written = self.objective or Objective(())
        possible = (replace(written, terms=(term,), own=False) for term in _possible(known, targets, self.layouts))
        of_spec = [replace(written, own=False)] if written.terms else []
        for objective in (*of_spec, *possible):
            try:
                found = self._value(objective, known)
            except (RuntimeError, ValueError, IndexError):
                continue
            if abs(found - exact) <= SAME * abs(exact):
                return objective
        return None

    def _value(self, objective: Objective, known: Mapping[str, Tensor]) -> float:
        total, ops = 0.0, TorchOperations()
        with torch.no_grad():
            for term in objective.terms:
                axis = class_axis(self.layouts[term.output], channels_last=False)
                lengths = known.get(term.lengths)
                total += term.weight * float(value(ops, term, known[term.output], known[term.target], axis, lengths))
        return total


def _possible(known: Mapping[str, Tensor], targets: set[str], outputs: Mapping[str, str | None]) -> Iterator[Loss]:
    """Named losses that the function of a model file may compute: one output, one target, and usual settings."""
    for output in (name for name in outputs if name in known):
        for target in targets:
            x, t = known[output], known[target]
            whole = not t.is_floating_point()
            if whole and t.dim() == x.dim() - 1:
                labels = {int(label) for label in t.unique() if label < 0}
                for ignored in (*labels, None):
                    for smoothing in (0.0, 0.1, 0.05, 0.2):
                        for reduction in ("mean", "sum"):
                            yield Loss(OF_CLASSES[0], output, target, 1.0, reduction, smoothing, ignore_index=ignored)
            if t.shape == x.shape:
                for name in ALIKE:
                    for reduction in ("mean", "sum", "batchmean"):
                        yield Loss(name, output, target, reduction=reduction)


def check_targets(loss: LossOf, outputs: Any, targets: Any) -> None:
    """Raise Failed where the loss does not depend on one of its targets.

    targets: a Batch's last entry, in float64. Each one is replaced by other values of its own: it is turned by one item, then by
    one value.
    """
    if not isinstance(targets, Mapping):
        return
    with torch.no_grad(), float64_arithmetic():
        right = float(loss(outputs, targets))
        if not math.isfinite(right):
            return
        ignored = []
        for name, tensor in targets.items():
            turned = [tensor.roll(1, 0), tensor.flatten().roll(1).reshape(tensor.shape)]
            if tensor.is_floating_point():
                turned.append(tensor * 0.5)
            others = [other for other in turned if not torch.equal(other, tensor)]
            if others and all(float(loss(outputs, {**targets, name: other})) == right for other in others):
                ignored.append(name)
    if ignored:
        raise Failed(
            f"the reference's loss does not change when the values of its target {', '.join(map(repr, ignored))} do: it does not "
            f"use {'it' if len(ignored) == 1 else 'them'}; use it in loss(outputs, targets), or leave it out of targets in spec.py"
        )
