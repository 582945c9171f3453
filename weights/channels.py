"""Which channels of a port's layers are those of the reference's, where the port's weights are stored otherwise (arrangement.py).

A layer that computes three of the reference's has the rows of all three in its weight, and its output has their channels in the
same places. A row of a weight is what makes one channel of the output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .arrangement import Arrangement
from .canonical import Array

KINDS = ("weight", "bias")  # the parameters of a layer whose output has one channel for each row of its weight


@dataclass(frozen=True)
class Piece:
    """What a layer of the port computes of a layer of the reference.

    own: name of the port's layer. name: of the reference's.
    places: the place, among the port's channels, of each of these channels. rows: their numbers in the reference's layer.
    inputs: the place, among the port's input channels, of each of the reference's; None where the order is the same.
    spatial: whether the weight has axes of space, as that of a convolution.
    folded: whether the reference's layer is a batch norm that the port's has in its weights. What is given to the batch norm is
        then no tensor of the port.
    """

    own: str
    name: str
    places: Array
    rows: Array
    inputs: Array | None = None
    spatial: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Channels:
    """The layers of a port that compute layers of the reference in another form.

    own: names of the port's layers whose weights are stored otherwise.
    pieces: layer of the reference -> what computes it; it has no layer whose channels are not known. A layer of the port with a
        batch norm in its weights computes this batch norm.
    """

    own: frozenset[str] = frozenset()
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)

    def made_by(self, own: str) -> set[str]:
        """The layers of the reference of which a layer of the port computes channels."""
        return {name for name, pieces in self.pieces.items() if own in {piece.own for piece in pieces}}

    def elsewhere(self, own: str, name: str) -> bool:
        """Whether a layer of the port only stands in the place of a batch norm, which another one computes. name: canonical."""
        return own not in self.own and any(piece.folded for piece in self.pieces.get(name, ()))


def channels(arrangement: Arrangement) -> Channels:
    """The channels of the layers whose weights are arranged. A layer with a copy is left out: it has the order of the weight."""
    by_layer: dict[str, list[str]] = defaultdict(list)
    for own in arrangement.moves:
        by_layer[own.rpartition(".")[0]].append(own)
    changed = {
        layer: weights
        for layer, weights in by_layer.items()
        if layer and not any(arrangement.moves[own].keeps_layer for own in weights)
    }
    pieces: dict[str, list[Piece]] = defaultdict(list)
    for layer, weights in changed.items():
        for piece in _pieces(arrangement, layer, weights):
            pieces[piece.name].append(piece)
    whole = {name: tuple(found) for name, found in pieces.items() if _is_whole(arrangement, name, found)}
    return Channels(frozenset(changed), whole | dict(_folded(arrangement, changed)))


def _folded(arrangement: Arrangement, changed: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """The batch norms that layers of the port have in their weights, each with this layer."""
    for layer, weights in changed.items():
        shapes = {own.rpartition(".")[2]: arrangement.own_shapes[own] for own in weights}
        norm = next((arrangement.moves[own].batch_norm for own in weights), "")
        if norm and set(shapes) == set(KINDS):
            order = np.arange(shapes["bias"][0])
            yield norm, (Piece(layer, norm, order, order, spatial=len(shapes["weight"]) > 2, folded=True),)


def _is_whole(arrangement: Arrangement, name: str, pieces: Sequence[Piece]) -> bool:
    """Whether pieces have every channel of a layer of the reference once."""
    rows = next(arrangement.shapes[each][0] for kind in KINDS if (each := f"{name}.{kind}") in arrangement.shapes)
    return sorted(int(row) for piece in pieces for row in piece.rows) == list(range(rows))


def _pieces(arrangement: Arrangement, layer: str, weights: Sequence[str]) -> Sequence[Piece]:
    """What a layer of the port computes; () when its weights do not tell."""
    names = {name for own in weights for name in arrangement.moves[own].names()}
    kinds = {name.rpartition(".")[2] for name in names}
    matrices = sum(len(arrangement.own_shapes[own]) > 1 for own in weights)
    if not kinds <= set(KINDS) or matrices > 1 or any(arrangement.moves[own].batch_norm for own in weights):
        return ()
    for own in sorted(weights, key=lambda own: -len(arrangement.own_shapes[own])):
        for axis in range(len(arrangement.own_shapes[own])):
            found = list(_rows(arrangement, own, layer, axis))
            if sum(len(piece.rows) for piece in found) == arrangement.own_shapes[own][axis]:
                return found
    return ()


def _rows(arrangement: Arrangement, own: str, layer: str, axis: int) -> Iterator[Piece]:
    """The reference's rows that are whole along an axis of a weight of the port."""
    shape = arrangement.own_shapes[own]
    for name in dict.fromkeys(arrangement.moves[own].names()):
        positions = np.moveaxis(arrangement.positions(own, name), axis, 0).reshape(shape[axis], -1)
        places = np.flatnonzero((positions >= 0).all(axis=1))
        if not len(places):
            continue
        columns = int(np.prod(arrangement.shapes[name][1:], dtype=np.int64))
        rows, order = np.divmod(positions[places], columns)
        if positions.shape[1] != columns or (rows != rows[:, :1]).any() or (order != order[:1]).any():
            continue
        straight = bool((order[0] == np.arange(columns)).all())
        if straight or len(arrangement.shapes[name]) == 2:
            inputs = None if straight else np.argsort(order[0])
            yield Piece(layer, name.rpartition(".")[0], places, rows[:, 0], inputs, len(shape) > 2)
