"""The ONNX graphs of the suite of floors: masks, exact arithmetic, saturation, ties, cancellation, chaos, all scales, and nets.

Each function makes one graph with weights that are drawn from a seed. Nodes are written in ONNX' own text; T stands for the number
of the graph's floating-point type in casts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from floor_parts import (
    CLASSES,
    PLACES,
    WIDTH,
    Array,
    Draw,
    Graph,
    X,
    Y,
    attention,
    linear,
    scalar,
    some_rows_masked,
    tail,
)

LOW = np.finfo(np.float32).min

SUBTRACTED = "m = Cast<to=T>(mask)\n i = Sub(one, m)\n r = Mul(i, low)\n u = Unsqueeze(r, axis)\n a = Add(s, u)"
SELECTED = "c = Cast<to=9>(mask)\n u = Unsqueeze(c, axis)\n a = Where(u, s, low)"


def mask_lowest(draw: Draw) -> Graph:
    return attention(draw, SUBTRACTED, low=scalar(LOW))


def mask_ten_thousand(draw: Draw) -> Graph:
    return attention(draw, SUBTRACTED, low=scalar(-1e4))


def mask_selected(draw: Draw) -> Graph:
    return attention(draw, SELECTED, low=scalar(-1e9))


def mask_infinite(draw: Draw) -> Graph:
    return attention(draw, SELECTED, low=scalar(-math.inf))


def mask_bool(draw: Draw) -> Graph:
    shape = f"[N,{PLACES},{WIDTH}]"
    return attention(
        draw, "u = Unsqueeze(mask, axis)\n a = Where(u, s, low)", low=scalar(LOW),
        inputs=f"float{shape} x, bool[N,{PLACES}] mask", draws={"mask": lambda *a: tail(*a).astype(bool)},
    )  # fmt: skip


def mask_rows(draw: Draw) -> Graph:
    return attention(draw, SUBTRACTED, low=scalar(LOW), draws={"mask": some_rows_masked}, given=True)


def mask_rows_ten_thousand(draw: Draw) -> Graph:
    return attention(draw, SUBTRACTED, low=scalar(-1e4), draws={"mask": some_rows_masked}, given=True)


def mask_scores(draw: Draw) -> Graph:
    """The masked scores themselves are the output."""
    found = attention(draw, SUBTRACTED, low=scalar(LOW), outputs=f"float[N,{PLACES},{PLACES}] a")
    nodes = found.nodes.partition("\n p = ")[0]
    weights = {name: value for name, value in found.weights.items() if name not in ("wv", "b")}
    return replace(found, nodes=nodes, weights=weights, biased="")


def masked_class(draw: Draw) -> Graph:
    keep = np.ones(CLASSES, bool)
    keep[3] = False
    return linear(draw, "y = Where(keep, h, low)", keep=keep, low=scalar(-1e9))


def halves(draw: Draw) -> Graph:
    return Graph(
        "uint8[N,64] x", "float[N,64] y", "f = Cast<to=T>(x)\n h = Mul(f, half)\n y = Round(h)", {"half": scalar(0.5)},
        scaled="half", swaps=(("y = Round(h)", "g = Add(h, half)\n y = Floor(g)"),),
        draws={"x": lambda rng, shape: rng.integers(0, 256, shape).astype(np.uint8)},
    )  # fmt: skip


def whole_numbers(draw: Draw) -> Graph:
    """A comparison of whole numbers held as floats."""
    lengths = lambda rng, shape: rng.integers(1, PLACES + 1, shape)  # noqa: E731
    return Graph(
        f"float[N,{PLACES},{WIDTH}] x, int64[N,1] length", f"float[N,{CLASSES}] y",
        "l = Cast<to=T>(length)\n n = Add(places, one)\n c = LessOrEqual(n, l)\n m = Cast<to=T>(c)\n u = Unsqueeze(m, axis)\n"
        "z = Mul(x, u)\n t = ReduceSum<keepdims=0>(z, first)\n g = Div(t, l)\n y = MatMul(g, w)",
        {"places": np.arange(PLACES).astype(np.float32), "one": scalar(1.0), "axis": np.array([2]), "first": np.array([1]),
         "w": draw.matrix(WIDTH, CLASSES)},
        scaled="w", swaps=(("LessOrEqual", "Less"),), draws={"length": lengths},
    )  # fmt: skip


def threshold(draw: Draw) -> Graph:
    return linear(draw, "c = Greater(h, limit)\n n = Neg(h)\n y = Where(c, h, n)", limit=scalar(0.1))


def sigmoid_saturated(draw: Draw) -> Graph:
    """ONNX Runtime computes a sigmoid with an absolute error, which is a DRIFT by name where results are near 0."""
    return linear(draw, "s = Mul(h, times)\n y = Sigmoid(s)", times=scalar(20.0), expects="DRIFT")


def softmax_saturated(draw: Draw) -> Graph:
    return linear(draw, "s = Mul(h, times)\n y = Softmax<axis=-1>(s)", times=scalar(30.0))


def tanh_saturated(draw: Draw) -> Graph:
    return linear(
        draw, "s = Mul(h, times)\n t = Tanh(s)\n y = MatMul(t, v)", times=scalar(15.0), v=draw.matrix(CLASSES, CLASSES)
    )


def log_softmax(draw: Draw) -> Graph:
    return linear(draw, "y = LogSoftmax<axis=-1>(h)")


def exponential(draw: Draw) -> Graph:
    return linear(draw, "s = Mul(h, times)\n y = Exp(s)", times=scalar(8.0))


def ties(draw: Draw) -> Graph:
    """Whole numbers have many ties, which decide nothing by rounding."""
    return linear(
        draw, "s = Mul(x, two)\n r = Round(s)\n best = ArgMax<axis=1, keepdims=1>(r)\n y = Identity(h)", two=scalar(2.0),
        outputs=f"{Y}, int64[N,1] best", swaps=(("keepdims=1>(r)", "keepdims=1, select_last_index=1>(r)"),),
    )  # fmt: skip


def router(draw: Draw) -> Graph:
    """The best of four experts."""
    return linear(
        draw, "s = MatMul(x, gate)\n values, best = TopK<axis=1>(s, k)\n e = Gather<axis=0>(scale, best)\n f = Squeeze(e, axis)\n"
        "y = Mul(h, f)", gate=draw.matrix(WIDTH, 4), k=np.array([1]), axis=np.array([1]),
        scale=np.exp(draw.rng.standard_normal((4, CLASSES))).astype(np.float32),
    )  # fmt: skip


def cancellation(draw: Draw) -> Graph:
    return linear(draw, "g = Add(h, large)\n y = Sub(g, large)", large=scalar(1e3))


def cancellation_deep(draw: Draw) -> Graph:
    return linear(draw, "g = Add(h, large)\n y = Sub(g, large)", large=scalar(1e5), expects="UNTESTED")


def offset(draw: Draw) -> Graph:
    return linear(draw, "y = Add(h, large)", large=scalar(1e2))


def logistic(draw: Draw, steps: int) -> str:
    lines = ["v0 = Sigmoid(h)"]
    for step in range(steps):
        lines.append(
            f"o{step} = Sub(one, v{step})\n m{step} = Mul(v{step}, o{step})\n v{step + 1} = Mul(m{step}, rate)"
        )
    return "\n".join([*lines, f"y = Identity(v{steps})"])


def chaos_short(draw: Draw) -> Graph:
    return linear(draw, logistic(draw, 10), one=scalar(1.0), rate=scalar(3.9))


def chaos_long(draw: Draw) -> Graph:
    return linear(draw, logistic(draw, 80), one=scalar(1.0), rate=scalar(3.9), expects="UNTESTED")


def denormal(draw: Draw) -> Graph:
    """Numbers that a processor may flush to zero."""
    return linear(draw, "g = Mul(h, small)\n y = Mul(g, small)", small=scalar(1e-20), expects="UNTESTED")


def tiny(draw: Draw) -> Graph:
    return linear(draw, "y = Mul(h, small)", small=scalar(1e-30))


def large_channel(draw: Draw) -> Graph:
    sizes = np.ones(CLASSES, np.float32)
    sizes[7] = 1e8
    return linear(draw, "y = Mul(h, sizes)", sizes=sizes)


def large_item(draw: Draw) -> Graph:
    def one_large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        x = rng.standard_normal(shape)
        x[0] *= 1e6
        return x

    return linear(draw, "y = Identity(h)", draws={"x": one_large}, given=True)


def wild_values(draw: Draw) -> Graph:
    sizes = np.where(draw.rng.random((WIDTH, CLASSES)) < 0.08, 1e6, 1.0).astype(np.float32)
    return linear(draw, "y = Identity(h)", w=draw.matrix(WIDTH, CLASSES) * sizes, biased="")


def norm_constant_rows(draw: Draw) -> Graph:
    """Rows of nearly one value, whose variance has few digits."""
    return linear(
        draw, "t = Mul(h, small)\n u = Add(t, large)\n y = LayerNormalization<axis=-1, epsilon=1e-9>(u, g, e)",
        small=scalar(0.1), large=scalar(10.0), g=1 + draw.vector(CLASSES, 0.2), e=draw.vector(CLASSES), biased="e", scaled="g",
    )  # fmt: skip


def norm_eps(draw: Draw) -> Graph:
    return linear(
        draw, "t = Mul(h, small)\n y = LayerNormalization<axis=-1, epsilon=1e-5>(t, g, e)", small=scalar(3e-3),
        g=1 + draw.vector(CLASSES, 0.2), e=draw.vector(CLASSES), swaps=(("epsilon=1e-5", "epsilon={size}e-5"),),
    )  # fmt: skip


def one_pass_variance(draw: Draw) -> Graph:
    return linear(
        draw, "f = Add(h, three)\n d = Mul(f, f)\n e = ReduceMean<axes=[1]>(d)\n m = ReduceMean<axes=[1]>(f)\n n = Mul(m, m)\n"
        "v = Sub(e, n)\n r = Sqrt(v)\n c = Sub(f, m)\n y = Div(c, r)", three=scalar(3.0),
    )  # fmt: skip


def unit_vectors(draw: Draw) -> Graph:
    return linear(draw, "n = ReduceL2<axes=[1]>(h)\n y = Div(h, n)")


def running_sum(draw: Draw) -> Graph:
    return linear(draw, "y = CumSum(h, axis)", axis=np.array(1))


def gelu(draw: Draw) -> Graph:
    exact = "s = Div(h, root)\n e = Erf(s)\n"
    cube = (
        "s = Mul(h, h)\n s2 = Mul(s, h)\n s3 = Mul(s2, cubed)\n s4 = Add(h, s3)\n s5 = Mul(s4, rootpi)\n e = Tanh(s5)\n"
    )
    return linear(
        draw, exact + "o = Add(e, one)\n t = Mul(h, o)\n g = Mul(t, half)\n y = MatMul(g, v)", root=scalar(math.sqrt(2)),
        one=scalar(1.0), half=scalar(0.5), v=draw.matrix(CLASSES, CLASSES), cubed=scalar(0.044715),
        rootpi=scalar(math.sqrt(2 / math.pi)), swaps=((exact, cube),),
    )  # fmt: skip


def mlp(draw: Draw, depth: int = 3, activation: str = "Relu", **more: Any) -> Graph:
    weights = {f"w{i}": draw.matrix(WIDTH, WIDTH) * np.float32(1.4) for i in range(depth)}
    weights |= {f"b{i}": draw.vector(WIDTH, 0.2) for i in range(depth)}
    lines, last = list[str](), "x"
    for i in range(depth):
        lines.append(f"p{i} = MatMul({last}, w{i})\n q{i} = Add(p{i}, b{i})\n a{i} = {activation}(q{i})")
        last = f"a{i}"
    weights |= {"w": draw.matrix(WIDTH, CLASSES), "b": draw.vector(CLASSES)}
    nodes = "\n".join([*lines, f"p = MatMul({last}, w)\n y = Add(p, b)"])
    return replace(Graph(X, Y, nodes, weights, scaled="w0", biased="b1"), **more)


def mlp_deep(draw: Draw) -> Graph:
    return mlp(draw, 12)


def mlp_tanh(draw: Draw) -> Graph:
    return mlp(draw, 4, "Tanh")


def float64_mlp(draw: Draw) -> Graph:
    return mlp(draw, 2, dtype="float64")


def float64_tiny(draw: Draw) -> Graph:
    """Squares of these outputs are below the smallest float64."""
    return linear(draw, "g = Mul(h, small)\n f = Mul(g, small)\n e = Mul(f, small)\n d = Mul(e, small)\n y = Mul(d, small)",
                  small=scalar(1e-35), dtype="float64")  # fmt: skip


def float16_mlp(draw: Draw) -> Graph:
    return mlp(draw, 2, dtype="float16")


def float16_attention(draw: Draw) -> Graph:
    return attention(draw, SELECTED, low=scalar(-6e4), dtype="float16")


def convolutions(draw: Draw) -> Graph:
    weights = {
        "w": draw.matrix(8, 3, 3, 3) * 2,
        "b": draw.vector(8),
        "w2": draw.matrix(8, 8, 3, 3) * 2,
        "b2": draw.vector(8),
    }
    weights |= {"w3": draw.matrix(8, CLASSES), "b3": draw.vector(CLASSES)}
    nodes = (
        "c = Conv<pads=[1, 1, 1, 1]>(x, w, b)\n r = Relu(c)\n d = Conv<pads=[1, 1, 1, 1], strides=[2, 2]>(r, w2, b2)\n"
        "s = Relu(d)\n g = GlobalAveragePool(s)\n f = Flatten(g)\n p = MatMul(f, w3)\n y = Add(p, b3)"
    )
    return Graph("float[N,3,12,12] x", f"float[N,{CLASSES}] y", nodes, weights, scaled="w", biased="b2")


def batch_norm(draw: Draw) -> Graph:
    return linear(
        draw, "n = BatchNormalization<epsilon=1e-5>(h, g, e, m, v)\n y = Relu(n)", g=1 + draw.vector(CLASSES, 0.2),
        e=draw.vector(CLASSES), m=draw.vector(CLASSES), v=np.exp(draw.vector(CLASSES)),
    )  # fmt: skip


def lookup(draw: Draw) -> Graph:
    """A table of word vectors, exact, and a product with it."""
    return Graph(
        f"int64[N,{PLACES}] ids", f"float[N,{PLACES},{CLASSES}] y", "x = Gather(table, ids)\n y = MatMul(x, w)",
        {"table": draw.rng.standard_normal((40, WIDTH)).astype(np.float32), "w": draw.matrix(WIDTH, CLASSES)}, scaled="w",
        draws={"ids": lambda rng, shape: rng.integers(0, 40, shape)},
    )  # fmt: skip


GRAPHS: Mapping[str, Callable[[Draw], Graph]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        mask_lowest, mask_ten_thousand, mask_selected, mask_infinite, mask_bool, mask_rows, mask_rows_ten_thousand,
        mask_scores, masked_class, halves, whole_numbers, threshold, sigmoid_saturated, softmax_saturated,
        tanh_saturated, log_softmax, exponential, ties, router, cancellation, cancellation_deep, offset, chaos_short,
        chaos_long, denormal, tiny, large_channel, large_item, wild_values, norm_constant_rows, norm_eps,
        one_pass_variance, unit_vectors, running_sum, gelu, mlp, mlp_deep, mlp_tanh, float64_mlp, float64_tiny,
        float16_mlp, float16_attention, convolutions, batch_norm, lookup,
    )
}  # fmt: skip
