"""Matches the inputs or outputs of two model files: by name, then by shape and dtype, and never by position alone.

Where several matchings are possible, all of them are returned, and the content decides: see ``decide``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError, nearest
from ..framework.modelfile import Tensor
from ..verdict.sizes import norm
from ..weights.canonical import Array
from .cases import described

POSSIBILITIES = 64  # more matchings than this are not tried; the user is asked for --map
NEAR, CLEAR = (
    0.05,
    10.0,
)  # content decides when a relative error is at most NEAR, and CLEAR times smaller than any other
DECORATION = re.compile(r"(^serving_default_)|(:\d+$)|(^StatefulPartitionedCall[:_]?)")

IMAGE = 4  # axes of an image with its batch
Order = tuple[int, ...]
LAYOUTS: dict[Order, str] = {(0, 2, 3, 1): "NCHW→NHWC", (0, 3, 1, 2): "NHWC→NCHW"}


@dataclass(frozen=True)
class Pair:
    """An input or output of the reference and the one of the file that it belongs to.

    order: the axes of the reference's array in the order that the file has them; None when the order is the same.
    how: what the match rests on: "--map", "name", "shape and dtype" or "number of values". rank: number of axes; 0: unknown.
    """

    reference: str
    own: str
    order: Order | None
    how: str
    rank: int = 0

    def __str__(self) -> str:
        turned = f", axes {LAYOUTS.get(self.order, f'in the order {self.order}')}" if self.order else ""
        return f"{self.reference} = {self.own} (by {self.how}{turned})"


@dataclass(frozen=True)
class Matching:
    """One complete matching. missing: tensors of the reference that the file lacks. extra: tensors of the file alone."""

    pairs: tuple[Pair, ...]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


def matchings(
    what: str,
    reference: Sequence[Tensor],
    own: Sequence[Tensor],
    given: Mapping[str, str] | None = None,
    layout: str | None = None,
) -> list[Matching]:
    """All matchings that names, shapes and dtypes allow; [] never, because an impossible one raises UsageError.

    what: "input" or "output", for messages.
    reference, own: of the reference and of the file. The shapes of the reference have no open dimension.
    given: --map, name in the reference -> name in the file.
    layout: --layout, "same" or "turned": whether images have their axes in the reference's order; None: what fits.
    """
    fixed = _given(what, reference, own, given or {}, layout)
    pairs = _with_names(what, reference, own, fixed, layout)
    left = [tensor for tensor in reference if tensor.name not in pairs]
    free = [tensor for tensor in own if tensor.name not in {found[0] for found in pairs.values()}]
    possible = list(itertools.islice(_assignments(left, free, layout), POSSIBILITIES + 1))
    if len(possible) > POSSIBILITIES:
        raise UsageError(
            f"the {what}s {', '.join(t.name for t in left)} can belong to {', '.join(t.name for t in free)} in more than "
            f"{POSSIBILITIES} ways; say which belong together, e.g. --map {left[0].name}={free[0].name}"
        )
    if what == "output" and possible == [{}] and len(left) == len(free) == 1 and _turnable(left[0], free[0]):
        # What is left on both sides is the same output with transposed axes; the comparison says so.
        possible = [{left[0].name: (free[0].name, [None], "number of values")}]
    return [matching for assignment in possible for matching in _complete(reference, own, {**pairs, **assignment})]


Found = dict[str, "tuple[str, list[Order | None], str]"]


def _with_names(
    what: str, reference: Sequence[Tensor], own: Sequence[Tensor], fixed: Found, layout: str | None
) -> Found:
    """The fixed pairs, and those of tensors that have the same name on both sides. Raises UsageError where two do not fit."""
    pairs = dict(fixed)
    for tensor in reference:
        named = [other for other in own if plain(other.name) == plain(tensor.name)]
        if tensor.name in pairs or len(named) != 1 or named[0].name in {found[0] for found in pairs.values()}:
            continue
        orders = list(_orders(tensor, named[0], layout))
        if not orders and what == "output":
            orders = [None]  # the comparison says that the shape or the dtype is another one
        if not orders:
            raise UsageError(
                f"{what} {tensor.name!r} is {tensor.dtype} {described(tensor.shape)} in the reference and "
                f"{named[0].dtype} {described(named[0].shape)} in the file; --map names another, --layout another order of axes"
            )
        pairs[tensor.name] = (named[0].name, orders, "name")
    return pairs


def _complete(reference: Sequence[Tensor], own: Sequence[Tensor], whole: Found) -> Iterator[Matching]:
    """The matchings of these pairs, one for each choice of the order of their axes."""
    names = {name for name, _, _ in whole.values()}
    missing = tuple(tensor.name for tensor in reference if tensor.name not in whole)
    extra = tuple(tensor.name for tensor in own if tensor.name not in names)
    paired = [tensor for tensor in reference if tensor.name in whole]
    for orders in itertools.product(*(whole[tensor.name][1] for tensor in paired)):
        pairs = []
        for tensor, order in zip(paired, orders):
            name, _, how = whole[tensor.name]
            pairs.append(Pair(tensor.name, name, order, how, len(tensor.shape or ())))
        yield Matching(tuple(pairs), missing, extra)


def _given(
    what: str, reference: Sequence[Tensor], own: Sequence[Tensor], given: Mapping[str, str], layout: str | None
) -> Found:
    """The pairs that --map names. Other names than those of this kind of tensor are left to the other kind."""
    mine, theirs = ({tensor.name: tensor for tensor in side} for side in (reference, own))
    found: Found = {}
    for name, other in given.items():
        if name not in mine and other not in theirs:
            continue
        for side, called, known in (("reference", name, mine), ("file", other, theirs)):
            if called not in known:
                raise UsageError(
                    f"--map {name}={other}: the {side} has no {what} {called!r}{nearest(called, known)} It has: {', '.join(known)}"
                )
        orders = list(_orders(mine[name], theirs[other], layout))
        if not orders:
            raise UsageError(
                f"--map {name}={other}: the {what} is {mine[name].dtype} {described(mine[name].shape)} in the reference and "
                f"{theirs[other].dtype} {described(theirs[other].shape)} in the file"
            )
        found[name] = (other, orders, "--map")
    return found


def plain(name: str) -> str:
    """A name without what exporters add to it."""
    return DECORATION.sub("", name)


def _assignments(left: Sequence[Tensor], free: Sequence[Tensor], layout: str | None) -> Iterator[Found]:
    """Every way to give as many of the tensors that are left a free one as possible, by shape and dtype."""
    fits = {
        (mine.name, other.name): orders
        for mine in left
        for other in free
        if (orders := list(_orders(mine, other, layout)))
    }
    most = 0
    for size in range(min(len(left), len(free)), 0, -1):
        for chosen in itertools.combinations(left, size):
            for others in itertools.permutations(free, size):
                keys = [(mine.name, other.name) for mine, other in zip(chosen, others)]
                if all(key in fits for key in keys):
                    most = size
                    yield {name: (other, fits[name, other], "shape and dtype") for name, other in keys}
        if most:
            return
    yield {}


def _orders(mine: Tensor, other: Tensor, layout: str | None) -> Iterator[Order | None]:
    """The orders of axes in which a tensor of the file can hold a tensor of the reference."""
    if not _same_kind(mine.dtype, other.dtype):
        return
    if mine.shape is None or (other.shape is None and len(mine.shape) < IMAGE):
        yield None
        return
    # A file that declares no shape may take an image in any order; an order that it cannot compute is no match.
    shape = other.shape or (None,) * len(mine.shape)
    if len(mine.shape) != len(shape):
        return
    rank = len(mine.shape)
    orders: list[Order | None] = [None]
    if rank > 2:
        # Channels second to channels last, and back.
        orders += [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    if layout is not None and rank > 2:
        orders = orders[:1] if layout == "same" else orders[1:]
    seen = set()
    for order in orders:
        turned = tuple(mine.shape[axis] for axis in order) if order else mine.shape
        fits = all(not isinstance(b, int) or not isinstance(a, int) or a == b for a, b in zip(turned, shape))
        if fits and order not in seen:
            seen.add(order)
            yield order
            if order is None and layout is None and turned == shape and not _unclear(mine.shape):
                return  # equal shapes have equal layouts, unless another order gives the same shape


def _turnable(mine: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same sizes in another order."""
    if mine.shape is None or other.shape is None or not _same_kind(mine.dtype, other.dtype):
        return False
    return sorted(map(str, mine.shape)) == sorted(map(str, other.shape))


def _unclear(shape: tuple[int | str | None, ...]) -> bool:
    """Whether moving the channels leaves the shape of an image as it is."""
    rank = len(shape)
    return rank > 3 and shape[1] == shape[-1] != 1 and len(set(shape[1:])) == 1


def _same_kind(mine: str, other: str) -> bool:
    """Whether the dtypes may stand for the same values: any two floats, any two kinds of whole numbers, or bools."""

    def kind(dtype: str) -> str:
        return "f" if "float" in dtype else "i" if "int" in dtype else dtype

    return kind(mine) == kind(other)


def decide(matchings: Sequence[Sequence[Matching]], errors: Sequence[float]) -> tuple[int, str]:
    """Choose among several possibilities by their outputs. Returns the index, and a sentence for the report; "" for one alone.

    matchings: for each possibility, the matching of the inputs and that of the outputs.
    errors: the relative error of the outputs of each possibility; infinity where they could not be computed.
    Raises UsageError when the content does not decide.
    """
    if len(matchings) == 1:
        return 0, ""
    order = sorted(range(len(matchings)), key=lambda index: errors[index])
    best, second = errors[order[0]], errors[order[1]]
    if best <= NEAR and second > max(NEAR, CLEAR * best):
        return order[0], (
            f"names and shapes allow {len(matchings)} matchings; the outputs decide: the relative error of the one that was chosen "
            f"is {best:.1e}, that of the next one {second:.1e}"
        )
    rivals = [index for index in order if errors[index] <= max(NEAR, CLEAR * best)]
    same = next(
        (index for index in rivals if not any(pair.order for each in matchings[index] for pair in each.pairs)), None
    )
    if (
        best <= NEAR
        and same is not None
        and errors[same] <= 2 * best
        and len({_names(matchings[index]) for index in rivals}) == 1
    ):
        return same, ""  # only the order of axes is open, and the one that both files have is as near as any
    pairs = [
        ", ".join(f"{pair.reference}={pair.own}" for each in matchings[index] for pair in each.pairs)
        for index in order[:2]
    ]
    raise UsageError(
        f"names and shapes allow {len(matchings)} matchings, and the outputs do not tell which one is meant: the relative errors "
        f"are {best:.1e} with {pairs[0]}, and {second:.1e} with {pairs[1]}. Decide with --map REFERENCE=FILE, or with --layout"
    )


def _names(possible: Sequence[Matching]) -> tuple[tuple[str, str], ...]:
    """The pairs of names of a possibility."""
    return tuple((pair.reference, pair.own) for each in possible for pair in each.pairs)


def content(pairs: Sequence[tuple[Array, Array]]) -> float:
    """The relative rms error over pairs of arrays (the reference's, the file's); infinity where the shapes differ."""
    if any(reference.shape != own.shape for reference, own in pairs):
        return math.inf
    signal = math.hypot(*(norm(reference) for reference, _ in pairs))
    noise = math.hypot(*(norm(own, reference) for reference, own in pairs))
    return noise / signal if signal else math.inf


def turn(array: Array, order: Order | None) -> Array:
    """The array with its axes in this order."""
    return array if order is None else np.ascontiguousarray(array.transpose(order))


def turn_back(array: Array, order: Order | None) -> Array:
    """The array with the axes back in the reference's order."""
    return array if order is None else np.ascontiguousarray(array.transpose(np.argsort(order)))
