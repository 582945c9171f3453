"""How much memory the weights of a run take, told before the subjects build their models.

The factors are measured: ``Framework.copies`` by a GPT of 10, 102 and 1,312 million parameters at batch 1 (bench/large_models.py).
Activations and the frameworks themselves come on top of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..framework.adapter import IN_MEMORY, Framework
from ..workload.optimizers import Optimizer
from .stages import Subject

GIB = 2**30
OF_A_LAYER = 6  # of the reference: how often it has the weights of the layer that it judges
LARGE = GIB  # bytes; less is not worth a line


def of_weights(
    shapes: Mapping[str, tuple[int, ...]], subjects: Iterable[type[Framework]], optimizer: Optimizer | None = None
) -> int:
    """The bytes that the weights take in all processes together, at the peak of each.

    shapes: name -> shape of every weight. subjects: the adapter of each. optimizer: of a training run.
    """
    sizes = [4 * math.prod(shape) for shape in shapes.values()]
    total, largest = sum(sizes), max(sizes, default=0)
    # Training adds the gradients, and what the optimizer stores.
    added = 1 + len(optimizer.state_names) if optimizer is not None else 0
    # It has a float32 and a float64 model, of which the rest is in files.
    reference = min(total, IN_MEMORY) + min(2 * total, IN_MEMORY) + OF_A_LAYER * largest + 2 * added * total
    return int(reference + sum((each.copies + added) * total for each in subjects))


@dataclass(frozen=True)
class Plan:
    """How the subjects of a run are measured.

    turns: the indices of the subjects that are measured together. notes: what the user should know.
    says: a line of progress, or "".
    """

    turns: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()
    says: str = ""


def plan(
    shapes: Mapping[str, tuple[int, ...]],
    subjects: Sequence[Subject],
    optimizer: Optimizer | None,
    available: int,
    timed: bool = True,
) -> Plan:
    """The turns in which subjects are measured, so that their weights fit into memory.

    A turn has as many subjects as fit, at least one. When they are timed, every turn has the first subject, the baseline, too.

    shapes: of the weights. optimizer: of a training run. available: bytes of memory.
    """

    def needed(indices: Sequence[int]) -> int:
        return of_weights(shapes, [subjects[index].adapter for index in indices], optimizer)

    always = [0] if timed else []
    turns = [[0]]
    for index in range(1, len(subjects)):
        if turns[-1] != always and needed([*turns[-1], index]) > available:
            turns.append([*always])
        turns[-1].append(index)
    most, whole = max(map(needed, turns)), needed(range(len(subjects)))
    notes = []
    if len(turns) > 1:
        listed = "; ".join(", ".join(subjects[index].label for index in turn) for turn in turns)
        notes.append(
            f"the subjects were measured in {len(turns)} turns ({listed}), because the weights of all of them together take about "
            f"{size(whole)} of memory, and {size(available)} are available"
            f"{'. A time ratio compares times of one turn' if timed else ''}"
        )
    notes += filter(None, [warning(most, available)])
    return Plan(tuple(map(tuple, turns)), tuple(notes), "" if notes else says(most, available))


def size(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / GIB:.2g} GiB" if count >= GIB / 10 else f"{count / 2**20:.2g} MiB"


def says(needed: int, available: int) -> str:
    """The line of progress about the memory; "" where the weights are small. Both are bytes."""
    if needed < LARGE:
        return ""
    return f"the weights take about {needed / GIB:.1f} GiB of memory in all processes; {available / GIB:.1f} GiB are available"


def warning(needed: int, available: int) -> str:
    """The note of a run that needs more memory than there is; "" for any other. Both are bytes."""
    if needed <= available:
        return ""
    return (
        f"the weights take about {size(needed)} of memory in all processes, and {size(available)} are available: "
        "the system may end a process. Use a machine with more memory, or a smaller model"
    )
