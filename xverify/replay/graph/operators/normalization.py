"""Normalizations and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import is_float, tensor
from .registry import MICROSOFT, Call, operator
from .rest import compute

EPSILON = 9.999999747378752e-06  # 1e-5 in float32, which the standard means by 1e-5
SKIP_EPSILON = 9.999999960041972e-13  # 1e-12 in float32


def by_channel(parameter: Any, dim: int) -> Tensor:
    """A parameter of the channels, (C,), in the form in which it multiplies an image of ``dim`` axes."""
    return tensor(parameter).view(-1, *[1] * (dim - 2))


def normalized(x: Tensor, dims: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """x without its mean and divided by its standard deviation; the mean; and one over the standard deviation."""
    mean = x.mean(dim=dims, keepdim=True)
    centred = x - mean
    inverse = torch.rsqrt(centred.square().mean(dim=dims, keepdim=True) + epsilon)
    return centred * inverse, mean, inverse


def by_rms(x: Tensor, dims: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor]:
    """x divided by its root mean square, and one over this."""
    inverse = torch.rsqrt(x.square().mean(dim=dims, keepdim=True) + epsilon)
    return x * inverse, inverse


@operator("BatchNormalization")
def batch_normalization(call: Call, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    """Batch normalization with given statistics; in training mode, with those of the batch."""
    training = call.get("training_mode", 0) or call.get("is_test", 1) == 0
    if training or (call.node.version < 14 and len([name for name in call.node.outputs if name]) > 1):
        return compute(call, x, scale, bias, mean, variance)
    dim = max(2, tensor(x).dim())
    factor = tensor(scale) / torch.sqrt(tensor(variance) + call.get("epsilon", EPSILON))
    return (tensor(x) - by_channel(mean, dim)) * by_channel(factor, dim) + by_channel(bias, dim)


@operator("InstanceNormalization")
def instance_normalization(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    """Each channel of each item normalized by itself."""
    x = tensor(x)
    y, _, _ = normalized(x, tuple(range(2, x.dim())), call.get("epsilon", EPSILON))
    return y * by_channel(scale, x.dim()) + by_channel(bias, x.dim())


@operator("GroupNormalization")
def group_normalization(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    """Groups of channels of each item normalized together. Before version 21 there is one scale for each group."""
    x, groups = tensor(x), call.get("num_groups")
    y, _, _ = normalized(x.reshape(x.shape[0], groups, -1), (2,), call.get("epsilon", EPSILON))
    if call.node.version < 21 and len(scale) == groups:
        return (y * tensor(scale).view(-1, 1) + tensor(bias).view(-1, 1)).view(x.shape)
    return y.view(x.shape) * by_channel(scale, x.dim()) + by_channel(bias, x.dim())


@operator("LayerNormalization")
@operator("LayerNormalization", domain=MICROSOFT)
def layer_normalization(call: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    """The last axes of each item normalized together."""
    x = tensor(x)
    axis = call.get("axis", -1) % x.dim()
    y, mean, inverse = normalized(x, tuple(range(axis, x.dim())), call.get("epsilon", EPSILON))
    y = y * tensor(scale)
    y = y if bias is None else y + tensor(bias)
    return (y, mean, inverse) if len(call.node.outputs) > 1 else y


@operator("RMSNormalization", "SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_normalization(call: Call, x: Any, scale: Any) -> Any:
    """The last axes of each item divided by their root mean square."""
    x = tensor(x)
    axis = call.get("axis", -1) % x.dim()
    y, inverse = by_rms(x, tuple(range(axis, x.dim())), call.get("epsilon", EPSILON))
    y = y * tensor(scale)
    return (y, inverse) if len(call.node.outputs) > 1 else y


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(call: Call, x: Any, skip: Any, scale: Any, beta: Any = None, bias: Any = None) -> Any:
    """Layer normalization of a sum. It returns the mean, one over the standard deviation, and the sum, too."""
    total = _total(x, skip, bias)
    y, mean, inverse = normalized(total, (-1,), call.get("epsilon", SKIP_EPSILON))
    y = y * tensor(scale)
    y = y if beta is None else y + tensor(beta)
    return (y, mean, inverse, total)[: len(call.node.outputs)]


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_normalization(call: Call, x: Any, skip: Any, scale: Any, bias: Any = None) -> Any:
    """The same with the root mean square; the mean counts as 0."""
    total = _total(x, skip, bias)
    y, inverse = by_rms(total, (-1,), call.get("epsilon", SKIP_EPSILON))
    return (y * tensor(scale), torch.zeros_like(inverse), inverse, total)[: len(call.node.outputs)]


def _total(x: Any, skip: Any, bias: Any) -> Tensor:
    total = tensor(x) + tensor(skip)
    return total if bias is None else total + tensor(bias)


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    call: Call,
    words: Any,
    segments: Any,
    word_table: Any,
    position_table: Any,
    segment_table: Any,
    scale: Any,
    beta: Any,
    mask: Any = None,
    positions: Any = None,
) -> Any:
    """Layer normalization of a sum of embeddings. It returns the number of words of each item in the mask, and the sum, too.

    words, segments, mask: (N, S). positions: (N or 1, S); the places where they are left out.
    """
    places = torch.arange(words.shape[1])[None] if positions is None else tensor(positions).long()
    total = tensor(word_table)[tensor(words).long()] + tensor(position_table)[places]
    if segments is not None and segment_table is not None:
        total = total + tensor(segment_table)[tensor(segments).long()]
    y, _, _ = normalized(total, (-1,), call.get("epsilon", SKIP_EPSILON))
    count = np.zeros(len(words), np.int32) if mask is None else np.sum(mask == 1, 1, dtype=np.int32)
    return (y * tensor(scale) + tensor(beta), count, total)[: len(call.node.outputs)]


@operator("LRN")
def local_response_normalization(call: Call, x: Any) -> Any:
    """Each value divided by a power of the mean square of the channels around it."""
    x, size = tensor(x), call.node.get("size")
    before = (size - 1) // 2
    squares = F.pad(x.square(), [0, 0] * (x.dim() - 2) + [before, size - 1 - before])
    total = sum(squares.narrow(1, start, x.shape[1]) for start in range(size))
    alpha, beta, bias = call.get("alpha", 9.999999747378752e-05), call.get("beta", 0.75), call.get("bias", 1.0)
    return x / (bias + alpha / size * total) ** beta


def _over_axis(function: Any) -> Any:
    """An operator over one axis. Before version 13, it is over all axes from ``axis`` on."""

    def run(call: Call, x: Any) -> Any:
        if not is_float(x):
            return compute(call, x)
        values = tensor(x)
        if call.node.version >= 13:
            return function(values, dim=call.get("axis", -1))
        axis = call.get("axis", 1) % max(1, values.dim())
        rows = math.prod(values.shape[:axis])
        return function(values.reshape(rows, -1), dim=1).view(values.shape)

    return run


operator("Softmax")(_over_axis(torch.softmax))
operator("LogSoftmax")(_over_axis(torch.log_softmax))
