"""The conditions of a run: its machine, settings, weights, inputs, reference, and the noise during the run.

Every field has a default, which is used for a field that an earlier result file lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..workload.request import Request

# Versions and settings of a framework, by name. Any: every framework describes itself, with any JSON values.
Environment = dict[str, Any]


@dataclass(frozen=True)
class Host:
    """The machine.

    cpu: name of the processor.
    cores: cores that the parent process may use.
    memory_gib: memory of the machine, GiB.
    system: name and release of the operating system.
    python: version of the interpreter of the parent process.
    load: load averages over 1, 5 and 15 minutes; None where the system has none.
    name: of the machine in its network; "" in an earlier result file.
    """

    cpu: str = ""
    cores: int = 0
    memory_gib: float = 0.0
    system: str = ""
    python: str = ""
    load: tuple[float, ...] | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings(Request):
    """The settings of a run. The fields are those of the request, so a new option is in the file as soon as it is declared.

    folder_digest: digest of the files of the model folder, with its weights.
    weights_digest: digest of the bytes of the weight file; "" without one.
    port_digests: name of a subject's file outside of the folder -> digest of this file and of those that it imports.
    allocator: as in ``CommonSettings``; "unstated" in the file of a run whose subjects had no stated policy.
    """

    model: str = ""
    subjects: tuple[str, ...] = ()
    reference: str = ""
    batch: int = 0
    threads: int = 0
    folder_digest: str = ""
    weights_digest: str = ""
    port_digests: dict[str, str] = field(default_factory=dict)
    allocator: str = "unstated"

    @classmethod
    def of(
        cls,
        request: Request,
        folder_digest: str,
        weights_digest: str = "",
        port_digests: Mapping[str, str] | None = None,
    ) -> Settings:
        """The settings of a request."""
        ports = dict(port_digests or {})
        return cls(**vars(request), folder_digest=folder_digest, weights_digest=weights_digest, port_digests=ports)


@dataclass(frozen=True)
class WeightsSummary:
    """The canonical weights, which every subject is given.

    digest: digest of all arrays; None when the reference could not be built.
    tensors, parameters: number of parameter tensors, and of values in them.
    statistics: number of running statistics, which are not parameters.
    source: the weight file, or how the weights were made.
    normal_form: name of a fused parameter -> names of the parameters whose sum it is.
    replaced: a sentence about weights that the model file brought, and that probe weights replace; "" when there are none.
    folded: subject -> the computed weights that it holds in place of what the reference computes them from.
    folded_digests: subject -> digest of the weights with its computed and changed ones and without absent ones, which it must
        return.
    stored: subject -> the weights that it stores otherwise, such as several in one; only the places of their values differ.
    changed: subject -> the weights that it holds with other values, as they are computed from the reference's.
    absent: subject -> the weights that it has no place for.
    """

    digest: str | None = None
    tensors: int = 0
    parameters: int = 0
    statistics: int = 0
    source: str = ""
    normal_form: dict[str, tuple[str, ...]] = field(default_factory=dict)
    replaced: str = ""
    folded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    folded_digests: dict[str, str] = field(default_factory=dict)
    stored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    absent: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class InputsSummary:
    """The input cases.

    digest: digest of all arrays; None when the reference could not be built.
    cases: number of input cases.
    kind: where they come from.
    """

    digest: str | None = None
    cases: int = 0
    kind: str = ""


@dataclass(frozen=True)
class ReferenceSummary:
    """The reference that the subjects are compared with.

    framework: name of the reference framework.
    precision: precision of the exact outputs: "float64", "float32", or "mixed" when some of the model is not float64.
    precision_problem: why it is not float64; "" when it is.
    random: why nothing can be compared with the reference, because it is random; "" when it is not.
    inconsistent: why nothing can be compared with it, because it computes something else in float32; "" when it does not.
    floor: what the noise floor is, in words.
    onnx: "exported", "not needed", or why there is no export.
    environment: versions and settings of the framework, by name.
    layers: number of layers that a replay can check.
    tested: number of weights and constants in which a fault would be visible.
    untested: names of the weights and constants in which no fault would be visible.
    replay_problem: why layers cannot be replayed; "" when they can.
    """

    framework: str = ""
    precision: str = ""
    floor: str = ""
    onnx: str = ""
    environment: Environment = field(default_factory=dict)
    layers: int = 0
    tested: int = 0
    untested: tuple[str, ...] = ()
    replay_problem: str = ""
    precision_problem: str = ""
    random: str = ""
    inconsistent: str = ""


@dataclass(frozen=True)
class NoiseSummary:
    """What the noise gate found in all process runs.

    rounds, dropped: number of timed rounds, and of those that do not count.
    reasons: reason -> number of rounds with it.
    most: signal -> its largest value, as a share of a block's time or of a core.
    culprit: a sentence about the process that used most processor time; None when no other process used much.
    refusal: why the machine is too noisy for a verdict on speed; None when it is not.
    canary_seconds: for each process run, the seconds of a fixed piece of work.
    limit: share above which a signal counts as noise.
    missing: signals that this system does not provide.
    """

    rounds: int = 0
    dropped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    culprit: str | None = None
    refusal: str | None = None
    canary_seconds: tuple[float, ...] = ()
    limit: float = 0.0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """What one task of a run with several tasks was measured with: the fields of a result that each task has for itself.

    timeline: activity -> seconds that the task spent on it.
    """

    settings: Settings = field(default_factory=Settings)
    weights: WeightsSummary = field(default_factory=WeightsSummary)
    inputs: InputsSummary = field(default_factory=InputsSummary)
    reference: ReferenceSummary = field(default_factory=ReferenceSummary)
    noise: NoiseSummary = field(default_factory=NoiseSummary)
    timeline: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
