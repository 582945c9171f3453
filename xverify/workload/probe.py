"""Probe weights and input cases: random numbers from a seed, chosen so that faults become visible.

Freshly initialised weights hide faults: a missing bias has no effect when biases are zero, and neither has a wrong scale when
scales are one.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..weights.canonical import PIECE, Changed, Streamed, shape_of
from .keys import case_key
from .losses import TARGET
from .objective import terms_of
from .spec import BATCH, ModelSpec, TensorSpec

IGNORED = 8  # one target in so many is an ignored label, where a loss ignores one
FACTORS = 2**16  # random factors of an array whose weights are drawn anew
STATISTICS = ("running_mean", "running_var")  # last parts of the names of batch-norm statistics


def weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, NDArray[Any]]:
    """Random float32 weights: name -> array.

    Each name has its own random generator, so an additional layer changes no other. Matrices and kernels have the standard
    deviation √(2 / fan-in), which keeps the size of activations (He et al. 2015). Scales and variances are uniform in [0.5, 1.5),
    shifts are normal with standard deviation 0.1. The norms of rows that a weight norm keeps are √2 times a scale.

    shapes: canonical name -> shape.
    """
    return dict(Weights(shapes, seed))


class Weights(Streamed):
    """The weights that ``weights`` returns, each of which is drawn when it is looked up."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int) -> None:
        self.names, self.shapes, self.seed = shapes, shapes, seed

    def __getitem__(self, name: str) -> NDArray[Any]:
        return _weight(name, self.shape(name), self.shape(name), generator(self.seed, name))

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.shapes[name])

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def pieces(self, name: str) -> Iterator[NDArray[Any]]:
        random, remaining = generator(self.seed, name), math.prod(self.shape(name))
        while remaining:  # a generator draws the same values in pieces
            count = min(PIECE, remaining)
            remaining -= count
            yield _weight(name, self.shape(name), (count,), random)


def _weight(name: str, shape: tuple[int, ...], drawn: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    """The next values of a weight. shape: of the whole weight. drawn: of the values, as many as are wanted."""
    kind = name.rsplit(".", 1)[-1]
    if kind in ("running_var", "variance") or (kind == "weight" and len(shape) == 1):
        return random.random(drawn, dtype=np.float32) + np.float32(0.5)
    if _is_norm(kind, shape):
        return np.float32(np.sqrt(2.0)) * (random.random(drawn, dtype=np.float32) + np.float32(0.5))
    if len(shape) < 2:
        return np.float32(0.1) * random.standard_normal(drawn, dtype=np.float32)
    fan_in = int(np.prod(shape[1:]))
    return np.float32(np.sqrt(2.0 / fan_in)) * random.standard_normal(drawn, dtype=np.float32)


def _is_norm(kind: str, shape: tuple[int, ...]) -> bool:
    """Whether a weight holds the norms of a weight norm: one for each row of a kernel. kind: the last part of its name."""
    return (kind == "original0" or kind.endswith("_g")) and len(shape) > 1 and max(shape) == np.prod(shape)


def is_iterated(name: str, names: Collection[str]) -> bool:
    """Whether a weight is a vector of the power method, from which a spectral norm is computed. names: of all weights."""
    layer, _, kind = name.rpartition(".")
    if kind in ("_u", "_v") and ".parametrizations." in f".{layer}.":
        return True
    return kind.endswith(("_u", "_v")) and f"{name[:-2]}_orig" in names


def unsettle(weights: Mapping[str, NDArray[Any]], seed: int) -> Changed:
    """Change calibrated batch-norm statistics by a random amount, and round all that is calibrated to 12 significant bits.

    A batch norm whose statistics are exactly those of its input hides a wrong mean or variance. The rounding gives the same
    weights, and so the same digest, on machines whose last bits differ.

    weights: canonical weights. Returns all weights; only batch-norm statistics and the vectors of spectral norms are changed.
    """
    changed = {
        name: (shape_of(weights, name), partial(_unsettled, weights, name, seed))
        for name in weights
        if is_iterated(name, weights) or name.rsplit(".", 1)[-1] in STATISTICS
    }
    return Changed(weights, {name: name for name in weights if name not in changed}, changed)


def _unsettled(weights: Mapping[str, NDArray[Any]], name: str, seed: int) -> NDArray[Any]:
    """One array that ``unsettle`` changes."""
    kind, array = name.rsplit(".", 1)[-1], weights[name]
    if kind not in STATISTICS:
        return _rounded(array)
    random = generator(seed, name)
    if kind == "running_var":
        return _rounded(array * random.uniform(0.8, 1.25, array.shape))
    partner = name.removesuffix(kind) + "running_var"
    spread = np.sqrt(weights[partner] if partner in weights else np.ones_like(array))
    return _rounded(array + 0.1 * spread * random.standard_normal(array.shape))


def _rounded(array: NDArray[Any]) -> NDArray[Any]:
    """The values with 12 significant bits."""
    bits = array.astype(np.float32).view(np.uint32)
    rounded: NDArray[Any] = ((bits + np.uint32(0x800)) & np.uint32(0xFFFFF000)).view(np.float32)
    return rounded


def inputs(spec: ModelSpec, batch: int, seed: int, cases: int) -> dict[str, NDArray[Any]]:
    """Random inputs in canonical layout: ``"case/name"`` -> array, for every case and every input of the spec."""
    return {
        case_key(case, name): _spread(tensor, seed, name, case, cases)
        if _is_one_number(tensor, batch)
        else _input(tensor, batch, generator(seed, f"case {case}: {name}"))
        for case in range(cases)
        for name, tensor in spec.inputs.items()
    }


def _is_one_number(tensor: TensorSpec, batch: int) -> bool:
    """Whether an input is a single whole number, such as how often a loop is repeated."""
    whole = not tensor.dtype.startswith(("float", "bfloat", "complex", "bool"))
    return whole and math.prod(tensor.sized(batch)) == 1 and BATCH not in tensor.shape


def _spread(tensor: TensorSpec, seed: int, name: str, case: int, cases: int) -> NDArray[Any]:
    """A single whole number: the largest of its range in the first case, the smallest in the second, and others between them."""
    low, most = tensor.integers[0], tensor.integers[1] - 1
    drawn = (most, low)[case] if case < 2 else 0
    if case >= 2:
        start, end = (low + (most - low) * each // cases for each in (case, case + 1))
        drawn = int(generator(seed, f"case {case}: {name}").integers(start, max(end, start + 1)))
    return np.full(tensor.sized(1), drawn, tensor.dtype)


def with_padding(
    arrays: Mapping[str, NDArray[Any]], spec: ModelSpec, padding: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """The inputs with padding ids at the end of the first item of each case but the first, where their range has them.

    padding: input of ids -> its padding id.
    """
    changed = dict(arrays)
    for key, array in arrays.items():
        case, _, name = key.partition("/")
        low, high = spec.inputs[name].integers if name in padding else (0, 0)
        if case != "0" and name in padding and low <= padding[name] < high and array.ndim and array.shape[-1] > 1:
            changed[key] = array.copy()
            changed[key].reshape(-1, array.shape[-1])[0, -max(1, array.shape[-1] // IGNORED) :] = padding[name]
    return changed


def targets(spec: ModelSpec, batch: int, seed: int, cases: int) -> dict[str, NDArray[Any]]:
    """Random targets, as ``inputs`` makes inputs. Some of those that a loss may ignore are the label that it ignores."""
    ignored = {name: tensor.ignore_index for name, tensor in spec.targets.items() if tensor.ignore_index is not None}
    ignored |= {term.target: term.ignore_index for term in terms_of(spec) if term.ignore_index is not None}
    arrays = {}
    for case in range(cases):
        for name, tensor in spec.targets.items():
            array = _input(tensor, batch, generator(seed, f"case {case}: {name}"))
            label = ignored.get(name)
            if label is not None:
                draw_ignored(array, label, generator(seed, f"case {case}: {name}, ignored"))
            arrays[case_key(case, name)] = array
    return arrays


def draw_ignored(array: NDArray[Any], label: int, random: np.random.Generator) -> None:
    """Replace one value in eight by an ignored label, in place: at least one, and never all."""
    count = min(max(1, array.size // IGNORED), array.size - 1)
    array.reshape(-1)[random.permutation(array.size)[:count]] = label


def _input(tensor: TensorSpec, batch: int, random: np.random.Generator) -> NDArray[Any]:
    shape = tensor.sized(batch)
    if not tensor.dtype.startswith("float"):
        return random.integers(*tensor.integers, shape).astype(tensor.dtype)
    if tensor.low is None or tensor.high is None:
        return random.standard_normal(shape).astype(tensor.dtype)
    return random.uniform(tensor.low, tensor.high, shape).astype(tensor.dtype)


def first_items(arrays: Mapping[str, NDArray[Any]], spec: ModelSpec, items: int) -> dict[str, NDArray[Any]]:
    """The same arrays with only the first items of every batch. A tensor without a batch axis stays as it is.

    arrays: as ``inputs`` and ``targets`` return them, or with labels. items: the number of items to keep.
    """
    return some_items(arrays, spec, slice(items))


def some_items(arrays: Mapping[str, NDArray[Any]], spec: ModelSpec, items: slice) -> dict[str, NDArray[Any]]:
    """The same with these items of every batch. Arguments: see ``first_items``."""
    tensors = {TARGET: TensorSpec((BATCH,)), **spec.inputs, **spec.targets}
    shapes = {key: tensors[key.split("/", 1)[1]].shape for key in arrays}
    few = {key: tuple(items if size == BATCH else slice(None) for size in shape) for key, shape in shapes.items()}
    return {key: np.ascontiguousarray(array[few[key]]) for key, array in arrays.items()}


def perturb(arrays: Mapping[str, NDArray[Any]], seed: int, unit: float = 0.0, given: bool = False) -> Changed:
    """Replace each float32 value by the next one above or below it, at random. Arrays of integers stay as they are.

    unit: unit roundoff of a lower precision, by which a value is then changed up or down; 0.0 for float32.
    given: whether these are inputs, of which masks and whole numbers stay as they are.
    """
    perturbed = _perturbed_input if given else _perturbed
    return Changed(
        arrays,
        {},
        {name: (shape_of(arrays, name), partial(perturbed, arrays, name, seed, unit)) for name in arrays},
    )


def _perturbed_input(arrays: Mapping[str, NDArray[Any]], name: str, seed: int, unit: float) -> NDArray[Any]:
    """One array of inputs that ``perturb`` changes; ``float64.rounding.chosen`` has the same values that stay."""
    array, perturbed = arrays[name], _perturbed(arrays, name, seed, unit)
    if array.dtype.kind != "f":
        return array
    size, (mantissas, _) = np.abs(array), np.frexp(array)
    short = np.rint(mantissas * 2**12) == mantissas * 2**12
    stays = short | ((np.rint(array) == array) & (size <= 2**24)) | ~(size <= 2.0**100)
    return np.where(stays, array, perturbed)


def _perturbed(arrays: Mapping[str, NDArray[Any]], name: str, seed: int, unit: float) -> NDArray[Any]:
    """One array that ``perturb`` changes."""
    array = arrays[name]
    if array.dtype.kind != "f":
        return array
    up = generator(seed, name).integers(0, 2, array.shape).astype(bool)
    if unit:
        return array * np.where(up, 1 + unit, 1 - unit).astype(np.float32)
    return np.where(up, np.nextafter(array, np.float32(np.inf)), np.nextafter(array, np.float32(-np.inf)))


def redrawn(arrays: Mapping[str, NDArray[Any]], seed: int) -> Changed:
    """Draw other weights of the same sizes; see ``drawn_anew``."""
    return Changed(
        arrays, {}, {name: (shape_of(arrays, name), partial(_redrawn, arrays, name, seed)) for name in arrays}
    )


def _redrawn(arrays: Mapping[str, NDArray[Any]], name: str, seed: int) -> NDArray[Any]:
    return drawn_anew(arrays[name], generator(seed, f"witness {name}"))


def drawn_anew(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Move the values of one array to other places, and multiply each by 0.5 to 1.5. Whole numbers stay as they are.

    Large arrays repeat their factors, because drawing one for each value would take longer than the pass that uses them.
    """
    if array.dtype.kind != "f" or not array.size:
        return array
    factors = random.uniform(0.5, 1.5, min(array.size, FACTORS)).astype(array.dtype)
    moved = np.roll(array.reshape(-1), int(random.integers(array.size)))
    moved *= np.resize(factors, array.size)
    return moved.reshape(array.shape)


def generator(seed: int, name: str) -> np.random.Generator:
    """The random generator that belongs to this seed and this name."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])
