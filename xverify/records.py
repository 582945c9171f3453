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


@dataclass(frozen=True)
class Sample:
    """One timed block. seconds: of all its calls together."""

    round: int
    case: int
    calls: int
    seconds: float


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


@dataclass(frozen=True)
class Error:
    """How far a row's outputs are from the reference; see compare.RULE.

    mean_abs, max_abs: |Δ| in the output's own unit. rel_rms: rms(Δ) / rms(reference). float32_ratio: the worst output's
    rms(Δ) over what the reference's own float32 run has.
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


@dataclass(frozen=True)
class Speed:
    """How fast a row is. ratio: its time over the baseline's, paired by round; above one is slower.

    seconds_per_step = elapsed_seconds / calls, and fps = batch / seconds_per_step, always.
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


@dataclass(frozen=True)
class Memory:
    """MiB of the row's process; import_rss_mib is what the framework alone takes."""

    peak_rss_mib: float | None = None
    average_rss_mib: float | None = None
    import_rss_mib: float | None = None
    gpu_peak_mib: float | None = None


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


@dataclass(frozen=True)
class Result:
    """A whole run. timeline: seconds from its start until all subjects were ready, were timed, and until the end."""

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


def overall(rows: tuple[Row, ...] | list[Row]) -> str:
    """PASS, FAIL, ERROR or INCONCLUSIVE for the whole run; a mismatch outweighs a row that could not run."""
    verdicts = [row.error.verdict for row in rows if row.error is not None]
    if any(verdict in ("DIFFERENT", "INVALID") for verdict in verdicts):
        return "FAIL"
    if any(row.status != "ok" for row in rows):
        return "ERROR"
    if not verdicts or any(verdict == "UNTESTED" for verdict in verdicts):
        return "INCONCLUSIVE"
    return "PASS"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
