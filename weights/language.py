"""Compares the weights of two files of a language model, which may be quantised, fused, stacked or in another order.

Every part of the weights that both files have is compared value by value. A value is right when it is within half a step of its
block, and in a file without steps when it is the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from .allowances import NEAREST, Allowance, allowance
from .canonical import PIECE, Array
from .comparison import Compared
from .language_causes import cause, match_by_content
from .language_names import Key, is_language_model
from .language_parts import Part, Side, align
from .quantised import Values, outside
from .stored import Stored

# Names of what a program computes from the configuration, and which is no weight although some files have it.
COMPUTED = re.compile(r"(rope_freqs|rope_factors_\w+|rotary_emb\.inv_freq|rope\.freqs|attn\.masked_bias)(\.weight)?$")
NUMBER = re.compile(r"-?\d[\d.,]*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Judged:
    """How two parts differ.

    outside: number of values beyond the steps. size: of all. exact: whether all are the same.
    rounded: the type to which the reference was rounded before it was quantised; "" for none.
    worst: (row, column, value, the reference's) of the value that is most outside.
    far: number of values that are farther away than some may be; see Allowance. shifted: the largest shift of a row, in steps.
    alike: the correlation of the two, where what may be outside depends on it. allowed: what may be outside.
    """

    outside: int
    size: int
    exact: bool
    rounded: str = ""
    worst: tuple[int, int, float, float] = (0, 0, 0.0, 0.0)
    far: int = 0
    shifted: float = 0.0
    alike: float = 1.0
    allowed: Allowance = NEAREST

    @property
    def is_right(self) -> bool:
        """Whether no more values are outside than may be."""
        few = self.outside <= self.allowed.outside * self.size and self.far <= self.allowed.far * self.size
        return few and self.shifted <= self.allowed.shifted and self.alike >= self.allowed.alike


@dataclass(frozen=True)
class Pair:
    """Two parts that are compared. left, right: their names. says: how they are related. is_right: whether that is right."""

    left: str
    right: str
    says: str
    is_right: bool


def applies(left: Stored, right: Stored) -> bool:
    """Whether two files are those of language models, as far as their names tell."""
    known = bool(left.steps or right.steps or "architecture" in left.facts or "architecture" in right.facts)
    return known or (is_language_model(left.arrays) and is_language_model(right.arrays))


def compare(left: Stored, right: Stored) -> Compared:
    """Compare the weights of a file, the left one, with those of a reference."""
    sides = Side(left), Side(right)
    align(*sides)
    match_by_content(*sides)
    pairs = list(_pairs(*sides))
    unread = [
        f"{name} of the {where}: not compared, because its type {kind} is not read"
        for where, stored in (("left", left), ("right", right))
        for name, kind in stored.unread.items()
    ]
    right_ones = [each for each in pairs if each.is_right and (each.says != "equal" or each.left != each.right)]
    lines = [*_lines(right_ones), *unread]
    wrong = [each for each in pairs if not each.is_right]
    return Compared(lines, _lines(wrong), len(wrong), len(pairs), "up to the names, the layout and the steps above")


def _pairs(left: Side, right: Side) -> Iterator[Pair]:
    """Every part of both files with what it is compared with."""
    for key, part in left.parts.items():
        if key in right.parts:
            yield _compared(key, (left, right), (part, right.parts[key]))
    for mine, theirs, where in ((left, right, "left"), (right, left, "right")):
        for key, part in mine.parts.items():
            if key not in theirs.parts and key not in theirs.unread and not COMPUTED.search(part.name):
                yield _alone(key, part, (left, right), mine is left, where)


def _alone(key: Key, part: Part, sides: tuple[Side, Side], is_left: bool, where: str) -> Pair:
    """A part that one file lacks. The output layer may be tied to the embedding, which then stands for it."""
    other = sides[is_left]
    embedding = other.parts.get(key.of("embedding"))
    if key.kind == "output" and embedding is not None and embedding.shape == part.shape:
        found = _compared(key, sides, (part, embedding) if is_left else (embedding, part))
        lacks = f"the {'right' if is_left else 'left'} has no output layer, so that its embedding is used in its place"
        says = f"{found.says}; {lacks}" if found.is_right else f"{lacks}, which has other values"
        return replace(found, says=says)
    says = f"only on the {where}, shape {sides[not is_left].stored.arrays[part.name].shape}"
    return Pair(part.name if is_left else "", "" if is_left else part.name, says, False)


def _compared(key: Key, sides: tuple[Side, Side], parts: tuple[Part, Part]) -> Pair:
    left, right = sides
    names = left.called(parts[0]), right.called(parts[1])
    if parts[0].shape != parts[1].shape:
        says = f"has {_size(parts[0])}, and the reference {_size(parts[1])}"
        return Pair(*names, says, False)
    judged = _judged(sides, parts)
    if judged.is_right:
        return Pair(*names, ", ".join([_right(sides, parts, judged), *_layout(parts)]), True)
    found = cause(key, sides, parts)
    if found.parts:
        again = _judged(sides, found.parts)
        if again.is_right:
            return Pair(*names, f"{_right(sides, parts, again)}; {found.says}", True)
    return Pair(
        *names, "; ".join(filter(None, [found.says, "" if found.whole else _count(sides, parts, judged)])), False
    )


def _count(sides: tuple[Side, Side], parts: tuple[Part, Part], judged: Judged) -> str:
    stepped = any(part.name in side.stored.steps for side, part in zip(sides, parts))
    beyond = "more than half a step from the reference's" if stepped else "not the reference's"
    row, column, value, wanted = judged.worst
    verb = "is" if judged.outside == 1 else "are"
    return f"{judged.outside} of {judged.size} values {verb} {beyond}, most at [{row}, {column}]: {value:.6g} and {wanted:.6g}"


def _size(part: Part) -> str:
    return f"{part.shape[0]} rows of {part.shape[1]}"


def _right(sides: tuple[Side, Side], parts: tuple[Part, Part], judged: Judged) -> str:
    """How a part that is right is stored."""
    if judged.exact:
        return "equal"
    kinds = [side.stored.quantised.get(part.name, "") for side, part in zip(sides, parts)]
    steps = [kind for kind, side, part in zip(kinds, sides, parts) if part.name in side.stored.steps]
    rounded = {"F16": "float16", "BF16": "bfloat16"}
    if steps:
        of = f" of values rounded to {judged.rounded}" if judged.rounded else ""
        but = f"all but {judged.outside} of {judged.size} values " if judged.outside else ""
        return f"quantised to {' and '.join(dict.fromkeys(steps))}{of}, {but}within half a step"
    types = [rounded[kind] for kind in kinds if kind in rounded]
    return f"rounded to {' and '.join(dict.fromkeys(types))}" if types else "equal after rounding in float32"


def _layout(parts: tuple[Part, Part]) -> Iterator[str]:
    """What is different in the layout of two parts that are right."""
    for where, part in zip(("left", "right"), parts):
        if part.heads:
            yield f"with the rows that rotate together as neighbours on the {where}"
        if part.add:
            yield f"with one added on the {where}"
        if part.turned:
            yield f"as (inputs, outputs) on the {where}"


def _judged(sides: tuple[Side, Side], parts: tuple[Part, Part]) -> Judged:
    """Compare two parts of one shape; where values are outside of steps, also with a reference that is rounded first."""
    found = _pass(sides, parts, "")
    stepped = any(part.name in side.stored.steps for side, part in zip(sides, parts))
    if found.is_right or not stepped or found.outside > found.size // 2:
        return found
    for rounded in ("bfloat16", "float16"):
        again = _pass(sides, parts, rounded)
        if again.is_right:
            return again
    return found


def _pass(sides: tuple[Side, Side], parts: tuple[Part, Part], rounded: str) -> Judged:
    """rounded: the type to which the values that are not quantised are rounded first; "" for none."""
    stepped = [side.is_stepped(part) for side, part in zip(sides, parts)]
    allowances = [
        allowance(side.stored.quantised.get(part.name, ""), side.stored.facts) for side, part in zip(sides, parts)
    ]
    allowed = next((each for each in allowances if each != NEAREST), NEAREST)
    rows, columns = parts[0].shape
    at_once, count, far, shifted, exact = max(1, PIECE // columns), 0, 0, 0.0, True
    worst, most, products = (0, 0, 0.0, 0.0), 0.0, np.zeros(3)
    for begin in range(0, rows, at_once):
        which = np.arange(begin, min(rows, begin + at_once))
        mine, theirs = (side.values(part, which) for side, part in zip(sides, parts))
        exact = exact and np.array_equal(mine.array, theirs.array)
        if rounded:
            mine, theirs = (
                each if is_stepped else each.like(_rounded(each.array, rounded))
                for each, is_stepped in zip((mine, theirs), stepped)
            )
        wrong = outside(mine, theirs)
        count += int(wrong.sum())
        away = np.where(wrong, np.abs(mine.array - theirs.array), 0.0)
        if allowed != NEAREST:
            step = mine.step + theirs.step
            limit = np.maximum(mine.half + theirs.half, allowed.steps * step)
            far += int((wrong & (_beside_range(mine, theirs) > limit)).sum())
            means = ((mine.array - theirs.array) / np.maximum(step, np.finfo(float).tiny)).mean(axis=1)
            shifted = max(shifted, float(np.abs(means).max()))
            products += [
                (one * other).sum() for one, other in combinations_with_replacement((mine.array, theirs.array), 2)
            ]
        at = np.unravel_index(int(np.argmax(away)), away.shape)
        if away[at] > most:
            most = float(away[at])
            worst = (begin + int(at[0]), int(at[1]), float(mine.array[at]), float(theirs.array[at]))
    own, common, other = products
    alike = common / math.sqrt(own * other) if own * other else 1.0
    return Judged(count, rows * columns, exact, rounded, worst, far, shifted, alike, allowed)


def _beside_range(mine: Values, theirs: Values) -> Array:
    """The distance of each value from the other file's value, or from the end of a range where that one lies beyond it."""
    found: Array = np.minimum(
        np.abs(mine.array - np.clip(theirs.array, mine.low, mine.high)),
        np.abs(theirs.array - np.clip(mine.array, theirs.low, theirs.high)),
    )
    return found


def _rounded(array: Array, to: str) -> Array:
    if to == "float16":
        return array.astype(np.float16).astype(np.float64)
    bits = array.astype(np.float32).view(np.uint32)
    odd = (bits >> 16) & 1  # ties go to the even one
    return ((bits + 0x7FFF + odd) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def _lines(pairs: Sequence[Pair]) -> list[str]:
    """One line for all pairs of several layers of which the same is said."""
    groups: dict[tuple[str, ...], list[Pair]] = {}
    for each in pairs:
        says = each.says if each.is_right else NUMBER.sub("*", each.says)
        groups.setdefault((re.sub(r"\d+", "*", each.left), re.sub(r"\d+", "*", each.right), says), []).append(each)
    return [_line(names, several) for names, several in groups.items()]


def _line(names: tuple[str, ...], several: Sequence[Pair]) -> str:
    first = several[0]
    left, right = (first.left, first.right) if len(several) == 1 else names[:2]
    count = f" ({len(several)} tensors)" if len(several) > 1 else ""
    compared = f", compared with {right}" if left and right and left != right else ""
    one = (
        f" ({first.left or first.right})"
        if len(several) > 1 and NUMBER.sub("", first.says) != first.says and not first.is_right
        else ""
    )
    return f"{left or right}{count}: {first.says}{one}{compared}"
