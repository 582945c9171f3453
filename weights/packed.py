"""Quantised weights in ``.safetensors`` files: the layouts of GPTQ, AWQ and compressed-tensors.

A layer has several arrays in place of its weight, and n numbers are packed into each int32. Its weight is (outputs, inputs) here.

    GPTQ                 qweight (inputs / n, outputs), qzeros (groups, outputs / n), scales (groups, outputs), g_idx (inputs)
    AWQ                  qweight (inputs, outputs / n), qzeros (groups, outputs / n), scales (groups, outputs)
    compressed-tensors   weight_packed (outputs, inputs / n), weight_scale (outputs, groups), weight_shape (2), and where it has
                         them weight_zero_point (outputs / n, groups), weight_g_idx (inputs); or int8 in weight, and weight_scale

A number q stands for (q - zero point) * scale of its group of inputs. Layouts whose numbers are floats are in packed_floats.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xverify import reading
from xverify.errors import WeightsError

from . import packed_floats
from .canonical import Array, Streamed, dtype_of, shape_of
from .packed_floats import Floats, narrowness

WORD = 32  # bits of an int32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # the place, in an int32 of AWQ, of each of eight outputs that follow each other
SINGLE = 2.0**-22  # relative error of a value computed in float32
FIRST = {
    ".qweight": ".scales",
    ".weight_packed": ".weight_scale",
}  # end of the name of a layer's numbers -> of its scales
PARTS = (
    *(".qweight", ".qzeros", ".scales", ".g_idx"),
    *(".weight_packed", ".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx"),
)
SETTINGS = (
    "config.json",
    "quantize_config.json",
    "quant_config.json",
)  # files that may tell the type, beside the weights
LARGEST_SETTINGS = 2**24  # bytes
Settings = Mapping[str, Any]  # an object of JSON, which may have any values


@dataclass(frozen=True)
class Layer:
    """The arrays of a quantised layer. numbers: (outputs, inputs). scales, zeros: (outputs, groups), float64.

    groups: (inputs,) the number of the group of each. bits: of a number. least: the lowest number. narrow: the error of the scales.
    layout: its name.
    """

    numbers: Array
    scales: Array
    zeros: Array
    groups: Array
    bits: int
    least: int
    narrow: float
    layout: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight."""
        return self.numbers.shape

    @property
    def kind(self) -> str:
        """The type, as a message names it."""
        return f"{self.bits} bits of {self.layout}"

    def values(self) -> Array:
        """The weight, float32."""
        moved: Array = (self.numbers - self.zeros[:, self.groups]) * self.scales[:, self.groups]
        return moved.astype(np.float32)

    def steps(self) -> Array:
        """The steps of the weight; see ``quantised.values``."""
        step, greatest = np.abs(self.scales), self.least + 2**self.bits - 1
        ends = np.stack([(each - self.zeros) * self.scales for each in (self.least, greatest)])
        size = np.abs(ends).max(axis=0)
        half = step / 2 + (self.narrow + SINGLE) * size
        beyond = step  # a symmetrical range lacks one of its ends
        made = np.stack([half, ends.min(axis=0), ends.max(axis=0), beyond, step]).astype(np.float32)
        inputs, groups = len(self.groups), self.scales.shape[1]
        in_order = inputs % groups == 0 and np.array_equal(self.groups, np.arange(inputs) // (inputs // groups))
        return made if in_order else made[:, :, self.groups]


class Tensors(Streamed):
    """The weights of a file, those of quantised layers with the values that they stand for. Each is made when it is looked up.

    arrays: as the file stores them. settings: what the files beside it say about the type. path: begins every message.
    unread, facts: see ``stored.Stored``.
    """

    unread: Mapping[str, str] = {}

    def __init__(self, arrays: Mapping[str, Array], settings: Settings, path: Path) -> None:
        self.arrays, self.settings, self.path = arrays, settings, path
        self.floats = packed_floats.find(arrays)
        self.numbers = self._whole_numbers()
        self.last: tuple[str, Any] = "", None  # (name, layer); a layer, or None where none was read
        numbers = {"heads": "num_attention_heads", "kv_heads": "num_key_value_heads"}
        self.facts: dict[str, str | int] = {
            fact: settings[name] for fact, name in numbers.items() if type(settings.get(name)) is int
        }
        if self.numbers and settings.get("quant_method", "gptq") == "gptq":
            self.facts["compensated"] = 1
        layers = {name.removesuffix(".weight") for name in (*self.numbers, *self.floats)}
        parts = {part for place in self.floats.values() for part in place.names}
        left_out = {name for name in arrays if name.endswith(PARTS) and name.rpartition(".")[0] in layers}
        left_out |= {name for name in arrays if layers and name.endswith(packed_floats.OF_ACTIVATIONS)}
        self.names = dict.fromkeys(
            [*(name for name in arrays if name not in left_out | parts), *self.numbers, *self.floats]
        )

    def _whole_numbers(self) -> dict[str, str]:
        """Name of a weight in whole numbers -> name of the array of them."""
        found = {
            f"{name.removesuffix(end)}.weight": name for name in self.arrays for end in FIRST if name.endswith(end)
        }
        for name in self.arrays:
            if name.endswith(".weight") and f"{name}_scale" in self.arrays and name not in self.floats:
                found |= {name: name} if dtype_of(self.arrays, name) == np.int8 else {}
        return {name: own for name, own in found.items() if name not in self.floats}

    @property
    def stepped(self) -> tuple[str, ...]:
        """The names of the quantised weights."""
        return (*self.numbers, *self.floats)

    @property
    def types(self) -> dict[str, str]:
        """Name of a quantised weight -> its type."""
        floats = {name: place.kind for name, place in self.floats.items()}
        return {name: self._read(name).kind for name in self.numbers} | floats

    def __getitem__(self, name: str) -> Array:
        return self._read(name).values() if name in self.stepped else self.arrays[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._read(name).shape if name in self.stepped else shape_of(self.arrays, name)

    def steps(self, name: str) -> Array:
        """The steps of a quantised weight; see ``quantised.values``."""
        return self._read(name).steps()

    def _layout(self, name: str) -> str:
        first = self.numbers[name]
        if not first.endswith(".qweight"):
            return "compressed-tensors"
        own, scales = shape_of(self.arrays, first), self._shape(name, ".scales")
        return "GPTQ" if own[-1] == scales[-1] else "AWQ"

    def _read(self, name: str) -> Layer:
        """A layer. The last one is kept, because its values, its steps and its shape are asked for in turn."""
        if self.last[0] != name:
            self.last = name, self._checked(name)
        return self.last[1]

    def _checked(self, name: str) -> Layer | Floats:
        if name in self.floats:
            return packed_floats.read(self.arrays, name, self.floats[name], self.settings, self.path)
        read = {"GPTQ": self._gptq, "AWQ": self._awq}.get(self._layout(name), self._compressed)
        layer = read(name)
        outputs, inputs = layer.numbers.shape
        groups = layer.scales.shape[1]
        if layer.scales.shape[0] != outputs or layer.zeros.shape != layer.scales.shape or len(layer.groups) != inputs:
            raise WeightsError(
                f"{self.path}: {name} has {outputs} outputs and {inputs} inputs, and its scales have the shape "
                f"{layer.scales.shape}, its zero points {layer.zeros.shape}"
            )
        if layer.groups.min() < 0 or layer.groups.max() >= groups:
            raise WeightsError(
                f"{self.path}: {name} names the group {int(layer.groups.max())} of its inputs, and it has {groups} groups"
            )
        return layer

    # -- layouts ------------------------------------------------------------------------------------------------------

    def _gptq(self, name: str) -> Layer:
        words, zeros, scales = (self._part(name, end) for end in (".qweight", ".qzeros", ".scales"))
        index = self._part(name, ".g_idx", needed=False)
        inputs = len(index) if index is not None else words.shape[0] * WORD // self._bits(name, zeros, scales.shape[1])
        bits = self._whole(name, WORD * words.shape[0], inputs)
        numbers = _unpacked(np.ascontiguousarray(words.T), bits, inputs)
        # The first version of the format stores zero points minus one.
        one = 0 if self.settings.get("checkpoint_format") == "gptq_v2" else 1
        points = (_unpacked(zeros, bits, scales.shape[1]).T.astype(np.float64) + one) % 2**bits
        groups = self._groups(name, inputs, len(scales)) if index is None else index.astype(np.int64)
        return Layer(numbers, scales.T.astype(np.float64), points, groups, bits, 0, narrowness(scales), "GPTQ")

    def _awq(self, name: str) -> Layer:
        words, zeros, scales = (self._part(name, end) for end in (".qweight", ".qzeros", ".scales"))
        bits = self._whole(name, WORD * words.shape[1], scales.shape[1])
        if bits != 4:
            raise WeightsError(f"{self.path}: {name} has {bits} bits, and AWQ is read with 4")
        numbers, points = (_in_order(_unpacked(each, bits, scales.shape[1])).T for each in (words, zeros))
        groups = self._groups(name, len(words), len(scales))
        return Layer(
            numbers, scales.T.astype(np.float64), points.astype(np.float64), groups, bits, 0, narrowness(scales), "AWQ"
        )

    def _compressed(self, name: str) -> Layer:
        first = self._part(name, self.numbers[name].removeprefix(name.removesuffix(".weight")))
        scales = np.atleast_2d(self._part(name, ".weight_scale"))
        zeros = self._part(name, ".weight_zero_point", needed=False)
        index = self._part(name, ".weight_g_idx", needed=False)
        if self.numbers[name] == name:  # one number in each byte, with its sign
            numbers, bits, points = first, 8, zeros
        else:
            outputs, inputs = (int(size) for size in self._part(name, ".weight_shape").reshape(-1)[:2])
            bits = self._whole(name, WORD * first.shape[-1], inputs)
            numbers = _unpacked(first, bits, inputs).astype(np.int64) - 2 ** (bits - 1)
            if len(numbers) != outputs:
                raise WeightsError(
                    f"{self.path}: {name} has {len(numbers)} outputs, and its weight_shape says {outputs}"
                )
            points = zeros
            if zeros is not None and zeros.dtype == np.int32:
                points = _unpacked(np.ascontiguousarray(zeros.T), bits, outputs).T.astype(np.int64) - 2 ** (bits - 1)
        scales = np.broadcast_to(scales, (len(numbers), scales.shape[1]))
        known = np.zeros(scales.shape) if points is None else points.astype(np.float64).reshape(scales.shape)
        groups = self._groups(name, numbers.shape[1], scales.shape[1]) if index is None else index.astype(np.int64)
        least, narrow = -(2 ** (bits - 1)), narrowness(scales)
        return Layer(numbers, scales.astype(np.float64), known, groups, bits, least, narrow, "compressed-tensors")

    # -- parts --------------------------------------------------------------------------------------------------------

    def _part(self, name: str, end: str, needed: bool = True) -> Any:
        """An array of a layer; None when it lacks one that is not needed. Any: arrays that are needed are never None."""
        part = name.removesuffix(".weight") + end
        if part in self.arrays:
            return self.arrays[part]
        if needed:
            raise WeightsError(f"{self.path}: {self.numbers[name]} is quantised, and there is no {part} beside it")
        return None

    def _shape(self, name: str, end: str) -> tuple[int, ...]:
        self._part(name, end)
        return shape_of(self.arrays, name.removesuffix(".weight") + end)

    def _bits(self, name: str, zeros: Array, outputs: int) -> int:
        return self._whole(name, WORD * zeros.shape[1], outputs)

    def _whole(self, name: str, bits: int, count: int) -> int:
        """The bits of each of so many numbers. bits: of all of them."""
        if not count or bits % count or not 1 < bits // count <= 8:
            raise WeightsError(
                f"{self.path}: {self.numbers[name]} has {bits} bits for {count} numbers, which do not fit"
            )
        return bits // count

    def _groups(self, name: str, inputs: int, groups: int) -> Array:
        """The groups of inputs that are in order."""
        if not groups or inputs % groups:
            raise WeightsError(f"{self.path}: {name} has {inputs} inputs, which are no multiple of its {groups} groups")
        return np.arange(inputs) // (inputs // groups)


def _unpacked(words: Array, bits: int, count: int) -> Array:
    """Numbers from the bits of int32, the lowest bits first. words: (rows, words). Returns (rows, count)."""
    rows = len(words)
    stream = np.unpackbits(np.ascontiguousarray(words).astype("<i4").view(np.uint8), axis=1, bitorder="little")
    wide = stream[:, : count * bits].reshape(rows, count, bits)
    made: Array = (wide << np.arange(bits, dtype=np.uint8)).sum(axis=2, dtype=np.uint8)
    return made


def _in_order(numbers: Array) -> Array:
    """The numbers of AWQ in the order of the outputs. numbers: (rows, outputs) in the order in which they are packed."""
    eights = numbers.reshape(len(numbers), -1, 8)
    return eights[..., AWQ_ORDER].reshape(numbers.shape)


def settings_beside(path: Path) -> dict[str, Any]:
    """What the files beside the weights say about their type, and about the model. path: of the weights, or their folder."""
    folder = path if path.is_dir() else path.parent
    found: dict[str, Any] = {}
    for name in SETTINGS:
        file = folder / name
        if not file.is_file() or reading.problem(file):
            continue
        try:
            with reading.opened(file) as opened:
                read = json.loads(opened.read(LARGEST_SETTINGS).decode())
        except (OSError, ValueError, RecursionError):
            continue  # the weights can be read without it
        if isinstance(read, dict):
            found |= read
            own = read.get("quantization_config")
            found |= own if isinstance(own, dict) else {}
    return found
