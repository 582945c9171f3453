"""Layers of Keras, each with the module of torch that computes the same with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from keras import layers
from torch import nn


@dataclass(frozen=True)
class Case:
    """A pair of layers.

    keras, torch: make the layers; that of Keras is called "m" where its name does not matter.
    inputs: (shape, layout) of each input, in torch's layout. output: the layout of the output.
    call: how Keras' layer is called with its inputs; None: with each as an argument. whole: how torch's is called.
    """

    keras: Callable[[], Any]
    torch: Callable[[], nn.Module]
    inputs: tuple[tuple[tuple[int, ...], str | None], ...]
    output: str | None = None
    call: Callable[..., Any] = lambda layer, *x: layer(*x)
    whole: Callable[..., Any] = lambda module, *x: module(*x)
    tokens: bool = False


class Separable(nn.Module):
    def __init__(self, rank, channels, filters, kernel, multiplier):
        super().__init__()
        kind = {1: nn.Conv1d, 2: nn.Conv2d}[rank]
        self.depthwise = kind(channels, channels * multiplier, kernel, groups=channels, bias=False)
        self.pointwise = kind(channels * multiplier, filters, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


class Standardised(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))

    def forward(self, x):
        return (x - self.mean) / self.variance.sqrt()


class Slopes(nn.Module):
    """PReLU with a slope for each position."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return torch.where(x > 0, x, self.weight * x)


class BothWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.reverse_weight = nn.Parameter(torch.zeros(7, 4)), nn.Parameter(torch.zeros(7, 4))

    def forward(self, x):
        return F.linear(F.embedding(x, self.weight), self.reverse_weight)


class Heads(nn.Module):
    """Linear layers whose outputs or inputs are split into heads."""

    def __init__(self, inputs, outputs, shape):
        super().__init__()
        made = nn.Linear(inputs, outputs)
        self.weight, self.bias, self.shape = made.weight, made.bias, shape

    def forward(self, x):
        return F.linear(x.flatten(2), self.weight, self.bias).unflatten(-1, self.shape)


class ConvLSTM(nn.Module):
    def __init__(self, rank, channels, hidden, kernel):
        super().__init__()
        size = (kernel,) * rank
        self.weight_ih = nn.Parameter(torch.zeros(4 * hidden, channels, *size))
        self.weight_hh = nn.Parameter(torch.zeros(4 * hidden, hidden, *size))
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        self.convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]

    def forward(self, x):
        c = h = None
        for step in x.unbind(1):
            gates = self.convolve(step, self.weight_ih, self.bias)
            if h is not None:
                gates = gates + self.convolve(h, self.weight_hh, padding="same")
            i, f, g, o = gates.chunk(4, 1)
            c = i.sigmoid() * g.tanh() + (0 if c is None else f.sigmoid() * c)
            h = o.sigmoid() * c.tanh()
        return h


class Grouped(nn.Module):
    """Attention with fewer heads of keys and values than of queries."""

    def __init__(self, size, head, heads, shared):
        super().__init__()
        self.head, self.repeats = head, heads // shared
        self.q_proj, self.o_proj = nn.Linear(size, heads * head), nn.Linear(heads * head, size)
        self.k_proj, self.v_proj = nn.Linear(size, shared * head), nn.Linear(size, shared * head)

    def forward(self, x, y):
        def split(z):
            return z.unflatten(-1, (-1, self.head)).transpose(1, 2)

        q, k, v = split(self.q_proj(x)), split(self.k_proj(y)), split(self.v_proj(y))
        k, v = (each.repeat_interleave(self.repeats, 1) for each in (k, v))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Scores(nn.Module):
    """Keras' small attentions: they have a scale, and no projections."""

    def __init__(self, kind, shape=()):
        super().__init__()
        self.kind, self.scale = kind, nn.Parameter(torch.zeros(shape))
        if kind == "concat":
            self.concat_score_weight = nn.Parameter(torch.zeros(()))

    def forward(self, q, v):
        total = q[:, :, None] + v[:, None]
        if self.kind == "dot":
            scores = self.scale * q @ v.mT
        elif self.kind == "concat":
            scores = self.concat_score_weight * (self.scale * total).tanh().sum(-1)
        else:
            scores = (self.scale * total.tanh()).sum(-1)
        return scores.softmax(-1) @ v


class Framed(nn.Conv2d):
    """A convolution of every frame of a film."""

    def forward(self, x):
        return super().forward(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def first(module, *x):
    """What a module returns first."""
    return module(*x)[0]


def self_attention(module, x):
    return module(x, x, x, need_weights=False)[0]


def cross_attention(module, q, v, k):
    return module(q, k, v, need_weights=False)[0]


def cell(layer, x, *states):
    return layer(x, list(states))[0]


def cell_state(module, x, *states):
    result = module(x, states if len(states) > 1 else states[0])
    return result[0] if isinstance(result, tuple) else result


def of(*shape, layout=None):
    return ((shape, layout),)


SEQUENCE, HIDDEN = of(2, 4, 3), ((2, 3), None)
IMAGE = of(2, 4, 7, 6, layout="NCHW")
NAMED: dict[str, Any] = {"name": "m", "dtype": "float64"}
D: dict[str, Any] = {"dtype": "float64"}


def _layer(kind: str, *args: Any, **more: Any) -> Callable[[], Any]:
    return lambda: getattr(layers, kind)(*args, **{**NAMED, **more})


def _convolutions() -> dict[str, Case]:
    found = {}
    for rank, size, layout in ((1, (7,), "NCL"), (2, (7, 6), "NCHW"), (3, (5, 6, 4), "NCDHW")):
        inputs = of(2, 4, *size, layout=layout)
        kernel = (2, 3, 2)[:rank]
        plain, turned = getattr(nn, f"Conv{rank}d"), getattr(nn, f"ConvTranspose{rank}d")
        found |= {
            f"Conv{rank}D": Case(
                _layer(f"Conv{rank}D", 6, kernel), lambda p=plain, k=kernel: p(4, 6, k), inputs, layout
            ),
            f"Conv{rank}DTranspose": Case(
                _layer(f"Conv{rank}DTranspose", 6, kernel, strides=2),
                lambda t=turned, k=kernel: t(4, 6, k, 2),
                inputs,
                layout,
            ),
            f"ConvLSTM{rank}D": Case(
                _layer(f"ConvLSTM{rank}D", 3, 3),
                lambda r=rank: ConvLSTM(r, 4, 3, 3),
                of(2, 3, 4, *size, layout=layout.replace("N", "NT")),
                layout,
            ),
        }
        if rank < 3:
            found |= {
                f"DepthwiseConv{rank}D": Case(
                    _layer(f"DepthwiseConv{rank}D", kernel, depth_multiplier=3),
                    lambda p=plain, k=kernel: p(4, 12, k, groups=4),
                    inputs,
                    layout,
                ),
                f"SeparableConv{rank}D": Case(
                    _layer(f"SeparableConv{rank}D", 5, kernel, depth_multiplier=2),
                    lambda r=rank, k=kernel: Separable(r, 4, 5, k, 2),
                    inputs,
                    layout,
                ),
            }
    found["Conv2D in groups"] = Case(
        _layer("Conv2D", 6, (3, 3), groups=2), lambda: nn.Conv2d(4, 6, 3, groups=2), IMAGE, "NCHW"
    )
    return found


def _recurrent() -> dict[str, Case]:
    found = {}
    for kind, plain in (("SimpleRNN", nn.RNN), ("LSTM", nn.LSTM), ("GRU", nn.GRU)):
        one = {"SimpleRNN": nn.RNNCell, "LSTM": nn.LSTMCell, "GRU": nn.GRUCell}[kind]
        states = (HIDDEN, HIDDEN) if kind == "LSTM" else (HIDDEN,)
        make = getattr(layers, f"{kind}Cell")
        found |= {
            kind: Case(
                _layer(kind, 3, return_sequences=True), lambda p=plain: p(3, 3, batch_first=True), SEQUENCE, whole=first
            ),
            f"{kind}Cell": Case(
                _layer(f"{kind}Cell", 3), lambda o=one: o(3, 3), (((2, 3), None), *states), call=cell, whole=cell_state
            ),
            f"RNN of {kind}Cell": Case(
                lambda m=make: layers.RNN(
                    layers.StackedRNNCells([m(3, **D), m(3, **D)], **D), return_sequences=True, **NAMED
                ),
                lambda p=plain: p(3, 3, 2, batch_first=True),
                SEQUENCE,
                whole=first,
            ),
            f"Bidirectional {kind}": Case(
                lambda k=kind: layers.Bidirectional(getattr(layers, k)(3, return_sequences=True, **D), **NAMED),
                lambda p=plain: p(3, 3, batch_first=True, bidirectional=True),
                SEQUENCE,
                whole=first,
            ),
        }
    found["LSTM without bias"] = Case(
        _layer("LSTM", 3, return_sequences=True, use_bias=False),
        lambda: nn.LSTM(3, 3, batch_first=True, bias=False),
        SEQUENCE,
        whole=first,
    )
    return found


CASES: dict[str, Case] = {
    "Dense": Case(_layer("Dense", 4), lambda: nn.Linear(3, 4), SEQUENCE),
    **_convolutions(),
    **_recurrent(),
    "BatchNormalization": Case(_layer("BatchNormalization", epsilon=1e-5), lambda: nn.BatchNorm2d(4), IMAGE, "NCHW"),
    "LayerNormalization": Case(_layer("LayerNormalization", epsilon=1e-5), lambda: nn.LayerNorm(3), SEQUENCE),
    "GroupNormalization": Case(
        _layer("GroupNormalization", 2, epsilon=1e-5), lambda: nn.GroupNorm(2, 4), IMAGE, "NCHW"
    ),
    "RMSNormalization": Case(_layer("RMSNormalization"), lambda: nn.RMSNorm(3, 1e-6), SEQUENCE),
    "Normalization": Case(_layer("Normalization"), lambda: Standardised(3), SEQUENCE),
    "Embedding": Case(_layer("Embedding", 7, 4), lambda: nn.Embedding(7, 4), of(2, 5), tokens=True),
    "ReversibleEmbedding": Case(
        _layer("ReversibleEmbedding", 7, 4, tie_weights=False),
        BothWays,
        of(2, 5),
        call=lambda layer, x: layer(layer(x), reverse=True),
        tokens=True,
    ),
    "PReLU": Case(_layer("PReLU", shared_axes=[1, 2]), lambda: nn.PReLU(4), IMAGE, "NCHW"),
    "PReLU of features": Case(_layer("PReLU"), lambda: nn.PReLU(4), of(5, 4)),
    "PReLU of positions": Case(_layer("PReLU"), lambda: Slopes(4, 7, 6), IMAGE, "NCHW"),
    "EinsumDense": Case(_layer("EinsumDense", "abc,cd->abd", (4, 5), bias_axes="d"), lambda: nn.Linear(3, 5), SEQUENCE),
    "EinsumDense to heads": Case(
        _layer("EinsumDense", "abc,cde->abde", (4, 2, 5), bias_axes="de"), lambda: Heads(3, 10, (2, 5)), SEQUENCE
    ),
    "EinsumDense from heads": Case(
        _layer("EinsumDense", "...hk,hkd->...d", (6,), bias_axes="d"), lambda: Heads(15, 6, (6,)), of(2, 4, 3, 5)
    ),
    "MultiHeadAttention": Case(
        _layer("MultiHeadAttention", 2, 4),
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        of(2, 5, 8),
        call=lambda layer, x: layer(x, x),
        whole=self_attention,
    ),
    "MultiHeadAttention without bias": Case(
        _layer("MultiHeadAttention", 2, 4, use_bias=False),
        lambda: nn.MultiheadAttention(8, 2, batch_first=True, bias=False),
        of(2, 5, 8),
        call=lambda layer, x: layer(x, x),
        whole=self_attention,
    ),
    "MultiHeadAttention of other sizes": Case(
        _layer("MultiHeadAttention", 2, 4),
        lambda: nn.MultiheadAttention(8, 2, kdim=5, vdim=6, batch_first=True),
        (((2, 5, 8), None), ((2, 7, 6), None), ((2, 7, 5), None)),
        whole=cross_attention,
    ),
    "GroupQueryAttention": Case(
        _layer("GroupQueryAttention", 4, 6, 2), lambda: Grouped(8, 4, 6, 2), (((2, 5, 8), None), ((2, 7, 8), None))
    ),
    **{
        f"Attention by {kind}": Case(
            _layer("Attention", use_scale=True, score_mode=kind),
            lambda k=kind: Scores(k),
            (((2, 4, 3), None), ((2, 5, 3), None)),
            call=lambda layer, *x: layer(list(x)),
        )
        for kind in ("dot", "concat")
    },
    "AdditiveAttention": Case(
        _layer("AdditiveAttention"),
        lambda: Scores("additive", (3,)),
        (((2, 4, 3), None), ((2, 5, 3), None)),
        call=lambda layer, *x: layer(list(x)),
    ),
    "TimeDistributed": Case(
        lambda: layers.TimeDistributed(layers.Conv2D(6, (2, 3), **D), **NAMED),
        lambda: Framed(4, 6, (2, 3)),
        of(2, 3, 4, 7, 6, layout="NTCHW"),
        "NTCHW",
    ),
    "SpectralNormalization": Case(
        lambda: layers.SpectralNormalization(layers.Dense(4, **D), **NAMED), lambda: nn.Linear(3, 4), SEQUENCE
    ),
}


def inputs(case: Case) -> list[np.ndarray]:
    """Inputs in torch's layout."""
    random = np.random.default_rng(0)
    if case.tokens:
        return [random.integers(0, 7, shape) for shape, _ in case.inputs]
    return [random.standard_normal(shape) for shape, _ in case.inputs]
