"""Records of the training-parity checks and of the loss curve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .layers import Layers
from .verdicts import EndVerdict, Verdict, settle_verdict

OWN_STEP = "train_step of the model files"  # what trains where the model files make the whole step


@dataclass(frozen=True)
class Check:
    """One training-parity check at one step.

    name: "weights", "forward", "loss", "backward", "gradients", "update", "statistics" or "curve"; with a recipe also
        "accumulation", "clipping", "schedule", "groups", "frozen" and "average";
        in mixed precision "precision", "master weights", "unscaling" and "scaling"; with a step of one's own also "state", and in
        mixed precision "optimizer".
    step: number of training steps that were made before the compared state.
    ratio: the worst residual / noise floor; None when none was computed.
    says: what differs, and where.
    difference: name of a known difference of the framework that is no fault, for example "eps-hat".
    compared, known: number of compared layers, parameters or values, and of all of them.
    group_ratio: the same ratio in the worst group of values; None where no groups were judged.
    detection_limits: name of what was judged -> the smallest relative error that would not have been EQUAL, in the median group of
        its values.
    detection_limit_worst: the largest of these in any group of values; None when none was measured.
    """

    name: str
    step: int
    verdict: Verdict
    ratio: float | None = None
    says: str = ""
    difference: str = ""
    compared: int = 0
    known: int = 0
    group_ratio: float | None = None
    detection_limits: dict[str, float] = field(default_factory=dict)
    detection_limit_worst: float | None = None

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)

    @property
    def label(self) -> str:
        """Its name and step."""
        return f"{self.name}, step {self.step}"

    @property
    def detection_limit(self) -> float | None:
        """The largest of the detection limits; None when none was measured."""
        return max(self.detection_limits.values(), default=None)


@dataclass(frozen=True)
class Curve:
    """The losses of a training run from the first state, step by step, beside the reference's.

    losses, reference: of the subject and of the reference.
    low, high: range of the reference and its replicas, whose weights differ from the reference's by one unit in the last place.
    judged: number of steps that count; after these steps rounding alone has pulled the replicas too far apart.
    says: what differs; "" when nothing does.
    loss: the name of the loss, where the model files make the whole step.
    """

    losses: tuple[float, ...]
    reference: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    judged: int
    verdict: Verdict
    says: str = ""
    loss: str = ""

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)

    @property
    def title(self) -> str:
        """What a report calls it."""
        return f"loss curve of {self.loss!r}" if self.loss else "loss curve"

    @property
    def outcome(self) -> str:
        """The verdict, and the first step whose loss is not finite."""
        end = next((step for step, loss in enumerate(self.losses) if not math.isfinite(loss)), None)
        return self.verdict + (f", not finite at step {end}" if end is not None else "")


@dataclass(frozen=True)
class EndLosses:
    """The end losses of trainings from several seeds, beside the reference's: a statistical comparison, and no proof.

    steps: of each training. last: number of its last steps whose mean loss is the end loss.
    seeds: of the initial weights and the order of the batches; those with which the reference's own loss stayed finite.
    losses, reference: the end losses of the subject and of the reference, by seed.
    difference, low, high: the mean of subject - reference, paired by seed, and its 95% Student-t interval; None without one.
    margin: the difference that is too small to matter; None without an interval.
    says: the verdict in words, with its numbers.
    loss: the name of the loss, where the model files make the whole step.
    """

    steps: int
    last: int
    seeds: tuple[int, ...]
    losses: tuple[float, ...]
    reference: tuple[float, ...]
    verdict: EndVerdict
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    says: str = ""
    loss: str = ""

    def __post_init__(self) -> None:
        settle_verdict(self, EndVerdict)


@dataclass(frozen=True)
class Training:
    """The training of a row.

    optimizer: settings of the optimizer, in torch's terms; OWN_STEP where the model files make the whole step.
    variants: formula variants in which the framework's own optimizer differs from torch's.
    checks: results of the training-parity checks, step after step.
    untested: parameters whose gradient consists of rounding errors alone, so that no fault could show in it.
    judged: how much of the parameters was judged, in words; "" when all of it was.
    dropout_disabled: layers in which dropout was disabled.
    layers: the replay of the forward pass.
    loss: the loss, as the spec says it; "" for the mean cross-entropy of the only output.
    precision: in which the model computes.
    end_losses: of trainings from several seeds; None when none were asked for.
    state_left_out: path of a value of the state of a user's own step -> why it was not compared.
    state_matched: path in the reference -> path in the subject, of the compared values that have another path there.
    ranks: the processes that train the model together, in words; "" for one.
    apart: batch norms that each of them computes from its own part of the batch, as the reference then does.
    other_curves, other_end_losses: those of the other losses that the model files' own step returns.
    """

    optimizer: str
    variants: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    curve: Curve | None = None
    untested: tuple[str, ...] = ()
    dropout_disabled: tuple[str, ...] = ()
    layers: Layers | None = None
    loss: str = ""
    precision: str = "float32"
    end_losses: EndLosses | None = None
    judged: str = ""
    state_left_out: dict[str, str] = field(default_factory=dict)
    state_matched: dict[str, str] = field(default_factory=dict)
    other_curves: tuple[Curve, ...] = ()
    other_end_losses: tuple[EndLosses, ...] = ()
    ranks: str = ""
    apart: tuple[str, ...] = ()

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves of all losses."""
        return (*((self.curve,) if self.curve is not None else ()), *self.other_curves)

    @property
    def ends(self) -> tuple[EndLosses, ...]:
        """The end losses of all losses."""
        return (*((self.end_losses,) if self.end_losses is not None else ()), *self.other_end_losses)

    @property
    def own_step(self) -> bool:
        """Whether the model files make the whole step."""
        return self.optimizer == OWN_STEP

    @property
    def first(self) -> Check | None:
        """The first check that fails, else the first that drifts for no known reason; None when there is neither."""
        broken = [check for check in self.checks if check.verdict.fails]
        drifting = [check for check in self.checks if check.verdict == Verdict.DRIFT and not check.difference]
        return next(iter(broken or drifting), None)

    @property
    def told(self) -> tuple[Check, ...]:
        """The checks of which a report tells what they say: ``first``, and the first one of a later step that fails."""
        first = self.first
        if first is None:
            return ()
        return first, *[check for check in self.checks if check.verdict.fails and check.step > first.step][:1]

    @property
    def differences(self) -> tuple[str, ...]:
        """The names of the known differences of the framework."""
        return tuple(dict.fromkeys(check.difference for check in self.checks if check.difference))
