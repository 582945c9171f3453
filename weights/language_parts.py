"""The parts of a language model's weights that two files can be compared by, whatever is stored together in each of them.

A part is a set of rows of an array. The rows of q and k that rotate together are neighbours in some files and half a head apart in
others. The common form of a part has the order and the values of Hugging Face's files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from . import quantised
from .allowances import allowance
from .canonical import Array, shape_of
from .language_names import GGUF, HUGGING_FACE, MEGATRON, META, NORMS, Key, named
from .stored import Stored

# Architectures of GGUF in which the rows of q and k that rotate together are neighbours, and those with them half a head apart.
NEIGHBOURS = frozenset(
    (
        "llama",
        "minicpm",
        "granite",
        "granitemoe",
        "arctic",
        "deci",
        "internlm2",
        "smollm3",
        "arcee",
        "bailingmoe",
        "olmo",
    )
)
HALVES = frozenset(
    ("qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "gemma", "gemma2", "gemma3", "phi2")
) | frozenset(("phi3", "falcon", "stablelm", "olmo2", "olmoe", "starcoder2", "gptneox", "gpt-oss", "llama4", "exaone"))
# Those whose norms multiply by the weight plus one, which GGUF stores with the one.
PLUS_ONE = frozenset(("gemma", "gemma2", "gemma3", "nemotron", "qwen3next", "qwen35", "qwen35moe"))

# The weight for gate and up has the name of that for up, and a norm of Qwen 3.5 that of Gemma's.
OTHERWISE = {"up": "gate and up", "norm behind attention": "norm of feed-forward"}
ALTERNATING = frozenset(("gpt-oss",))  # architectures in whose other files the rows of gate and up of experts alternate
HEAD_SIZES = (32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 16, 8)  # rows of a head that are tried when no file says it
KERNEL = ".kernel"  # end of the names of Flax's weights with the shape (inputs, outputs)
FUSED = {
    "qkv": ("q", "k", "v"),
    "gate and up": ("gate", "up"),
    "gates and ups of experts": ("gates of experts", "ups of experts"),
}
STACKED = {
    "gates of experts": ("gate of expert",),
    "ups of experts": ("up of expert",),
    "downs of experts": ("down of expert",),
    "gates and ups of experts": ("gate of expert", "up of expert"),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Rows of an array.

    name: of the array, whose axes but the last are taken as one. shape: (rows, columns). rows: their numbers; None: all.
    turned: whether its rows are the array's columns; in an array of three axes, those of the matrices of its first axis.
    heads: number of heads in which the rows that rotate together are neighbours; 0: their order is that of the common form.
    add: what is added to the values for the common form. whole: whether it is the whole array.
    """

    name: str
    shape: tuple[int, int]
    rows: Array | None = None
    turned: bool = False
    heads: int = 0
    add: float = 0.0
    whole: bool = True

    def order(self) -> Array | None:
        """The numbers of the rows in the order of the common form; None: all, as they are."""
        if not self.heads:
            return self.rows
        places = np.arange(self.shape[0]).reshape(self.heads, -1, 2).swapaxes(1, 2).reshape(-1)
        return places if self.rows is None else self.rows[places]

    def cut(self, rows: Array) -> Part:
        """Some of the rows."""
        return replace(self, shape=(len(rows), self.shape[1]), rows=rows, whole=False)


class Side:
    """The weights of one file.

    parts: what a weight is -> where it is. unread: what the weights of an unknown type are.
    style: whose names it has; see language_names. has_kernels: whether its weights have Flax's names.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        found = named([*stored.arrays, *stored.unread])
        self.unread = {found.keys[name] for name in stored.unread}
        self.style = found.style
        self.has_kernels = any(name.endswith(KERNEL) for name in stored.arrays)
        self.parts: dict[Key, Part] = {}
        for name in stored.arrays:
            key = Key(name) if found.keys[name] in self.parts else found.keys[name]
            self.parts[key] = Part(name, _matrix(shape_of(stored.arrays, name), key.suffix == "bias"))
        self.architecture = str(stored.facts.get("architecture", ""))

    def values(self, part: Part, which: Array) -> quantised.Values:
        """The values of some rows of a part in the common form. which: numbers of rows of the part."""
        order = part.order()
        rows = which if order is None else order[which]
        matrix, steps = self.stored.arrays[part.name], self.stored.steps.get(part.name)
        if part.turned:
            matrix, steps = _columns(matrix, steps, rows)
        else:
            matrix = matrix.reshape(-1, part.shape[1])[rows]
            steps = steps if steps is None else steps.reshape(5, -1, steps.shape[-1])[:, rows]
        kind = self.stored.quantised.get(part.name, "")
        found = quantised.values(matrix, steps, kind)
        found = replace(found, spare=max(found.spare, allowance(kind, self.stored.facts).outside))
        return found.plus(part.add) if part.add else found

    def turned(self, part: Part) -> Part:
        """A whole part whose rows are the array's columns, or its rows again."""
        shape = shape_of(self.stored.arrays, part.name)
        lead = shape[0] if len(shape) == 3 else 1
        rows, columns = part.shape
        return replace(part, shape=(lead * columns, rows // lead), turned=not part.turned)

    def is_stepped(self, part: Part) -> bool:
        """Whether a part is quantised."""
        return part.name in self.stored.steps

    def called(self, part: Part) -> str:
        """A part as a message names it."""
        return part.name if part.whole else f"a part of {part.name}"


def _matrix(shape: tuple[int, ...], is_bias: bool) -> tuple[int, int]:
    return (math.prod(shape[:-1]), shape[-1]) if len(shape) > 1 and not is_bias else (math.prod(shape), 1)


def _columns(array: Array, steps: Array | None, which: Array) -> tuple[Array, Array | None]:
    """Columns of an array as rows, and their steps. which: their numbers, counted over all matrices of an array of three axes."""
    cube = array if array.ndim == 3 else array.reshape(1, -1, array.shape[-1])
    lead, column = np.divmod(which, cube.shape[2])
    if steps is not None:
        blocks = steps.shape[-1]
        width = cube.shape[2] // blocks
        steps = steps.reshape(5, *cube.shape[:2], blocks).transpose(1, 3, 0, 2)[lead, column // width].swapaxes(0, 1)
    return cube[lead, :, column], steps


def heads_of(kind: str, sides: tuple[Side, Side]) -> int:
    """The number of heads of q or of k, where one of two files says it; else 0."""
    names = {"q": ("heads",), "k": ("kv_heads", "heads")}.get(kind, ())
    return next((int(side.stored.facts[name]) for name in names for side in sides if name in side.stored.facts), 0)


def align(left: Side, right: Side) -> None:
    """Split what only one of two files stores together, and let the parts of both have the common form."""
    for mine, theirs in ((left, right), (right, left)):
        _turn(mine, theirs)
        _rename(mine, theirs)
        for table, split in ((FUSED, _unfused), (STACKED, _unstacked)):
            for key in [key for key in mine.parts if key.kind in table and key not in theirs.parts]:
                pieces = split(mine, theirs, key)
                if pieces:
                    del mine.parts[key]
                    mine.parts.update(pieces)
    if (left.style, left.architecture) != (right.style, right.architecture):
        for side in (left, right):
            _use_convention(side, (left, right))


def _turn(mine: Side, theirs: Side) -> None:
    """Turn the weights of a file that has all of them as (inputs, outputs); the shape of a square one does not tell it.

    Experts that are stored together may be so although the other weights are not.
    """
    turned = list[Key]()
    if mine.has_kernels != theirs.has_kernels:
        turned = [key for key, part in mine.parts.items() if part.name.endswith(KERNEL)]
    elif mine.style != GGUF and (mine.style != HUGGING_FACE or theirs.style in (HUGGING_FACE, GGUF)):
        matrices = [key for key, part in mine.parts.items() if key.layer >= 0 and min(part.shape) > 1]
        stacked = [key for key in matrices if len(shape_of(mine.stored.arrays, mine.parts[key].name)) == 3]
        for keys in ([key for key in matrices if key not in stacked], stacked):
            fit = [(key, _fits_turned(mine, theirs, key)) for key in keys]
            oblong = [fits for _, fits in fit if fits is not None]
            if oblong and all(oblong):
                turned += [key for key, _ in fit if _mate(theirs, key)]
    for key in turned:
        mine.parts[key] = mine.turned(mine.parts[key])


def _mate(theirs: Side, key: Key) -> Key | None:
    """The same weight in the other file, or the first of those that it stands for there."""
    kinds = FUSED.get(key.kind, ())
    likely = [key, *(key.of(kind) for kind in kinds), *(key.of(kind, 0) for kind in STACKED.get(key.kind, ()))]
    return next((each for each in likely if each in theirs.parts), None)


def _fits_turned(mine: Side, theirs: Side, key: Key) -> bool | None:
    """Whether a weight has the shape of the other file's only when it is turned; None where its shape does not tell."""
    part, mate = mine.parts[key], _mate(theirs, key)
    turned = mine.turned(part)
    if mate is None or turned.shape == part.shape:
        return None
    other = theirs.parts[mate].shape
    return turned.shape == other if mate == key else turned.shape[1] == other[1] != part.shape[1]


def _rename(mine: Side, theirs: Side) -> None:
    """Give names of GGUF that mean different weights in different architectures the meaning that fits the other file."""
    for key in [key for key in mine.parts if key.kind in OTHERWISE and key not in theirs.parts]:
        wanted = key.of(OTHERWISE[key.kind])
        mate = theirs.parts.get(wanted)
        if mate is not None and wanted not in mine.parts and mate.shape == mine.parts[key].shape:
            mine.parts[wanted] = mine.parts.pop(key)


def _unfused(mine: Side, theirs: Side, key: Key) -> Mapping[Key, Part]:
    """The pieces of a weight of several layers; {} when the other file lacks one, or their sizes do not fit."""
    part, pieces = mine.parts[key], [key.of(kind) for kind in FUSED[key.kind]]
    if not all(piece in theirs.parts for piece in pieces):
        return {}
    sizes = [theirs.parts[piece].shape[0] for piece in pieces]
    if sum(sizes) != part.shape[0]:
        return {}
    blocks = 1
    if key.kind == "gates and ups of experts" and ALTERNATING & {mine.architecture, theirs.architecture}:
        blocks = part.shape[0] // 2
    elif key.kind == "gates and ups of experts":
        blocks = shape_of(mine.stored.arrays, part.name)[0]
    elif key.kind == "qkv" and mine.style == MEGATRON:
        blocks = heads_of("k", (mine, theirs)) or _likely_blocks(mine, theirs, part, pieces[1], sizes)
    return dict(zip(pieces, _interleaved(part, sizes, blocks)))


def _interleaved(part: Part, sizes: list[int], blocks: int) -> list[Part]:
    """The pieces of a part of equal blocks, each of which has rows of every piece. sizes: rows of each piece in all blocks."""
    numbers = np.arange(part.shape[0]).reshape(blocks, -1)
    ends = np.cumsum([size // blocks for size in sizes])[:-1]
    return [part.cut(each.reshape(-1)) for each in np.split(numbers, ends, axis=1)]


def _likely_blocks(mine: Side, theirs: Side, part: Part, second: Key, sizes: list[int]) -> int:
    """The number of blocks with which the first row of the second piece is that of the other file; 1 where none is."""
    first = np.arange(1)
    for size in HEAD_SIZES:
        blocks = sizes[1] // size
        if sizes[1] % size or sizes[0] % max(blocks, 1):
            continue
        piece = _interleaved(part, sizes, blocks)[1]
        if not quantised.outside(mine.values(piece, first), theirs.values(theirs.parts[second], first)).any():
            return blocks
    return 1


def _unstacked(mine: Side, theirs: Side, key: Key) -> Mapping[Key, Part]:
    """The weights of single experts; {} when the other file does not have them all."""
    part, kinds = mine.parts[key], STACKED[key.kind]
    experts = shape_of(mine.stored.arrays, part.name)[0]
    pieces = [key.of(kind, expert) for expert in range(experts) for kind in kinds]
    if not all(piece in theirs.parts for piece in pieces) or part.shape[0] % len(pieces):
        return {}
    numbers = np.arange(part.shape[0]).reshape(len(pieces), -1)
    return dict(zip(pieces, (part.cut(rows) for rows in numbers)))


def _use_convention(side: Side, sides: tuple[Side, Side]) -> None:
    """Let q, k and the norms have the common form, as far as the kind of file and the architecture tell how they are stored."""
    for key, part in side.parts.items():
        heads = heads_of(key.kind, sides)
        neighbours = side.style == META or (side.style == GGUF and side.architecture in NEIGHBOURS)
        if neighbours and heads and part.shape[0] % (2 * heads) == 0:
            side.parts[key] = replace(part, heads=heads)
        if side.style == GGUF and side.architecture in PLUS_ONE and key.kind in NORMS:
            side.parts[key] = replace(part, add=-1.0)
