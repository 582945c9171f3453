"""The search for the fewest layers that stay in float32 so that a file meets its conditions: by their cost, each step checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..results.figures import Figures

Kept = frozenset[int]  # the indices of the layers that stay in float32
SHOWN = 7  # files in the table of a plan


@dataclass(frozen=True)
class Tried:
    """A file that was tried.

    bytes: its size. figures: output -> figures. unmet: a sentence about each condition that does not hold.
    error: relative error of the worst output; infinite where an output cannot be compared.
    """

    bytes: int
    figures: Mapping[str, Figures]
    unmet: tuple[str, ...]
    error: float


class Late(Exception):
    """There is no time for another file."""


class Search:
    """Searches among files that differ in which layers stay in float32.

    layers: their number. make: makes the file in which these layers stay in float32, and compares its outputs with the reference.
    is_late: whether no further file is to be tried. doing: is told what is done, as a phrase.
    """

    def __init__(
        self,
        layers: int,
        make: Callable[[Kept], Tried],
        is_late: Callable[[], bool],
        doing: Callable[[str], None],
    ) -> None:
        self.make, self.is_late, self.doing = make, is_late, doing
        self.every: Kept = frozenset(range(layers))
        self.none: Kept = frozenset()
        self.tried: dict[Kept, Tried] = {}
        self.path: list[Kept] = []  # the files of the greedy phase
        self.late = False

    def execute(self) -> Kept:
        """The layers that stay in float32: the fewest that were found; all when the conditions do not hold even then."""
        self._try(self.every)
        if self._try(self.none) or not self.every:
            return self.none
        try:
            order = self._by_cost()
            if not self.tried[self.every].unmet:
                self._without_needless(self._prefix(order), order)
        except Late:
            self.late = True
        holding = [kept for kept, tried in self.tried.items() if not tried.unmet]
        return min(holding, key=lambda kept: (len(kept), self.tried[kept].error), default=self.every)

    def alone(self, layer: int) -> Tried | None:
        """The file in which this layer alone has the lower precision; None where it was not tried."""
        return self.tried.get(self.every - {layer})

    def cost(self, layer: int) -> float:
        """The error of the outputs when this layer alone has the lower precision; negative where it was not measured."""
        found = self.alone(layer)
        return -1.0 if found is None else found.error

    def order(self) -> list[int]:
        """All layers, the most expensive first."""
        return sorted(self.every, key=lambda layer: (-self.cost(layer), layer))

    def shown(self, chosen: Kept) -> list[Kept]:
        """The files of the table, from all layers in float32 to none; of the greedy phase those nearest to the chosen one."""
        near = sorted(self.path, key=lambda kept: abs(len(kept) - len(chosen)))
        files = dict.fromkeys([self.every, self.none, chosen, *near])
        known = [kept for kept in files if kept in self.tried][:SHOWN]
        return sorted(known, key=lambda kept: (-len(kept), self.tried[kept].error))

    # -- steps --------------------------------------------------------------------------------------------------------

    def _try(self, kept: Kept, doing: str = "") -> bool:
        """Whether the conditions hold with these layers in float32. Each file is made once. Raises Late."""
        if kept not in self.tried:
            if self.is_late() and kept not in (self.none, self.every):
                raise Late
            self.doing(doing or f"trying {len(kept)} of {len(self.every)} layers in float32")
            self.tried[kept] = self.make(kept)
        return not self.tried[kept].unmet

    def _by_cost(self) -> list[int]:
        for layer in sorted(self.every):
            self._try(self.every - {layer}, f"measuring what layer {layer + 1} of {len(self.every)} costs")
        return self.order()

    def _prefix(self, order: Sequence[int]) -> int:
        """The smallest number of the most expensive layers with which the conditions hold: doubled until they do, then bisected."""
        fails, holds = 0, 1
        while not self._goes(order, holds):
            fails, holds = holds, min(2 * holds, len(order))
        while holds - fails > 1:
            middle = (fails + holds) // 2
            if self._goes(order, middle):
                holds = middle
            else:
                fails = middle
        return holds

    def _goes(self, order: Sequence[int], count: int) -> bool:
        """Whether the conditions hold with so many of the most expensive layers in float32."""
        kept = frozenset(order[:count])
        self.path.append(kept)
        return self._try(kept)

    def _without_needless(self, count: int, order: Sequence[int]) -> None:
        """Leave out each layer without which the conditions still hold, the cheapest first, until there is none."""
        kept, again = frozenset(order[:count]), True
        while again:
            again = False
            for layer in sorted(kept, key=order.index, reverse=True):
                if self._try(kept - {layer}):
                    kept, again = kept - {layer}, True


def relative_error(figures: Iterable[Figures], comparable: bool) -> float:
    """The relative error of the worst output by its SQNR; infinite where outputs are not comparable."""
    known = [each.sqnr for each in figures if each.sqnr is not None]
    if not comparable or any(math.isnan(value) for value in known):
        return math.inf
    return max((10 ** (-value / 20) for value in known), default=0.0)
