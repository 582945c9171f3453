"""GGUF files of language models (``.gguf``), read with the package gguf. Arrays have the values that their numbers stand for.

The sizes of the steps of quantised arrays are in gguf_steps.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from . import gguf_steps
from .canonical import Array, Streamed
from .room import Room

SUFFIXES = (".gguf",)
FLOATS = ("F64", "F32", "F16", "BF16")
IMPORTANCE = "quantize.imatrix.file"  # llama.cpp writes it where weights of importance decided on the steps
KEYS = {"heads": "attention.head_count", "kv_heads": "attention.head_count_kv"}


class Tensors(Streamed):
    """The arrays of a file whose type is known here. Each is read, and made float32, when it is looked up.

    types: name -> type, e.g. "Q4_0". unread: the same for the arrays whose type is not known here.
    facts: see ``stored.Stored``, where the file says them.
    first: the place in the file where the metadata end, and the table of arrays begins. alignment: of the arrays, in bytes.
    """

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader, quants

        reader = GGUFReader(path)
        self.tensors = {each.name: each for each in reader.tensors}
        all_types = {name: each.tensor_type.name for name, each in self.tensors.items()}
        known = {*FLOATS, *(kind for kind in gguf_steps.TYPES if hasattr(quants, kind))}  # older packages lack some
        self.types = {name: each for name, each in all_types.items() if each in known}
        self.names = self.types
        self.first = min((each.field.offset for each in reader.tensors), default=0)
        self.alignment = int(reader.alignment)
        self.unread = {name: each for name, each in all_types.items() if name not in self.types}
        self.facts = _facts(reader)

    def __getitem__(self, name: str) -> Array:
        from gguf.quants import dequantize

        each, kind = self.tensors[name], self.types[name]
        array = each.data if kind in ("F64", "F32", "F16") else dequantize(each.data, each.tensor_type)
        return np.asarray(array).reshape(self.shape(name))

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    @property
    def stepped(self) -> tuple[str, ...]:
        """The names of the quantised arrays."""
        return tuple(name for name, kind in self.types.items() if kind not in FLOATS)

    def steps(self, name: str) -> Array:
        """The steps of a quantised array: see ``quantised.values``."""
        data = self.tensors[name].data
        return gguf_steps.steps(self.types[name], np.asarray(data).reshape(-1, data.shape[-1]))


def _facts(reader: Any) -> dict[str, str | int]:
    field = reader.get_field("general.architecture")
    if field is None:
        return {}
    architecture = str(field.contents())
    facts: dict[str, str | int] = {"architecture": architecture}
    if reader.get_field(IMPORTANCE) is not None:
        facts["importance"] = 1
    for key, name in KEYS.items():
        value = reader.get_field(f"{architecture}.{name}")
        if value is not None and isinstance(
            value.contents(), int
        ):  # some models have a list, with a number for each layer
            facts[key] = value.contents()
    return facts


def open_file(path: Path, trust: bool = False, most: float | None = None) -> Tensors:
    """All arrays of a file. trust: without effect, since these files cannot run code. most: see ``room.Room``.

    Raises WeightsError for a file with an array of an unknown type.
    """
    found = opened(path, most)
    for name, kind in found.unread.items():
        raise WeightsError(
            f"{path}: {name} has the type {kind}, which is not read; known: {', '.join((*FLOATS, *gguf_steps.TYPES))}"
        )
    return found


def opened(path: Path, most: float | None = None) -> Tensors:
    """The same as ``open_file``, also of a file in which some arrays have an unknown type; those are left out."""
    Room(path, most).take(path.stat().st_size)
    found = Tensors(path)
    if not found.types:
        kinds = ", ".join(sorted(set(found.unread.values()))) or "it has none"
        raise WeightsError(f"{path}: no array has a type that is read ({kinds})")
    return found
