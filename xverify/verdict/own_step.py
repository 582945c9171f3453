"""What is exact about one step of a user's own ``train_step``, without its arrays, which are in a file. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OwnStepTruth:
    """The exact values and noise floors of one step of the reference.

    losses, loss_floors: of every loss that the step returns, by name.
    sizes, floors: weight -> rms of its change, and of the noise in it. Running statistics are weights, too.
    gradient_sizes: of the gradients that optimizers are given, by "n/name": that of the n-th update of a parameter within the
        step, from 0.
    optimizers: parameter -> name of the optimizer that updates it.
    rates: parameter -> the learning rate of that optimizer.
    trained_by: parameter -> name of the loss whose backward pass comes before its update, where that is known.
    """

    losses: Mapping[str, float]
    loss_floors: Mapping[str, float]
    sizes: Mapping[str, float]
    floors: Mapping[str, float]
    gradient_sizes: Mapping[str, float] = field(default_factory=dict)
    optimizers: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    trained_by: Mapping[str, str] = field(default_factory=dict)
