"""The canonical form of weights, its digest, and the comparison of two sets of weights.

Canonical weights are a flat mapping name -> C-contiguous float32 array, in torch's names and layout (convolutions OIHW, linear
weights (out, in)). Counters such as ``num_batches_tracked`` are not weights and are left out.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xverify.errors import WeightsError, nearest

# A numpy array of any shape and dtype.
Array = NDArray[Any]
# Name -> array.
Arrays = dict[str, Array]
# Name -> variable of a framework, whose type is not known where the framework is not imported.
Variables = dict[str, Any]

PIECE = 2**22  # values of an array that are handled at once
COUNTERS = ("num_batches_tracked",)  # last parts of names
LARGEST_EXACT = 2**53  # float64 represents every whole number up to this one
MOST_LISTED = 5  # names that an error message lists


class Streamed(Mapping[str, Array]):
    """Arrays of which each is read, drawn or computed when it is looked up, so that they are never in memory together.

    names: of all arrays, in their order.
    """

    names: Collection[str]

    def __contains__(self, name: object) -> bool:
        return name in self.names  # without reading the array

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, which is not read for it."""

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype of an array. It is read for that where its dtype is not known otherwise."""
        return self[name].dtype

    def pieces(self, name: str) -> Iterator[Array]:
        """The values of an array in C order, as flat arrays of at most PIECE values where it can be had in parts."""
        yield np.ascontiguousarray(self[name]).reshape(-1)


class Changed(Streamed):
    """Arrays under other names, some of them computed from others.

    arrays: the arrays. origins: name -> name of the array that it is.
    computed: name -> (shape, function that computes the array), for names that are not in ``origins``.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        origins: Mapping[str, str],
        computed: Mapping[str, tuple[tuple[int, ...], Callable[[], Array]]] | None = None,
    ) -> None:
        self.arrays, self.origins, self.computed = arrays, origins, computed or {}
        self.names = {**self.origins, **self.computed}

    def __getitem__(self, name: str) -> Array:
        return self.computed[name][1]() if name in self.computed else self.arrays[self.origins[name]]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.computed[name][0] if name in self.computed else shape_of(self.arrays, self.origins[name])

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.asarray(self[name]).dtype if name in self.computed else dtype_of(self.arrays, self.origins[name])

    def pieces(self, name: str) -> Iterator[Array]:
        if name in self.computed:
            return super().pieces(name)
        return pieces_of(self.arrays, self.origins[name])


def shape_of(arrays: Mapping[str, Array], name: str) -> tuple[int, ...]:
    """The shape of one array of a mapping."""
    return arrays.shape(name) if isinstance(arrays, Streamed) else tuple(np.shape(arrays[name]))


def dtype_of(arrays: Mapping[str, Array], name: str) -> np.dtype[Any]:
    """The dtype of one array of a mapping."""
    return arrays.dtype(name) if isinstance(arrays, Streamed) else np.asarray(arrays[name]).dtype


def pieces_of(arrays: Mapping[str, Array], name: str) -> Iterator[Array]:
    """The values of one array of a mapping, as ``Streamed.pieces`` returns them."""
    return (
        arrays.pieces(name) if isinstance(arrays, Streamed) else iter([np.ascontiguousarray(arrays[name]).reshape(-1)])
    )


def to_canonical(arrays: Mapping[str, Array], source: str = "weights") -> Arrays:
    """Convert arrays to canonical weights: float32, C-contiguous, without counters.

    Half precision is converted exactly. float64 is accepted only where no value changes, because a rounded weight is a different
    weight.

    source: where the arrays come from; error messages begin with it.
    Raises WeightsError, with the name of the tensor, for NaN, infinity, another dtype, or a value that float32 cannot represent.
    """
    return dict(Converted(arrays, source))


class Converted(Streamed):
    """The same weights as of ``to_canonical``, each converted when it is looked up. Raises WeightsError without weights.

    arrays, source: see ``to_canonical``.
    """

    def __init__(self, arrays: Mapping[str, Array], source: str = "weights") -> None:
        self.arrays, self.source = arrays, source
        self.names = dict.fromkeys(name for name in arrays if name.rsplit(".", 1)[-1] not in COUNTERS)
        if not self.names:
            raise WeightsError(f"{source}: holds no weights")

    def __getitem__(self, name: str) -> Array:
        return _canonical(self.arrays[name], name, self.source)

    def shape(self, name: str) -> tuple[int, ...]:
        return shape_of(self.arrays, name)

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(np.float32)


def _canonical(value: Array, name: str, source: str) -> Array:
    """One array as a canonical weight; see ``to_canonical``."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise WeightsError(f"{source}: {name} has dtype {array.dtype}; weights are floating-point arrays")
    if array.size == 0:
        raise WeightsError(f"{source}: {name} is empty, shape {array.shape}")
    with np.errstate(all="ignore"):  # what does not fit becomes infinite, and is reported
        single: Array = np.asarray(array, dtype=np.float32, order="C")
    if array.dtype not in (np.float32, np.float16):  # every value of float16 is one of float32
        changed = _changed(array, single)
        if changed and np.isfinite(_widest(array)).all():
            raise WeightsError(
                f"{source}: {name} is {array.dtype} and {changed} of {array.size} values change when rounded to float32; "
                "convert it to float32 where it was made"
            )
    if not np.isfinite(single).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(single))[0])
        raise WeightsError(f"{source}: {name}{list(index)} is {single[index]}; weights must be finite")
    return single


def _changed(array: Array, single: Array) -> int:
    """The number of values that are another number in float32."""
    different = single.astype(np.float64) != np.asarray(array, dtype=np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4:
        # Such a number may have more digits than float64, too. Python's integers have all of them.
        large = np.argwhere((array > LARGEST_EXACT) | (array < -LARGEST_EXACT))
        for index in map(tuple, large):
            different[index] = int(single[index]) != int(array[index])
    elif array.dtype.itemsize > 8:
        different = single.astype(array.dtype) != array
    return int(np.sum(different))


def _widest(array: Array) -> Array:
    """The array in a dtype in which finite values stay finite."""
    return array if array.dtype.kind == "f" and array.dtype.itemsize > 8 else np.asarray(array, dtype=np.float64)


def digest(arrays: Mapping[str, Array]) -> str:
    """``sha256:`` and the hash of names, shapes, dtypes and bytes in the order of the names. Equal digests mean equal weights."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(f"{name}\0{dtype_of(arrays, name).str}\0{shape_of(arrays, name)}\0".encode())
        for piece in pieces_of(arrays, name):
            sha.update(piece.data.cast("B") if piece.size else b"")
    return f"sha256:{sha.hexdigest()}"


def normal_form(arrays: Mapping[str, Array], fused_parameters: Mapping[str, Iterable[str]]) -> Mapping[str, Array]:
    """The weights with parameters summed up, in float32, where some framework stores only their sum.

    fused_parameters: name of the sum -> names of its parts, e.g. ``{"lstm.bias_l0": ("lstm.bias_ih_l0", "lstm.bias_hh_l0")}``
        for Keras' LSTM, which has one bias where torch has two. A sum that is present already stays.
    """
    origins = {name: name for name in arrays}
    sums: dict[str, tuple[tuple[int, ...], Callable[[], Array]]] = {}
    for name, parts in fused_parameters.items():
        parts = tuple(parts)
        if name not in arrays and all(part in origins for part in parts):
            for part in parts:
                del origins[part]
            sums[name] = shape_of(arrays, parts[0]), partial(_sum, arrays, parts)
    changed = Changed(arrays, origins, sums)
    return changed if isinstance(arrays, Streamed) else dict(changed)


def _sum(arrays: Mapping[str, Array], parts: Iterable[str]) -> Array:
    total: Array = np.sum([arrays[part] for part in parts], axis=0, dtype=np.float32)
    return total


def check(
    arrays: Mapping[str, Array],
    expected: Mapping[str, tuple[int, ...]],
    source: str = "weights",
    table: str = "",
    advice: Callable[[str, tuple[int, ...]], str] = lambda name, shape: "",
    buffers: Collection[str] = (),
    lines: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]], str] = lambda extra, missing: "",
) -> None:
    """Raise WeightsError unless names and shapes are exactly those of the model.

    The message lists missing and unexpected names in sorted order, and suggests the nearest name.

    expected: canonical name -> shape.
    source: the name of the arrays in the message.
    table: the table of names.toml in which the model's names can be given; "" where there is none.
    advice: function of a name and of the shape that it should have in the model; returns what to do, as a clause, or "".
    buffers: the arrays that are buffers of the reference, and no parameters.
    lines: function of the unexpected and of the missing weights with their shapes; returns lines for names.toml with which they
        fit, as a clause, or "".
    """
    check_shapes({name: shape_of(arrays, name) for name in arrays}, expected, source, table, advice, buffers, lines)


def check_shapes(
    found: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    source: str = "weights",
    table: str = "",
    advice: Callable[[str, tuple[int, ...]], str] = lambda name, shape: "",
    buffers: Collection[str] = (),
    lines: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, tuple[int, ...]]], str] = lambda extra, missing: "",
) -> None:
    """The same as ``check`` for weights of which only the shapes are known. found: name -> shape."""
    missing = sorted(set(expected) - set(found))
    extra = sorted(set(found) - set(expected))
    other = {name: found[name] for name in sorted(set(found) & set(expected)) if found[name] != tuple(expected[name])}
    shapes = [f"{name}: given {shape}, model {tuple(expected[name])}" for name, shape in other.items()]
    if not (missing or extra or shapes):
        return
    parts = []
    if missing:
        parts.append(f"{len(missing)} missing ({_some(missing)})")
    if extra:
        parts.append(f"{len(extra)} unexpected ({_some(extra)})")
    if shapes:
        parts.append(f"{len(shapes)} of another shape ({_some(shapes)})")
    hint = ""
    if missing and extra:
        hint = f"; {extra[0]!r} is not in the model{nearest(extra[0], missing)}"
    proposed = lines(
        {name: shape for name, shape in found.items() if name in other or name not in expected},
        {name: tuple(shape) for name, shape in expected.items() if name in other or name not in found},
    )
    if proposed:
        hint = f"; {proposed}"
    elif missing and extra and table:
        hint = f"{hint.rstrip('.')}; {_line_for_names(extra[0], found[extra[0]], missing, expected, table)}"
    hint += _line_for_buffers([name for name in extra if name in buffers], extra, table)
    advised = next(filter(None, (advice(name, shape) for name, shape in other.items())), "")
    raise WeightsError(
        f"{source} do not fit the model: " + ", ".join(parts) + hint + (f"; {advised}" if advised else "")
    )


def _line_for_names(
    name: str, shape: tuple[int, ...], missing: list[str], expected: Mapping[str, tuple[int, ...]], table: str
) -> str:
    """What to write into names.toml for a weight whose layer has another name in the model.

    name, shape: of the weight. missing: names of the model that got no weight.
    """
    layer, _, kind = name.rpartition(".")
    fitting = [other for other in missing if other.rpartition(".")[2] == kind and tuple(expected[other]) == shape]
    own = [other.rpartition(".")[0] or other for other in fitting]
    line = f'"{layer or name}" = "{own[0] if own else "its name there"}"'
    others = f" (or {', '.join(own[1:MOST_LISTED])})" if len(own) > 1 else ""
    return (
        "give the layers of the model the reference's names, or write in names.toml of the model folder which is which: "
        f"under [{table}], {line}{others}"
    )


def _line_for_buffers(buffers: list[str], extra: list[str], table: str) -> str:
    """What to write about buffers that have no place in the model. extra: all weights that have none. table: see ``check``."""
    if not buffers:
        return ""
    if len(buffers) < len(extra):
        those = f"of these, {_some(buffers)} {'is a buffer' if len(buffers) == 1 else 'are buffers'}"
    else:
        those = {1: "it is a buffer", 2: "both are buffers"}.get(len(buffers), "all are buffers")
    them = "it" if len(buffers) == 1 else "them"
    absent = ", ".join(f'"{name}"' for name in buffers[:MOST_LISTED]) + ", …" * (len(buffers) > MOST_LISTED)
    listed = f", or write absent = [{absent}] under [{table}] in names.toml" if table else ""
    return f"; {those} of torch.py: where the port computes {them} itself, register {them} there with persistent=False{listed}"


def _some(names: list[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f", and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Difference:
    """How one tensor differs between two sets of weights.

    name: of the tensor. kind: "missing", "extra", "shape" or "values". detail: what differs, as a phrase.
    """

    name: str
    kind: str
    detail: str


def diff(left: Mapping[str, Array], right: Mapping[str, Array]) -> list[Difference]:
    """Every tensor that is not bitwise equal in both sets, sorted by name. One pair of arrays is looked up at a time."""
    return list(_differences(left, right))


def _differences(left: Mapping[str, Array], right: Mapping[str, Array]) -> Iterable[Difference]:
    for name in sorted(set(left) | set(right)):
        if name not in right:
            yield Difference(name, "missing", f"only on the left, shape {shape_of(left, name)}")
        elif name not in left:
            yield Difference(name, "extra", f"only on the right, shape {shape_of(right, name)}")
        elif shape_of(left, name) != shape_of(right, name):
            yield Difference(name, "shape", f"{shape_of(left, name)} and {shape_of(right, name)}")
        elif detail := _other_values(np.asarray(left[name]), np.asarray(right[name])):
            yield Difference(name, "values", detail)


def _other_values(left: Array, right: Array) -> str:
    """How many values of two arrays of one shape differ, and which ones most; "" for arrays with the same bytes."""
    mine, theirs = (np.ascontiguousarray(each).reshape(-1) for each in (left, right))
    count, worst = 0, list[tuple[float, int]]()  # of each part that differs: the largest difference, and where it is
    for begin in range(0, left.size, PIECE):
        one, other = mine[begin : begin + PIECE], theirs[begin : begin + PIECE]
        if one.tobytes() == other.tobytes():
            continue
        delta = np.subtract(one, other, dtype=np.float64, casting="unsafe")
        np.abs(delta, out=delta)
        count += int(np.count_nonzero(delta))
        most = int(np.argmax(delta))
        worst.append((float(delta[most]), begin + most))
    if not worst:
        return ""
    at = worst[int(np.argmax([difference for difference, _ in worst]))][1]
    place = [int(index) for index in np.unravel_index(at, left.shape)]
    return f"{count} of {left.size} values differ, most at {place}: {float(mine[at])!r} and {float(theirs[at])!r}"
