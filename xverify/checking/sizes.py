"""One file at several sizes: the axes that --sizes names, and the inputs of a file at each combination."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError, nearest
from ..framework.modelfile import Tensor
from ..workload.sizes import BATCH, Size, check, said
from ..workload.sizes import value as computed
from .cases import BATCH_NAMES, described
from .options import CheckSettings
from .reference import is_recorded
from .subject import Opened

SYMBOL = re.compile(r"s\d+")  # the name of an axis in a file of torch.export, which has no other


def check_settings(settings: CheckSettings) -> None:
    """Raise UsageError for sizes that are none, that are too many, or that do not fit another setting."""
    sizes = settings.sizes
    if not sizes:
        return
    check(sizes)
    if settings.time:
        raise UsageError("--sizes and --time: one size is timed; leave out --sizes, and give the size with --shape")
    if settings.against is not None and is_recorded(Path(settings.against)):
        raise UsageError(
            f"--sizes: the tensors in {settings.against} were recorded at one size; name another reference with --against"
        )


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
        place: value for name, places in axes(tensors).items() if (value := computed(name, size)) for place in places
    }
    return tuple(
        replace(each, shape=tuple(sizes.get((each.name, axis), own) for axis, own in enumerate(each.shape)))
        if each.shape is not None
        else each
        for each in tensors
    )


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
