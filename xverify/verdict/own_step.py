"""What is exact about one step of a user's own ``train_step``, without its arrays, which are in files. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

START = -1  # the number of the state before the first step
EXACT, NOISE = (
    "own-exact.npz",
    "own-noise.npz",
)  # beside which the exact state of every step and its noise are; see state_file


@dataclass(frozen=True)
class StateEntry:
    """The name of one array that the state of a step holds.

    path: as a report writes it, for example ``state["ema"].fc.weight``. key: the same without marks; equal in two frameworks.
    place: of the optimizer or copy that it belongs to. kind: what an optimizer keeps there, for example "exp_avg"; "" elsewhere.
    weight: canonical name of the weight whose layout it has; "" where it has that of none.
    says: why it cannot be compared; "" where it can.
    """

    path: str
    key: str
    place: str
    kind: str = ""
    weight: str = ""
    says: str = ""


def state_file(path: Path, number: int) -> Path:
    """The file of the state after a step: path of an entry -> array. path: that of the steps, or EXACT or NOISE in a folder."""
    return path.with_name(f"{path.stem}-state-{number if number > START else 'start'}.npz")


@dataclass(frozen=True)
class OwnStepTruth:
    """The exact values and noise floors of one step of the reference.

    losses, loss_floors: of every loss that the step returns, by name.
    sizes, floors: weight -> rms of its change, and of the noise in it. Running statistics are weights, too.
    gradient_sizes: of the gradients that optimizers are given, by "n/name": that of the n-th update of a parameter within the
        step, from 0.
    optimizers: parameter -> name of the optimizer that updates it.
    trained_by: parameter -> name of the loss whose backward pass comes before its update, where that is known.
    state: what the state holds after the step.
    clips: whether a function of torch clips gradients in any step.
    precision: the lowest in which the step computes.
    products: precision -> number of matrix products and convolutions that compute in it, in all steps.
    skipped: what the loss was multiplied by where infinite gradients made the step skip an update; 0.0 where none was skipped.
    """

    losses: Mapping[str, float]
    loss_floors: Mapping[str, float]
    sizes: Mapping[str, float]
    floors: Mapping[str, float]
    gradient_sizes: Mapping[str, float] = field(default_factory=dict)
    optimizers: Mapping[str, str] = field(default_factory=dict)
    trained_by: Mapping[str, str] = field(default_factory=dict)
    state: tuple[StateEntry, ...] = ()
    clips: bool = False
    precision: str = "float32"
    products: Mapping[str, int] = field(default_factory=dict)
    skipped: float = 0.0
