"""The conditions of a run: its machine, settings, weights, inputs, reference and the noise that was seen meanwhile.

Every field has a default, which stands for a field that an earlier result file lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Environment = dict[str, Any]  # versions and settings of a framework, by name; every framework describes itself


@dataclass(frozen=True)
class Host:
    """The machine.

    cpu: name of the processor.
    cores: cores that the parent process may use.
    memory_gib: memory of the machine, GiB.
    system: name and release of the operating system.
    python: version of the interpreter of the parent process.
    load: load averages over 1, 5 and 15 minutes; None where the system has none.
    """

    cpu: str = ""
    cores: int = 0
    memory_gib: float = 0.0
    system: str = ""
    python: str = ""
    load: tuple[float, ...] | None = None


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimizer of a training run, in torch's terms.

    The fields are those of ``workload.optimizers.Optimizer``. variants: formula variants in which it differs from torch's.
    """

    name: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    alpha: float = 0.99
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """What was asked for: the fields of ``reference.request.Request``.

    folder_digest: digest of the files of the model folder.
    """

    model: str = ""
    subjects: tuple[str, ...] = ()
    reference: str = ""
    task: str = "forward"
    batch: int = 0
    warmup: int | None = None
    rerun: int | None = None
    effort: str = "quick"
    threads: int = 0
    device: str = "cpu"
    seed: int = 0
    cases: int = 0
    weights: str | None = None
    trust: bool = False
    timeout: float = 0.0
    strict: bool = False
    max_seconds: float | None = None
    pin: tuple[int, ...] = ()
    python: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    optimizer: OptimizerSettings | None = None
    match_optimizer: bool = False
    data: str | None = None
    time_input: bool = False
    folder_digest: str = ""

    @classmethod
    def of(cls, request: Mapping[str, Any], folder_digest: str) -> Settings:
        """The settings of a request.

        request: what ``dataclasses.asdict`` makes of it. Any: a request has fields of many types.
        Raises TypeError for a field that is not declared here, so that no setting is left out of a result file.
        """
        optimizer = request.get("optimizer")
        learns = OptimizerSettings(**optimizer) if optimizer is not None else None
        return cls(**{**request, "optimizer": learns}, folder_digest=folder_digest)


@dataclass(frozen=True)
class WeightsSummary:
    """The canonical weights, which every subject is given.

    digest: over all arrays; None when the reference could not be built.
    tensors, parameters: number of parameter tensors, and of values in them.
    statistics: number of running statistics, which are not parameters.
    source: the weight file, or how the weights were made.
    normal_form: name of fused parameters -> names of the parameters that they are the sum of.
    """

    digest: str | None = None
    tensors: int = 0
    parameters: int = 0
    statistics: int = 0
    source: str = ""
    normal_form: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class InputsSummary:
    """The input cases.

    digest: over all arrays; None when the reference could not be built.
    cases: their number.
    kind: where they come from.
    """

    digest: str | None = None
    cases: int = 0
    kind: str = ""


@dataclass(frozen=True)
class ReferenceSummary:
    """What the subjects are compared with.

    framework: name of the reference framework.
    precision: of the exact outputs, "float64" or "float32".
    floor: what the noise floor is, in words.
    onnx: "exported", "not needed", or why there is no export.
    environment: versions and settings of the framework, by name.
    layers: number of layers that a replay can check.
    tested, untested: weights and constants in which a fault would show: how many; and those in which none would: which.
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


@dataclass(frozen=True)
class NoiseSummary:
    """What the noise gate saw in all process runs.

    rounds, dropped: timed rounds, and those that do not count.
    reasons: reason -> number of rounds with it.
    most: signal -> its largest value, as a share of a block's time or of a core.
    culprit: the process that used most of a core, in words; None when there is none.
    refusal: why the machine is too noisy for a verdict on speed; None when it is not.
    canary_seconds: for each process run, the seconds of a fixed piece of work.
    limit: share from which on a signal is noise.
    missing: signals that this system does not give.
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
