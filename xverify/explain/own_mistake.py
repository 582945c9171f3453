"""One mistake that a user's own training step may have, and what a catalogue of them is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from torch import nn

from ..float64.own_step import Batch, Change, Optimizers, Steps
from ..float64.own_truth import rms
from ..weights.canonical import Array
from .own_updates import unchanged

FACTOR = 1e-3  # share of a value by which a factor may be off

Arrays = Mapping[str, Array]
Around = Callable[[nn.Module], AbstractContextManager[object]]
Given = Callable[[Batch], Batch]


@dataclass(frozen=True)
class Mistake:
    """One mistake.

    kind: what is wrong, such as "beta1". Two mistakes of one kind are the same with other values.
    says: a clause for the report.
    change: makes it. around: the context of each step that makes it, for what must see the operations of the step.
    batch: makes what each step is given in place of its batch.
    difference: the name of a known difference of frameworks, which is no mistake; "" for a mistake.
    """

    kind: str
    says: str
    change: Change = unchanged
    around: Around | None = None
    batch: Given | None = None
    difference: str = ""


@dataclass(frozen=True)
class Port:
    """What a port's steps did beside the exact ones. Each sequence has one entry for each step.

    found: weight -> its value after the step. exact: the same of the exact steps, and "change/name" and "gradient/n/name".
    floors: weight -> rms of the noise in it. All have the same weights in ``floors``, which a mistake must explain.
    losses, exact_losses, loss_floors: of every loss that the steps return, by name; {} where they do not count.
    first: number of the first step that differs. blamed: the weights that the port's optimizer changes wrongly there.
    optimizer: the name of that optimizer; "" where it is not known, or has no name.
    factor: by which its gradients there are multiples of the right ones, mostly; NaN where they are not, or are not known.
    variants: formula variants that the optimizers have in the exact steps; see own_variants.
    given: gives the optimizers other gradients in the exact steps.
    """

    found: Sequence[Arrays]
    exact: Sequence[Arrays]
    floors: Sequence[Mapping[str, float]]
    losses: Sequence[Mapping[str, float]]
    exact_losses: Sequence[Mapping[str, float]]
    loss_floors: Sequence[Mapping[str, float]]
    first: int
    blamed: Sequence[str]
    optimizer: str
    factor: float
    variants: Sequence[str] = ()
    given: Change = unchanged


@dataclass(frozen=True)
class Case:
    """What a catalogue of mistakes is given.

    steps: the reference's. model, optimizers: of a new state, which no step has changed.
    """

    steps: Steps
    port: Port
    model: nn.Module
    optimizers: Optimizers

    @property
    def names(self) -> list[str]:
        """The optimizers whose settings may be wrong: the one that is blamed, or all where it is not known."""
        return [self.port.optimizer] if self.port.optimizer in self.optimizers else list(self.optimizers)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of the model by their canonical names."""
        names = self.steps.code.names
        return {names.get(name, name): each for name, each in self.model.named_parameters()}

    def factor(self, number: int | None = None) -> float:
        """By which the port's changes of the blamed weights are multiples of the right ones; see ``changes``.

        The median of those that are multiples; NaN when none is.
        """
        factors = [self.factor_of(name, number) for name in self.port.blamed]
        finite = [factor for factor in factors if math.isfinite(factor)]
        return median(finite) if finite else math.nan

    def factor_of(self, name: str, number: int | None = None) -> float:
        """The same of one weight."""
        own, right = self.changes(name, number)
        size = float(np.vdot(right, right))
        factor = float(np.vdot(own, right)) / size if size else math.nan
        return factor if rms(own - factor * right) <= FACTOR * rms(right) * max(1.0, abs(factor)) else math.nan

    def changes(self, name: str, number: int | None = None) -> tuple[Array, Array]:
        """(what a step of the port has changed in a weight, what it should have changed).

        number: of the step; None: the first one that differs.
        """
        number = self.port.first if number is None else number
        found, exact = self.port.found[number][name], self.port.exact[number]
        return found - (exact[f"after/{name}"] - exact[f"change/{name}"]), exact[f"change/{name}"]


Mistakes = Callable[[Case], Iterator[Mistake]]


def every(*catalogues: Mistakes) -> Mistakes:
    """The mistakes of several catalogues. One that fails ends: a user's own optimizer may lack what those of torch have."""

    def listed(case: Case) -> Iterator[Mistake]:
        for catalogue in catalogues:
            with suppress(Exception):
                yield from catalogue(case)

    return listed


def the(name: str) -> str:
    """An optimizer, for a sentence."""
    return f"optimizer {name!r}" if name else "the optimizer"


def within(steps: Steps, around: Around | None, given: Given | None = None) -> Steps:
    """The same steps, each of them made within a context. around: makes the context of one step. given: see Mistake.batch."""
    start = steps.code.start

    def started(model: nn.Module) -> Any:
        step, optimizers, state = start(model)

        def made(batch: Any) -> Any:
            with around(model) if around is not None else nullcontext():
                return step(batch if given is None else dict(given(batch)))

        return made, optimizers, state

    return replace(steps, code=replace(steps.code, start=started))
