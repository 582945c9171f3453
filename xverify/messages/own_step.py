"""Requests to a worker whose model file makes its own training step; see ``messages``. Weights and arrays are in array files."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    products: precision -> number of matrix products and convolutions that the first step computed in it, where it was watched.
    """

    losses: tuple[dict[str, float], ...]
    optimizers: dict[str, str]
    state: tuple[tuple[StateEntry, ...], ...] = ()
    drawn: str = ""
    shows_clipped: bool = True
    variants: tuple[str, ...] = ()
    products: dict[str, int] = field(default_factory=dict)


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
    lowered: the precision in which matrix products compute, as under autocast; "": as the code asks for.
    parts: items of each rank, where the batch norms of a rank use its own items; (): they use the whole batch.
    """

    weights: tuple[str, ...]
    inputs: str
    folder: str
    seed: int
    once: bool = False
    times: float = 1.0
    lowered: str = ""
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class WriteOwnVariants(Request[tuple[str, ...]]):
    """Make the reference's steps in float64 with changed optimizers; see explain.own_variants.write_variants.

    The reply has those of the variants that the optimizers of the step can have. Without any of those asked for, nothing is
    written.

    seed, once, lowered, parts: as in ComputeOwnTruth. variants: see explain.own_variants; (): their own formulas.
    given: the path of a port's watched steps, whose gradients the optimizers are given; "": their own.
    fused_parameters: of the port, see Framework.fused_parameters.
    """

    weights: tuple[str, ...]
    inputs: str
    folder: str
    seed: int
    once: bool = False
    lowered: str = ""
    variants: tuple[str, ...] = ()
    given: str = ""
    fused_parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class OwnStepExplained:
    """What a search has found.

    says: a clause for the report; "" when no known mistake explains the port. difference: the name of a known difference of
    frameworks; "" for a mistake. ended: whether the search ended because its time was over.
    """

    says: str
    difference: str
    ended: bool


@dataclass(frozen=True)
class ExplainOwnStep(Request[OwnStepExplained]):
    """Find the known mistake with which the reference's steps do what a port's steps do.

    weights: of the steps that it must explain. taken: see TakeOwnSteps.path. exact: the folder of the exact arrays.
    plain: the same without variants; they are tried, too, because a port with a mistake may be nearer to variants by chance.
    names: the weights that the mistake must explain, in all steps.
    losses, exact_losses, loss_floors: of every loss of each step, by name, which the mistake must explain, too.
    place: where the mistake is: see explain.own_mistakes.PLACES.
    first: number of the first step that differs. blamed: the weights that differ there.
    optimizer: the one that updates these weights; "" if not known.
    factor: by which their gradients there are multiples of the right ones, mostly; None where they are not, or are not known.
    variants, given, fused_parameters, parts: as in WriteOwnVariants, of the exact steps.
    """

    weights: tuple[str, ...]
    inputs: str
    taken: str
    exact: str
    plain: str
    names: tuple[str, ...]
    losses: tuple[dict[str, float], ...]
    exact_losses: tuple[dict[str, float], ...]
    loss_floors: tuple[dict[str, float], ...]
    place: str
    first: int
    blamed: tuple[str, ...]
    optimizer: str
    factor: float | None
    variants: tuple[str, ...] = ()
    given: str = ""
    fused_parameters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    parts: tuple[int, ...] = ()


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
