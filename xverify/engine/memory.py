"""How much memory a run takes, told before its subjects build their models.

The factors are measured: ``Framework.copies`` by a GPT of 10, 102 and 1,312 million parameters at batch 1 (bench/large_models.py),
those of activations by convolutional models and their training (bench/memory.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from ..framework.adapter import IN_MEMORY, Activations, Framework
from ..workload.optimizers import Optimizer
from .stages import Subject

GIB, MIB = 2**30, 2**20
OF_A_LAYER = 6  # of the reference: how often it has the weights of the layer that it judges
REFERENCE = 360  # MiB; of the reference and the parent without a model: torch, its exporter and fake tensors, and the main process
# How often a process has what the largest operation takes and returns, as it is in float32:
CALLED = 4  # a subject
COMPUTED = 4  # the reference, in a float64 pass
JUDGED = 9  # the reference, in two float64 passes and a float32 pass side by side
# How often it has what all operations return:
EXPOSED = 1.2  # a subject that runs the export, whose layers are captured as outputs of the graph
TRAINED = 2.2  # a subject, in a training step
STEPPED = 2  # the reference, in a training step in float64
AT_ONCE = 2  # processes that compute at the same time, when models are built and judged
LARGE = GIB  # bytes; less is not worth a line
ALONE = "weights alone (the sizes of activations are not known)"


@dataclass(frozen=True)
class Work:
    """What the processes of a run compute, as far as their memory depends on it.

    shapes: name -> shape of every weight. optimizer: of a training run.
    activations: of a batch; None where they are not known. judged: those of the items of it whose layers are compared.
    """

    shapes: Mapping[str, tuple[int, ...]]
    optimizer: Optimizer | None = None
    activations: Activations | None = None
    judged: Activations | None = None

    @property
    def sizes(self) -> list[int]:
        """The bytes of every weight."""
        return [4 * math.prod(shape) for shape in self.shapes.values()]

    @property
    def measures(self) -> str:
        """What the estimate is of."""
        return "weights and activations" if self.activations else ALONE


def needed(work: Work, subjects: Sequence[type[Framework]]) -> int:
    """The bytes that weights and activations take in all processes together. subjects: the adapter of each.

    Every process keeps its model, but no more than AT_ONCE of them compute at the same time.
    """
    computing = [_computing_reference(work, subjects), *(_activations(work, each) for each in subjects)]
    return int(of_models(work, subjects) + sum(sorted(computing)[-AT_ONCE:]))


def overhead(subjects: Sequence[type[Framework]]) -> int:
    """The bytes that all processes take together without a model."""
    return MIB * (REFERENCE + sum(each.overhead for each in subjects))


def of_models(work: Work, subjects: Sequence[type[Framework]]) -> float:
    """The bytes that the weights take, those of a subject at the peak of its process."""
    total = sum(work.sizes)
    # Training adds the gradients, and what the optimizer stores.
    added = 1 + len(work.optimizer.state_names) if work.optimizer is not None else 0
    # It has a float32 and a float64 model, of which the rest is in files.
    reference = min(total, IN_MEMORY) + min(2 * total, IN_MEMORY) + 2 * added * total
    return reference + sum((each.copies + added) * total for each in subjects)


def _activations(work: Work, subject: type[Framework]) -> float:
    """The bytes that activations take in the process of a subject."""
    sizes = work.activations or Activations()
    if work.optimizer is not None:
        return TRAINED * sizes.total
    return EXPOSED * sizes.total if subject.runs_export else CALLED * sizes.largest


def _computing_reference(work: Work, subjects: Sequence[type[Framework]]) -> float:
    """The bytes that the reference takes beside its models, while it computes in float64."""
    sizes, layer = work.activations or Activations(), OF_A_LAYER * max(work.sizes, default=0)
    unfolded = 2 * sizes.unfolded  # in float64
    if work.optimizer is not None:
        return max(layer, STEPPED * sizes.total + unfolded)
    # The batch size of an export is fixed, so that it is judged on the whole batch where the first items do not decide.
    judged = sizes if any(each.runs_export for each in subjects) else work.judged or Activations()
    return max(layer, JUDGED * judged.largest, COMPUTED * sizes.largest + unfolded)


@dataclass(frozen=True)
class Plan:
    """How the subjects of a run are measured.

    turns: the indices of the subjects that are measured together. notes: what the user should know.
    says: a line of progress, or "". needed: of the turn that takes the most; bytes.
    """

    turns: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()
    says: str = ""
    needed: int = 0


def plan(
    work: Work,
    subjects: Sequence[Subject],
    available: int,
    timed: bool = True,
    late: Mapping[int, str] = MappingProxyType({}),
) -> Plan:
    """The turns in which subjects are measured, so that they fit into memory, and wait for no subject that is slow to start.

    A turn has as many subjects as fit, at least one. When they are timed, every turn has the first subject, the baseline, too.

    available: bytes of memory. late: index of a subject that is slow to start -> why. They have turns after all others; without
        others than the baseline, nothing waits for them.
    """
    adapters = [[each.adapter] * each.processes for each in subjects]
    always_needed = overhead(list(chain(*adapters)))  # a subject of a later turn has its processes from the beginning

    def of(indices: Sequence[int]) -> int:
        return needed(work, list(chain(*(adapters[index] for index in indices)))) + always_needed

    always = [0] if timed else []
    turns, large = [[0]], False
    late = {} if 0 in late else late
    for index in sorted(range(1, len(subjects)), key=lambda index: index in late):
        too_large = of([*turns[-1], index]) > available
        first_late = index in late and not any(other in late for other in turns[-1])
        if turns[-1] != always and (too_large or first_late):
            turns.append([*always])
            large = large or too_large
        turns[-1].append(index)
    most, whole = max(map(of, turns)), of(range(len(subjects)))
    notes = []
    if len(turns) > 1:
        why = {subjects[index].label: why for index, why in late.items()}
        lacks = (whole, available) if large else None
        notes.append(_why_turns(work, [[subjects[index].label for index in turn] for turn in turns], why, lacks, timed))
    notes += filter(None, [warning(work, most, available)])
    line = "" if notes or most - always_needed < LARGE else says(work, most, available)
    return Plan(tuple(map(tuple, turns)), tuple(notes), line, most)


def _why_turns(
    work: Work,
    turns: Sequence[Sequence[str]],
    late: Mapping[str, str],
    lacks: tuple[int, int] | None,
    timed: bool,
) -> str:
    """The sentence on the turns. late: label -> why it is slow to start. lacks: (needed, available) bytes of too little memory."""
    listed = "; ".join(", ".join(turn) for turn in turns)
    reasons = [f"{label} is slow to start ({why})" for label, why in late.items()]
    if lacks:
        needed, available = map(size, lacks)
        taken = f"{work.measures} of all of them together take about {needed} of memory"
        reasons.insert(0, f"{taken}, and {available} are available")
    compared = ". A time ratio compares times of one turn" if timed else ""
    return f"the subjects were measured in {len(turns)} turns ({listed}), because {', and because '.join(reasons)}{compared}"


def size(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / GIB:.2g} GiB" if count >= GIB / 10 else f"{count / 2**20:.2g} MiB"


def says(work: Work, needed: int, available: int) -> str:
    """The line of progress about the memory. Both are bytes."""
    return f"{work.measures} take about {needed / GIB:.1f} GiB of memory in all processes; {available / GIB:.1f} GiB are available"


def warning(work: Work, needed: int, available: int) -> str:
    """The note of a run that needs more memory than there is; "" for any other. Both are bytes."""
    if needed <= available:
        return ""
    return (
        f"{work.measures} take about {size(needed)} of memory in all processes, and {size(available)} are available: "
        "the system may end a process. Use a machine with more memory, or a smaller model"
    )
