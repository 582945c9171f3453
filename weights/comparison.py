"""Compares two sets of weights for a user: one line for each tensor that is not identical, and what it follows from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .canonical import Difference, diff
from .findings import LISTED, sentences
from .relations import QUIET, Relation, relate
from .stored import Stored

# A part of a name that Keras, Paddle, TensorLayer or an exporter of ONNX has counted: "conv2d", "conv2d_1", "MatMul_12".
COUNTED = re.compile(r"(?<![^./:])([^./:]*[^./:_\d][^./:]*?)(?:_(\d+))?(?![^./:])")


@dataclass(frozen=True)
class Compared:
    """lines: one for each tensor that is not identical. sentences: what is wrong.

    different: number of tensors that no renaming, order of axes or folding explains. known: number of all tensors.
    up_to: what may differ between tensors that are equal, as a phrase.
    """

    lines: Sequence[str]
    sentences: Sequence[str]
    different: int
    known: int
    up_to: str = "up to the names, the order of axes and the folding above"


def compare(left: Stored, right: Stored) -> Compared:
    """Compare the weights of a file, the left one, with those of a reference."""
    plain = {each.name: each for each in diff(left.arrays, right.arrays)}
    known = len(set(left.arrays) | set(right.arrays))
    if not plain:
        return Compared((), (), 0, known)
    relations = relate(left, right)
    renumbered = set(_renumbered(left, right, relations))
    plain = {name: each for name, each in plain.items() if name not in renumbered}
    lines, different, moved = [], 0, list[Relation]()
    told: set[str] = set()
    for each in relations:
        told |= {each.name, each.other, *each.uses}
        if each.name == each.other and each.name not in plain:
            continue
        lines.append(f"{each.name or each.other}: {_says(each, plain)}")
        different += not _is_right(each, plain)
        if _is_moved(each, plain):
            moved.append(each)
    graphs = bool(left.places or right.places)
    for name, difference in plain.items():
        # A single number in a graph is a constant of the exporter, unless both files have it.
        if name not in told and not (graphs and difference.kind in ("missing", "extra")):
            lines.append(f"{name}: {difference.detail}")
            different += 1
    return Compared(lines, [*_moved_sentences(moved, left), *sentences(relations, left, right)], different, known)


def _is_right(each: Relation, plain: Mapping[str, Difference]) -> bool:
    # Two tensors of one name must be the same to the last bit, unless a batch norm is folded into one of them.
    bitwise = each.kind == "same" and each.name == each.other and each.name in plain
    return each.right and each.kind not in QUIET and not bitwise and not _is_moved(each, plain)


def _is_moved(each: Relation, plain: Mapping[str, Difference]) -> bool:
    """Whether a tensor follows from one of another name although both files have its own name, with other values."""
    both = each.name in plain and plain[each.name].kind in ("values", "shape")
    return both and each.right and each.other not in ("", each.name) and each.name not in each.uses


def _renumbered(left: Stored, right: Stored, relations: Sequence[Relation]) -> Iterator[str]:
    """The names in both files that a counter gave, where it began elsewhere: in order of their numbers, the tensors are equal.

    A counter goes on in a second model of one process. Files with the same numbers have no other order than that of the names.
    """
    equal = {(each.name, each.other) for each in relations if each.kind == "same" and each.right}
    theirs = _by_kind(right.arrays)
    for kind, names in _by_kind(left.arrays).items():
        others = theirs.get(kind, [])
        if len(names) == len(others) and all(
            (one, two) in equal or np.array_equal(left.arrays[one], right.arrays[two])
            for one, two in zip(names, others)
        ):
            yield from {*names, *others}


def _by_kind(names: Iterable[str]) -> dict[str, list[str]]:
    """Name without numbers -> the names with them, in order of the numbers; names that are not counted are left out."""
    found: dict[str, list[tuple[list[int], str]]] = defaultdict(list)
    for name in names:
        numbers = [int(each[2] or 0) for each in COUNTED.finditer(name)]
        found[COUNTED.sub(r"\1", name)].append((numbers, name))
    return {kind: [name for _, name in sorted(each)] for kind, each in found.items() if len(each) > 1}


def _moved_sentences(moved: Sequence[Relation], left: Stored) -> list[str]:
    """What is wrong with tensors that have the names of others: a renaming holds only for a name that the other file lacks."""
    if len(moved) > LISTED:
        names = ", ".join(f"{each.name} ({each.other})" for each in moved[:LISTED])
        return [f"{len(moved)} tensors have the names of others, and both files have these names: {names} and more"]
    return [
        f"{each.name} is {each.other} of the right, and both files have {'both names' if each.other in left.arrays else each.name}"
        for each in moved
    ]


def _says(each: Relation, plain: Mapping[str, Difference]) -> str:
    if each.kind in QUIET:
        return each.says.replace("in the file", "on the left").replace("in the reference", "on the right")
    if _is_moved(each, plain):
        return f"{plain[each.name].detail}; {each.says or 'equal'}, compared with {each.other}"
    if each.kind == "same" and each.name != each.other:
        return f"equal to {each.other}" + (f", {each.says}" if each.says else "")
    if each.name == each.other and plain[each.name].kind in ("values", "shape"):
        return "; ".join(filter(None, [plain[each.name].detail, each.says]))
    return each.says if each.kind in ("folded", "dropped norm") else f"{each.says}, compared with {each.other}"
