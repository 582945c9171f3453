"""The records of a check's stages: a file is opened, computed, evaluated in float64, and has its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..engine.budget import Clock
from ..errors import Absent, Failed, Refused, SubjectError, UsageError
from ..messages.files import NodesTraced
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import Prepared
from ..results import validation
from ..results.layers import Layers
from ..results.plan import Plan
from ..results.precision import Precision, Quantisation
from ..results.records import ReferenceSummary, WeightsSummary
from ..weights.canonical import Array
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .computing import Cases, Computed
from .judge import Judged
from .meaning import Meaning
from .nodes import Capture
from .options import CheckSettings
from .subject import File, Opened

REFERENCE = validation.REFERENCE

T = TypeVar("T")


class ReferenceFailed(UsageError):
    """The reference cannot be computed on its inputs."""


@dataclass(frozen=True)
class Context:
    """What every stage of a check needs.

    clock: counts the seconds of --max-seconds. space: an empty folder for files of the check.
    notes: gets a sentence on each thing that could not be done.
    """

    settings: CheckSettings
    listener: Listener
    clock: Clock
    space: Path
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluated:
    """A file that was computed, and what it says.

    precision: of its weights and arithmetic; None before it was read. own: its outputs in float64; None before they are known, and
    for a format without an evaluation in float64. layers: the verdicts on its nodes; None where there are none.
    late: why it was not evaluated in float64 for want of time; "" where there was time.
    capture: the values of its nodes, where the runtime computes them in the background.
    """

    opened: Opened
    cases: Cases
    computed: Computed
    precision: Precision | None = None
    own: Meaning | None = None
    layers: Layers | None = None
    late: str = ""
    capture: Capture | None = None

    @property
    def at(self) -> Precision:
        """Return the precision of the file; float32 where it is not known."""
        return self.precision or Precision()


@dataclass(frozen=True)
class Reproduced:
    """A reproducer, or why there is none.

    folder: where it was written, until it gets its place; None where there is none. says: what it holds, or why there is none.
    """

    folder: Path | None
    says: str


@dataclass(frozen=True)
class Checked:
    """A file with what its rows show.

    environment: versions and settings of the runtime. evaluated: None for a file that could not be computed.
    quantisation: what it costs, for a quantised file. answers: question -> its answer. failure: why the check of this file ended.
    reproducers: question -> the reproducer of its row, or why there is none.
    size: the sizes of --sizes at which it was checked.
    """

    file: File
    environment: Mapping[str, object] = field(default_factory=dict)
    evaluated: Evaluated | None = None
    quantisation: Quantisation | None = None
    answers: Mapping[str, Judged] = field(default_factory=dict)
    failure: SubjectError | None = None
    reproducers: Mapping[str, Reproduced] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSource:
    """What a reference that is a model is built from when it is timed. request: has its framework, and how it is started."""

    folder: ModelFolder
    request: Request
    prepared: Prepared


def _nothing(opened: Opened) -> str:
    return ""


@dataclass(frozen=True)
class Target:
    """The reference: its input cases and its outputs.

    file: the reference, when it is a file; judged: whether its runtime computes what it says, when it is timed.
    source: what the reference is built from, when it is a model.
    about_weights: a sentence about the weights of a file that is DIFFERENT; "" where nothing is to be told.
    plan: of the file that is checked; None for a file without one. beside: the files of the plan, in order; None for the
        one that is checked, and for one that is not timed.
    calls: captures the layers of the reference, see ``graphs.Calls``; None where it is no model.
    """

    cases: Cases
    meaning: Meaning
    file: Evaluated | None = None
    judged: Judged | None = None
    source: ModelSource | None = None
    about_weights: Callable[[Opened], str] = _nothing
    plan: Plan | None = None
    beside: tuple[Beside | None, ...] = ()
    calls: Callable[[int, Path], NodesTraced] | None = None

    @property
    def opened(self) -> Opened | None:
        """The reference in its worker, when it is a file."""
        return self.file.opened if self.file else None


@dataclass(frozen=True)
class Beside:
    """A file that is timed beside the one that is checked, and is computed by the same runtime from the same inputs.

    label: what it is, in a few words. outputs: "case/name" -> its output, of the first case.
    """

    label: str
    path: Path
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Known:
    """A reference as a result tells it.

    target: its outputs; Absent when nothing can be compared with them; None without a reference, or without a file to compare.
    """

    target: Target | Absent | None
    summary: ReferenceSummary = field(default_factory=ReferenceSummary)
    weights: WeightsSummary = field(default_factory=lambda: WeightsSummary(source="the weights of each file"))
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tools:
    """What the check of a reference shares with that of the files.

    graphs: the worker that evaluates ONNX graphs. guess: guesses input cases for a file, and computes them.
    """

    graphs: Worker | None
    guess: Callable[[Opened], tuple[Cases, Computed]]


def attempt(context: Context, file: File, doing: str, work: Callable[[], T]) -> T | SubjectError:
    """Do a stage of a file, and report it to the listener. Returns what ``work`` returns, or why the check of the file ends.

    Its worker is closed then, unless it can be asked for another size.
    """
    failure: SubjectError
    context.listener.phase(file.label, doing)
    try:
        found = work()
    except SubjectError as error:
        failure = error
    except MemoryError:
        failure = Failed("there is not enough memory to compare its outputs")
    else:
        context.listener.ended(file.label, "")
        return found
    if not (context.settings.sizes and isinstance(failure, Refused)):
        file.worker.close()
    context.listener.ended(file.label, failure.status)
    return failure
