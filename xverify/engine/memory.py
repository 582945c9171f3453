"""How much memory the weights of a run take, told before the subjects build their models.

The factors are measured: ``Framework.copies`` by a GPT of 10, 102 and 1,312 million parameters at batch 1 (bench/large_models.py).
Activations and the frameworks themselves come on top of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..framework.adapter import IN_MEMORY, Framework
from ..workload.optimizers import Optimizer

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
        f"the weights take about {needed / GIB:.2g} GiB of memory in all processes, and {available / GIB:.2g} GiB are available: "
        "the system may end a process. Name fewer --subjects, each time with the same first one, or use a machine with more memory"
    )
