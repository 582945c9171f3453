"""Records of the training-parity checks and of the loss curve."""

from __future__ import annotations

from dataclasses import dataclass

from .layers import Layers
from .verdicts import Verdict, settle_verdict


@dataclass(frozen=True)
class Check:
    """One training-parity check at one step.

    name: "weights", "forward", "loss", "backward", "gradients", "update", "statistics" or "curve"; with a recipe also
        "accumulation", "clipping", "schedule", "groups", "frozen" and "average".
    step: number of training steps that were made before the compared state.
    ratio: the worst residual / noise floor; None when none was computed.
    says: what differs, and where.
    difference: name of a known difference of the framework that is no fault, for example "eps-hat".
    compared, known: number of compared layers, parameters or values, and of all of them.
    """

    name: str
    step: int
    verdict: Verdict
    ratio: float | None = None
    says: str = ""
    difference: str = ""
    compared: int = 0
    known: int = 0

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)


@dataclass(frozen=True)
class Curve:
    """The losses of a training run from the first state, step by step, beside the reference's.

    losses, reference: of the subject and of the reference.
    low, high: range of the reference and its replicas, whose weights differ from the reference's by one unit in the last place.
    judged: number of steps that count; after these steps rounding alone has pulled the replicas too far apart.
    says: what differs; "" when nothing does.
    """

    losses: tuple[float, ...]
    reference: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    judged: int
    verdict: Verdict
    says: str = ""

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)


@dataclass(frozen=True)
class Training:
    """The training of a row.

    optimizer: settings of the optimizer, in torch's terms.
    variants: formula variants in which the framework's own optimizer differs from torch's.
    checks: results of the training-parity checks, step after step.
    untested: parameters whose gradient consists of rounding errors alone, so that no fault could show in it.
    dropout_disabled: layers in which dropout was disabled.
    layers: the replay of the forward pass.
    loss: the loss, as the spec says it; "" for the mean cross-entropy of the only output.
    """

    optimizer: str
    variants: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    curve: Curve | None = None
    untested: tuple[str, ...] = ()
    dropout_disabled: tuple[str, ...] = ()
    layers: Layers | None = None
    loss: str = ""

    @property
    def first(self) -> Check | None:
        """The first check that fails, else the first that drifts for no known reason; None when there is neither."""
        broken = [check for check in self.checks if check.verdict.fails]
        drifting = [check for check in self.checks if check.verdict == Verdict.DRIFT and not check.difference]
        return next(iter(broken or drifting), None)

    @property
    def differences(self) -> tuple[str, ...]:
        """The names of the known differences of the framework."""
        return tuple(dict.fromkeys(check.difference for check in self.checks if check.difference))
