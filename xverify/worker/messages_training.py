"""What a worker is asked when its model is trained: see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from ..framework.capture import LayerCall
from ..verdict.findings import ReplayReport, StepTruth
from ..workload.optimizers import Optimizer
from .codec import Reply, Request
from .messages import Done


@dataclass(frozen=True)
class TrainingState:
    """What a training step begins with.

    weights: an array file. optimizer_state: an array file of "name/index", index in the order of Optimizer.state_names;
    "": zeros. steps: how many were made before.
    """

    weights: str
    optimizer_state: str
    steps: int


@dataclass(frozen=True)
class TrainingPrepared(Reply):
    """The model can be trained, and has made two steps.

    optimizer: the settings, with the variants in which the framework's own optimizer differs from torch's. names: canonical
    names of the parameters that learn. dropout_disabled: layers whose dropout was turned off.
    """

    first_step_seconds: float
    second_step_seconds: float
    optimizer: Optimizer
    names: tuple[str, ...]
    dropout_disabled: tuple[str, ...]


@dataclass(frozen=True)
class PrepareTraining(Request[TrainingPrepared]):
    """Prepare the model for training in this mode, and make two steps, each on the clock.

    inputs: the batches, with their labels. match: with an exact equivalent of torch's optimizer in place of the framework's.
    time_input: whether converting the batch is part of the timed step.
    """

    inputs: str
    mode: str
    optimizer: Optimizer
    match: bool
    time_input: bool = False


@dataclass(frozen=True)
class SetState(Request[Done]):
    """Take the weights, running statistics and optimizer state of this state."""

    state: TrainingState


@dataclass(frozen=True)
class StateSaved(Reply):
    """state: what the next step begins with."""

    state: TrainingState


@dataclass(frozen=True)
class SaveState(Request[StateSaved]):
    """Write what the next step begins with into two array files."""

    weights: str
    optimizer_state: str


@dataclass(frozen=True)
class StepTaken(Reply):
    """One step was made.

    loss: of the pass that gave the gradients. step_loss: of the timed callable. sparse: parameters whose gradient comes as
    rows.
    """

    loss: float
    step_loss: float
    sparse: tuple[str, ...]


@dataclass(frozen=True)
class TrainingStep(Request[StepTaken]):
    """Compute the gradients of a batch, and make one step with the timed callable, both from this state.

    path: a file for "gradient/name", "weight/name" and "state/name/index".
    """

    state: TrainingState
    case: int
    path: str


@dataclass(frozen=True)
class ApplyGradients(Request[Done]):
    """Make one update of the optimizer alone, from this state and by these gradients.

    gradients: an array file by canonical names. path: a file for "weight/name" and "state/name/index".
    """

    state: TrainingState
    gradients: str
    path: str


@dataclass(frozen=True)
class PlantMistake(Request[Done]):
    """Plant a mistake in the training, for good. plant: a name of ``worker.mistakes.PLANTS``."""

    plant: str


@dataclass(frozen=True)
class CurveDrawn(Reply):
    """losses: step by step; the last one may be infinite or NaN."""

    losses: tuple[float, ...]


@dataclass(frozen=True)
class LossCurve(Request[CurveDrawn]):
    """Make so many steps from this state, one batch after another. It ends at a loss that is not finite."""

    state: TrainingState
    steps: int


@dataclass(frozen=True)
class StatesSaved(Reply):
    """states: one before each step that was asked for."""

    states: tuple[TrainingState, ...]


@dataclass(frozen=True)
class Trajectory(Request[StatesSaved]):
    """Train from this state, and save the states before the steps of the numbers ``at`` into a folder."""

    state: TrainingState
    at: tuple[int, ...]
    folder: str


@dataclass(frozen=True)
class TrainingCaptured(Reply):
    """What one forward and backward pass wrote down: as ``Captured``, with the loss."""

    records: tuple[LayerCall, ...]
    channels_last: bool
    loss: float


@dataclass(frozen=True)
class CaptureTraining(Request[TrainingCaptured]):
    """Run a forward and a backward pass on the first batch, and write what every layer takes and gives, and its gradients.

    wanted: canonical names of layers.
    """

    state: TrainingState
    inputs: str
    folder: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class TruthComputed(Reply):
    """truth: the exact values and noise floors of a training step. Its arrays are in the file of the request."""

    truth: StepTruth


@dataclass(frozen=True)
class TrainingTruth(Request[TruthComputed]):
    """Compute a training step in float64, and its noise floors.

    path: a file for "gradient/name" and "statistic/name". once: measure the floors by one noisy pass.
    """

    state: TrainingState
    inputs: str
    case: int
    path: str
    seed: int
    once: bool


@dataclass(frozen=True)
class GradientFloorsMeasured(Reply):
    """floors: parameter -> the rms by which its gradient moves."""

    floors: dict[str, float]


@dataclass(frozen=True)
class GradientFloors(Request[GradientFloorsMeasured]):
    """Measure how far rounding that is ``times`` as large as float32's moves the gradients of a step."""

    state: TrainingState
    inputs: str
    case: int
    seed: int
    times: float


@dataclass(frozen=True)
class TrainingReplayed(Reply):
    """forward, backward: one report of each pass."""

    forward: ReplayReport
    backward: ReplayReport


@dataclass(frozen=True)
class ReplayTraining(Request[TrainingReplayed]):
    """Replay a capture of a training step. folder, records, channels_last: of the capture."""

    state: TrainingState
    inputs: str
    folder: str
    records: tuple[LayerCall, ...]
    channels_last: bool
    seed: int
