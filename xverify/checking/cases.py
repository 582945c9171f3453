"""The input cases of a check, made from the signature of a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import host
from ..errors import UsageError, nearest
from ..framework.modelfile import Tensor
from ..weights.canonical import Array
from ..workload import probe
from ..workload.keys import case_key
from ..workload.wholes import Whole
from . import decoder_cases

# The kinds of cases, in order. The two random cases differ in their seed.
KINDS = ("random", "random", "zeros", "large", "tiny", "alternating")
EXTREME = frozenset(KINDS[2:])  # in such a case a wrong weight may not show, and values may not fit a calibration
LARGE, TINY = 10.0, 1e-3  # factors on standard normal values
MASK, LENGTH_OF = "mask", "length"  # what an input is, from its name
COUNT, FEW, NUMBERS = Whole.COUNT, "few", Whole.NUMBERS  # and from its graph
FITTED = "fitted"  # an input that the file quantises: its values lie in the range of the quantiser
# The width of this range in standard deviations. Of 20,000 normal values, the largest are four of them away; a fifth is left for
# what a calibration on few inputs has not seen.
DEVIATIONS = 10.0
WHOLE = (1, 2)  # cases in which masks are ones and lengths are the longest
# The numbers of repetitions, case after case: the first case runs a loop several times, and no case may show that it is not run.
COUNTS = (3, 9, 0, 7, 1, 5)
FEW_COUNTS = (3, 4, 1, 2, 1, 4)  # where a file does not take those
# Bits of the numbers that a graph computes with: of those of random cases, and of the largest ones, which 32 bits hold.
BITS, MOST_BITS = 20, 31
UNTOLD = "whole numbers whose range the file does not tell"
# Guesses for a size that the file leaves open. SIGNAL: for samples of a sound, of which models need at least one window.
BATCH, IMAGE, LENGTH, SIGNAL, OTHER = 2, 224, 16, 4000, 8
# Tried one after the other, for every open size but the batch, when the runtime cannot compute the first guess.
OTHER_SIZES = (64, 48, 320, 512, 16000)
BATCH_NAMES = re.compile(r"batch|^n$|^b$|^bs$|unk__0$", re.IGNORECASE)
IMAGE_NAMES = re.compile(r"height|width|^h$|^w$", re.IGNORECASE)
LENGTH_NAMES = re.compile(r"seq|len|time|token|^t$|^l$", re.IGNORECASE)
RATES, RATE = re.compile(r"^sr$|sampl\w*_?rate$", re.IGNORECASE), 16000
LENGTHS = re.compile(r"lens?$|lengths?$", re.IGNORECASE)
MASKS = re.compile(r"mask$", re.IGNORECASE)  # of floating-point inputs, where other names may mean an image
INTEGERS = "iu"
TEXTS = ("string", "object", "str")  # dtypes of inputs that are not drawn
GUESSED = "--shape "  # comes before every shape that was guessed
GIB = 2**30
MOST_AXES = 32  # of numpy before version 2; later versions have 64


@dataclass(frozen=True)
class Input:
    """One input with every size known.

    low, high: the range of its values: [low, high). None: floats are standard normal.
    says: how the values were chosen where that is a guess; "" where it is not.
    kind: MASK, LENGTH_OF, COUNT, FEW or NUMBERS, or one of ``decoder_cases``, whose values in a case do not depend on what the
        case is for floats; FITTED for normal values that are moved into the range; "" for any other input.
    before: of a decoder's mask or positions: number of tokens in its cache.
    marks: whole numbers that are among its values. divides: whether none of them is 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None
    says: str = ""
    kind: str = ""
    before: int = 0
    marks: tuple[int, ...] = ()
    divides: bool = False

    @property
    def whole(self) -> tuple[int, int]:
        """The range of whole numbers: [low, high)."""
        return int(self.low or 0), int(self.high or 0)


def settle(
    tensors: Sequence[Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    vocabulary: Mapping[str, int] | None = None,
    limits: tuple[float, float] | None = None,
    size: int | None = None,
    wholes: Mapping[str, Whole] | None = None,
    batch: int = BATCH,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    decodes: bool = True,
    tokens: int = decoder_cases.TOKENS,
) -> tuple[list[Input], list[str]]:
    """Choose a size for every open dimension and a range for every input. Returns the inputs, and a note on each guess.

    tensors: the inputs of a signature.
    shapes: --shape, name of an input -> shape; they must agree with the sizes that the file fixes.
    vocabulary: name of an input of ids -> number of ids, where the graph tells it.
    limits: --input-range, for floating-point inputs.
    size: the guess for every open size that is not a batch; None: a usual size for each.
    wholes: input of whole numbers -> what the graph does with it. batch: the guess for an open batch size.
    ranges: name of a floating-point input -> the range in which a file quantises it; ``limits`` comes before it.
    decodes: whether inputs of a decoder are chosen so that its cache, its mask and its positions fit together.
    tokens: how many a decoder is given behind its cache.
    Raises UsageError for a shape that contradicts the file, for strings, and for an input of unknown rank without a shape.
    """
    _check_names(tensors, shapes)
    sizes, known = _given_sizes(tensors, shapes), vocabulary or {}
    tensors, decoder = decoder_cases.fitted(tensors, shapes, tokens) if decodes else (tensors, None)
    inputs, notes, settled = [], [decoder.says()] if decoder else [], []
    for tensor in tensors:
        shape, guessed = _shape(tensor, shapes, sizes, size, batch)
        if guessed:
            chosen = "x".join(map(str, shape))
            notes.append(f"{tensor.name}: the file leaves {guessed} open; chosen: {GUESSED}{tensor.name}={chosen}")
        settled.append((tensor, shape))
    longest = _longest(settled)
    for tensor, shape in settled:
        low, high, says = _range(tensor, shape, known.get(tensor.name), limits, longest)
        kind = _kind(tensor, shape, known)
        whole = (wholes or {}).get(tensor.name, Whole())
        if whole.use and (not kind or whole.use != NUMBERS) and tensor.name not in known:
            low, high, kind, says = 0, 2, whole.use, _of_graph(whole)
        marks = _fitting(whole.marks, tensor, known.get(tensor.name)) if not kind else ()
        if marks and UNTOLD in says:
            says = (
                f"{UNTOLD}: 0, 1 and {', '.join(map(str, marks))}, with which it is compared; give others with --inputs"
            )
        if low is None and not kind and ranges and tensor.name in ranges:
            (low, high), kind = ranges[tensor.name], FITTED
            says = f"drawn within {low:.3g} to {high:.3g}, the range in which the file quantises it; --input-range gives another"
        before = decoder.before if decoder else 0
        if decoder and decoder.kind(tensor.name):
            low, high, kind, says = 0, shape[-1] + before, decoder.kind(tensor.name), ""
        if says:
            notes.append(f"{tensor.name}: {says}")
        inputs.append(Input(tensor.name, shape, tensor.dtype, low, high, says, kind, before, marks, whole.divides))
    return inputs, notes


def _of_graph(whole: Whole) -> str:
    """How an input is drawn whose use a graph tells."""
    if whole.use == NUMBERS:
        most = f"{2**MOST_BITS - 1:,}"
        return f"whole numbers of both signs and up to {most}, with which the graph computes; give others with --inputs"
    counts = COUNTS if whole.use == COUNT else FEW_COUNTS
    return (
        f"says how often a loop is repeated: {', '.join(map(str, sorted({*counts})))} times; give others with --inputs"
    )


def _fitting(marks: Sequence[int], tensor: Tensor, ids: int | None) -> tuple[int, ...]:
    """The marks that an input can hold; of ids, those that its table has."""
    kind = np.dtype(_numpy(tensor.dtype))
    if kind.kind not in INTEGERS:
        return ()
    low, high = (0, ids - 1) if ids is not None else (np.iinfo(kind).min, np.iinfo(kind).max)
    return tuple(mark for mark in marks if low <= mark <= high)


def chosen(wholes: Mapping[str, Whole] | None) -> bool:
    """Whether some input is drawn as its graph tells, with values that not every file takes."""
    return any(each.use in (COUNT, NUMBERS) or each.marks for each in (wholes or {}).values())


def narrower(wholes: Mapping[str, Whole] | None) -> dict[str, Whole]:
    """The same with values that more files take."""
    return {name: Whole(FEW) for name, each in (wholes or {}).items() if each.use == COUNT}


def told_by_graph(tensor: Tensor) -> bool:
    """Whether the values of an input may depend on what its graph tells about it. Those of plain floats do not."""
    return not tensor.dtype.startswith(("float", "bfloat16")) or bool(MASKS.search(tensor.name.lower()))


def _check_names(tensors: Sequence[Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise UsageError for a shape of an input that there is not, and for an input of strings."""
    names = [tensor.name for tensor in tensors]
    for name in shapes:
        if name not in names:
            raise UsageError(
                f"--shape {name}=...: no input is called {name!r}{nearest(name, names)} Inputs: {', '.join(names)}"
            )
    for tensor in tensors:
        if tensor.dtype in TEXTS:
            raise UsageError(f"input {tensor.name!r} takes strings, which are not drawn: give them with --inputs")


def _longest(settled: Sequence[tuple[Tensor, tuple[int, ...]]]) -> int:
    """The length of a sequence: the largest size that is called one, else the largest size of any input, batches left out."""
    named = [
        size
        for tensor, shape in settled
        for own, size in zip(tensor.shape or (), shape)
        if isinstance(own, str) and LENGTH_NAMES.search(own)
    ]
    return max(named or [size for _, shape in settled for size in shape[1:]], default=1)


def _kind(tensor: Tensor, shape: tuple[int, ...], vocabulary: Mapping[str, int]) -> str:
    """What an input is by its name; see ``Input``."""
    kind, name = np.dtype(_numpy(tensor.dtype)).kind, tensor.name.lower()
    if tensor.name in vocabulary:
        return ""
    if "mask" in name and (kind in INTEGERS or MASKS.search(name)) and shape and shape[-1] > 1:
        return MASK
    return LENGTH_OF if LENGTHS.search(name) and kind in INTEGERS else ""


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


def fixed_batches(tensors: Sequence[Tensor]) -> list[int]:
    """The sizes that may be the batch size because an input fixes them: of its first axis, and of the second one of a state."""
    rows = [tensor.shape for tensor in tensors if tensor.shape]
    found = [each[axis] for axis in (0, 1) for each in rows if len(each) > axis + 1]
    return [size for size in dict.fromkeys(found) if isinstance(size, int) and size > 0]


def described(shape: tuple[int | str | None, ...] | None) -> str:
    """A shape as a user writes it: ``1x3xHxW``, with ? for a size without a name."""
    if shape is None:
        return "no shape"
    return "x".join("?" if size is None else str(size) for size in shape) or "a scalar"


def _shape(
    tensor: Tensor, shapes: Mapping[str, tuple[int, ...]], sizes: dict[str, int], guess: int | None, batch: int
) -> tuple[tuple[int, ...], str]:
    """(the shape of an input, the open dimensions that were guessed as text, "" without a guess). guess: ``size`` of ``settle``.

    batch: as there.
    """
    if tensor.name in shapes:
        return shapes[tensor.name], ""
    if tensor.shape is None:
        raise UsageError(
            f"the file gives input {tensor.name!r} no shape: give it, e.g. --shape {tensor.name}=1x3x224x224"
        )
    shape, guessed = [], []
    for axis, size in enumerate(tensor.shape):
        if isinstance(size, int):
            shape.append(size)
            continue
        if size is None or size not in sizes:
            guessed.append(str(size or f"axis {axis}"))
        value = sizes.get(size, 0) if size else 0
        shape.append(value or _guess(tensor.shape, tensor.dtype, axis, guess, batch))
        if size:
            sizes[size] = shape[-1]
    return tuple(shape), ", ".join(guessed)


def _guess(shape: tuple[int | str | None, ...], dtype: str, axis: int, size: int | None, batch: int) -> int:
    """A usual size for a dimension that the file leaves open. size: of every such dimension but the batch. batch: of that."""
    names = [str(each or "") for each in shape]
    if axis == 0 or (BATCH_NAMES.search(names[axis]) and not BATCH_NAMES.search(names[0])):
        return batch
    if size is not None:
        return size
    if IMAGE_NAMES.search(names[axis]) or (len(names) == 4 and {1, 3, 4} & set(shape[1:])):
        return IMAGE
    if LENGTH_NAMES.search(names[axis]) or np.dtype(_numpy(dtype)).kind in INTEGERS:
        return LENGTH
    return SIGNAL if len(names) == 2 else OTHER


def _range(
    tensor: Tensor, shape: tuple[int, ...], ids: int | None, limits: tuple[float, float] | None, longest: int
) -> tuple[float | None, float | None, str]:
    """(low, high, a sentence where this is a guess). longest: the largest size of any input, batches left out."""
    kind = np.dtype(_numpy(tensor.dtype)).kind
    if _kind(tensor, shape, {} if ids is None else {tensor.name: ids}) == MASK:
        return 0, 2, MASK_SAYS
    if kind == "f":
        return (*limits, "") if limits else (None, None, "")
    if kind == "b":
        return 0, 2, ""
    if ids is not None:
        return 0, ids, f"ids below {ids:,}, the size of the table that the graph looks them up in"
    name = tensor.name.lower()
    if "mask" in name:
        return (
            1,
            2,
            "taken for a mask from its name: all ones, because no axis is long enough; give others with --inputs",
        )
    if RATES.search(name) and kind in INTEGERS and shape in ((), (1,)):
        return RATE, RATE + 1, f"taken for a sampling rate from its name: {RATE}; give another with --inputs"
    if LENGTHS.search(name) and kind in INTEGERS:
        least = max(1, longest // 2)
        return (
            least,
            longest + 1,
            f"taken for lengths from its name: {least} to {longest}, and {longest} in {_whole()}; give others with --inputs",
        )
    if "position" in name and shape:
        return 0, shape[-1], f"taken for positions from its name: below {shape[-1]}"
    if kind in INTEGERS and tensor.dtype.endswith("int8"):
        info = np.iinfo(tensor.dtype)
        return info.min, info.max + 1, ""
    return 0, 2, f"{UNTOLD}: 0 or 1; give others with --inputs"


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


def _whole() -> str:
    """The cases of WHOLE, in words."""
    return f"cases {' and '.join(map(str, WHOLE))}"


MASK_SAYS = (
    f"taken for a mask from its name: ones and then zeros in each row, and all ones in {_whole()}; give others with "
    "--inputs"
)


def make(inputs: Sequence[Input], seed: int, kinds: Sequence[str] = KINDS) -> dict[str, Array]:
    """The input cases: "case/name" -> array.

    kinds: one of KINDS for each case. Whole numbers are random in their range in every case; "zeros" has their lowest value.
    """
    return {
        case_key(case, each.name): _values(each, kind, case, seed) for case, kind in enumerate(kinds) for each in inputs
    }


def _values(each: Input, kind: str, case: int, seed: int) -> Array:
    dtype, random = np.dtype(_numpy(each.dtype)), probe.generator(seed, f"case {case}: {each.name}")
    if each.kind in decoder_cases.KINDS:
        return decoder_cases.values(each.kind, each.shape, each.before, case not in WHOLE, seed, case).astype(dtype)
    if each.kind == MASK:
        # What a truth value means is not told by the name "mask": all zeros is the other way of masking nothing.
        return _mask(each.shape, case, random).astype(dtype) * (dtype.kind != "b" or kind != "zeros")
    if each.kind == LENGTH_OF:
        low, longest = each.whole[0], each.whole[1] - 1
        shorter = random.integers(low, max(longest, low + 1), each.shape)
        return np.full(each.shape, longest, dtype) if case in WHOLE else np.asarray(shorter, dtype)
    if each.kind in (COUNT, FEW):
        counts = COUNTS if each.kind == COUNT else FEW_COUNTS
        return np.full(each.shape, counts[case % len(counts)], dtype)
    if each.kind == NUMBERS:
        return _numbers(each, kind, dtype, random)
    if dtype.kind != "f":
        low, high = each.whole
        if kind == "zeros":
            return np.full(each.shape, low, dtype)
        return _with_ends(random.integers(low, high, each.shape).astype(dtype), each, case)
    # Only the values of this kind are made, because one array may take much of the memory.
    if each.low is None or each.high is None:
        values = _unbounded(kind, each.shape, random)
    elif each.kind == FITTED:
        values = _fitted(each.low, each.high, kind, each.shape, random)
    else:
        values = each.low + (each.high - each.low) * _share(kind, each.shape, random)
    return np.asarray(values, dtype)


def _numbers(each: Input, kind: str, dtype: np.dtype[Any], random: np.random.Generator) -> Array:
    """Whole numbers of every size and of both signs. The smallest one is none of them, because it has no opposite."""
    most = min(int(np.iinfo(dtype).max), 2**MOST_BITS - 1)
    bits = {"zeros": 0, "tiny": 2, "large": MOST_BITS, "alternating": MOST_BITS}.get(kind, BITS)
    sizes = np.minimum(np.exp2(random.uniform(0, bits, each.shape)), most)
    signs = _signs(each.shape) if kind == "alternating" else random.choice([-1.0, 1.0], each.shape)
    values = np.trunc(sizes) * (signs if dtype.kind == "i" else 1.0)
    return np.asarray(values if kind != "zeros" or each.divides else np.zeros(each.shape)).astype(dtype)


def _with_ends(values: Array, each: Input, case: int) -> Array:
    """Whole numbers with the marks and the largest number of their range at their end, in turn where there is no room for all."""
    ends = [*each.marks, *([each.whole[1] - 1] if each.whole[1] - each.whole[0] > 2 else [])]
    room = max(1, (values.shape[-1] if values.ndim else 1) // 4)
    if ends and values.size and (values.size > 1 or case % 2):
        flat = values.reshape(-1)
        for place in range(min(room, len(ends))):
            flat[-1 - place] = ends[(case + place) % len(ends)]
        return flat.reshape(values.shape)
    return values


def _mask(shape: tuple[int, ...], case: int, random: np.random.Generator) -> Array:
    """Ones and then zeros along the last axis, at least one of each: one length for each item, from a quarter of the axis on."""
    if case in WHOLE:
        return np.ones(shape)
    items = shape[0] if len(shape) > 1 else 1
    lengths = random.integers(max(1, shape[-1] // 4), shape[-1], items)
    tails = np.arange(shape[-1]) < lengths.reshape(items, *[1] * (len(shape) - 1))
    return np.broadcast_to(tails, shape if len(shape) > 1 else (1, *shape)).reshape(shape)


def _unbounded(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Values of an input whose range nobody named."""
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "alternating":
        return _signs(shape)
    return {"large": LARGE, "tiny": TINY}.get(kind, 1.0) * random.standard_normal(shape)


def _fitted(low: float, high: float, kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Values around the middle of a range, and within it; those of zeros and tiny values around the number nearest to 0."""
    middle = 0.0 if kind in ("zeros", "tiny") else (low + high) / 2
    values: Array = np.clip(middle + (high - low) / DEVIATIONS * _unbounded(kind, shape, random), low, high)
    return values


def _share(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Places in a range from 0 to 1: its lower end, its upper tenth, its lower tenth, both ends in turn, or anywhere."""
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "alternating":
        return (_signs(shape) + 1) / 2
    start, width = {"large": (0.9, 0.1), "tiny": (0.0, 0.1)}.get(kind, (0.0, 1.0))
    return start + width * random.random(shape)


def _signs(shape: tuple[int, ...]) -> Array:
    """1 and -1 in turn."""
    signs = np.ones(math.prod(shape))
    signs[1::2] = -1.0
    return signs.reshape(shape)


def _numpy(dtype: str) -> str:
    """A dtype of numpy that holds these values; numpy has no bfloat16, and the worker converts from float32."""
    return "float32" if dtype.startswith(("bfloat16", "float8", "float4")) else dtype
