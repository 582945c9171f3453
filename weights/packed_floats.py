"""Quantised weights in ``.safetensors`` files whose numbers are floats of few bits.

float8_e4m3fn, float8_e5m2   weight (..., outputs, inputs), and weight_scale or weight_scale_inv beside it: one number, one of each
                             output, or one of each block; none: 1. Both are factors, whatever the second one's name says.
MXFP4 of gpt-oss             NAME_blocks (..., outputs, blocks, 16) with two numbers in each byte, the low half first, and
                             NAME_scales (..., outputs, blocks), powers of two
MXFP4, NVFP4                 weight_packed, or weight (outputs, inputs / 2) with two numbers in each byte, the low half first;
                             weight_scale (outputs, blocks) in float8, or powers of two; in NVFP4 also weight_global_scale, by
                             which they are divided, or weight_scale_2, by which they are multiplied
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, dtype_of, shape_of
from .levels import DECODED, LEVELS
from .safetensors import FLOAT8, Tensors

SCALES = ("_scale_inv", "_scale")  # behind the name of a weight
GLOBAL = {"_global_scale": -1, "_scale_2": 1}  # end -> power of the factor
# Ends of the names of factors of activations, which are no weights.
OF_ACTIVATIONS = tuple(
    f".{name}"
    for name in (
        "input_scale",
        "output_scale",
        "activation_scale",
        "input_global_scale",
        "q_scale",
        "k_scale",
        "v_scale",
    )
)
Settings = Mapping[str, Any]  # an object of JSON, which may have any values
USUAL = 128  # outputs and inputs of a block, where the settings do not tell
SINGLE = 2.0**-22  # relative error of a value computed in float32


@dataclass(frozen=True)
class Floats:
    """The arrays of a quantised weight.

    numbers: (rows, inputs) before they are multiplied; the rows are all outputs. scales: (rows, groups) float64.
    groups: (inputs,) the number of the group of each. shape: of the weight. kind: of levels.py. narrow: error of the scales.
    """

    numbers: Array
    scales: Array
    groups: Array
    shape: tuple[int, ...]
    kind: str
    narrow: float

    def values(self) -> Array:
        """The weight, float32."""
        made: Array = (self.numbers * self.scales[:, self.groups]).astype(np.float32)
        return made.reshape(self.shape)

    def steps(self) -> Array:
        """The steps of the weight; see ``quantised.values``."""
        levels = LEVELS[self.kind]
        step = np.abs(self.scales)
        end = levels[-1] * step
        # The numbers are found by a division in the type of the scale, and a scale that was rounded down shortens the range.
        half = np.full_like(step, self.narrow + SINGLE)
        beyond = (levels[-1] - levels[-2]) * step + self.narrow * end
        made = np.stack([half, -end, end, beyond, step]).astype(np.float32)
        inputs, count = len(self.groups), self.scales.shape[1]
        in_order = inputs % count == 0 and np.array_equal(self.groups, np.arange(inputs) // (inputs // count))
        return made if in_order else made[:, :, self.groups]


@dataclass(frozen=True)
class Place:
    """Where the arrays of a weight are. numbers, scale: names; "" for no scale. kind: see Floats. several: factors -> power."""

    numbers: str
    scale: str
    kind: str
    several: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its arrays."""
        return tuple(filter(None, (self.numbers, self.scale, *self.several)))


def find(arrays: Mapping[str, Array]) -> dict[str, Place]:
    """Name of a weight -> where its arrays are."""
    return dict(_found(arrays))


def _found(arrays: Mapping[str, Array]) -> Iterator[tuple[str, Place]]:
    for name in arrays:
        kind = _type(arrays, name)
        scale = next((name + end for end in SCALES if name + end in arrays), "")
        several = {name + end: power for end, power in GLOBAL.items() if name + end in arrays}
        if kind in FLOAT8.values() and not name.endswith((*SCALES, *GLOBAL)):
            yield name, Place(name, scale, kind, several)
        elif kind != "uint8":
            continue
        elif name.endswith("_blocks") and name.removesuffix("_blocks") + "_scales" in arrays:
            begin = name.removesuffix("_blocks")
            yield begin, Place(name, f"{begin}_scales", "MXFP4", {})
        elif name.endswith((".weight_packed", ".weight")):
            begin = name.removesuffix("_packed")
            scale = f"{begin}_scale"
            of_scale = _type(arrays, scale) if scale in arrays else ""
            several = {begin + end: power for end, power in GLOBAL.items() if begin + end in arrays}
            if of_scale:
                yield begin, Place(name, scale, "NVFP4" if of_scale == "float8_e4m3fn" else "MXFP4", several)


def _type(arrays: Mapping[str, Array], name: str) -> str:
    """The name of the type of an array as its file has it."""
    return arrays.type(name) if isinstance(arrays, Tensors) else str(dtype_of(arrays, name))


def read(arrays: Mapping[str, Array], name: str, place: Place, settings: Settings, path: Path) -> Floats:
    """The arrays of a weight. settings: what the files beside it say. Raises WeightsError where they do not fit."""
    if place.kind in ("MXFP4", "NVFP4"):
        numbers = _halves(np.asarray(arrays[place.numbers]), place.kind)
        shape: tuple[int, ...] = numbers.shape
        if place.numbers.endswith("_blocks"):
            shape = (*shape[:-2], shape[-2] * shape[-1])
    else:
        numbers = decoded(arrays, place.numbers)
        shape = numbers.shape
    axes = shape if len(shape) > 1 else (math.prod(shape), 1)
    scales, narrow = _scales(arrays, place)
    scales, groups = _spread(scales, axes, name, settings, path)
    return Floats(numbers.reshape(-1, axes[-1]), scales, groups, shape, place.kind, narrow)


def _halves(data: Array, kind: str) -> Array:
    """The numbers in bytes with two of them, the low half first. data: (..., n). Returns (..., 2 n)."""
    both = np.stack([data & 15, data >> 4], axis=-1)
    return DECODED[kind][both.reshape(*data.shape[:-1], -1)]


def decoded(arrays: Mapping[str, Array], name: str) -> Array:
    """An array in float64; floats of eight bits by their table, and whole numbers without sign as powers of two."""
    kind = _type(arrays, name)
    if isinstance(arrays, Tensors) and kind in DECODED:
        return DECODED[kind][arrays.places[name].bits(name)]
    array = np.asarray(arrays[name])
    return DECODED["float8_e8m0fnu"][array] if array.dtype == np.uint8 else array.astype(np.float64)


def _scales(arrays: Mapping[str, Array], place: Place) -> tuple[Array, float]:
    """(scales, their relative error)."""
    if not place.scale:
        return np.ones(1), 0.0
    scales = decoded(arrays, place.scale)
    narrow = (
        narrowness(np.asarray(arrays[place.scale])) if _type(arrays, place.scale) not in (*DECODED, "uint8") else 0.0
    )
    for name, power in place.several.items():
        scales = scales * decoded(arrays, name).reshape(-1)[0] ** power
    return scales, narrow


def _spread(scales: Array, shape: tuple[int, ...], name: str, settings: Settings, path: Path) -> tuple[Array, Array]:
    """(scales of every row and group, the group of each input). shape: of the weight, whose last axis has the inputs."""
    lead, outputs, inputs = math.prod(shape[:-2]), *shape[-2:]
    rows = lead * outputs
    if scales.size == 1:
        return np.broadcast_to(scales.reshape(1, 1), (rows, 1)), np.zeros(inputs, np.int64)
    if scales.size in (lead, rows) and (scales.ndim == 1 or scales.shape[-1] == 1):
        return np.repeat(scales.reshape(-1, 1), rows // scales.size, axis=0), np.zeros(inputs, np.int64)
    says = ""
    if len(scales.shape) == len(shape) and scales.shape[:-2] == shape[:-2]:
        block = _block(scales.shape[-2:], (outputs, inputs), settings)
        if block:
            wide = np.repeat(scales, block[0], axis=-2)[..., :outputs, :].reshape(rows, -1)
            return wide, np.arange(inputs) // block[1]
        says = "; they fit when they are transposed" * _counts_fit(scales.shape[:-3:-1], (outputs, inputs), settings)
    raise WeightsError(
        f"{path}: {name} has the shape {shape}, and its scales {scales.shape}, which fit neither its outputs nor blocks of it{says}"
    )


def _block(counts: tuple[int, ...], sizes: tuple[int, int], settings: Settings) -> tuple[int, int] | None:
    """(outputs, inputs) of a block; None where so many blocks do not fit the weight. counts: blocks along both axes."""
    if _counts_fit(counts, sizes, settings):
        return _told(settings) or (USUAL, USUAL)
    even = all(count and size % count == 0 for size, count in zip(sizes, counts))
    if _told(settings) or not even or _counts_fit(counts[::-1], sizes, settings):
        return None
    return sizes[0] // counts[0], sizes[1] // counts[1]


def _counts_fit(counts: tuple[int, ...], sizes: tuple[int, int], settings: Settings) -> bool:
    """Whether a weight has so many blocks of the size that the settings tell, or the usual one."""
    block = _told(settings) or (USUAL, USUAL)
    return all(-(-size // each) == count for size, each, count in zip(sizes, block, counts))


def _told(settings: Settings) -> tuple[int, int] | None:
    told = settings.get("weight_block_size")
    if isinstance(told, list) and len(told) == 2 and all(type(each) is int and each > 0 for each in told):
        return told[0], told[1]
    return None


def narrowness(scales: Array) -> float:
    """The relative error of scales by their type. One in bfloat16 was made float32 when it was read."""
    if scales.dtype == np.float16:
        return 2.0**-11
    bits = np.ascontiguousarray(scales, np.float32).view(np.uint32)
    return 0.0 if (bits & 0xFFFF).any() else 2.0**-8


def shape_of_place(arrays: Mapping[str, Array], place: Place) -> tuple[int, ...]:
    """The shape of a weight, which is not read for it."""
    shape = shape_of(arrays, place.numbers)
    if place.numbers.endswith("_blocks"):
        return (*shape[:-2], 2 * shape[-2] * shape[-1])
    return (*shape[:-1], 2 * shape[-1]) if place.kind in ("MXFP4", "NVFP4") else shape
