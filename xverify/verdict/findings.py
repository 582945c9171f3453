"""Records of what a replay in float64 finds in a framework's computation. They need only the standard library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..results.verdicts import Verdict
from . import limits
from .limits import EQUAL_C, UNIT, cap

OUTPUT = "output"
INPUT = "input"
GRADIENT = "gradient"  # the first word of every comparison in a backward pass
GRADIENT_OF = "gradient of"  # begins the name of a gradient that the layer itself computes
SATURATES = (
    "this processor's int8 kernel saturates sums of two products (no VNNI); quantise with reduce_range, or set "
    "session.x64quantprecision"
)


@dataclass(frozen=True)
class Finding:
    """One comparison inside a model: the output of a layer, an input of a layer, or a gradient.

    layer: name of the layer in the reference.
    call: which call of the layer, from 0.
    index: which tensor of that call, from 0.
    kind: class of the layer in torch.
    what: "output"; "input", by which the glue code before the layer is judged; or a name that begins with "gradient".
    ratio: R, residual / noise floor of the whole tensor.
    channel_ratio: C, the same for the worst group of values (see ``local``).
    terms: length of the sums behind one value.
    mean_abs, max_abs: absolute difference from the exact values, in the tensor's own unit.
    rel_rms: rms of the difference / rms of the exact values.
    reason: why no ratio could be computed, for example because the shapes differ; None when one was computed.
    rounding: the rounding that brings this very tensor under the limits; None when there is none.
    after: for glue code that differs, the layer that was compared before it; "" for the inputs of the model.
    source: for glue code that differs, the lines of the reference between the calls of both layers; "" where they are unknown.
    joined: why the glue code before the layer is judged together with it; "" when it is not.
    glue: for glue code that differs, what the port's computes instead; "" where that is unknown.
    floor_share, worst_share: noise floor / size of the exact values, in the median and in the worst group of values.
    index_share, value_share: the same for an error in one index of an axis, and in one value; 0.0 where none is known.
    undetermined: share of values without a significant digit.
    unit: unit roundoff of the precision in which the tensor is computed.
    mistake: whether ``glue`` names a mistake of the port, which fits alone and by a wide margin.
    """

    layer: str
    call: int
    index: int
    kind: str
    what: str
    ratio: float
    channel_ratio: float
    terms: int = 1
    mean_abs: float | None = None
    max_abs: float | None = None
    rel_rms: float | None = None
    reason: str | None = None
    rounding: Explanation | None = None
    after: str = ""
    source: str = ""
    joined: str = ""
    glue: str = ""
    floor_share: float = 0.0
    worst_share: float = 0.0
    undetermined: float = 0.0
    unit: float = UNIT
    mistake: bool = False
    index_share: float = 0.0
    value_share: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict by the limits of R and C; DIFFERENT when no ratio could be computed."""
        if self.reason is not None:
            return Verdict.DIFFERENT
        backward = self.what.startswith(GRADIENT)
        return limits.classify(self.ratio, limits.GRADIENT if backward else limits.LAYER, self.channel_ratio)

    @property
    def counts_as(self) -> Verdict:
        """The verdict that counts.

        Another precision that explains this finding makes a DIFFERENT a DRIFT, and a named mistake makes a DRIFT DIFFERENT.
        """
        if self.rounding is not None:
            return min(self.verdict, Verdict.DRIFT)
        return Verdict.DIFFERENT if self.mistake and self.verdict == Verdict.DRIFT else self.verdict

    @property
    def detection_limit(self) -> float:
        """The smallest relative error that would not have been EQUAL; 0 where it was not measured."""
        return EQUAL_C * self.floor_share

    @property
    def judged(self) -> bool:
        """Whether a fault could have shown: the detection limit is below the cap, and most values have a digit."""
        return self.detection_limit <= cap(self.unit) and self.undetermined <= 1 / 2

    @property
    def computed_by_layer(self) -> bool:
        """Whether the layer itself computed this tensor. False when the tensor was passed to the layer."""
        return self.what == OUTPUT or self.what.startswith(GRADIENT_OF)


@dataclass(frozen=True)
class Explanation:
    """A known alternative that reproduces what a layer computes.

    kind: name of the alternative in the catalogue of faults.
    says: one clause for the report.
    rounding: whether the layer is right but computes in another precision.
    earlier: whether it is about a layer before this one, whose output this one is given.
    mistake: whether it is a mistake of the port (a constant, a formula, an order) that fits alone and by a wide margin. It is a
        fault however small it is.
    """

    kind: str
    says: str
    rounding: bool = False
    earlier: bool = False
    mistake: bool = False


# How runtimes compute some operators, see ``replay.graph.judge.approximations``.
APPROXIMATION = Explanation(
    "absolute precision",
    "the runtime computes it by an approximation whose error is about 1e-7 of its range, so results near 0 have few digits",
    rounding=True,
)


@dataclass(frozen=True)
class Rounding:
    """A rounding that explains one call of a layer. kind: its name in the catalogue of faults."""

    layer: str
    call: int
    kind: str


@dataclass(frozen=True)
class ReplayReport:
    """What one replay found, forward or backward.

    findings: all comparisons, in the order of computation.
    compared: layer -> number of calls that were compared.
    missing: layer -> number of calls that were not captured.
    explained: layer -> what the layer computes instead.
    visible: size of the change that a planted fault makes to the exact output of its layer, in noise floors; 0 when no fault
        was planted.
    stopped: why the replay ended early; "" when it did not.
    notes: sentences on how layers and calls of the port were compared where it is written in another way.
    passive: layers that return their input as it is and were not captured, so that there is nothing to compare.
    """

    findings: tuple[Finding, ...] = ()
    compared: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    explained: Mapping[str, Explanation] = field(default_factory=dict)
    visible: float = 0.0
    stopped: str = ""
    notes: tuple[str, ...] = ()
    passive: tuple[str, ...] = ()

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """The roundings that explain findings, one for each call of a layer."""
        found = (Rounding(each.layer, each.call, each.rounding.kind) for each in self.findings if each.rounding)
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class StepTruth:
    """The exact values and noise floors of one training step, except for its arrays, which are in a file.

    loss: the exact loss.
    loss_floor: noise floor of the loss.
    floors: parameter -> rms of the noise in its gradient.
    sizes: parameter -> rms of its exact gradient.
    statistics: running statistic -> rms of its noise.
    terms: batch norm -> number of values of one channel.
    momentum: batch norm -> its momentum; None for a cumulative average.
    alternatives: what a report says about a mistake in the loss -> the exact loss with it.
    accumulated_loss: the mean of the exact losses of all micro-batches; None where a step has a single one.
    frozen: parameters that the model file itself does not train.
    """

    loss: float
    loss_floor: float
    floors: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    statistics: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, int] = field(default_factory=dict)
    momentum: Mapping[str, float | None] = field(default_factory=dict)
    alternatives: Mapping[str, float] = field(default_factory=dict)
    accumulated_loss: float | None = None
    frozen: tuple[str, ...] = ()
