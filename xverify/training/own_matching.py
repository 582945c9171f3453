"""Which value of a subject's state belongs to which of the reference's. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..verdict.own_step import StateEntry
from ..weights.canonical import Array, Streamed, shape_of
from .compared import rms

EQUAL_START = 1e-6  # share of the size by which two values that begin as equal ones may be apart
NO_PARTNER = "the state of {} has no value of this name, and none that begins with its values"
AMBIGUOUS = "several values of the state of {} begin with its values: give it the same name there"

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Pair:
    """A value of the subject and what it is compared with. right: of the reference; where there are several, their sum."""

    own: StateEntry
    right: tuple[StateEntry, ...]


@dataclass(frozen=True)
class Matched:
    """The pairs, in the order of the reference. left_out: path -> why a value is not compared."""

    pairs: tuple[Pair, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """One of the two states. name: whose it is. entries: what it holds. arrays: after the step. start: before the first step."""

    name: str
    entries: tuple[StateEntry, ...]
    arrays: Streamed
    start: Streamed


def match(own: Side, right: Side, fused: Mapping[str, tuple[str, ...]]) -> Matched:
    """Match the values of a subject's state with those of the reference's, by name, else by what they hold.

    fused: weight of the subject -> the reference's weights whose sum it is.
    """
    says = {each.key: each.says for each in (*own.entries, *right.entries) if each.says}
    left_out = {each.path: says[each.key] for each in (*own.entries, *right.entries) if each.key in says}
    free = {each.path: each for each in own.entries if each.key not in says}
    wanted = {each.path: each for each in right.entries if each.key not in says}
    found: list[Pair] = []

    def take(pairs: Iterable[Pair]) -> None:
        for pair in list(pairs):
            found.append(pair)
            free.pop(pair.own.path)
            for each in pair.right:
                wanted.pop(each.path)

    def alike(pair: Pair) -> bool:
        shapes = [shape_of(right.arrays, each.path) for each in pair.right]
        return all(shape == shape_of(own.arrays, pair.own.path) for shape in shapes)

    by_key = {each.key: each for each in free.values()}
    named = [Pair(by_key[each.key], (each,)) for each in wanted.values() if each.key in by_key]
    for pair in (pair for pair in named if not alike(pair)):
        shapes = [shape_of(side.arrays, each.path) for side, each in ((own, pair.own), (right, pair.right[0]))]
        left_out[pair.right[0].path] = f"its shape is {shapes[0]} in {own.name} and {shapes[1]} in {right.name}"
        free.pop(pair.own.path)
        wanted.pop(pair.right[0].path)
    take(pair for pair in named if alike(pair))
    take(pair for pair in _fused(free.values(), wanted.values(), fused) if alike(pair))
    for near in (_within, lambda _own, _right: True):
        take(pair for pair in _by_kind(free.values(), wanted.values(), near) if alike(pair))
    equal = _equal_starts(free.values(), wanted.values(), own, right)
    take(_only(equal, lambda pair: bool(pair.own.weight) and pair.own.weight == pair.right[0].weight))
    equal = [pair for pair in equal if pair.own.path in free and pair.right[0].path in wanted]
    take(_only(equal, lambda _: True))
    doubtful = {each.path for pair in equal for each in (pair.own, *pair.right)}
    left_out |= _without_partner(free, right.name, doubtful) | _without_partner(wanted, own.name, doubtful)
    order = {each.path: place for place, each in enumerate(right.entries)}
    return Matched(tuple(sorted(found, key=lambda pair: order[pair.right[0].path])), left_out)


def _without_partner(paths: Iterable[str], other: str, doubtful: Collection[str]) -> dict[str, str]:
    """Path -> why it has no partner in the other state. doubtful: those of which several begin with equal values."""
    return {path: (AMBIGUOUS if path in doubtful else NO_PARTNER).format(other) for path in paths}


def _fused(
    free: Iterable[StateEntry], wanted: Iterable[StateEntry], fused: Mapping[str, tuple[str, ...]]
) -> Iterator[Pair]:
    """The pairs of values that are the sum of several of the reference's. Each of these has the gradient of the sum."""
    by_name = {(each.place, each.kind, each.weight): each for each in wanted}
    for each in free:
        parts = [by_name.get((each.place, each.kind, part)) for part in fused.get(each.weight, ())]
        right = tuple(part for part in parts if part is not None)
        if right and len(right) == len(parts):
            yield Pair(each, right)


def _within(own: StateEntry, right: StateEntry) -> bool:
    """Whether one value belongs to an optimizer that stands within that of the other."""
    one, other = f"{own.place}.", f"{right.place}."
    return one.startswith(other) or other.startswith(one)


def _by_kind(
    free: Iterable[StateEntry], wanted: Iterable[StateEntry], near: Callable[[StateEntry, StateEntry], bool]
) -> list[Pair]:
    """The pairs of what optimizers keep of one kind of one weight, where there is only one on each side."""
    kept = [each for each in free if each.kind]
    pairs = [
        Pair(own, (right,))
        for right in wanted
        for own in kept
        if right.kind and (own.kind, own.weight) == (right.kind, right.weight) and near(own, right)
    ]
    return _only(pairs, lambda _: True)


def _only(pairs: list[Pair], wanted: Callable[[Pair], bool]) -> list[Pair]:
    """The wanted pairs of which no value is in another wanted one."""
    chosen = [pair for pair in pairs if wanted(pair)]
    counts = Counter(each for pair in chosen for each in (("own", pair.own.path), ("right", pair.right[0].path)))
    return [pair for pair in chosen if counts["own", pair.own.path] == counts["right", pair.right[0].path] == 1]


def _equal_starts(free: Iterable[StateEntry], wanted: Iterable[StateEntry], own: Side, right: Side) -> list[Pair]:
    """The pairs of values that are equal before the first step. Single numbers, and arrays of one number, say nothing."""
    by_shape: dict[tuple[int, ...], list[StateEntry]] = {}
    for each in free:
        if not each.kind and each.path in own.start:
            by_shape.setdefault(shape_of(own.start, each.path), []).append(each)
    found: list[Pair] = []
    for each in wanted:
        candidates = by_shape.get(shape_of(right.start, each.path), []) if each.path in right.start else []
        if each.kind or not candidates:
            continue
        values = right.start[each.path].astype(np.float64)
        if values.size < 2 or (values == values.flat[0]).all():
            continue
        size = rms(values)
        found += [
            Pair(other, (each,)) for other in candidates if rms(own.start[other.path] - values) <= EQUAL_START * size
        ]
    return found
