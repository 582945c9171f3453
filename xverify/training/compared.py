"""An array of a training step beside the exact one, and how much of a model such comparisons cover. Pure functions.

The arrays are gradients, changes of weights and running statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from ..verdict.limits import DRIFT_C, EQUAL_C, NULL
from ..verdict.local import Local, local
from ..weights.canonical import Array

NOTHING = 1e-10  # of the median size of all gradients; what float64 leaves of a gradient that is zero is smaller
ALL = 0.999  # share of the values; single ones without a digit, such as those near zero, are in every large model


def rms(array: Array) -> float:
    """The root of the mean square. Squares neither overflow nor underflow."""
    largest = float(np.abs(array).max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float(np.mean(np.square(array / largest, dtype=np.float64))))


def quotient(residual: float, floor: float) -> float:
    """Residual / noise floor; infinite for a residual without a floor, and 0.0 where the floor is not known."""
    if not floor:
        return math.inf if residual else 0.0
    return residual / floor if math.isfinite(floor) else 0.0


def share_of(floor: float, size: float) -> float:
    """Noise floor / size; infinite where the floor is not known, or the size is zero and the floor is not."""
    return (floor / size if size else math.inf) if floor else 0.0


@dataclass(frozen=True)
class Compared:
    """An array beside the exact one.

    residual: rms of the difference. floor: rms of the noise; infinite or NaN where that of some value is not known.
    size: rms of the exact values. count: number of values.
    groups: the ratios in groups of values.
    """

    residual: float
    floor: float
    size: float
    count: int
    groups: Local

    @classmethod
    def of(cls, residual: Array, exact: Array, noise: Array) -> Compared:
        """Compare an array. residual: its difference from the exact one. noise: the rms of the noise of every value."""
        return cls(rms(residual), rms(noise), rms(exact), exact.size, local(exact, residual, noise, certain=True))

    @property
    def ratio(self) -> float:
        """Residual / noise floor, of all values together."""
        return quotient(self.residual, self.floor)

    @property
    def share(self) -> float:
        """Noise floor / size in the median group of values."""
        return self.groups.floor_share or share_of(self.floor, self.size)

    @property
    def worst_share(self) -> float:
        """Noise floor / size in the worst group of values."""
        return self.groups.worst_share or share_of(self.floor, self.size)

    def determined(self, precision: str = "float32") -> bool:
        """Whether a fault could show in it."""
        return self.share <= NULL[precision]

    def judged(self, precision: str = "float32") -> int:
        """The number of values in which a fault could show."""
        return self.count - self.groups.undetermined if self.determined(precision) else 0

    def badness(self, equal: float, of_groups: float = EQUAL_C) -> float:
        """The ratio as a share of the limit; above 1 it differs. equal, of_groups: the limits of all values and of groups."""
        return max(self.ratio / equal, self.groups.ratio / of_groups)

    def drifts(self, drift: float) -> bool:
        """Whether it is within the limits of DRIFT. drift: that of all values."""
        return self.badness(drift, DRIFT_C) <= 1

    def says(self, equal: float, of_groups: float = EQUAL_C) -> str:
        """The ratio that is farther beyond its limit: "12.5 x", with the words that it is that of the worst group where it is."""
        if self.ratio / equal >= self.groups.ratio / of_groups:
            return f"{self.ratio:.3g} x"
        return f"in its worst group of values {self.groups.ratio:.3g} x"

    def limit(self, of_groups: float = EQUAL_C) -> float:
        """The detection limit in the median group: the smallest relative error there that would not have been EQUAL."""
        return of_groups * self.share

    def worst_limit(self, of_groups: float = EQUAL_C) -> float:
        """The detection limit in the worst group."""
        return of_groups * self.worst_share


def rounding_alone(sizes: Mapping[str, float]) -> set[str]:
    """The gradients that are zero but for the rounding of float64, such as that of a bias before a batch norm.

    sizes: gradient -> its rms.
    """
    found = [size for size in sizes.values() if size]
    return {name for name, size in sizes.items() if found and size <= NOTHING * median(found)}


@dataclass
class Coverage:
    """How much of what is trained was judged.

    known: name of a check -> parameter -> number of values in which a fault could matter.
    judged: the same -> the most of them that were judged in one step.
    untested: parameters that rounding alone may change as much as a fault, in some step.
    """

    known: dict[str, dict[str, int]] = field(default_factory=dict)
    judged: dict[str, dict[str, int]] = field(default_factory=dict)
    untested: list[str] = field(default_factory=list)

    def add(self, check: str, name: str, values: int, judged: int) -> None:
        """Add a parameter in one step. values: their number. judged: number of those in which a fault could show."""
        self.known.setdefault(check, {})[name] = values
        of_check = self.judged.setdefault(check, {})
        of_check[name] = max(of_check.get(name, 0), judged)

    def share(self, check: str) -> float:
        """The share of the values that a check has judged; 1.0 for nearly all of them."""
        known, judged = sum(self.known[check].values()), sum(self.judged[check].values())
        return 1.0 if judged > ALL * known else judged / known if known else 0.0

    @property
    def says(self) -> str:
        """How much was judged by the checks that have not judged all; "" when all of them have."""
        return "; ".join(self._says(check) for check in self.known if self.share(check) < 1)

    def _says(self, check: str) -> str:
        judged = sum(bool(count) for count in self.judged[check].values())
        share = f"{100 * self.share(check):.3g}% of the trained values"
        return f"{check} of {judged} of {len(self.known[check])} parameters ({share}) judged"
