"""Compares the constants of a graph with the weights that they should be, also those in lower precision."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....verdict.limits import UNIT
from ....weights.stored import Stored, fold, folds, norms_by_name
from ..model import Body, Graph, Node
from ..reach import dependent
from ..values import BFLOAT16, LARGEST, UNITS, is_float, worst

NARROWER = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
SMALL = 1e-5  # relative difference (rms) up to which a constant may come from folding layers together
# A correct conversion rounds to the nearest number, or cuts off. Both are within two units of roundoff.
ROUNDINGS = 2.02
FEW = 3  # weights; with fewer of them, it does not count how many differ
# Distance between the smallest numbers of a type, twice: converters replace numbers that are too small by the smallest one.
SMALLEST = {np.dtype(np.float16): 2.0**-23}


def differences_by_name(constants: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """A sentence about each constant that has the name and shape of another array, and other values.

    Constants with other names are not compared, because an exporter may fold or rename them.
    """
    return [sentence for name, array in constants.items() for sentence in _different(name, array, others)]


def with_norms(constants: Mapping[str, Any], weights: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The constants that are weights with a batch norm folded into them, and the weights of which these are made.

    An exporter may give such a constant the name of the weight.
    """
    stored, folded, used = Stored(weights, norms_by_name(weights)), set[str](), set[str]()
    for how in folds(stored) if stored.norms else ():
        matches = [
            {name for name, array in constants.items() if is_float(array) and _is_near(array, values)}
            for values in fold(stored, how)
        ]
        folded |= set.union(*matches)
        used |= how.uses if all(matches) else set()
    return folded, used


def _is_near(array: Any, right: Any) -> bool:
    """Whether two arrays differ by no more than the rounding of folding."""
    if array.shape != right.shape:
        return False
    return float(np.linalg.norm(array.astype(np.float64) - right)) <= SMALL * float(np.linalg.norm(right))


def found_by_value(weights: Mapping[str, Any], constants: Mapping[str, Any]) -> int:
    """How many of the weights are among the constants under any name, as they are or transposed."""
    shapes = {np.shape(array) for array in constants.values()}
    known = {_digest(array) for array in constants.values() if is_float(array)}
    found = 0
    for array in weights.values():
        variants = [array, array.T] if array.ndim == 2 else [array]
        found += any(each.shape in shapes and _digest(each) in known for each in variants)
    return found


def _digest(array: Any) -> tuple[tuple[int, ...], bytes]:
    values = np.ascontiguousarray(array, np.float32)
    return np.shape(array), hashlib.blake2b(values.data, digest_size=16).digest()


def _different(name: str, array: Any, others: Mapping[str, Any]) -> Iterator[str]:
    other = others.get(name)
    if other is None or other.shape != array.shape or not (is_float(array) and is_float(other)) or not other.size:
        return
    mine, right = array.astype(np.float64), other.astype(np.float64)
    if np.array_equal(mine, right):
        return
    for called, dtype in NARROWER.items():
        if np.array_equal(mine, other.astype(np.float32).astype(dtype).astype(np.float64)):
            yield f"{name} is rounded to {called}"
            return
    size = float(np.sqrt(np.mean(np.square(right))))
    away = float(np.sqrt(np.mean(np.square(mine - right)))) / size if size else float("inf")
    if not mine.any():
        yield f"{name} is zero"
    elif away > SMALL:
        yield f"{name} has other values, {away:.2g} of their size away"


# -- rounded weights ------------------------------------------------------------------------------------------------------


def beyond_rounding(graph: Graph, reference: Graph) -> list[str]:
    """A sentence about each weight with a value that rounding to its type does not explain.

    Weights of the same name and shape are compared, where the graph stores them in a narrower type than float32.
    """
    names = {name: name for name in graph.constants}
    # A weight may be cast before it is used; its name is then that of the result.
    names |= {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.op == "Cast"}
    pairs = [
        (name, graph.constants[stored], reference.constants[name])
        for name, stored in names.items()
        if name in reference.constants and stored in graph.constants
    ]
    compared = [list(_compared(*pair)) for pair in pairs if _comparable(*pair[1:])]
    found = [text for texts in compared for text in texts]
    # Names that number the weights, as exporters make them, may stand for other weights in the other file.
    return found if 2 * len(found) <= len(compared) or len(compared) < FEW else []


def _comparable(array: Any, other: Any) -> bool:
    """Whether these may be the same weight, which is stored in a narrower type than the reference's."""
    same = other.shape == array.shape and array.size and is_float(array) and is_float(other)
    return bool(same) and UNITS[array.dtype] > max(UNIT, UNITS[other.dtype])


def _compared(name: str, array: Any, other: Any) -> Iterator[str]:
    unit = UNITS[array.dtype]
    # Converters replace what is beyond the range, such as the numbers of masks, by its end.
    end = LARGEST.get(array.dtype, math.inf)
    mine, right = array.astype(np.float64), np.clip(other.astype(np.float64), -end, end)
    limit = ROUNDINGS * unit * np.abs(right) + SMALLEST.get(array.dtype, 0.0)
    with np.errstate(invalid="ignore"):
        excess = np.abs(mine - right) / limit if np.all(limit > 0) else np.abs(mine - right) / np.maximum(limit, 1e-300)
    wrong = ~(excess <= 1.0)
    if not wrong.any():
        return
    place, where = worst(excess)
    yield (
        f"{int(wrong.sum())} of {array.size} values of {name} are not the reference's, rounded to {array.dtype}: "
        f"{name}{where} is {mine[place]:.6g}, and the reference has {float(other[place]):.6g}"
    )


# -- constants that perhaps no input uses ---------------------------------------------------------------------------------

# Operators of which a constant decides, so that another one may have no effect on some inputs.
DECIDING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Min", "Max", "Clip", "Where"})
# Operators of which whole numbers are values; those of others are shapes, axes and places, which a converter may write otherwise.
WHOLE_VALUES = DECIDING | {"Gather", "Add", "Sub", "Mul", "Div", "Mod"}


@dataclass(frozen=True)
class Placed:
    """The constants that nodes take beside what depends on values of inputs, those of subgraphs behind the names of their nodes.

    decides: name -> the operator, and the place among its inputs, of a constant that decides or that is in a branch.
    """

    arrays: dict[str, Any]
    decides: dict[str, tuple[str, int]]

    @classmethod
    def of(cls, graph: Graph) -> Placed:
        """The constants of a graph."""
        found = cls({}, {})
        found._add(graph, "", {}, set(dependent(graph, {*graph.inputs})))
        return found

    def _add(self, body: Body, begin: str, outer: Mapping[str, tuple[str, Any]], nodes: Collection[Node]) -> None:
        known = {**outer, **{name: (begin + name, array) for name, array in body.constants.items()}}
        for node in body.nodes:
            for place, name in enumerate(node.inputs):
                if name in known and (begin or node in nodes):
                    self._take(*known[name], node.op, place, bool(begin))
            for attribute, inner in node.attributes.items():
                if isinstance(inner, Body):
                    self._add(inner, f"{begin}{node.name}/{attribute}/", known, nodes)
        for place, name in enumerate(body.outputs if begin else ()):
            if name in known:
                self._take(*known[name], "", place, True)

    def _take(self, name: str, array: Any, op: str, place: int, inside: bool) -> None:
        """Note what a node takes. op: of the node; "" for an output of a subgraph. inside: whether it is in a subgraph."""
        if is_float(array) or op in WHOLE_VALUES:
            self.arrays[name] = array
            if inside or op in DECIDING:
                self.decides[name] = op, place

    def same_places(self, other: Placed) -> set[str]:
        """The names of constants that decide, and that decide the same in another graph."""
        return {name for name, use in self.decides.items() if other.decides.get(name) == use}
