"""The records of a mutation score: the planted faults, the outcome of each, and the sums."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import Enum

from ..results.verdicts import Verdict
from ..verdict import limits

# Kinds of the catalogue that compute the same: float16 and TF32 both keep ten bits of the mantissa.
ALIKE = {
    f"{a} {what}": (f"{b} {what}",)
    for what in ("weights", "arithmetic")
    for a, b in (("float16", "TF32"), ("TF32", "float16"))
}


class TrialOutcome(str, Enum):
    """The outcome of a planted fault."""

    CAUGHT = "CAUGHT"  # xverify run would exit with 1, or the verdict is DRIFT and the report names the fault
    UNTESTED = "UNTESTED"  # not caught; the fault changes an output or a gradient too little to be told from rounding
    MISSED = "MISSED"  # not caught, although the fault is large enough to be noticed

    __str__ = str.__str__
    __hash__ = str.__hash__


@dataclass(frozen=True)
class Trial:
    """One planted fault.

    layer: the layer in which it was planted; for training code, the check that it should break.
    says: a description of the fault.
    visible: the change of the layer's exact output by the fault, in noise floors; for training code that of the gradient, and
        infinity where the mistake does not change the gradient by a known share.
    verdict: of the port with the fault, as ``xverify run`` would give it.
    found: the place of the first difference: a layer, its input, or a check; None when nothing differs.
    explained: the kind of fault that the report names; None when it names none.
    explanation: the explanation in the report.
    """

    model: str
    kind: str
    layer: str
    says: str
    visible: float
    verdict: Verdict
    found: str | None = None
    explained: str | None = None
    explanation: str | None = None

    @property
    def named(self) -> bool:
        """Whether the report names the right kind of fault in the right place."""
        return self.found == self.layer and self.explained in {self.kind, *ALIKE.get(self.kind, ())}

    @property
    def fails(self) -> bool:
        """Whether ``xverify run`` would exit with 1."""
        return self.verdict.fails

    @property
    def drifts(self) -> bool:
        """Whether the fault is caught by a warning only: a DRIFT that names it."""
        return self.verdict == Verdict.DRIFT and self.named

    @property
    def outcome(self) -> TrialOutcome:
        """Whether the fault was caught."""
        if self.fails or self.drifts:
            return TrialOutcome.CAUGHT
        return TrialOutcome.UNTESTED if self.visible < limits.VISIBLE else TrialOutcome.MISSED

    @property
    def located(self) -> bool:
        """Whether the first difference was found where the fault is."""
        return self.outcome == TrialOutcome.CAUGHT and self.found == self.layer

    @property
    def understood(self) -> bool:
        """Whether the fault was caught and named."""
        return self.located and self.named

    def to_dict(self) -> dict[str, object]:
        """JSON values; infinity, which JSON cannot hold, becomes null."""
        values = asdict(self)
        first = {name: values.pop(name) for name in ("model", "kind", "layer", "says", "visible")}
        if not math.isfinite(self.visible):
            first["visible"] = None
        return {**first, "outcome": self.outcome.value, **values}


@dataclass(frozen=True)
class Score:
    """All trials of one model.

    clean: number of runs without a fault.
    alarms: one sentence for each of these runs that was not EQUAL.
    subject: the framework of the port, and its mode.
    unplanted: one sentence for each fault that could not be planted in this port.
    """

    model: str
    trials: tuple[Trial, ...]
    clean: int
    alarms: tuple[str, ...]
    subject: str = "torch:eager"
    unplanted: tuple[str, ...] = ()

    def count(self, outcome: TrialOutcome) -> int:
        return sum(trial.outcome == outcome for trial in self.trials)

    @property
    def fails(self) -> int:
        return sum(trial.fails for trial in self.trials)

    @property
    def drifts(self) -> int:
        return sum(trial.drifts for trial in self.trials)

    @property
    def located(self) -> int:
        return sum(trial.located for trial in self.trials)

    @property
    def understood(self) -> int:
        return sum(trial.understood for trial in self.trials)

    def to_dict(self) -> dict[str, object]:
        """JSON values."""
        return {
            "model": self.model,
            "subject": self.subject,
            "planted": len(self.trials),
            **{outcome.lower(): self.count(outcome) for outcome in TrialOutcome},
            "exit_1": self.fails,
            "drift_named": self.drifts,
            "layer_named": self.located,
            "explained": self.understood,
            "clean_runs": self.clean,
            "false_alarms": list(self.alarms),
            "not_planted": list(self.unplanted),
            "trials": [trial.to_dict() for trial in self.trials],
        }
