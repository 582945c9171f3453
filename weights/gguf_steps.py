"""The sizes of the steps in the blocks of GGUF's quantised types, and the ends of their ranges.

A block stands for numbers q * step + offset, with whole q from a least to a greatest one, or with the q of a table (levels.py). A
super-block of the types Q2_K to Q6_K and of most types IQ has 256 numbers in several blocks. Their steps and offsets are whole
multiples of two numbers in float16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .canonical import Array
from .levels import FLOATS, LEVELS

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
    """A quantised type.

    bytes: of a super-block. least, greatest: the ends of q. blocks: reads them from the bytes.
    late: whether the numbers q are found after the steps and offsets were rounded.
    factor: of the float16 of a super-block in its steps.
    """

    bytes: int
    least: float
    greatest: float
    blocks: Callable[[Array], Blocks]
    late: bool = False
    factor: float = 1.0


def _half(data: Array, at: int) -> Array:
    """The float16 at a place in every super-block, as a column."""
    return np.ascontiguousarray(data[:, at : at + 2]).view(np.float16).astype(np.float64)


def _plain(step: Array, coarse: Array | None = None) -> Blocks:
    """Blocks without an offset. coarse: the step of the steps; None where they are single numbers."""
    zero = np.zeros_like(step)
    return Blocks(step, zero, zero if coarse is None else coarse, zero)


def _single(at: int = 0, factor: float = 1.0) -> Callable[[Array], Blocks]:
    """The blocks of a type with one block. at: the place of its float16. factor: of it, see ``Type``."""
    return lambda data: _plain(factor * _half(data, at))


def _with_offset(data: Array) -> Blocks:
    step, offset = _half(data, 0), _half(data, 2)
    return Blocks(step, offset, np.zeros_like(step), np.zeros_like(step))


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
    return _plain(coarse * ((low | high << 4).astype(np.int8) - 32), coarse)


def _bytes(data: Array) -> Blocks:
    """Q6_K: sixteen blocks with a step of eight bits."""
    coarse = _half(data, 208)
    return _plain(coarse * np.ascontiguousarray(data[:, 192:208]).view(np.int8), coarse)


def _powers(data: Array) -> Blocks:
    """MXFP4: one block with a power of two as its step."""
    return _plain(2.0 ** (data[:, :1].astype(np.float64) - 127))


def _non_linear(data: Array) -> Blocks:
    """IQ4_XS: eight blocks with a step of six bits, four of them in the last bytes of eight and two in the two before."""
    coarse = 16 * _half(data, 0)
    high = np.ascontiguousarray(data[:, 2:4]).view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = np.stack([data[:, 4:8] & 15, data[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    return _plain(coarse * ((low | high << 4).astype(np.float64) - 32), coarse)


def _in_words(at: int, stride: int) -> Callable[[Array], Blocks]:
    """IQ2_XXS, IQ3_XXS: eight blocks with a step of four bits each, in the high half of a byte. at: of the first of these bytes."""

    def read(data: Array) -> Blocks:
        coarse = 4 * _half(data, 0)
        return _plain(coarse * (0.5 + (data[:, at : at + 8 * stride : stride] >> 4)), coarse)

    return read


def _half_bytes(at: int) -> Callable[[Array], Blocks]:
    """IQ2_XS, IQ2_S, IQ3_S: blocks with a step of four bits each, from a place to the end."""

    def read(data: Array) -> Blocks:
        coarse, both = 4 * _half(data, 0), data[:, at:]
        return _plain(coarse * (0.5 + np.stack([both & 15, both >> 4], axis=2).reshape(len(data), -1)), coarse)

    return read


EIGHTH = 0.125  # of a step, which moves the three values of IQ1_S and IQ1_M


def _three_values(data: Array) -> Blocks:
    """IQ1_S: eight blocks with a step of three bits, and a bit for the direction in which their values are moved."""
    coarse = _half(data, 0)
    bits = np.ascontiguousarray(data[:, 34:]).view(np.uint16)
    step = coarse * (2.0 * (bits >> 12 & 7) + 1)
    return Blocks(step, np.where(bits >> 15, -EIGHTH, EIGHTH) * step, 2 * coarse, np.zeros_like(coarse))


def _three_values_of_eight(data: Array) -> Blocks:
    """IQ1_M: the same, with three bits of a step for sixteen values, a direction for eight, and the float16 in four pieces."""
    bits = np.ascontiguousarray(data[:, 48:]).view(np.uint16)
    pieces = (bits & 0xF000) >> np.array((12, 8, 4, 0), np.uint16)
    coarse = np.bitwise_or.reduce(pieces, axis=1, keepdims=True).view(np.float16).astype(np.float64)
    scales = (bits[:, :, None] >> np.array((0, 3, 6, 9), np.uint16) & 7).reshape(len(data), -1)
    step = np.repeat(coarse * (2.0 * scales + 1), 2, axis=1)
    moved = np.stack([data[:, 32:48] & 8, data[:, 32:48] & 128], axis=2).reshape(len(data), -1)
    return Blocks(step, np.where(moved, -EIGHTH, EIGHTH) * step, 2 * coarse, np.zeros_like(coarse))


TYPES = {
    "Q4_0": Type(18, -8, 7, _single()),
    "Q4_1": Type(20, 0, 15, _with_offset),
    "Q5_0": Type(22, -16, 15, _single()),
    "Q5_1": Type(24, 0, 31, _with_offset),
    "Q8_0": Type(34, -128, 127, _single()),
    "Q2_K": Type(84, 0, 3, _nibbles, late=True),
    "Q3_K": Type(110, -4, 3, _six_bits, late=True),
    "Q4_K": Type(144, 0, 15, _pairs, late=True),
    "Q5_K": Type(176, 0, 31, _pairs, late=True),
    "Q6_K": Type(210, -32, 31, _bytes, late=True),
    "TQ1_0": Type(54, -1, 1, _single(52)),
    "TQ2_0": Type(66, -1, 1, _single(64)),
    "MXFP4": Type(17, -6, 6, _powers, late=True),
    "IQ4_NL": Type(18, -127 / 16, 113 / 16, _single(0, 16.0), factor=16.0),
    "IQ4_XS": Type(136, -127 / 16, 113 / 16, _non_linear, factor=16.0),
    "IQ3_XXS": Type(98, -62 / 8, 62 / 8, _in_words(69, 4), factor=4.0),
    "IQ3_S": Type(110, -7.5, 7.5, _half_bytes(106), factor=4.0),
    "IQ2_XXS": Type(66, -43 / 16, 43 / 16, _in_words(9, 8), factor=4.0),
    "IQ2_XS": Type(74, -43 / 16, 43 / 16, _half_bytes(66), factor=4.0),
    "IQ2_S": Type(82, -43 / 16, 43 / 16, _half_bytes(74), factor=4.0),
    "IQ1_S": Type(50, -1, 1, _three_values),
    "IQ1_M": Type(56, -1, 1, _three_values_of_eight),
}


def steps(kind: str, data: Array) -> Array:
    """The steps of an array as in ``quantised.values``: (5, rows, blocks) float32. data: (rows, bytes) uint8."""
    of = TYPES[kind]
    found = of.blocks(np.ascontiguousarray(data).reshape(-1, of.bytes))
    ends = np.stack([found.step * q + found.offset for q in (of.least, of.greatest)])
    count = of.greatest - of.least
    largest = max(abs(of.least), of.greatest)
    step = np.abs(found.step)
    times = of.factor * np.divide(step, np.abs(found.coarse), out=np.ones_like(step), where=found.coarse != 0)
    errors = [np.maximum(FLOAT16 * np.abs(each), SMALLEST * by) for each, by in ((step, times), (found.offset, 1.0))]
    rounded = 0.0 if of.late else largest * errors[0] + errors[1]
    # Half the distance of values from a table depends on each, and is added where the values are at hand.
    half = step / 2 * (kind not in LEVELS) + rounded + SINGLE * (1.0 if kind in FLOATS else np.abs(ends).max(axis=0))
    beyond = (
        BEYOND * step * (kind != "Q8_0") + COARSE * (np.abs(found.coarse) * count + np.abs(found.coarse_offset)) / 2
    )
    made = np.stack([half, ends.min(axis=0), ends.max(axis=0), np.broadcast_to(beyond, half.shape), step])
    return made.reshape(5, len(data), -1).astype(np.float32)
