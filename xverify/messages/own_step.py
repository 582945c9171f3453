"""Requests to a worker whose model file makes its own training step; see ``messages``. Weights and arrays are in array files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..framework.own_mistake import OwnMistake
from ..verdict.own_step import OwnStepTruth, StateEntry
from .codec import Request
from .training import PrepareTraining as _PrepareTraining
from .training import TrainingPrepared


@dataclass(frozen=True)
class PrepareOwnStep(Request[TrainingPrepared]):
    """Make the user's step in this mode, and time two calls. The fields are those of PrepareTraining."""

    training: _PrepareTraining


def step_file(path: str | Path, number: int) -> Path:
    """The file of one of the steps that TakeOwnSteps writes. path: of the request."""
    return Path(f"{path}-{number}.npz")


@dataclass(frozen=True)
class OwnStepsTaken:
    """Some steps were made.

    losses: of each step, by name. optimizers: parameter -> name of the optimizer that updated it.
    state: what the state holds after each step; () where the steps were watched.
    drawn: a sentence about the random numbers that the steps draw; "" where that was not noted.
    shows_clipped, variants: see RunsOwnStep.
    """

    losses: tuple[dict[str, float], ...]
    optimizers: dict[str, str]
    state: tuple[tuple[StateEntry, ...], ...] = ()
    drawn: str = ""
    shows_clipped: bool = True
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class TakeOwnSteps(Request[OwnStepsTaken]):
    """Make a step from the weights of each file, with a new state; see replay.own_step.

    path: the beginning of the names of the files: ``step_file`` of each step gets the results "step/weight/name" and, where they
        are watched, "step/gradient/n/name". Where they are not, ``state_file`` of each step gets the state after it; that before
        the first has the number START.
    watched: whether to make the steps eagerly, and to list what the optimizers are given.
    other_numbers: whether every generator of random numbers gives other numbers. With ``watched``, what the steps draw is noted.
    """

    weights: tuple[str, ...]
    path: str
    watched: bool = False
    other_numbers: bool = False


@dataclass(frozen=True)
class OwnLossCurve(Request[tuple[dict[str, float], ...]]):
    """Make this number of steps from the weights of a file, with a new state, in the mode that is timed.

    The reply has the losses of each step by name; it stops at one that is not finite.

    order: the index of the batch of each step; () takes one batch after another.
    """

    weights: str
    steps: int
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrainOwnSteps(Request[tuple[str, ...]]):
    """Train the reference from the weights of a file, and write the weights before each step into a folder.

    The reply has the file of the weights before each step.

    inputs: an array file of batches. steps: number of steps. updates: number of them that must change a parameter: with fewer, up
        to ``most`` steps are made; see float64.own_step.Steps.trajectory.
    """

    weights: str
    inputs: str
    steps: int
    folder: str
    updates: int
    most: int


@dataclass(frozen=True)
class OwnTruthComputed:
    """truths: of every step.

    random: where two runs of one step differ; "" when they do not. drawn: a sentence about the random numbers that it then draws.
    """

    truths: tuple[OwnStepTruth, ...]
    random: str
    drawn: str


@dataclass(frozen=True)
class ComputeOwnTruth(Request[OwnTruthComputed]):
    """Make the reference's steps in float64, and measure their noise floors.

    weights: of each step. folder: for the arrays; see replay.own_step.truths. once: whether to perturb once only.
    times: size of the perturbations, as a multiple of float32's.
    """

    weights: tuple[str, ...]
    inputs: str
    folder: str
    seed: int
    once: bool = False
    times: float = 1.0


@dataclass(frozen=True)
class WriteOwnVariants(Request[tuple[str, ...]]):
    """Make the reference's steps in float64 with formula variants of its optimizers; see explain.own_mistakes.write_variants.

    The reply has those of the variants that the optimizers of the step can have. Without any, nothing is written.

    seed, once: as in ComputeOwnTruth. variants: see explain.own_variants.
    """

    weights: tuple[str, ...]
    inputs: str
    folder: str
    seed: int
    once: bool = False
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExplainOwnStep(Request[tuple[str, str]]):
    """Find the known mistake with which the reference's step does what a port does.

    The reply is (a clause for the report, the name of a known difference of frameworks); the first is "" when no known mistake does
    it, and the second is "" for a mistake.

    weights: of the steps up to the one that differs. taken: the file of the port's last step.
    exact: the folder of the exact arrays. floors: weight -> rms of its noise, of the weights that the mistake must explain.
    place: where the mistake is: see replay.own_mistakes.PLACES. optimizer: the one that updates these weights; "" if not known.
    variants: those of WriteOwnVariants that the port has.
    """

    weights: tuple[str, ...]
    inputs: str
    taken: str
    exact: str
    floors: dict[str, float]
    place: str
    optimizer: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class ListOwnMistakes(Request[tuple[tuple[OwnMistake, float], ...]]):
    """List the mistakes that can be made in the reference's steps, each with its largest change in noise floors.

    exact: the folder of the exact arrays.
    """

    weights: tuple[str, ...]
    inputs: str
    exact: str


@dataclass(frozen=True)
class PlantOwnMistake(Request[None]):
    """Make this mistake in all steps from now on, in place of an earlier one; None: make none."""

    mistake: OwnMistake | None
