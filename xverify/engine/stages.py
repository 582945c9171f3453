"""The records of a candidate's stages: built, warmed, timed, measured. Each record is written once, by one stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..framework import discovery
from ..framework.adapter import Framework
from ..reference.folding import Folding
from ..results.records import Memory, ProcessRun, Sample
from ..workload.optimizers import Optimizer
from ..workload.ranks import ONE_PROCESS, Ranks
from ..workload.request import Request


@dataclass(frozen=True)
class Subject:
    """A framework in one of its modes.

    ranks: those that train it together; None: it is in one process.
    beside: whether the same subject on ranks is timed beside it, whose label it has, with ONE_PROCESS.
    """

    adapter: type[Framework]
    mode: str
    ranks: Ranks | None = None
    beside: bool = False

    @property
    def label(self) -> str:
        """The subject as the user writes it, e.g. ``torch:eager``."""
        return self.adapter.label(self.mode) + ONE_PROCESS * self.beside

    @property
    def processes(self) -> int:
        """The number of its processes on this machine."""
        elsewhere = self.ranks is not None and self.ranks.launch is not None and not self.ranks.launch.here
        return 1 if self.ranks is None or elsewhere or self.adapter.ranks_are_devices else self.ranks.count

    @property
    def without_ranks(self) -> str:
        """Why it does not train on its ranks; "" where it does, or has none."""
        adapter, ranks = self.adapter, self.ranks
        if ranks is None:
            return ""
        if not adapter.plans:
            return f"xverify trains with {adapter.name} in one process only: --ranks is for torch, JAX, Flax and TensorFlow"
        if ranks.plan not in adapter.plans:
            return f"several ranks of {adapter.name} train with --plan {' or '.join(adapter.plans)} only"
        if self.mode not in adapter.rank_modes:
            return f"several ranks train as the model is written: name {adapter.label(adapter.rank_modes[0])}"
        if ranks.uneven and adapter.divided_by_compiler:
            return f"{adapter.name} divides a batch evenly: take a --batch that {ranks.count} divides, and no --shards"
        if ranks.launch and adapter.ranks_are_devices:
            return f"the ranks of {adapter.name} are devices of one process on this machine: leave --launcher out"
        return ""

    @property
    def runs_export(self) -> bool:
        """Whether the model is the reference's ONNX export, or an ONNX file in its place."""
        return self.adapter.runs_export

    @property
    def graph(self) -> Path | None:
        """The ONNX file that the user names in place of the reference's export; None: there is none."""
        return self.adapter.path if self.adapter.runs_export else None

    @property
    def needs_export(self) -> bool:
        """Whether the model or its weights are read from the reference's ONNX export."""
        return (self.adapter.runs_export and self.graph is None) or self.adapter.weights_route == "onnx"

    @property
    def build_key(self) -> tuple[str, str]:
        """A key that is equal for subjects that build the same model. Their layers are compared only once."""
        return self.adapter.called(), str(self.adapter.mode_options.get(self.mode, {}))


def subjects_of(request: Request) -> list[Subject]:
    """The subjects of a run, in the order of their rows.

    Before each that is timed on ranks stands the same one in one process.
    """
    found = list[Subject]()
    for adapter, mode in map(discovery.parse_subject, request.subjects):
        subject = Subject(adapter, mode, request.divided)
        if subject.ranks is not None and not subject.without_ranks and not request.no_timing:
            found.append(replace(subject, ranks=None, beside=True))
        found.append(subject)
    return found


@dataclass(frozen=True)
class History:
    """The measurements of one subject in an earlier run that is resumed.

    next_run: the number of the next process run.
    environment: of the earlier process runs; a later one must have the same.
    """

    next_run: int = 0
    process_runs: tuple[ProcessRun, ...] = ()
    samples: tuple[Sample, ...] = ()
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """A model that was built, with its weights loaded and read back.

    seconds: the time to build the model, without loading the weights.
    fused_parameters: name of a weight that the framework stores as a sum -> canonical names of the weights in this sum.
    route: the formats that the weights were converted through, e.g. ``torch -> ONNX -> tensorflow``.
    weights_digest: of the weights as they were read back out of the model.
    folding: the weights of which the model holds other values than the reference, or none.
    folded_digest: the digest that the weights must have when there are such; "" otherwise.
    stored: names of the weights that the model stores otherwise than the reference.
    other_weights: what a model says that had other weights when it computed; "" for all others.
    """

    seconds: float
    fused_parameters: Mapping[str, tuple[str, ...]]
    route: str
    weights_digest: str
    folding: Folding | None = None
    folded_digest: str = ""
    stored: tuple[str, ...] = ()
    other_weights: str = ""


@dataclass(frozen=True)
class Warmed:
    """A callable after its first two steps and its warm-up.

    calls, seconds: of the warm-up. steady: whether the speed became steady; None when the user gave the number of calls.
    seconds_per_call: of a call at the end of the warm-up.
    graph_count: graphs made so far; None for a mode that makes none. page_faults: of the process so far; None when unknown.
    rss_mib: samples of resident memory during its first calls; empty when it was not sampled.
    cut: whether it ended early for --max-seconds.
    optimizer, dropout_disabled: for training: the settings that the framework uses, and the layers whose dropout was disabled.
    apart: see Learner.
    """

    first_step_seconds: float
    second_step_seconds: float
    calls: int
    seconds: float
    seconds_per_call: float
    steady: bool | None
    graph_count: int | None
    page_faults: int | None
    rss_mib: tuple[float, ...] = ()
    cut: bool = False
    optimizer: Optimizer | None = None
    dropout_disabled: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimedBlock:
    """One timed block.

    noisy: why the block is noisy; None when it is not.
    outputs: the file with the outputs of its last call; None when they were not kept.
    unfinished_seconds: how much longer the first reading of these outputs took than the second.
    peak_rss_mib: peak memory of the process before any outputs were read; known only for the first block that kept its outputs.
    """

    sample: Sample
    noisy: str | None = None
    outputs: Path | None = None
    unfinished_seconds: float = 0.0
    peak_rss_mib: float | None = None


@dataclass(frozen=True)
class Timed:
    """All timed blocks of one process run.

    outputs: input case -> the file with the outputs of the last call on it.
    earlier: the same for the last call of the block before on it, where that was kept as well.
    """

    samples: tuple[Sample, ...] = ()
    outputs: Mapping[int, Path] = field(default_factory=dict)
    earlier: Mapping[int, Path] = field(default_factory=dict)
    unfinished: tuple[float, ...] = ()
    peak_rss_mib: float | None = None

    @classmethod
    def of(cls, blocks: list[TimedBlock]) -> Timed:
        """Collect the blocks of a process run."""
        kept = [(block, block.outputs) for block in blocks if block.outputs is not None]
        outputs, earlier = dict[int, Path](), dict[int, Path]()
        for block, path in kept:
            before = outputs.get(block.sample.case, path)
            if before != path:
                earlier[block.sample.case] = before
            outputs[block.sample.case] = path
        return cls(
            samples=tuple(block.sample for block in blocks),
            outputs=outputs,
            earlier=earlier,
            unfinished=tuple(block.unfinished_seconds for block, _ in kept),
            peak_rss_mib=next((block.peak_rss_mib for block, _ in kept if block.peak_rss_mib is not None), None),
        )


@dataclass(frozen=True)
class Calls:
    """Further calls on one input, which are compared with the timed one.

    case: the input case.
    second: the file of a second call of the timed callable; None when there was none.
    user: the file of a call as the model's users make it; None when the timed callable is called in the same way.
    random_place: where two passes differ, in words; "" when they agree, or were not compared.
    """

    case: int = 0
    second: Path | None = None
    user: Path | None = None
    random_place: str = ""


@dataclass(frozen=True)
class Repeated:
    """Calls on inputs again, in the timed blocks or after them.

    outputs: of the cases that no timed block kept. case: one that was called twice. second: the file with the outputs of its second
    call.
    new_input_seconds: the fastest call on another input than the call before; 0.0 with a single case.
    """

    outputs: Mapping[int, Path] = field(default_factory=dict)
    case: int = 0
    second: Path | None = None
    new_input_seconds: float = 0.0


@dataclass(frozen=True)
class Measured:
    """What is measured once, after the timed blocks of the first process run.

    timed_cases: number of input cases whose outputs are those of timed calls.
    calls: further calls on one input, made when the layers have been captured.
    """

    timed_cases: int = 0
    repeated: Repeated = field(default_factory=Repeated)
    calls: Calls = field(default_factory=Calls)
    memory: Memory = field(default_factory=Memory)
