"""The sizes at which one model is run or checked: those that a user asks for, and their combinations."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ..errors import UsageError

BATCH = "batch"  # the name of the batch axis among those of --sizes
WHOLE = 16  # up to so many combinations are all run; of more, one axis is varied at a time
MOST = 64  # combinations of one command
Size = Mapping[str, int]  # name of an axis -> its size
OPERATIONS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def parse(text: str, follow: str) -> tuple[str, tuple[int, ...]]:
    """One value of ``--sizes``: NAME=SIZES. follow: what the message adds. Raises UsageError."""
    name, equals, sizes = text.rpartition("=")
    try:
        found = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        equals, found = "", ()
    if not equals or not name or any(size < 1 for size in found):
        raise UsageError(f"--sizes {text}: write NAME=SIZES, e.g. --sizes batch=1,2,7 seq=1,16,33{follow}")
    return name, found


def check(sizes: Mapping[str, Sequence[int]]) -> None:
    """Raise UsageError for sizes that are none, or that are too many."""
    for name, values in sizes.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values or not all(map(is_size, values)):
            raise UsageError(f"--sizes: {name} is {values!r}: it must be one or several whole numbers, at least 1")
    count = len(combinations(sizes))
    if count > MOST:
        raise UsageError(f"--sizes asks for {count} combinations, and at most {MOST} are checked: give fewer sizes")


def is_size(value: object) -> bool:
    """Whether a value can be the size of an axis."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def combinations(sizes: Mapping[str, Sequence[int]]) -> list[Size]:
    """The combinations that are checked, the smallest first; one empty combination where no size is asked for."""
    values = {name: tuple(dict.fromkeys(each)) for name, each in sizes.items()}
    if _are_all_checked(sizes):
        found = [dict(zip(values, chosen)) for chosen in itertools.product(*values.values())]
    else:
        first = first_of(sizes)
        varied = [{**first, name: size} for name, each in values.items() for size in each[1:]]
        found = [{**first}, *varied, {name: max(each) for name, each in values.items()}]
    unique = [dict(each) for each in dict.fromkeys(tuple(each.items()) for each in found)]
    return sorted(unique, key=order)


def order(size: Size) -> tuple[int, ...]:
    """The key by which combinations are sorted: the smallest first."""
    return (math.prod(size.values()), *size.values())


def first_of(sizes: Mapping[str, Sequence[int]]) -> Size:
    """The first size of every axis, which is one of the combinations."""
    return {name: each[0] for name, each in sizes.items()}


def _are_all_checked(sizes: Mapping[str, Sequence[int]]) -> bool:
    return math.prod(len(set(each)) for each in sizes.values()) <= WHOLE


def sentence(sizes: Mapping[str, Sequence[int]]) -> str:
    """A sentence on the combinations that are checked."""
    count = len(combinations(sizes))
    given = " ".join(f"{name}={','.join(map(str, each))}" for name, each in sizes.items())
    if count == 1:
        return f"checked at the size {given}"
    if _are_all_checked(sizes):
        return f"checked at {count} sizes: every combination of {given}"
    return (
        f"checked at {count} sizes of {given}: each size of an axis with the first size of the others, and the largest "
        "sizes together"
    )


def said(size: Size) -> str:
    """A combination as a user writes it."""
    return " ".join(f"{name}={each}" for name, each in size.items())


@contextmanager
def naming(size: Size) -> Iterator[None]:
    """Begin the message of a UsageError with the size at which it was raised."""
    try:
        yield
    except UsageError as error:
        if not size:
            raise
        raise type(error)(f"--sizes {said(size)}: {error}") from None


def value(expression: str, sizes: Size) -> int | None:
    """The size of an axis whose name may be computed from others, such as ``past + 1`` or ``2 * (seq // 4)``.

    None where it is not known.
    """
    if expression in sizes:
        return sizes[expression]
    try:
        return _computed(ast.parse(expression.strip(), mode="eval").body, sizes)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def names_in(expression: str) -> set[str]:
    """The names in an expression of ``value``. Raises ValueError for a text that is no such expression."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        with suppress(ZeroDivisionError):  # of other sizes it may be computed
            _computed(tree.body, dict.fromkeys(names, 1))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is no name of an axis, and nothing that is computed from names") from None
    return names


def _computed(node: ast.expr, sizes: Size) -> int:
    """The value of a parsed expression. Raises ValueError for an operation that no size has, KeyError for an unknown name."""
    if isinstance(node, ast.Constant) and is_size(node.value):
        return int(str(node.value))
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_computed(node.left, sizes), _computed(node.right, sizes))
    raise ValueError(ast.dump(node))
