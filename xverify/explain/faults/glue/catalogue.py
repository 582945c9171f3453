"""The list of what a port's glue code may compute otherwise than the reference's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress

from ....replay.operation import Operation
from .arithmetic import arithmetic
from .attention import attention
from .frequencies import frequencies
from .functions import functions
from .images import images
from .layout import layout, reshaped, transposed
from .masks import masks
from .normalization import normalization
from .operation import Change, Family, Rewrite
from .order import order
from .reductions import reductions
from .rotary import pairing, rotation
from .sequences import reverse, sequences

# The families of changes of one operation, those with the more particular sentences first.
FAMILIES: tuple[Family, ...] = (
    masks, rotation, frequencies, sequences, functions, normalization, images, arithmetic, reductions, order, attention, layout,
    reshaped, transposed, reverse,
)  # fmt: skip

UNEXPECTED = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, StopIteration)

# The sets of operations in which the same change is tried, of all where it is possible.
Choose = Callable[[Iterable[Operation]], Collection[frozenset[Operation]]]
Key = tuple[str, str, int]  # kind, clause, and which of several changes of one operation with the same clause


def choices(sites: Iterable[Operation]) -> Collection[frozenset[Operation]]:
    """The operations in which the same change is tried: each single one, those of each instruction, of each line, and all."""
    by_place: dict[tuple[str, int], set[Operation]] = {}
    by_line: dict[str, set[Operation]] = {}
    for operation in sites:
        by_place.setdefault((operation.line, operation.instruction), set()).add(operation)
        by_line.setdefault(operation.line, set()).add(operation)
    found = [*([operation] for operation in sites), *by_place.values(), *by_line.values(), sites]
    return dict.fromkeys(map(frozenset, found))


def rewrites(operations: Sequence[Operation], choose: Choose = choices) -> Iterator[Rewrite]:
    """Yield the changes that a port may have made to these operations, which are in order.

    Each change is tried in a single operation, in all passes of a loop or calls of a function, in all operations of a line, and in
    all where it is possible, because a function that is called for queries and for keys has its fault in both calls.

    choose: other sets of operations.
    """
    with suppress(*UNEXPECTED):
        yield from list(pairing(operations))
    for sites in _sites(operations).values():
        alike: dict[str, list[Operation]] = {}  # by the clause
        for operation, change in sites.items():
            alike.setdefault(change.says, []).append(operation)
        for chosen in dict.fromkeys(found for some in (*alike.values(), sites) for found in choose(some)):
            changes = {operation: change for operation, change in sites.items() if operation in chosen}
            first, *rest = changes.values()
            says = first.group if any(change.says != first.says for change in rest) else first.says
            yield Rewrite(first.kind, says, {operation: change.compute for operation, change in changes.items()})


def _sites(operations: Sequence[Operation]) -> dict[Key, dict[Operation, Change]]:
    """Each change, and the operations where it is possible."""
    found: dict[Key, dict[Operation, Change]] = {}
    for family in FAMILIES:
        for operation in operations:
            counted: Counter[tuple[str, str]] = Counter()
            for change in _listed(family, operation):
                key = (change.kind, change.group or change.says)
                found.setdefault((*key, counted[key]), {})[operation] = change
                counted[key] += 1
    return found


def _listed(family: Family, operation: Operation) -> list[Change]:
    """The changes of a family; none for an operation that is called in a way that the family does not expect."""
    with suppress(*UNEXPECTED):
        return list(family(operation))
    return []
