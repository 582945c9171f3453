"""Requests to a worker that trains its model; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..framework.capture import LayerCall
from ..framework.dropout import DropoutCall, DropoutLayer
from ..framework.ranks import DropoutsDrawn, WeightsHeld
from ..verdict.findings import ReplayReport, StepTruth
from ..workload.losses import Objective
from ..workload.optimizers import Optimizer
from .codec import Request


@dataclass(frozen=True)
class TrainingState:
    """The state before a training step.

    weights: an array file.
    optimizer_state: an array file with the names "parameter/index", where index is a place in Optimizer.state_names; "" means
        zeros.
    steps: number of steps that were made before.
    """

    weights: str
    optimizer_state: str
    steps: int


@dataclass(frozen=True)
class JoinRanks(Request[None]):
    """Become one of several ranks, which train one model together.

    rank: the number of this process. count: of all. plan: a key of workload.ranks.PLANS.
    meeting: where the ranks find each other: "file://" and a file, "tcp://HOST:PORT", or "env://".
    seconds: that a rank waits for the others in a collective operation.
    shares: of each rank, in a mean over the items of the batch.
    folder: of the files of this process, which it must see.
    """

    rank: int
    count: int
    plan: str
    meeting: str
    seconds: float
    shares: tuple[float, ...]
    folder: str


@dataclass(frozen=True)
class DrawDropouts(Request[DropoutsDrawn]):
    """Say what the dropout layers of this rank drew when training was prepared."""


@dataclass(frozen=True)
class ListWeightsHeld(Request[WeightsHeld]):
    """Say what this rank had of the weights when training was prepared."""


@dataclass(frozen=True)
class TrainingPrepared:
    """The model can be trained, and has made two steps.

    first_step_seconds, second_step_seconds: duration of each of the two steps.
    optimizer: the settings, with the formula variants in which the framework's own optimizer differs from torch's.
    names: canonical names of the trainable parameters.
    dropout_disabled: layers in which dropout was disabled.
    apart: batch norms that each rank computes from its own part of the batch.
    """

    first_step_seconds: float
    second_step_seconds: float
    optimizer: Optimizer
    names: tuple[str, ...]
    dropout_disabled: tuple[str, ...]
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class PrepareTraining(Request[TrainingPrepared]):
    """Prepare the model for training in this mode, and time two steps.

    inputs: an array file of batches with their labels.
    match: whether to use an exact equivalent of torch's optimizer instead of the framework's own.
    time_input: whether the conversion of the batch is part of the timed step.
    plant: a mistake to make in the model first: a name in ``worker.mistakes.IN_MODEL``; "" for none.
    dropout: whether to look first at how the dropout layers drop, for ``ListDropouts``.
    """

    inputs: str
    mode: str
    optimizer: Optimizer
    match: bool
    time_input: bool = False
    plant: str = ""
    dropout: bool = False


@dataclass(frozen=True)
class SetState(Request[None]):
    """Set the weights, running statistics and optimizer state of the model to this state."""

    state: TrainingState


@dataclass(frozen=True)
class Scaling:
    """How a float16 run scales its loss.

    scale: of the loss. interval: number of steps with finite gradients after which it is doubled.
    after_step, counted: the scale after a usual step, and the number of steps that were counted towards the interval.
    after_overflow: the scale after a step at the scale ``overflow``, with which gradients are infinite.
    overflow_counted: the number of steps that were counted after it.
    moved: number of weights that this step changed.
    after_interval: the scale after the last step of an interval.
    """

    scale: float
    interval: int
    after_step: float
    counted: int
    overflow: float
    after_overflow: float
    overflow_counted: int
    moved: int
    after_interval: float


@dataclass(frozen=True)
class StepTaken:
    """One step was made.

    loss: loss of the pass that computed the gradients.
    step_loss: loss that the timed callable returned.
    sparse: parameters whose gradient is a list of rows.
    master: dtype of the weights that the step updates -> number of weights of this dtype. scaling: how the loss is scaled; None
        where the loss is not scaled, or was not asked for.
    """

    loss: float
    step_loss: float
    sparse: tuple[str, ...]
    master: dict[str, int] = field(default_factory=dict)
    scaling: Scaling | None = None


@dataclass(frozen=True)
class TrainingStep(Request[StepTaken]):
    """Compute the gradients of a batch, and make one step with the timed callable, both from this state.

    path: the file for the results "gradient/name", "weight/name" and "state/name/index". With a recipe also what a step from this
        state uses of it: "part/index/name" (the gradients of a micro-batch), "accumulated/name", "clipped/name", "rate/name" and
        "decay/name" (see framework.training.Used), and "state/name/average".
    scaling: whether to also make steps that show how the loss is scaled, where it is.
    """

    state: TrainingState
    case: int
    path: str
    scaling: bool = False


@dataclass(frozen=True)
class ApplyGradients(Request[None]):
    """Make one update with these gradients from this state, without computing a forward or backward pass.

    gradients: an array file by canonical names.
    path: the file for the results "weight/name" and "state/name/index".
    """

    state: TrainingState
    gradients: str
    path: str


@dataclass(frozen=True)
class PlantMistake(Request[None]):
    """Plant a mistake in the training permanently. plant: a name in ``worker.mistakes.PLANTS``."""

    plant: str


@dataclass(frozen=True)
class LossCurve(Request[tuple[float, ...]]):
    """Make this number of steps from this state. The reply has the loss of each; it stops at one that is not finite.

    order: the index of the batch of each step; () takes one batch after another.
    """

    state: TrainingState
    steps: int
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trajectory(Request[tuple[TrainingState, ...]]):
    """Train from this state, and save some states into a folder, which the reply has.

    at: numbers of the steps before which the state is saved.
    """

    state: TrainingState
    at: tuple[int, ...]
    folder: str


@dataclass(frozen=True)
class TrainingCaptured:
    """The capture of one forward and backward pass. The fields are those of ``Captured``.

    loss: its value. loss_scale: what it was multiplied by; the gradients have been divided by it.
    """

    records: tuple[LayerCall, ...]
    channels_last: bool
    loss: float
    loss_scale: float = 1.0


@dataclass(frozen=True)
class CaptureTraining(Request[TrainingCaptured]):
    """Run a forward and a backward pass on the first batch, and write inputs, outputs and gradients of layers into a folder.

    wanted: canonical names of layers.
    """

    state: TrainingState
    inputs: str
    folder: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class TruthComputed:
    """The exact values and noise floors of a training step. Its arrays are in the file of the request.

    loss: the loss as a sum of named losses; None when it is another one.
    """

    truth: StepTruth
    loss: Objective | None = None


@dataclass(frozen=True)
class TrainingTruth(Request[TruthComputed]):
    """Compute a training step in float64, and its noise floors.

    path: the file for the results "gradient/name" and "statistic/name".
    once: whether to measure the noise floors with one perturbed pass only.
    parts: number of micro-batches of a step.
    precision: in which the frameworks compute.
    masks: an array file of dropout masks (framework.dropout.mask_key); "" without dropout.
    """

    state: TrainingState
    inputs: str
    case: int
    path: str
    seed: int
    once: bool
    parts: int = 1
    precision: str = "float32"
    masks: str = ""


@dataclass(frozen=True)
class GradientFloors(Request[None]):
    """Measure how much the gradients of a step change under rounding that is ``times`` as large as that of the precision.

    path: the file for the results: parameter -> rms of the change of each value of its gradient. masks: as in ``TrainingTruth``.
    """

    state: TrainingState
    inputs: str
    case: int
    seed: int
    times: float
    path: str
    precision: str = "float32"
    masks: str = ""


@dataclass(frozen=True)
class DropoutsListed:
    """The dropout layers of a model, and their calls in one forward pass.

    functions: that drop values outside of layers, as far as this is known.
    """

    layers: tuple[DropoutLayer, ...]
    calls: tuple[DropoutCall, ...]
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListDropouts(Request[DropoutsListed]):
    """Return what ``PrepareTraining`` with ``dropout`` found."""


@dataclass(frozen=True)
class MaskedPass(Request[float]):
    """Make one eager forward and backward pass from this state, in which dropout layers multiply by given masks.

    The reply is its loss.

    masks: an array file (framework.dropout.mask_key), in the framework's own layout.
    path: the file for the results "gradient/name".
    """

    state: TrainingState
    case: int
    masks: str
    path: str


@dataclass(frozen=True)
class ReplayTraining(Request[tuple[ReplayReport, ReplayReport]]):
    """Replay the capture of a training step. The reply is (forward report, backward report).

    folder, records, channels_last, loss_scale: see ``TrainingCaptured``.
    """

    state: TrainingState
    inputs: str
    folder: str
    records: tuple[LayerCall, ...]
    channels_last: bool
    seed: int
    precision: str = "float32"
    loss_scale: float = 1.0
