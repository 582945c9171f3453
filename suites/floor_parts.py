"""What the ONNX graphs of the suite of floors are made of: weights that are drawn from a seed, products, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = Mapping[str, Array]
ITEMS, WIDTH, CLASSES, PLACES = 24, 16, 12, 9


@dataclass(frozen=True)
class Graph:
    """A graph and the faults that are planted in it.

    inputs, outputs: declarations, e.g. "float[N,16] x"; "float" is replaced where the graph has another type.
    weights: name -> float32 array, or whole numbers.
    scaled: the weight of which one index of the last axis (of a convolution the first) is multiplied.
    biased: the weight to one value of which something is added.
    swaps: (text, other text) -> a fault of one size; "{size}" in it becomes 1 + each relative size.
    draws: input -> how its values are made from a generator and a shape.
    given: whether right runs have these inputs, too, and not those that the check draws.
    dtype: of the arithmetic. expects: a verdict that is right, too: "UNTESTED" where no comparison shows anything.
    """

    inputs: str
    outputs: str
    nodes: str
    weights: Weights
    scaled: str = ""
    biased: str = ""
    swaps: tuple[tuple[str, str], ...] = ()
    draws: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = field(default_factory=dict)
    given: bool = False
    dtype: str = "float32"
    expects: str = "EQUAL"


class Draw:
    """Draws weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def matrix(self, *shape: int) -> Array:
        """A weight matrix that keeps the size of what it is multiplied with."""
        return (self.rng.standard_normal(shape) / math.sqrt(math.prod(shape[:-1]))).astype(np.float32)

    def vector(self, length: int, size: float = 0.5) -> Array:
        return (self.rng.standard_normal(length) * size).astype(np.float32)


def scalar(value: float) -> Array:
    return np.array(value, np.float32)


X, Y = f"float[N,{WIDTH}] x", f"float[N,{CLASSES}] y"


def linear(draw: Draw, after: str, **more: Any) -> Graph:
    """x W + b, and what is computed from this, h. more: weights, and fields of Graph."""
    fields = {key: more.pop(key) for key in list(more) if key in Graph.__dataclass_fields__}
    weights = {"w": draw.matrix(WIDTH, CLASSES), "b": draw.vector(CLASSES), **more}
    base = Graph(X, Y, "p = MatMul(x, w)\n h = Add(p, b)\n" + after, weights, scaled="w", biased="b")
    return replace(base, **fields)


def tail(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A mask with at least one 1 in each row, and zeros behind."""
    lengths = rng.integers(1, shape[1] + 1, shape[0])
    return (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)


def some_rows_masked(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A mask whose every fourth row is zero."""
    mask = tail(rng, shape)
    mask[::4] = 0
    return mask


def attention(draw: Draw, mask: str, **more: Any) -> Graph:
    """Attention over places. mask: nodes that make the masked scores a from the scores s and the mask."""
    fields = {key: more.pop(key) for key in list(more) if key in Graph.__dataclass_fields__}
    names = ("wq", "wk", "wv")
    weights = {name: draw.matrix(WIDTH, WIDTH) for name in names} | {"b": draw.vector(WIDTH), "one": scalar(1.0)}
    nodes = (
        "q = MatMul(x, wq)\n k = MatMul(x, wk)\n kt = Transpose<perm=[0, 2, 1]>(k)\n s = MatMul(q, kt)\n"
        f"{mask}\n p = Softmax<axis=-1>(a)\n v = MatMul(x, wv)\n o = MatMul(p, v)\n y = Add(o, b)"
    )
    shape = f"[N,{PLACES},{WIDTH}]"
    base = Graph(
        f"float{shape} x, int64[N,{PLACES}] mask", f"float{shape} y", nodes,
        weights | {"axis": np.array([1])} | more, scaled="wq", biased="b", draws={"mask": tail},
    )  # fmt: skip
    return replace(base, **fields)
