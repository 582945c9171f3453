"""Compares the weights of two files of a language model, which may be quantised, fused, stacked or in another order.

Every part of the weights that both files have is compared value by value. A value is right when it is within half a step of its
block, and in a file without steps when it is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

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
class Allowance:
    """What may be outside in a part whose numbers are not the nearest ones.

    outside: share of its values that may be. far: share of them that may also be more than ``steps`` steps from the reference's
    value, or from the end of the range where that lies beyond it. shifted: steps by which a row may be shifted.
    """

    outside: float = 0.0
    far: float = 0.0
    steps: float = 0.0
    shifted: float = np.inf


NEAREST = Allowance()
# Numbers that compensate the errors of others: layers of 512 inputs of four kinds, which GPTQ quantised to 3, 4 and 8 bits, had at
# most 17.6% outside, 0.31% more than 1.5 steps away, and rows that were shifted by 0.08 steps.
COMPENSATED = Allowance(0.25, 0.01, 1.5, 0.25)
# Weights of importance decided on the steps of the types that use them: values that llama.cpp quantised with such weights, whose
# logarithms had a standard deviation of 3, were outside by at most 4.5%. Types with super-blocks had all of these at the end of a
# range; the others had at most 0.38% more than 1.5 steps away.
IMPORTANT = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1"), Allowance(0.05, 0.01, 1.5)),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"), Allowance(0.05)),
}


@dataclass(frozen=True)
class Judged:
    """How two parts differ.

    outside: number of values beyond the steps. size: of all. exact: whether all are the same.
    rounded: the type to which the reference was rounded before it was quantised; "" for none.
    worst: (row, column, value, the reference's) of the value that is most outside.
    far: number of values that are farther away than some may be; see Allowance. shifted: the largest shift of a row, in steps.
    allowed: what may be outside.
    """

    outside: int
    size: int
    exact: bool
    rounded: str = ""
    worst: tuple[int, int, float, float] = (0, 0, 0.0, 0.0)
    far: int = 0
    shifted: float = 0.0
    allowed: Allowance = NEAREST

    @property
    def is_right(self) -> bool:
        """Whether no more values are outside than may be."""
        few = self.outside <= self.allowed.outside * self.size and self.far <= self.allowed.far * self.size
        return few and self.shifted <= self.allowed.shifted


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
    allowances = [_allowance(side, part) for side, part in zip(sides, parts)]
    allowed = next((each for each in allowances if each != NEAREST), NEAREST)
    rows, columns = parts[0].shape
    at_once, count, far, shifted, exact = max(1, PIECE // columns), 0, 0, 0.0, True
    worst, most = (0, 0, 0.0, 0.0), 0.0
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
        at = np.unravel_index(int(np.argmax(away)), away.shape)
        if away[at] > most:
            most = float(away[at])
            worst = (begin + int(at[0]), int(at[1]), float(mine.array[at]), float(theirs.array[at]))
    return Judged(count, rows * columns, exact, rounded, worst, far, shifted, allowed)


def _allowance(side: Side, part: Part) -> Allowance:
    """What may be outside in a part of one file."""
    kind = side.stored.quantised.get(part.name, "")
    if "compensated" in side.stored.facts and kind.endswith("GPTQ"):
        return COMPENSATED
    return IMPORTANT.get(kind, NEAREST) if "importance" in side.stored.facts else NEAREST


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
