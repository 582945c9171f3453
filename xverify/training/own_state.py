"""The check ``state`` of a user's own training step: what its state holds after a step. Pure functions.

Every value is read, compared and let go, so that no second copy of a state is in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..results.records import Check
from ..results.verdicts import Verdict
from ..verdict.limits import EQUAL_RHO, OWN_DRIFT, OWN_EQUAL
from ..verdict.local import Local
from ..weights.canonical import Array, Streamed
from .compared import Compared, rms
from .own_made import SAME, factor_says, scale
from .own_matching import Pair, Side, match
from .own_step import Weights

# What an optimizer keeps that is a multiple of torch's where the learning rate is applied before it.
MULTIPLES = ("momentum_buffer",)
SETTING = "it is a number that no step changes"
HALF = 0.5  # noise of a whole number, in which other evaluations count otherwise
FITS = 1e-3  # share of a change by which a formula may be off that explains it

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class States:
    """The state of a subject after a step, beside the exact one.

    own, right: the subject's and the reference's. own_before, right_before: the arrays before the step.
    noise: the rms of the noise of every value of the reference.
    weights: "after/name" and "change/name" of the exact step. fused: see ``match``.
    own_weight: a weight after the subject's step by its name; None for one that it does not have.
    multiples: (place, kind) -> by how much what an optimizer of the subject keeps is larger; what is found is added.
    """

    own: Side
    right: Side
    own_before: Streamed
    right_before: Streamed
    noise: Arrays
    weights: Arrays
    own_weight: Callable[[str], Array | None]
    fused: Mapping[str, tuple[str, ...]]
    multiples: dict[tuple[str, str], float]

    def values(self, pair: Pair) -> Values:
        """The arrays of a pair."""
        paths = [each.path for each in pair.right]
        if pair.own.kind:
            paths = paths[:1]  # each of several weights has the gradient of their sum
        exact = _sum(self.right.arrays, paths)
        known = all(path in self.right_before and self.right_before.shape(path) == exact.shape for path in paths)
        found, noise = np.asarray(self.own.arrays[pair.own.path], np.float64), np.zeros(exact.shape)
        for path in paths:
            noise = np.hypot(noise, self.noise[path])
        return Values(
            found=found,
            found_before=_before(self.own_before, pair.own.path, found.shape),
            exact=exact,
            exact_before=_sum(self.right_before, paths) if known else None,
            noise=noise,
            whole=pair.right[0].kind == "step" or self.right.arrays.dtype(paths[0]).kind != "f",
        )


@dataclass(frozen=True)
class Values:
    """The arrays of one value of a state. found: the subject's. exact: the reference's. noise: of the latter.

    found_before, exact_before: before the step; None where the state held none of this name. whole: it has no rounding.
    """

    found: Array
    found_before: Array | None
    exact: Array
    exact_before: Array | None
    noise: Array
    whole: bool

    @property
    def change(self) -> Array:
        """What the exact step has changed."""
        return self.exact if self.exact_before is None else self.exact - self.exact_before

    @property
    def own_change(self) -> Array:
        """What the subject's step has changed."""
        return self.found if self.found_before is None else self.found - self.found_before

    @property
    def moves(self) -> bool:
        """Whether either step has changed it."""
        return bool(self.change.any() or self.own_change.any())

    @property
    def stands_still(self) -> bool:
        """Whether the subject's step changes it by rounding alone, and the exact step by more."""
        return rms(self.own_change) <= OWN_EQUAL * rms(self.noise) < rms(self.change)

    def compared(self, multiple: float = 1.0) -> Compared:
        """The comparison, by what the step changes or, where it changes nothing, by the values."""
        finite = np.isfinite(self.exact) | np.isfinite(self.found)
        with np.errstate(invalid="ignore"):
            residual = np.where(finite | (self.found != self.exact), self.found / multiple - self.exact, 0.0)
        size = self.change if self.change.any() else self.exact
        if self.whole:
            return Compared(rms(residual), 0.0, rms(size), size.size, Local())
        return Compared.of(residual, size, self.noise)


@dataclass(frozen=True)
class StateCompared:
    """What a comparison of a state has found.

    judged: path in the reference -> the comparison. failing: the pairs that differ. left_out: path -> why it is not compared.
    matched: path in the reference -> path in the subject, where that is another one. broken: the path of a value that is not
    finite; "" when all are.
    """

    states: States
    judged: Mapping[str, Compared] = field(default_factory=dict)
    failing: Sequence[Pair] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    matched: Mapping[str, str] = field(default_factory=dict)
    broken: str = ""

    @property
    def known(self) -> int:
        """The number of values that the reference's state holds."""
        return len(self.states.right.entries)

    @property
    def badness(self) -> tuple[int, float]:
        """The number of values that differ, and by how much."""
        return len(self.failing), sum(self.judged[_path(pair)].badness(OWN_EQUAL) for pair in self.failing)

    def check(self, number: int, known: Mapping[str, str], variant: str = "") -> Check:
        """The check. known: weight -> the known difference of frameworks in it. variant: see ``judge_update``."""
        if self.broken:
            says = f"{self.broken} has NaN or infinity"
            return Check("state", number, Verdict.INVALID, math.inf, says, known=self.known)
        if not self.judged:
            says = "; ".join(f"{path}: {why}" for path, why in list(self.left_out.items())[:1])
            return Check("state", number, Verdict.UNTESTED, says=f"nothing of it is compared: {says}", known=self.known)
        verdict, says, difference = Verdict.EQUAL, "", ""
        if self.failing:
            differences = {known.get(pair.own.weight, "") for pair in self.failing}
            difference = ", ".join(sorted(differences)) if "" not in differences else ""
            drifts = difference or all(self.judged[_path(pair)].drifts(OWN_DRIFT) for pair in self.failing)
            verdict, says = Verdict.DRIFT if drifts else Verdict.DIFFERENT, self.says()
            says = f"{difference}: the state follows the weights" if difference else says
        elif variant:
            verdict, says, difference = Verdict.DRIFT, f"{variant}: the state follows the weights", variant
        every = list(self.judged.values())
        return Check(
            "state", number, verdict, max(each.ratio for each in every), says, difference, len(every), self.known,
            max(each.groups.ratio for each in every),
            {path: each.limit() for path, each in self.judged.items() if each.size},
            max((each.worst_limit() for each in every if each.size), default=None),
        )  # fmt: skip

    def says(self) -> str:
        """What differs: the first value, and how many others do."""
        pair = self.failing[0]
        path, values = _path(pair), self.states.values(pair)
        count = len(self.failing) - 1
        others = f"; {count} other {'value' if count == 1 else 'values'} of the state {'differs' if count == 1 else 'differ'}"
        others = others if count else ""
        if values.found.size == 1 and values.whole:
            return f"{path} is {values.found.item():g}; the reference's is {values.exact.item():g}{others}"
        error = f"{path}: its error after the step is {self.judged[path].says(OWN_EQUAL)} its noise floor"
        if values.stands_still:
            error = f"{path} is {'changed by rounding alone' if values.own_change.any() else 'not changed by the step'}"
        elif values.own_change.any() and not values.change.any():
            error = f"{path} is changed by the step; the reference's step leaves it as it is"
        return error + self._how(pair, values) + others

    def _how(self, pair: Pair, values: Values) -> str:
        """How a value differs, as a clause; "" when that is not known."""
        if values.found_before is None or values.exact_before is None:
            return ""
        if rms(values.found_before - values.exact_before) > 100 * OWN_EQUAL * rms(values.noise):
            return ", and it differs before the step, too"
        weight, average = pair.right[0].weight, ""
        own = self.states.own_weight(weight) if weight and not pair.own.kind and len(pair.right) == 1 else None
        if own is not None and f"after/{weight}" in self.states.weights:
            average = _average(values, own, *(self.states.weights[f"{key}/{weight}"] for key in ("after", "change")))
        factor = 1.0 if values.stands_still else scale(values.own_change, values.change)
        return average or factor_says(factor, "its change is {} times the right one")

    def apart(self, again: Arrays) -> Iterator[tuple[str, float]]:
        """(path, rms of the difference) of the failing values that another run of the subject's step gives other values.

        again: the state after that.
        """
        for pair in self.failing:
            found, path = self.states.own.arrays[pair.own.path], _path(pair)
            apart = rms(again[pair.own.path].astype(np.float64) - found) if pair.own.path in again else math.inf
            if apart > 0.1 * self.judged[path].residual:
                yield path, apart

    def leaving(self, coarse: Arrays, shows: Callable[[str], bool]) -> StateCompared:
        """The same without failing values where activations that cross their kinks explain all that differ.

        coarse: the noise of more rounding. shows: whether the value of a path shows such activations.
        """
        again: dict[str, Compared] = {}
        for pair in self.failing:
            path, values = _path(pair), self.states.values(pair)
            other = replace(values, noise=np.asarray(coarse[path], np.float64)).compared()
            if len(pair.right) > 1 or not shows(path) or other.badness(EQUAL_RHO) > 1:
                return self
            again[path] = other
        return replace(self, judged={**self.judged, **again}, failing=())


@dataclass
class StateCoverage:
    """How much of a state was compared in any step.

    judged: paths in the reference. uncompared: path -> why a value was not compared. matched: see StateCompared.
    """

    judged: set[str] = field(default_factory=set)
    uncompared: dict[str, str] = field(default_factory=dict)
    matched: dict[str, str] = field(default_factory=dict)

    def add(self, compared: StateCompared) -> None:
        """Add a step."""
        self.judged |= compared.judged.keys()
        self.uncompared |= compared.left_out
        self.matched |= compared.matched

    @property
    def left_out(self) -> dict[str, str]:
        """Path -> why a value was compared in no step."""
        return {path: why for path, why in self.uncompared.items() if path not in self.judged}


def known_differences(checks: Sequence[Check], update: Weights, statistics: Weights) -> dict[str, str]:
    """Weight -> the known difference of frameworks in it, which what the state keeps of this weight follows."""
    found: dict[str, str] = {}
    for check in checks:
        failing = {"update": update.failing, "statistics": statistics.failing, "gradients": update.every}.get(
            check.name, ()
        )
        found |= dict.fromkeys((each.name for each in failing), check.difference) if check.difference else {}
    return found


def compare_state(states: States) -> StateCompared:
    """Compare everything that has a partner."""
    found = match(states.own, states.right, states.fused)
    left_out = {path: SETTING if _is_setting(states, path) else why for path, why in found.left_out.items()}
    judged, failing = dict[str, Compared](), list[Pair]()
    multiples = dict(_multiples(states, found.pairs))
    for pair in found.pairs:
        path, values = _path(pair), states.values(pair)
        if values.exact.size == 0:
            continue
        if not np.isfinite(values.found).all() and np.isfinite(values.exact).all():
            return StateCompared(states, broken=path)
        multiple = multiples.get((pair.own.place, pair.own.kind), 1.0)
        compared = values.compared(multiple)
        why = _not_judged(values, compared, multiple, states.multiples.get((pair.own.place, pair.own.kind), multiple))
        if why:
            left_out[path] = why
            continue
        judged[path] = compared
        if not compared.badness(OWN_EQUAL) <= 1:
            failing.append(pair)
    states.multiples.update({key: each for key, each in multiples.items() if key not in states.multiples})
    names = {_path(pair): pair.own.path for pair in found.pairs if pair.own.path != _path(pair)}
    return StateCompared(states, judged, failing, left_out, names)


def _is_setting(states: States, path: str) -> bool:
    """Whether a value is a single number that no step has changed."""
    for side in (states.right, states.own):
        if path in side.arrays:
            return path in side.start and side.arrays[path].size == 1 and side.arrays[path] == side.start[path]
    return False


def _not_judged(values: Values, compared: Compared, multiple: float, before: float) -> str:
    """Why a value is not judged; "" when it is. multiple, before: see States.multiples, in this step and in those before."""
    if not np.isfinite(values.noise).all():
        return "the state of the reference does not hold it in every evaluation"
    if values.whole and values.noise.max() > HALF:
        return "rounding decides its value"
    if values.exact.size == 1 and not values.moves and compared.badness(OWN_EQUAL) > 1:
        return f"no step changes it; it is {values.found.item():g}, and {values.exact.item():g} in the reference"
    if abs(multiple - before) > SAME * abs(before):
        return f"it was {before:.4g} times the reference's and is {multiple:.4g} times it: the learning rate is a factor of it"
    return ""


def _multiples(states: States, pairs: Sequence[Pair]) -> Iterator[tuple[tuple[str, str], float]]:
    """By how much what an optimizer keeps is larger, where that is the same for all of its weights and not 1."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        if pair.own.kind in MULTIPLES:
            groups.setdefault((pair.own.place, pair.own.kind), []).append(pair)
    for key, group in groups.items():
        products = np.zeros(2)
        for values in map(states.values, group):
            products += np.vdot(values.exact, values.found), np.vdot(values.exact, values.exact)
        multiple = float(products[0] / products[1]) if products[1] else 0.0
        if not multiple or not math.isfinite(multiple) or abs(multiple - 1) <= SAME:
            continue
        if all(states.values(pair).compared(multiple).badness(OWN_EQUAL) <= 1 for pair in group):
            yield key, multiple


def _average(values: Values, own: Array, after: Array, change: Array) -> str:
    """How an average of a weight differs from the reference's; "" where either is none.

    own: the weight after the subject's step. after, change: of the weight in the exact step.
    """
    if values.found_before is None or values.exact_before is None:
        return ""
    right = _share(values.change, after - values.exact_before)
    if right is None:
        return ""
    if values.stands_still and rms(after - change - values.found_before) <= FITS * rms(change):
        return ": it is never updated, or it is updated before the weights are"
    found = _share(values.own_change, own - values.found_before)
    if found is not None and abs(found - right) > SAME * abs(right):
        return f": it behaves as decay {1 - found:.4g}; the reference's is {1 - right:.4g}"
    early = _share(values.own_change, after - change - values.found_before)
    return ": it is updated before the weights are" if early is not None else ""


def _share(change: Array, apart: Array) -> float | None:
    """The share of a distance that a change is; None where it is no multiple of it."""
    share = scale(np.asarray(change, np.float64), np.asarray(apart, np.float64))
    fits = math.isfinite(share) and rms(change - share * apart) <= FITS * rms(change)
    return share if fits and change.any() else None


def _path(pair: Pair) -> str:
    return pair.right[0].path


def _sum(arrays: Arrays, paths: Sequence[str]) -> Array:
    found: Array = np.sum([np.asarray(arrays[path], np.float64) for path in paths], axis=0)
    return found


def _before(arrays: Streamed, path: str, shape: tuple[int, ...]) -> Array | None:
    return np.asarray(arrays[path], np.float64) if path in arrays and arrays.shape(path) == shape else None
