"""Joins the captures of several processes that computed parts of one run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import UsageError
from xverify.frameworks.capture.file import Capture, Json, read
from xverify.frameworks.capture.xverify_recorder import Store
from xverify.weights.canonical import Array

KINDS = ("inputs", "outputs")  # of a call of the model, or of a layer
SUM = "sum"  # how an output is divided that every process has a share of


def joined(captures: Sequence[Capture], path: Path) -> Capture:
    """The captures of all ranks of one run as one, which is written to a file.

    Where each computed other items of the batch, arrays whose first axis is the batch are joined along it. Where each computed a
    part of the tensors, these are joined as the captures say. All other arrays must be equal in every rank.
    Raises UsageError where ranks are missing or disagree. captures: in any order.
    """
    first, *others = parts = sorted(captures, key=lambda each: each.manifest["rank"])
    _check_ranks(parts)
    for other in others:
        _check_alike(first, other)
    with contextlib.closing(Store(str(path))) as store:
        store.write(str(path), _Joining(parts, store).manifest())
    return read(path)


@dataclass(frozen=True)
class _Joining:
    """The joining of captures of several ranks. made: names of an array in each rank -> its name in the store."""

    parts: Sequence[Capture]
    store: Store
    made: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def manifest(self) -> Json:
        """The manifest of the whole, when all arrays are in the store."""
        manifests = [each.manifest for each in self.parts]
        calls = [
            self._call(calls) for calls in zip(*(each["calls"] for each in manifests))
        ]  # a message names a layer first
        return {
            **manifests[0],
            "rank": 0,
            "ranks": 1,
            "divided": {},
            "cases": [self._case(cases) for cases in zip(*(each["cases"] for each in manifests))],
            "calls": calls,
            "weights": {
                name: self._weight(name, [each["weights"][name] for each in manifests])
                for name in manifests[0]["weights"]
            },
            "digests": self.store.digests,
        }

    def _case(self, cases: Sequence[Json]) -> Json:
        kinds = [kind for kind in ("inputs", "outputs", "values") if kind in cases[0]]
        both = {kind: [each[kind] for each in cases] for kind in kinds}
        named = {
            kind: {name: self._array((each[name] for each in of), kind) for name in of[0]} for kind, of in both.items()
        }
        return dict(cases[0], **named)

    def _call(self, calls: Sequence[Json]) -> Json:
        listed = {
            kind: [self._array(each, f"{calls[0]['name']}.{kind}") for each in zip(*(call[kind] for call in calls))]
            for kind in ("inputs", "outputs")
        }
        return {**calls[0], **listed}

    def _weight(self, name: str, entries: Sequence[Json]) -> Json:
        """The entry of a weight: that of the first rank, or the parts of all where it is divided."""
        divided, first = self.parts[0].divided, self.parts[0]
        kept = [entry["array"] for entry in entries if "array" in entry]
        if name not in divided:
            return dict(entries[0], array=self.store.add(first.array(kept[0]))) if kept else entries[0]
        shape = _concatenated(self.parts, [np.zeros(entry["shape"], bool) for entry in entries], name).shape
        known = [{"shape": entry["shape"], "sha256": entry["sha256"]} for entry in entries]
        found: Json = {"shape": list(shape), "parts": known, "dimension": divided[name]}
        return dict(found, array=self._array(kept, name)) if len(kept) == len(entries) else found

    def _array(self, names: Iterable[str], of: str) -> str:
        """Store the arrays of all ranks as one. names: in each rank. of: what it is, as in ``divided``. Returns its name."""
        divided, each = self.parts[0].divided, tuple(names)
        key = (*each, divided.get(of))
        if key not in self.made:
            array = _joined(self.parts, each, of) if of in divided else _together(self.parts, each, of)
            self.made[key] = self.store.add(array)
        return self.made[key]


def _joined(parts: Sequence[Capture], names: Sequence[str], of: str) -> Array:
    """The parts of a divided tensor as one. of: its name in ``divided``."""
    arrays = [part.array(name) for part, name in zip(parts, names)]
    return np.add.reduce(arrays) if parts[0].divided[of] == SUM else _concatenated(parts, arrays, of)


def _concatenated(parts: Sequence[Capture], arrays: Sequence[Array], of: str) -> Array:
    """The parts of a tensor along the dimension of ``divided``. Raises UsageError where they do not fit together."""
    dimension = parts[0].divided[of]
    try:
        return np.concatenate(arrays, dimension)
    except (TypeError, ValueError):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise UsageError(
            f"{parts[0].path.name}: {of} is divided along the dimension {dimension}, and its parts have the shapes {shapes}"
        ) from None


def _check_ranks(parts: Sequence[Capture]) -> None:
    """Raise UsageError unless every rank is there once."""
    ranks, counts = [each.manifest["rank"] for each in parts], {each.manifest["ranks"] for each in parts}
    if len(counts) > 1 or ranks != list(range(max(counts))):
        given = ", ".join(
            f"{each.path.name} is rank {each.manifest['rank']} of {each.manifest['ranks']}" for each in parts
        )
        raise UsageError(f"the captures are not those of all ranks of one run: {given}; name each file once")


def _check_alike(first: Capture, other: Capture) -> None:
    """Raise UsageError where two ranks have other weights, or other calls."""
    names = f"{first.path.name} and {other.path.name}"
    if first.divided != other.divided:
        raise UsageError(f"{names} are divided in other ways: every rank records with the same divided=")
    strange = sorted(set(first.divided) - _known(first))
    if strange:
        raise UsageError(
            f"{first.path.name}: divided names {strange[0]}, which is no weight, and no LAYER.inputs or LAYER.outputs"
        )
    mine, theirs = (
        {name: name in of.divided or each["sha256"] for name, each in of.manifest["weights"].items()}
        for of in (first, other)
    )
    differs = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    if differs:
        raise UsageError(
            f"{names} have other weights: {differs[0]} differs between the ranks, so these are not parts of one batch; for weights "
            "that are divided among ranks, record with divided={" + f"{differs[0]!r}: DIMENSION, …}}"
        )
    calls = [[(each.case, each.name, each.call, len(each.inputs)) for each in of.calls] for of in (first, other)]
    kinds = [
        [(sorted(case["inputs"]), sorted(case["outputs"])) for case in of.manifest["cases"]] for of in (first, other)
    ]
    if calls[0] != calls[1] or kinds[0] != kinds[1]:
        raise UsageError(
            f"{names} have other calls: {first.cases} and {other.cases} of the model, {len(calls[0])} and {len(calls[1])} of "
            "layers; every rank records the same calls in the same order"
        )


def _known(capture: Capture) -> set[str]:
    """What ``divided`` can name."""
    of_layers = (f"{name}.{kind}" for name in capture.manifest["layers"] for kind in KINDS)
    return {*capture.manifest["weights"], *KINDS, *of_layers}


def _batch(capture: Capture) -> int:
    """The items of a call: the first axis of the first input."""
    shape = capture.shape(next(iter(capture.manifest["cases"][0]["inputs"].values())))
    return shape[0] if shape else 0


def _together(parts: Sequence[Capture], names: Sequence[str], of: str) -> Array:
    """The arrays of all ranks as one. of: what they are, for the message."""
    arrays = [part.array(name) for part, name in zip(parts, names)]
    if not parts[0].divided and all(array.shape[:1] == (batch,) for array, batch in zip(arrays, map(_batch, parts))):
        return np.concatenate(arrays)
    for part, array in zip(parts[1:], arrays[1:]):
        if array.tobytes() != arrays[0].tobytes():
            raise UsageError(
                f"{parts[0].path.name} and {part.path.name}: the tensor {of} of shape {arrays[0].shape} differs between the ranks, "
                f"and {'divided does not name it' if parts[0].divided else 'has no axis of the batch'}"
            )
    return arrays[0]
