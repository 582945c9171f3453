"""The frozen records of a run. A result file has the names of their fields: new ones may be added, and none is removed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any, cast

from .conditions import (
    Environment,
    Host,
    InputsSummary,
    NoiseSummary,
    Receipt,
    ReferenceSummary,
    Settings,
    WeightsSummary,
)
from .decoding import Decoding
from .figures import Figures
from .layers import LayerError, Layers, told
from .plan import Plan
from .precision import Precision, Quantisation
from .shown import Shown
from .speed import Memory, ProcessRun, Sample, Speed
from .training import Check, Curve, EndLosses, Training
from .verdicts import Outcome, SpeedVerdict, Verdict, settle_verdict

# What other packages read from here, although it stands in another module.
__all__ = [
    "Check",
    "Curve",
    "EndLosses",
    "Host",
    "InputsSummary",
    "LayerError",
    "Layers",
    "Memory",
    "NoiseSummary",
    "ProcessRun",
    "Receipt",
    "ReferenceSummary",
    "Sample",
    "Settings",
    "Speed",
    "SpeedVerdict",
    "Training",
    "WeightsSummary",
]

INTERRUPTED = "interrupted by the user"  # the reason of a row that Ctrl-C ended; its status is "failed"
NOT_RUN = f"not run: {INTERRUPTED}"  # of one that had not been called before
NOT_JUDGED = "not judged: the run has not ended"  # of one in a result that was written on the way
SCHEMA_VERSION = 1
# New name of a field -> its earlier name. A file is written with both names, and read with either.
EARLIER_NAMES = {"checks": "rungs", "variants": "forms", "dropout_disabled": "held"}
MOST_FAULTS = 4  # that the reason of a row tells
DECIDES = "--accept decides: "  # how the note begins on what the conditions of --accept say of a row
FAILS = "does not hold"  # what such a note says of a condition


@dataclass(frozen=True)
class TensorError:
    """The error of one output of one input case.

    mean_abs, max_abs, rel_rms, float32_ratio, noise_ratio: see ``Error``.
    reason: why it cannot be compared; None when it can.
    identical: whether it is the reference's float32 output to the last bit.
    rounding_ratio: rms of the difference / the noise of all layers with the roundings that explain some of them; None when no
        layer is explained by a rounding.
    verdict: of this output by itself; None in the files of earlier versions.
    local_ratio: the largest rms of the difference / noise of a group of values; None when the noise was not modelled.
    local_at: the index of an axis, over all input cases, that is this group, such as "[:, 7]"; "" where it is another one.
    detection_limit: the smallest relative error that would not have been EQUAL, in the median group of values; None when it was not
        measured. detection_limit_worst: the same in the worst group.
    detection_limit_index: the same of an error in one index of axis 1 or of the last axis (a class, a channel, a position) in all
        input cases, or in one item. detection_limit_value: of an error in one value.
    not_judged: the indices of axis 1 and of the last axis in which an error as large as the cap would not have been seen.
    rounding_alone: the indices whose values are zero but for rounding: their error is compared with their noise alone.
    undetermined: share of values that have no digit which the precision determines; they have no detection limit.
    undetermined_at: the index of each of them, the first few.
    """

    case: int
    output: str
    mean_abs: float | None = None
    max_abs: float | None = None
    rel_rms: float | None = None
    float32_ratio: float | None = None
    reason: str | None = None
    noise_ratio: float | None = None
    identical: bool = False
    rounding_ratio: float | None = None
    verdict: Verdict | None = None
    local_ratio: float | None = None
    detection_limit: float | None = None
    detection_limit_worst: float | None = None
    undetermined: float = 0.0
    undetermined_at: tuple[tuple[int, ...], ...] = ()
    local_at: str = ""
    detection_limit_index: float | None = None
    detection_limit_value: float | None = None
    not_judged: tuple[str, ...] = ()
    rounding_alone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Error:
    """How far the outputs of a row are from the reference's; ``verdict.outputs.RULE`` has the limits.

    reason: what differs, or why nothing could be compared.
    mean_abs, max_abs: absolute difference, in the unit of the output.
    rel_rms: rms of the difference / rms of the reference.
    float32_ratio: rms of the difference / rms of the error of the reference's own float32 outputs; of the worst output.
    compared, expected: number of compared outputs, and of outputs that are expected.
    timed_cases: number of input cases whose outputs come from timed calls.
    noise_ratio: rho, rms of the difference / the noise of all layers; of the worst output; None when it was not modelled.
    layers: what a replay found.
    detection_limit: the smallest relative error that would not have been EQUAL, of the judged output in which it is largest; None
        when it was not measured. detection_limit_index, detection_limit_value: the same of an error in one index of an axis or in
        one item, and in one value; see ``TensorError``.
    judged: share of the outputs and of the layers' weights that were judged, in training of the trained values; None when nothing
        says.
    unreached: what no input case reached, such as a branch or a side of a clip, each with its place.
    """

    verdict: Verdict
    reason: str | None = None
    mean_abs: float | None = None
    max_abs: float | None = None
    rel_rms: float | None = None
    float32_ratio: float | None = None
    compared: int = 0
    expected: int = 0
    timed_cases: int = 0
    tensors: tuple[TensorError, ...] = ()
    noise_ratio: float | None = None
    layers: Layers | None = None
    detection_limit: float | None = None
    judged: float | None = None
    unreached: tuple[str, ...] = ()
    detection_limit_index: float | None = None
    detection_limit_value: float | None = None

    def __post_init__(self) -> None:
        settle_verdict(self, Verdict)

    def causes(self, most: int = MOST_FAULTS, where: str = "") -> list[str]:
        """The reason in parts: every fault of a layer by itself, the largest first.

        most: number of faults that are told; the others are counted. where: what shows all.
        """
        reason, faults = self.reason or "", self.layers.faults if self.layers is not None else ()
        joined = "; ".join(told(faults, MOST_FAULTS))
        if not joined or joined not in reason:
            return [reason] if reason else []
        before, _, after = reason.partition(joined)
        return [*filter(None, [before.strip("; ")]), *told(faults, most, where), *filter(None, [after.strip("; ")])]


@dataclass(frozen=True)
class Row:
    """The result of one subject at one task.

    status: "ok", "failed", "crashed", "timeout", "unsupported" or "not-installed". reason: why it is not "ok".
    weights_digest: of the weights that were read back from the subject.
    weights_route: how the weights came into the framework.
    environment: versions and settings of the framework, by name.
    figures: for a model file, output -> the figures that people decide a deployment by.
    matched: for a model file, the inputs and outputs that it calls otherwise than the reference, or whose axes have another order.
    notes: what else there is to know about the row.
    precision: for a model file, that of its weights and arithmetic, and for training in mixed precision that of the run; the
        verdict holds at this precision.
    quantisation: for a quantised file, what its quantisation costs, and which layers cost most.
    reproducer: for a model file, the folder with the piece of it that fails by itself; "" where none was written.
    decoding: of a decoder, every way to compute its sequences; None for another task.
    sizes: of a run or check at sizes that the user names, name of an axis -> its size in this row; see ``Result.timed_rows``.
    """

    subject: str
    framework: str
    mode: str
    task: str
    device: str
    batch: int
    status: str
    reason: str | None = None
    weights_digest: str | None = None
    weights_route: str | None = None
    error: Error | None = None
    speed: Speed | None = None
    memory: Memory = Memory()  # noqa: RUF009  # it is frozen
    environment: Environment = field(default_factory=dict)
    training: Training | None = None
    figures: dict[str, Figures] = field(default_factory=dict)
    matched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    precision: Precision | None = None
    quantisation: Quantisation | None = None
    reproducer: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    decoding: Decoding | None = None

    @property
    def layers(self) -> Layers | None:
        """What a replay found; None where there was none."""
        return self.training.layers if self.training is not None else self.error.layers if self.error else None

    @property
    def counted(self) -> Speed | None:
        """The speed; None where there is none that counts."""
        return self.speed if self.speed is not None and self.speed.counted else None

    @property
    def outcome(self) -> str:
        """The verdict, or how a row without one ended."""
        return self.error.verdict if self.error is not None else self.ending

    @property
    def ending(self) -> str:
        """The status, in which a row that the user interrupted is no failed one."""
        return "interrupted" if self.status == "failed" and self.reason in (INTERRUPTED, NOT_RUN) else self.status

    @property
    def why(self) -> str | None:
        """Why the row is not "ok", or what its verdict gives as a reason; None when neither says anything."""
        return self.reason or (self.error.reason if self.error is not None else None)

    @property
    def gate(self) -> str:
        """What the conditions of --accept, which decide in place of the verdict, say of the row; "" where there are none."""
        return next((note.removeprefix(DECIDES) for note in self.notes if note.startswith(DECIDES)), "")

    @property
    def misses_gate(self) -> bool:
        """Whether a condition of --accept does not hold."""
        return FAILS in self.gate

    @property
    def accepted(self) -> bool:
        """Whether the conditions of --accept hold, so that they decide."""
        decides = bool(self.gate) and not self.misses_gate and self.status == "ok"
        return decides and self.error is not None and self.error.verdict != Verdict.INVALID

    @property
    def at_precision(self) -> str:
        """ " at float16" for a verdict that holds at a precision below float32; "" for another one."""
        narrow = self.precision is not None and self.precision.is_narrow
        good = self.error is not None and self.error.verdict <= Verdict.DRIFT
        return f" at {self.precision.name}" if self.precision is not None and narrow and good else ""


@dataclass(frozen=True)
class Result(Shown):
    """The result of a whole run.

    created: time of the start, ISO 8601.
    xverify: version of the program.
    rule: the limits of all verdicts, in words.
    timeline: activity -> seconds that the run spent on it.
    item: what one element of a batch is called.
    complete: False while more process runs are to come.
    receipts: task -> what it was measured with; empty for a single task. ``settings``, ``weights``, ``inputs``, ``reference`` and
        ``noise`` of a run with several tasks are those of its last task.
    plan: of a conversion that chose the layers that stay in float32: what was tried; None of any other run.
    """

    model: str
    tasks: tuple[str, ...]
    verdict: Outcome
    rows: tuple[Row, ...]
    created: str
    xverify: str
    host: Host
    settings: Settings
    weights: WeightsSummary
    inputs: InputsSummary
    reference: ReferenceSummary
    rule: str
    notes: tuple[str, ...] = ()
    timeline: dict[str, float] = field(default_factory=dict)
    item: str = "item"
    noise: NoiseSummary = field(default_factory=NoiseSummary)
    complete: bool = True
    receipts: dict[str, Receipt] = field(default_factory=dict)
    plan: Plan | None = None
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        settle_verdict(self, Outcome)

    @property
    def exit_code(self) -> int:
        """The exit code of ``xverify run``."""
        return self.verdict.exit_code

    @property
    def warnings(self) -> int:
        """The number of rows that are DRIFT where the run passes, and no condition of --accept decides."""
        drifting = (
            row.error is not None and row.error.verdict == Verdict.DRIFT and not row.accepted for row in self.rows
        )
        return sum(drifting) if self.verdict == Outcome.PASS else 0

    @property
    def interrupted(self) -> bool:
        """Whether the user interrupted the run."""
        return any(note.startswith("interrupted") for note in self.notes)

    @property
    def timed_rows(self) -> tuple[Row, ...]:
        """The rows of a task at its first size; those at other sizes are judged on their outputs, and are not timed."""
        return tuple(row for row in self.rows if row.sizes == self.settings.sizes)

    def by_task(self) -> tuple[Result, ...]:
        """One result for each task, with its own rows and receipt. A result of a single task is its own part."""
        return tuple(
            replace(
                self,
                tasks=(task,),
                rows=tuple(row for row in self.rows if row.task == task),
                receipts={},
                **{each.name: getattr(receipt, each.name) for each in fields(receipt)},
            )
            for task, receipt in self.receipts.items()
        ) or (self,)

    def receipt(self) -> Receipt:
        """What this result of a single task was measured with."""
        return Receipt(**{each.name: getattr(self, each.name) for each in fields(Receipt)})

    def baseline(self, row: Row) -> Row:
        """The row that the time ratio of this row refers to: the first row of the same task."""
        return next(each for each in self.rows if each.task == row.task)

    def compared(self, row: Row) -> Speed | None:
        """The speed of a row whose time ratio counts: neither its own speed nor that of its baseline was refused."""
        return row.counted if self.baseline(row).counted is not None else None

    def to_dict(self) -> dict[str, object]:
        """JSON values, as a result file has them: see ``plain``."""
        return cast("dict[str, object]", plain(asdict(self)))


def shows(row: Row, reference: str) -> bool:
    """Whether a row shows anything of a port: it has a verdict, and is not the code of the reference, run as the reference runs it.

    A decoder is compared with itself, in every way to compute it, and so are several ranks with one process.
    """
    own = (row.subject.partition(":")[0], row.mode, row.device) == (reference, "eager", "cpu")
    itself = row.decoding is not None or (row.training is not None and bool(row.training.ranks))
    return row.error is not None and (itself or not own)


def overall(rows: Iterable[Row], strict: bool = False, reference: str = "") -> Outcome:
    """The verdict on a whole run. A mismatch outweighs a row that could not run.

    strict: DRIFT fails, too, and a row of which a part was not judged is inconclusive. reference: of a run, which is inconclusive
    when no other subject has a verdict; "" where every row is compared with something else.
    """
    rows = list(rows)
    verdicts = [row.error.verdict for row in rows if row.error is not None]
    if any(verdict.fails or (strict and verdict == Verdict.DRIFT) for verdict in verdicts):
        return Outcome.FAIL
    if any(row.status != "ok" for row in rows):
        return Outcome.ERROR
    partly = any(row.error is not None and row.error.judged is not None and row.error.judged < 1 for row in rows)
    alone = bool(reference) and not any(shows(row, reference) for row in rows)
    if not verdicts or alone or Verdict.UNTESTED in verdicts or (strict and partly):
        return Outcome.INCONCLUSIVE
    return Outcome.PASS


def plain(value: Any) -> Any:  # Any: a nested value of any JSON type
    """A value of ``dataclasses.asdict`` as JSON values.

    A number that JSON cannot write (infinity, NaN) becomes null, and what is no UTF-8 in the name of a file is written out.
    Fields in EARLIER_NAMES get their earlier name beside the new one.
    """
    if isinstance(value, dict):
        named = {plain(str(key)): plain(item) for key, item in value.items()}
        return named | {old: named[new] for new, old in EARLIER_NAMES.items() if new in named}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
