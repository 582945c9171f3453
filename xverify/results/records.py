"""What a run leaves behind: frozen records, and the result file that they are.

The field names are the file's; they are added to, never renamed.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
# Fields that have a new name: files keep the earlier one beside it.
EARLIER_NAMES = {"checks": "rungs", "variants": "forms"}
FULL = 0.9  # share of a device's memory


@dataclass(frozen=True)
class Sample:
    """One timed block. seconds: of all its calls together. dropped: why its round does not count."""

    round: int
    case: int
    calls: int
    seconds: float
    launch: int = 0
    dropped: str | None = None


@dataclass(frozen=True)
class Launch:
    """One process of a subject, from its start to its last timed block.

    steady: whether warm-up ended by itself; None when the user said how many calls. retraces: graphs that were made while it
    was timed; None for a mode that makes none. faults_per_call: pages that the system had to find for a call's memory.
    """

    launch: int
    import_seconds: float
    build_seconds: float
    first_step_seconds: float
    second_step_seconds: float
    warmup_calls: int
    warmup_seconds: float
    steady: bool | None = None
    retraces: int | None = None
    faults_per_call: float | None = None


@dataclass(frozen=True)
class TensorError:
    """One output of one input case against the reference."""

    case: int
    output: str
    mean_abs: float | None = None
    max_abs: float | None = None
    rel_rms: float | None = None
    float32_ratio: float | None = None
    reason: str | None = None
    noise_ratio: float | None = None
    identical: bool = False


@dataclass(frozen=True)
class LayerError:
    """One layer of the reference, the worst of its calls.

    kind: torch's class. ratio, channel_ratio: R and C of its outputs; input_ratio: of what it was given, against what the
    reference's code makes of the layers before it; each a residual over its floor of rounding. verdict: of the layer.
    faulty: "output" when the layer itself is the worse, "input" when what stands between it and the layers before it is; of a
    backward pass the same of gradients, by their names.
    explanation: what it behaves as, when a known alternative explains it. rounding: that is right, but in another precision.
    """

    layer: str
    kind: str
    calls: int
    ratio: float
    channel_ratio: float
    input_ratio: float
    verdict: str
    faulty: str = "output"
    terms: int = 1
    mean_abs: float | None = None
    max_abs: float | None = None
    rel_rms: float | None = None
    reason: str | None = None
    explanation: str | None = None
    rounding: bool = False

    def says(self) -> str:
        """One sentence that a porter can act on."""
        where = {"output": self.layer, "input": f"what {self.layer} is given"}.get(
            self.faulty, f"{self.layer}, {self.faulty}"
        )
        if self.explanation:
            return f"{where}: {self.explanation}"
        if self.reason:
            return f"{where}: {self.reason}"
        worst = max(self.ratio, self.input_ratio)
        return f"{where} differs first: {worst:.3g} x its rounding floor (worst channel {self.channel_ratio:.3g} x)"


@dataclass(frozen=True)
class Layers:
    """What a replay of one framework found, layer by layer in the order of computation.

    known: how many layers the reference has. missing: those of which nothing was captured, judged as part of the code between
    the others. matched: canonical -> the framework's own name, where layers were matched by order and shape.
    """

    layers: tuple[LayerError, ...] = ()
    compared: int = 0
    known: int = 0
    missing: tuple[str, ...] = ()
    subject: str = ""
    stopped: str = ""
    matched: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst of the layers'."""
        verdicts = {layer.verdict for layer in self.layers}
        return next((verdict for verdict in ("DIFFERENT", "DRIFT") if verdict in verdicts), "EQUAL")

    @property
    def rounding(self) -> bool:
        """Whether something is not EQUAL, and all of that is explained by another precision."""
        found = [layer for layer in self.layers if layer.verdict != "EQUAL"]
        return bool(found) and all(layer.rounding for layer in found)

    @property
    def first(self) -> LayerError | None:
        """The first layer with the worst verdict; None when all are EQUAL."""
        found = (layer for layer in self.layers if layer.verdict == self.verdict != "EQUAL")
        return next(found, None)


@dataclass(frozen=True)
class Check:
    """One check of the parity of training, at one step: weights, forward, loss, backward, gradients, update, statistics.

    step: the number of steps that the state comes from. ratio: the worst residual over its floor. says: what differs, and where.
    difference: the name of a difference that is the framework's own and no fault, as "eps-hat". compared, known: how many
    layers, parameters or values.
    """

    name: str
    step: int
    verdict: str
    ratio: float | None = None
    says: str = ""
    difference: str = ""
    compared: int = 0
    known: int = 0


@dataclass(frozen=True)
class Curve:
    """Losses of training that runs free from the first state, step by step, beside the reference's.

    low, high: of the reference and its replicas, whose weights differ from its by a unit in the last place. judged: how many
    steps count; after them rounding alone has pulled the replicas too far apart.
    """

    losses: tuple[float, ...]
    reference: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    judged: int
    verdict: str
    says: str = ""


@dataclass(frozen=True)
class Training:
    """How a row learns. optimizer: its settings, in torch's terms. variants: where the framework's own differs from torch's.

    checks: in the order of the parity, step after step. untested: parameters whose gradient is rounding alone, so that no fault of
    it could show. held: layers whose dropout was turned off.
    """

    optimizer: str
    variants: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    curve: Curve | None = None
    untested: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    layers: Layers | None = None

    @property
    def first(self) -> Check | None:
        """The first check that breaks: DIFFERENT or INVALID, else one that drifts without a name; None when all hold."""
        broken = [check for check in self.checks if check.verdict in ("DIFFERENT", "INVALID")]
        drifting = [check for check in self.checks if check.verdict == "DRIFT" and not check.difference]
        return next(iter(broken or drifting), None)

    @property
    def differences(self) -> tuple[str, ...]:
        """The names of the framework's own differences."""
        return tuple(dict.fromkeys(check.difference for check in self.checks if check.difference))


@dataclass(frozen=True)
class Error:
    """How far a row's outputs are from the reference; see compare.RULE.

    mean_abs, max_abs: |Δ| in the output's own unit. rel_rms: rms(Δ) / rms(reference). float32_ratio: the worst output's
    rms(Δ) over what the reference's own float32 run has; noise_ratio: over the noise of all layers. layers: what a replay found.
    """

    verdict: str
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


@dataclass(frozen=True)
class Speed:
    """How fast a row is. ratio: its time over the baseline's, paired by round; above one is slower.

    seconds_per_step = elapsed_seconds / calls, and fps = batch / seconds_per_step, always; elapsed_seconds and calls are of the
    rounds that count (all, with --rerun). first_step_seconds and its like are the first launch's. retraces: of all launches.
    compile_seconds: what the first step took longer than the second. p99_seconds: of a call, from 1,000 single ones on. noisy:
    whether nothing is wrong with it but how much it, or the machine, varies.
    """

    fps: float
    fps_ci: tuple[float | None, float | None]
    seconds_per_step: float
    elapsed_seconds: float
    calls: int
    warmup_calls: int
    ratio: float | None
    ratio_ci: tuple[float | None, float | None]
    verdict: str | None
    reason: str | None
    first_step_seconds: float
    second_step_seconds: float
    import_seconds: float
    build_seconds: float
    samples: tuple[Sample, ...]
    retraces: int | None = None
    compile_seconds: float | None = None
    launches: tuple[Launch, ...] = ()
    p99_seconds: float | None = None
    noisy: bool = False


@dataclass(frozen=True)
class Memory:
    """MiB of the row's process: the peak until its outputs are first read; import_rss_mib is what the framework alone takes.

    On a device: gpu_peak_mib is the framework's own peak, gpu_process_mib what the driver says that the process holds,
    gpu_used_mib what all processes held then, gpu_total_mib the device's memory.
    """

    peak_rss_mib: float | None = None
    average_rss_mib: float | None = None
    import_rss_mib: float | None = None
    gpu_peak_mib: float | None = None
    gpu_process_mib: float | None = None
    gpu_used_mib: float | None = None
    gpu_total_mib: float | None = None

    @property
    def nearly_full(self) -> bool:
        """Whether the device's memory was so full that a framework may have begun to page, or to work in smaller parts."""
        return bool(self.gpu_total_mib and self.gpu_used_mib and self.gpu_used_mib > FULL * self.gpu_total_mib)


@dataclass(frozen=True)
class Row:
    """One subject at one task."""

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
    memory: Memory = Memory()
    environment: dict[str, Any] = field(default_factory=dict)
    training: Training | None = None


@dataclass(frozen=True)
class Result:
    """A whole run.

    timeline: seconds; see engine.Timeline. item: what one element of a batch is. noise: what the gate saw; see noise.Gate.
    complete: False while launches are still to come.
    """

    model: str
    tasks: tuple[str, ...]
    verdict: str
    rows: tuple[Row, ...]
    created: str
    xverify: str
    host: dict[str, Any]
    settings: dict[str, Any]
    weights: dict[str, Any]
    inputs: dict[str, Any]
    reference: dict[str, Any]
    rule: str
    notes: tuple[str, ...] = ()
    timeline: dict[str, float] = field(default_factory=dict)
    item: str = "item"
    noise: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        return {"PASS": 0, "FAIL": 1, "ERROR": 3, "INCONCLUSIVE": 4}[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; numbers that JSON has no form for (infinity, NaN) become null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def write(self, path: str | Path) -> None:
        """Write the result file, whole or not at all."""
        path = Path(path)
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(json.dumps(self.to_dict(), indent=1) + "\n")
        os.replace(temporary, path)


def overall(rows: tuple[Row, ...] | list[Row], strict: bool = False) -> str:
    """PASS, FAIL, ERROR or INCONCLUSIVE for the whole run; a mismatch outweighs a row that could not run.

    strict: DRIFT fails, too.
    """
    verdicts = [row.error.verdict for row in rows if row.error is not None]
    if any(verdict in ("DIFFERENT", "INVALID", *(["DRIFT"] if strict else [])) for verdict in verdicts):
        return "FAIL"
    if any(row.status != "ok" for row in rows):
        return "ERROR"
    if not verdicts or any(verdict == "UNTESTED" for verdict in verdicts):
        return "INCONCLUSIVE"
    return "PASS"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        plain = {str(key): _plain(item) for key, item in value.items()}
        return plain | {old: plain[new] for new, old in EARLIER_NAMES.items() if new in plain}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
