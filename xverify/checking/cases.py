"""The input cases of a check, made from the signature of a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import host
from ..errors import UsageError, nearest
from ..framework.modelfile import Tensor
from ..weights.canonical import Array
from ..workload import probe
from ..workload.keys import case_key

# The kinds of cases, in order. The two random cases differ in their seed.
KINDS = ("random", "random", "zeros", "large", "tiny", "alternating")
LARGE, TINY = 10.0, 1e-3  # factors on standard normal values
BATCH, IMAGE, LENGTH, OTHER = 2, 224, 16, 8  # guesses for a size that the file leaves open
BATCH_NAMES = re.compile(r"batch|^n$|^b$|^bs$|unk__0$", re.IGNORECASE)
IMAGE_NAMES = re.compile(r"height|width|^h$|^w$", re.IGNORECASE)
LENGTH_NAMES = re.compile(r"seq|len|time|token|^t$|^l$", re.IGNORECASE)
INTEGERS = "iu"
GIB = 2**30
MOST_AXES = 32  # of numpy before version 2; later versions have 64


@dataclass(frozen=True)
class Input:
    """One input with every size known.

    low, high: the range of its values: [low, high). None: floats are standard normal.
    says: how the values were chosen where that is a guess; "" where it is not.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    says: str = ""


def settle(
    tensors: Sequence[Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    vocabulary: Mapping[str, int] | None = None,
    limits: tuple[float, float] | None = None,
) -> tuple[list[Input], list[str]]:
    """Choose a size for every open dimension and a range for every input. Returns the inputs, and a note on each guess.

    tensors: the inputs of a signature.
    shapes: --shape, name of an input -> shape; they must agree with the sizes that the file fixes.
    vocabulary: name of an input of ids -> number of ids, where the graph tells it.
    limits: --input-range, for floating-point inputs.
    Raises UsageError for a shape that contradicts the file, for strings, and for an input of unknown rank without a shape.
    """
    names = [tensor.name for tensor in tensors]
    for name in shapes:
        if name not in names:
            raise UsageError(
                f"--shape {name}=...: no input is called {name!r}{nearest(name, names)} Inputs: {', '.join(names)}"
            )
    sizes = _given_sizes(tensors, shapes)
    inputs, notes = [], []
    for tensor in tensors:
        if tensor.dtype in ("string", "object", "str"):
            raise UsageError(f"input {tensor.name!r} takes strings, which no input case can be made of")
        shape, guessed = _shape(tensor, shapes, sizes)
        if guessed:
            chosen = "x".join(map(str, shape))
            notes.append(f"{tensor.name}: the file leaves {guessed} open; chosen: --shape {tensor.name}={chosen}")
        low, high, says = _range(tensor, shape, (vocabulary or {}).get(tensor.name), limits)
        if says:
            notes.append(f"{tensor.name}: {says}")
        inputs.append(Input(tensor.name, shape, tensor.dtype, low, high, says))
    return inputs, notes


def _given_sizes(tensors: Sequence[Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Name of a symbolic dimension -> its size, as --shape gives it."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        given = shapes.get(tensor.name)
        if given is None or tensor.shape is None:
            continue
        fits = len(given) == len(tensor.shape)
        if not fits or any(isinstance(own, int) and own != size for own, size in zip(tensor.shape, given)):
            raise UsageError(
                f"--shape {tensor.name}={'x'.join(map(str, given))}: the file says {described(tensor.shape)}"
            )
        for own, size in zip(tensor.shape, given):
            if isinstance(own, str) and sizes.setdefault(own, size) != size:
                raise UsageError(f"--shape gives the dimension {own!r} two sizes, {sizes[own]} and {size}")
    return sizes


def described(shape: tuple[int | str | None, ...] | None) -> str:
    """A shape as a user writes it: ``1x3xHxW``, with ? for a size without a name."""
    if shape is None:
        return "no shape"
    return "x".join("?" if size is None else str(size) for size in shape) or "a scalar"


def _shape(tensor: Tensor, shapes: Mapping[str, tuple[int, ...]], sizes: dict[str, int]) -> tuple[tuple[int, ...], str]:
    """(the shape of an input, the open dimensions that were guessed as text, "" without a guess)."""
    if tensor.name in shapes:
        return shapes[tensor.name], ""
    if tensor.shape is None:
        raise UsageError(
            f"the file gives input {tensor.name!r} no shape: give it, e.g. --shape {tensor.name}=1x3x224x224"
        )
    found, guessed = [], []
    for axis, size in enumerate(tensor.shape):
        if isinstance(size, int):
            found.append(size)
            continue
        if size is None or size not in sizes:
            guessed.append(str(size or f"axis {axis}"))
        value = sizes.get(size, 0) if size else 0
        found.append(value or _guess(tensor, axis))
        if size:
            sizes[size] = found[-1]
    return tuple(found), ", ".join(guessed)


def _guess(tensor: Tensor, axis: int) -> int:
    """A usual size for a dimension that the file leaves open."""
    assert tensor.shape is not None
    name = str(tensor.shape[axis] or "")
    if axis == 0 or BATCH_NAMES.search(name):
        return BATCH
    if IMAGE_NAMES.search(name) or (len(tensor.shape) == 4 and {1, 3, 4} & set(tensor.shape[1:])):
        return IMAGE
    if LENGTH_NAMES.search(name) or np.dtype(_numpy(tensor.dtype)).kind in INTEGERS:
        return LENGTH
    return OTHER


def _range(
    tensor: Tensor, shape: tuple[int, ...], ids: int | None, limits: tuple[float, float] | None
) -> tuple[float | None, float | None, str]:
    """(low, high, a sentence where this is a guess)."""
    kind = np.dtype(_numpy(tensor.dtype)).kind
    if kind == "f":
        return (*limits, "") if limits else (None, None, "")
    if kind == "b":
        return 0, 2, ""
    if ids is not None:
        return 0, ids, f"ids below {ids:,}, the size of the table that the graph looks them up in"
    name = tensor.name.lower()
    if "mask" in name:
        return 1, 2, "taken for a mask from its name: all ones; give others with --inputs"
    if "position" in name and shape:
        return 0, shape[-1], f"taken for positions from its name: below {shape[-1]}"
    if kind in INTEGERS and tensor.dtype.endswith("int8"):
        info = np.iinfo(tensor.dtype)
        return info.min, info.max + 1, ""
    return 0, 2, "whole numbers whose range the file does not tell: 0 or 1; give others with --inputs"


def check_size(inputs: Sequence[Input]) -> None:
    """Raise UsageError when the input cases do not fit into the memory that is free."""
    for each in inputs:
        if len(each.shape) > MOST_AXES:
            raise UsageError(
                f"input {each.name!r} has {len(each.shape)} dimensions, and arrays of numpy have at most {MOST_AXES}"
            )
    sizes = {
        each.name: math.prod(each.shape) * (np.dtype(_numpy(each.dtype)).itemsize * len(KINDS) + 8) for each in inputs
    }
    needed, free = sum(sizes.values()), host.available_memory()
    if needed > free:
        largest = max(inputs, key=lambda each: sizes[each.name])
        raise UsageError(
            f"input {largest.name!r} is {largest.dtype} {described(largest.shape)}, and {len(KINDS)} cases of the inputs take "
            f"{needed / GIB:,.1f} GiB; this machine has {free / GIB:,.1f} GiB of memory free. Give one case with --inputs, or "
            "a smaller size with --shape where the file leaves it open"
        )


def make(inputs: Sequence[Input], seed: int, kinds: Sequence[str] = KINDS) -> dict[str, Array]:
    """The input cases: "case/name" -> array.

    kinds: one of KINDS for each case. Whole numbers are random in their range in every case; "zeros" has their lowest value.
    """
    return {
        case_key(case, each.name): _values(each, kind, probe.generator(seed, f"case {case}: {each.name}"))
        for case, kind in enumerate(kinds)
        for each in inputs
    }


def _values(each: Input, kind: str, random: np.random.Generator) -> Array:
    dtype = np.dtype(_numpy(each.dtype))
    if dtype.kind != "f":
        assert each.low is not None
        assert each.high is not None
        if kind == "zeros":
            return np.full(each.shape, int(each.low), dtype)
        return random.integers(int(each.low), int(each.high), each.shape).astype(dtype)
    signs = np.resize(np.array([1.0, -1.0]), each.shape) if each.shape else np.array(1.0)
    if each.low is None or each.high is None:
        normal = random.standard_normal(each.shape)
        values = {"zeros": 0.0 * normal, "large": LARGE * normal, "tiny": TINY * normal, "alternating": signs}.get(
            kind, normal
        )
    else:
        # Within the range that the user names: its lower end, its upper tenth, its lower tenth, and both ends in turn.
        share = random.random(each.shape)
        shares = {"zeros": 0.0 * share, "large": 0.9 + 0.1 * share, "tiny": 0.1 * share, "alternating": (signs + 1) / 2}
        values = each.low + (each.high - each.low) * shares.get(kind, share)
    return np.asarray(values, dtype)


def _numpy(dtype: str) -> str:
    """A dtype of numpy that holds these values; numpy has no bfloat16, and the worker converts from float32."""
    return "float32" if dtype.startswith(("bfloat16", "float8", "float4")) else dtype
