"""The sizes of the steps in the blocks of GGUF's quantised types, and the ends of their ranges.

A block stands for numbers q * step + offset, with whole q from a least to a greatest one. A super-block of the types Q2_K to Q6_K
has 256 numbers in several blocks. Their steps and offsets are whole multiples of two numbers in float16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .canonical import Array

FLOAT16 = 2.0**-11  # relative error of a number rounded to float16
SMALLEST = 2.0**-25  # error of one that is too small to have all digits
SINGLE = 2.0**-22  # relative error of a value computed in float32
# Steps by which a right value may lie beyond the range of its block: tools choose the step that fits the other values best. A type
# with 8 bits has a step that holds all values. Of 4.2 million values that llama.cpp quantised to each type, without importance
# weights, none was outside with these two numbers; the second one multiplies what the rounding of the steps may take from a range.
BEYOND = 2.0
COARSE = 1.25


@dataclass(frozen=True)
class Blocks:
    """The blocks of an array; each field has the shape (super-blocks, blocks in each), float64.

    step, offset: see above. coarse: the step of the steps, and of the offsets; 0 where they are single numbers in float16.
    """

    step: Array
    offset: Array
    coarse: Array
    coarse_offset: Array


@dataclass(frozen=True)
class Type:
    """A quantised type. bytes: of a super-block. least, greatest: the ends of q. blocks: reads them from the bytes."""

    bytes: int
    least: int
    greatest: int
    blocks: Callable[[Array], Blocks]


def _half(data: Array, at: int) -> Array:
    """The float16 at a place in every super-block, as a column."""
    return np.ascontiguousarray(data[:, at : at + 2]).view(np.float16).astype(np.float64)


def _single(offset: float | None = None) -> Callable[[Array], Blocks]:
    """The blocks of a type with one block. offset: that of its numbers; None: it is a float16 behind the step."""

    def read(data: Array) -> Blocks:
        step = _half(data, 0)
        zero = np.zeros_like(step)
        return Blocks(step, _half(data, 2) if offset is None else zero, zero, zero)

    return read


def _pairs(data: Array) -> Blocks:
    """Q4_K, Q5_K: eight blocks with a step and an offset of six bits each."""
    from gguf.quants import Q4_K

    coarse, coarse_offset = _half(data, 0), _half(data, 2)
    steps, offsets = Q4_K.get_scale_min(np.ascontiguousarray(data[:, 4:16]))
    return Blocks(coarse * steps, -coarse_offset * offsets, coarse, coarse_offset)


def _nibbles(data: Array) -> Blocks:
    """Q2_K: sixteen blocks with a step and an offset of four bits each."""
    coarse, coarse_offset = _half(data, 80), _half(data, 82)
    both = data[:, :16]
    return Blocks(coarse * (both & 15), -coarse_offset * (both >> 4), coarse, coarse_offset)


def _six_bits(data: Array) -> Blocks:
    """Q3_K: sixteen blocks with a step of six bits, four of them in the first eight bytes and two in the last four."""
    packed, coarse = data[:, 96:108], _half(data, 108)
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = np.concatenate([(packed[:, 8:] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
    step = coarse * ((low | high << 4).astype(np.int8) - 32)
    return Blocks(step, np.zeros_like(step), coarse, np.zeros_like(coarse))


def _bytes(data: Array) -> Blocks:
    """Q6_K: sixteen blocks with a step of eight bits."""
    coarse = _half(data, 208)
    step = coarse * np.ascontiguousarray(data[:, 192:208]).view(np.int8)
    return Blocks(step, np.zeros_like(step), coarse, np.zeros_like(coarse))


TYPES = {
    "Q4_0": Type(18, -8, 7, _single(0.0)),
    "Q4_1": Type(20, 0, 15, _single()),
    "Q5_0": Type(22, -16, 15, _single(0.0)),
    "Q5_1": Type(24, 0, 31, _single()),
    "Q8_0": Type(34, -128, 127, _single(0.0)),
    "Q2_K": Type(84, 0, 3, _nibbles),
    "Q3_K": Type(110, -4, 3, _six_bits),
    "Q4_K": Type(144, 0, 15, _pairs),
    "Q5_K": Type(176, 0, 31, _pairs),
    "Q6_K": Type(210, -32, 31, _bytes),
}


def steps(kind: str, data: Array) -> Array:
    """The steps of an array as in ``quantised.values``: (5, rows, blocks) float32. data: (rows, bytes) uint8."""
    of = TYPES[kind]
    found = of.blocks(np.ascontiguousarray(data).reshape(-1, of.bytes))
    ends = np.stack([found.step * q + found.offset for q in (of.least, of.greatest)])
    count = of.greatest - of.least
    largest = max(abs(of.least), of.greatest)
    step = np.abs(found.step)
    # The numbers q are found before the step and the offset are rounded, but in super-blocks afterwards.
    errors = [np.maximum(FLOAT16 * np.abs(each), SMALLEST) for each in (step, found.offset)]
    rounded = np.where(found.coarse != 0, 0.0, largest * errors[0] + errors[1])
    half = step / 2 + rounded + SINGLE * np.abs(ends).max(axis=0)
    beyond = (
        BEYOND * step * (kind != "Q8_0") + COARSE * (np.abs(found.coarse) * count + np.abs(found.coarse_offset)) / 2
    )
    made = np.stack([half, ends.min(axis=0), ends.max(axis=0), np.broadcast_to(beyond, half.shape), step])
    return made.reshape(5, len(data), -1).astype(np.float32)
