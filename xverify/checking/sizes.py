"""One file at several sizes: the combinations that --sizes asks for, and the inputs of a file at each of them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError, nearest
from ..framework.modelfile import Tensor
from .cases import BATCH_NAMES, described
from .options import CheckSettings
from .reference import is_recorded
from .subject import Opened

BATCH = "batch"  # also means an axis that has another name of a batch, and the first axis of all inputs without a name
WHOLE = 16  # up to so many combinations are all checked; of more, one axis is varied at a time
MOST = 64  # combinations of one check
Size = Mapping[str, int]  # name of an open axis -> its size
SYMBOL = re.compile(r"s\d+")  # the name of an axis in a file of torch.export, which has no other
TERMS = re.compile(r"\s*([+-]?)\s*([^\s+-]+)")  # of a name such as "past_sequence_length + 1"


def check_settings(settings: CheckSettings) -> None:
    """Raise UsageError for sizes that are none, that are too many, or that do not fit another setting."""
    sizes = settings.sizes
    if not sizes:
        return
    for name, values in sizes.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values or not all(map(_is_size, values)):
            raise UsageError(f"--sizes: {name} is {values!r}: it must be one or several whole numbers, at least 1")
    if settings.time:
        raise UsageError("--sizes and --time: one size is timed; leave out --sizes, and give the size with --shape")
    if settings.against is not None and is_recorded(Path(settings.against)):
        raise UsageError(
            f"--sizes: the tensors in {settings.against} were recorded at one size; name another reference with --against"
        )
    count = len(combinations(sizes))
    if count > MOST:
        raise UsageError(f"--sizes asks for {count} combinations, and at most {MOST} are checked: give fewer sizes")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def combinations(sizes: Mapping[str, Sequence[int]]) -> list[Size]:
    """The combinations that are checked, the smallest first; one empty combination where no size is asked for."""
    values = {name: tuple(dict.fromkeys(each)) for name, each in sizes.items()}
    if _are_all_checked(sizes):
        found = [dict(zip(values, chosen)) for chosen in itertools.product(*values.values())]
    else:
        first = {name: each[0] for name, each in values.items()}
        varied = [{**first, name: size} for name, each in values.items() for size in each[1:]]
        found = [first, *varied, {name: max(each) for name, each in values.items()}]
    unique = [dict(each) for each in dict.fromkeys(tuple(each.items()) for each in found)]
    return sorted(unique, key=lambda each: (math.prod(each.values()), *each.values()))


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


def axes(tensors: Sequence[Tensor]) -> dict[str, list[tuple[str, int]]]:
    """Name of an open axis -> the (input, axis) that have its size. An axis without a name is ``INPUT:AXIS``."""
    found: dict[str, list[tuple[str, int]]] = {}
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape or ()):
            if isinstance(size, int):
                continue
            for name in [size] if size else [f"{tensor.name}:{axis}", *[BATCH] * (axis == 0)]:
                found.setdefault(name, []).append((tensor.name, axis))
    firsts = {each.shape[0] for each in tensors if each.shape}
    called = [
        name
        for name in found
        if ":" not in name and (BATCH_NAMES.search(name) or (firsts == {name} and SYMBOL.fullmatch(name)))
    ]
    if BATCH not in found and len(called) == 1:
        found[BATCH] = found[called[0]]
    return found


def named(opened: Opened, shapes: Mapping[str, tuple[int | str | None, ...]]) -> Opened:
    """A file with the names of its open axes that the graph has and the runtime does not tell. shapes: of the inputs."""
    inputs = tuple(
        replace(each, shape=tuple(name if own is None else own for own, name in zip(each.shape, shape)))
        if each.shape is not None and len(shape := shapes.get(each.name, ())) == len(each.shape)
        else each
        for each in opened.signature.inputs
    )
    return replace(opened, signature=replace(opened.signature, inputs=inputs))


def check_names(label: str, tensors: Sequence[Tensor], settings: CheckSettings) -> None:
    """Raise UsageError for a name that no open axis of a file has, and for an input whose shape --shape gives, too.

    tensors: the inputs of the file.
    """
    found = axes(tensors)
    known = sorted(found, key=lambda name: (":" in name, name))
    for name in settings.sizes or {}:
        if name not in found:
            names = f"Its open axes: {', '.join(known)}" if known else "It fixes all sizes of its inputs"
            raise UsageError(f"--sizes {name}=...: {label} has no open axis {name!r}{nearest(name, known)} {names}")
        for tensor, _ in found[name]:
            if tensor in (settings.shape or {}):
                raise UsageError(
                    f"--sizes {name}=... and --shape {tensor}=... give one axis two sizes; give the other axes of {tensor} "
                    "with --sizes, too, each with one size"
                )


def at(tensors: Sequence[Tensor], size: Size) -> tuple[Tensor, ...]:
    """The inputs of a file at this size. Names that it does not have are left out.

    A name may be a sum or a difference of others, as exporters write it: ``past_sequence_length + 1``.
    """
    sizes = {
        place: value for name, places in axes(tensors).items() if (value := _value(name, size)) for place in places
    }
    return tuple(
        replace(each, shape=tuple(sizes.get((each.name, axis), own) for axis, own in enumerate(each.shape)))
        if each.shape is not None
        else each
        for each in tensors
    )


def _value(name: str, size: Size) -> int | None:
    """The size of an axis; None where it is not known."""
    terms = TERMS.findall(name)
    known = {text: int(text) for _, text in terms if text.isdecimal()} | dict(size)
    if len(terms) > 1 and all(text in known for _, text in terms):
        return sum(-known[text] if sign == "-" else known[text] for sign, text in terms)
    return size.get(name)


def of(tensors: Sequence[Tensor], given: Sequence[Tensor]) -> dict[str, int]:
    """Name of an open axis -> its size in the inputs that a file was given. tensors: the inputs of the file."""
    shapes = {each.name: each.shape or () for each in given}
    found = {}
    for name, places in axes(tensors).items():
        for tensor, axis in places:
            if axis < len(shapes.get(tensor, ())):
                size = shapes[tensor][axis]
                assert isinstance(size, int)
                found[name] = size
    return found


def at_size(opened: Opened, size: Size) -> Opened:
    """An opened file whose signature has this size, and whose row has it in its name."""
    if not size:
        return opened
    signature = replace(opened.signature, inputs=at(opened.signature.inputs, size))
    return replace(opened, signature=signature, label=f"{opened.label} {said(size)}")


def check_reached(label: str, tensors: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Raise UsageError where a file was given inputs of another size. tensors: its inputs at the size. given: what it got."""
    shapes = {each.name: each.shape for each in given}
    for each in tensors:
        shape = shapes.get(each.name)
        if shape is None or each.shape is None or len(shape) != len(each.shape):
            continue
        if any(isinstance(size, int) and size != own for size, own in zip(each.shape, shape)):
            raise UsageError(
                f"input {each.name!r} of {label} got the shape {described(shape)}, "
                "because the reference or --inputs fixes it"
            )


@contextmanager
def naming(size: Size) -> Iterator[None]:
    """Begin the message of a UsageError with the size at which it was raised."""
    try:
        yield
    except UsageError as error:
        if not size:
            raise
        raise type(error)(f"--sizes {said(size)}: {error}") from None
