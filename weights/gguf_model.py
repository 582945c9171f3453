"""A GGUF file as the weights of a model of Hugging Face, and as a file with all matrices in float32."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Changed, shape_of
from .gguf import Tensors
from .language_names import FOUR_NORMS, HUGGING_FACE, NORMS, TABLE, named
from .language_parts import HALVES, NEIGHBOURS, PLUS_ONE, Part

COMPUTED = re.compile(r"rope_(freqs|factors_\w+)\.weight")  # tables that are computed from the configuration
# Modules that Hugging Face's files have in layers with four norms.
OF_FOUR = {
    "norm behind attention": "layers.*.post_attention_layernorm",
    "norm of feed-forward": FOUR_NORMS,
    "norm behind feed-forward": "layers.*.post_feedforward_layernorm",
}
FLOAT32 = 0  # number of the type in the file


def hugging_face(arrays: Mapping[str, Array], facts: Mapping[str, str | int]) -> Changed:
    """The weights of a GGUF file under the names of Hugging Face, in its order of rows. Each is read when it is looked up.

    facts: see ``stored.Stored``. Raises WeightsError for an architecture whose order of rows is not known, and for a tensor that
    one of several there holds.
    """
    architecture = str(facts.get("architecture", ""))
    if architecture not in NEIGHBOURS | HALVES:
        raise WeightsError(
            f"the architecture {architecture!r} of the GGUF file is not known here; known: {', '.join(sorted(NEIGHBOURS | HALVES))}"
        )
    origins, computed = dict[str, str](), dict[str, tuple[tuple[int, ...], Callable[[], Array]]]()
    keys = named(arrays).keys
    four = any(key.kind == "norm behind attention" for key in keys.values())
    for name, key in keys.items():
        if COMPUTED.fullmatch(name):
            continue
        module = OF_FOUR.get(key.kind, "") if four else ""
        module = module or TABLE.get(key.kind, ("",))[0]
        if not module:
            raise WeightsError(f"{name} of the GGUF file has no name in the files of {HUGGING_FACE} that is known here")
        prefix = "" if key.kind == "output" else "model."
        own = f"{prefix}{module.replace('*', str(key.layer))}.{key.suffix}"
        heads = int(facts.get({"q": "heads", "k": "kv_heads"}.get(key.kind, ""), facts.get("heads", 0)))
        if key.kind in ("q", "k") and architecture in NEIGHBOURS:
            computed[own] = shape_of(arrays, name), partial(_apart, arrays, name, heads)
        elif key.kind in NORMS and architecture in PLUS_ONE:
            computed[own] = shape_of(arrays, name), partial(_less_one, arrays, name)
        else:
            origins[own] = name
    return Changed(arrays, origins, computed)


def _apart(arrays: Mapping[str, Array], name: str, heads: int) -> Array:
    """The rows of q or k in the order in which those that rotate together are half a head apart."""
    array = arrays[name]
    if not heads or len(array) % (2 * heads):
        raise WeightsError(f"{name} has {len(array)} rows, which are not those of {heads} heads, as the GGUF file says")
    order = Part(name, (len(array), 1), heads=heads).order()
    return np.ascontiguousarray(array[order])


def _less_one(arrays: Mapping[str, Array], name: str) -> Array:
    return np.asarray(arrays[name], np.float32) - np.float32(1)


def in_float32(tensors: Tensors, path: Path, target: Path) -> Path:
    """A file with the same metadata and all tensors in float32: the file itself where it has them so, else ``target``.

    path: the file of the tensors. Written are its header and its metadata as they are, and the tensors one by one.
    """
    if set(tensors.types.values()) == {"F32"}:
        return path
    shapes = {name: tensors.shape(name) for name in tensors}
    first, align = tensors.first, tensors.alignment
    with path.open("rb") as file:
        head = file.read(first)
    offset, table = 0, b""
    for name, shape in shapes.items():
        text = name.encode()
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        table += struct.pack("<Q", len(text)) + text + sizes + struct.pack("<IQ", FLOAT32, offset)
        offset = _aligned(offset + 4 * int(np.prod(shape)), align)
    with target.open("wb") as out:
        out.write(head + table)
        for name in shapes:
            out.write(b"\0" * (_aligned(out.tell(), align) - out.tell()))
            out.write(np.ascontiguousarray(tensors[name], "<f4").tobytes())
    return target


def _aligned(place: int, align: int) -> int:
    return -(-place // align) * align
