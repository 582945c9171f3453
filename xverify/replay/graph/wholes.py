"""What a graph does with its inputs of whole numbers, as far as their values may be chosen by it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...workload.wholes import Whole
from .model import Graph, Node
from .operators.shape import cast_type
from .values import element_type

COUNT, NUMBERS, OTHER = Whole.COUNT, Whole.NUMBERS, "other"
# Operators that move the values of their first input, or of every input.
MOVES = frozenset(
    {
        "Identity",
        "Reshape",
        "Unsqueeze",
        "Squeeze",
        "Flatten",
        "Transpose",
        "Expand",
        "Slice",
        "Tile",
        "Split",
        "Gather",
    }
)
JOINS = frozenset({"Concat", "Where"})
ARITHMETIC = frozenset(
    {"Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Sign", "Min", "Max", "Clip", "Sum", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
     "BitwiseNot", "ReduceSum", "ReduceMax", "ReduceMin", "CumSum"}
)  # fmt: skip
FIRST_ONLY = frozenset({"ReduceSum", "ReduceMax", "ReduceMin", "CumSum"})  # whose other inputs are axes
ORDERS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# Operators that real numbers of any size may go through. Behind others, such as Softmax or Exp, they would be a mask or overflow.
REAL = ARITHMETIC | MOVES | JOINS | {"Cast", "Floor", "Ceil", "Round", "Relu", "ReduceMean", "MatMul", "Gemm", "Sqrt"}


def wholes(graph: Graph) -> dict[str, Whole]:
    """Input of whole numbers -> what the graph does with it. Of masks, labels and places the use is ""."""
    found = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.HasField("tensor_type") and kind.tensor_type.elem_type:
            try:
                whole = element_type(kind.tensor_type.elem_type).kind in "iu"
            except (KeyError, TypeError):
                continue
            if whole:
                flow = _Flow(graph)
                flow.follow(name, True, False)
                found[name] = flow.whole()
    return found


class _Flow:
    """Follows a value through a graph. uses: what is done with it. marks: numbers that it is compared with, as it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.seen = graph, set[str]()
        self.uses, self.marks, self.divides = set[str](), set[int](), False

    def whole(self) -> Whole:
        """What was found."""
        use = COUNT if COUNT in self.uses else NUMBERS if self.uses == {NUMBERS} else ""
        return Whole(use, self.divides, tuple(sorted(self.marks)))

    def follow(self, name: str, plain: bool, real: bool) -> None:
        """Follow a value. plain: whether it is what the input holds. real: whether it is a floating-point number now."""
        if name in self.seen:
            return
        self.seen.add(name)
        for node in self.graph.users.get(name, ()):
            if (
                name not in node.inputs
                or node.function is not None
                or any(name in each.outer for each in node.subgraphs)
            ):
                self.uses.add(OTHER)
            for place in (place for place, each in enumerate(node.inputs) if each == name):
                self._take(node, place, plain, real)

    def _take(self, node: Node, place: int, plain: bool, real: bool) -> None:
        """Look at what one node does with a value that it is given at this place."""
        op, whole = node.op, not real
        if op in ("Shape", "Size"):
            return
        if (op == "Loop" and place == 0) or (op == "Range" and place == 1 and whole):
            self.uses.add(COUNT)
        elif whole and (op == "Equal" or op in ORDERS):
            if self.graph.constants.get(node.input(1 - place)) is None:  # a length, perhaps, that makes a mask
                self.uses.add(OTHER)
            self.marks.update(self._compared(node, place) if plain else ())
        elif op == "Cast":
            to = cast_type(node)
            becomes_real = to is not None and to.kind not in "iub"
            if to is None or to.kind == "b" or (becomes_real and NUMBERS not in self.uses):
                self.uses.add(OTHER)
            else:
                self._on(node, plain and not becomes_real, becomes_real)
        elif (op in MOVES and place == 0) or (op in JOINS and not (op == "Where" and place == 0)):
            self._on(node, plain, real)
        elif whole and op in ARITHMETIC and not (self._masks(node, place) or (place and op in FIRST_ONLY)):
            self.uses.add(NUMBERS)
            self.divides = self.divides or (op in ("Div", "Mod") and place == 1)
            self._on(node, False, False)
        elif real and op in REAL:
            self._on(node, False, True)
        else:
            self.uses.add(OTHER)

    def _on(self, node: Node, plain: bool, real: bool) -> None:
        for name in node.outputs:
            self.follow(name, plain, real)

    def _masks(self, node: Node, place: int) -> bool:
        """Whether a node may compute with ones and zeros of a mask: 1 - x, and a product with something that is no constant."""
        other = self.graph.constants.get(node.input(1 - place)) if place < 2 else None
        if node.op == "Sub":
            return place == 1 and other is not None and bool(np.all(other == 1))
        return node.op == "Mul" and other is None

    def _compared(self, node: Node, place: int) -> Iterator[int]:
        other = self.graph.constants.get(node.input(1 - place))
        if other is not None and other.size == 1:
            value = int(np.reshape(other, ()))
            yield from (value - 1, value, value + 1) if node.op in ORDERS else (value,)
