"""The list of what a port's glue code may compute otherwise than the reference's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress

from ....replay.operation import Compute, Operation
from .arithmetic import arithmetic
from .attention import attention
from .frequencies import frequencies
from .images import images
from .layout import layout
from .masks import masks
from .normalization import normalization
from .operation import Change, Family, Rewrite
from .order import order
from .rotary import pairing, rotation

# The families of changes of one operation, those with the more particular sentences first.
FAMILIES: tuple[Family, ...] = (
    masks, rotation, frequencies, order, normalization, images, arithmetic, attention, layout,
)  # fmt: skip

UNEXPECTED = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, StopIteration)

Key = tuple[str, str, int]  # kind, clause, and which of several changes of one operation with the same clause


def rewrites(operations: Sequence[Operation]) -> Iterator[Rewrite]:
    """Yield the changes that a port may have made to these operations, which are in order.

    Each change is tried in all operations where it is possible, in those of one line, and in a single one, because a function
    that is called for queries and for keys has its fault in both calls.
    """
    with suppress(*UNEXPECTED):
        yield from list(pairing(operations))
    for (kind, says, _), sites in _sites(operations).items():
        for chosen in choices(sites):
            yield Rewrite(
                kind, says, {operation: compute for operation, compute in sites.items() if operation in chosen}
            )


def _sites(operations: Sequence[Operation]) -> dict[Key, dict[Operation, Compute]]:
    """Each change, and the operations where it is possible."""
    found: dict[Key, dict[Operation, Compute]] = {}
    for family in FAMILIES:
        for operation in operations:
            counted: Counter[tuple[str, str]] = Counter()
            for change in _listed(family, operation):
                place = counted[change.kind, change.says]
                counted[change.kind, change.says] += 1
                found.setdefault((change.kind, change.says, place), {})[operation] = change.compute
    return found


def _listed(family: Family, operation: Operation) -> list[Change]:
    """The changes of a family; none for an operation that is called in a way that the family does not expect."""
    with suppress(*UNEXPECTED):
        return list(family(operation))
    return []


def choices(sites: Iterable[Operation]) -> Collection[frozenset[Operation]]:
    """The operations in which the same change is tried: all of them, those of each line, and each single one."""
    by_line: dict[str, set[Operation]] = {}
    for operation in sites:
        by_line.setdefault(operation.line, set()).add(operation)
    found = [sites, *by_line.values(), *([operation] for operation in sites)]
    return dict.fromkeys(map(frozenset, found))
