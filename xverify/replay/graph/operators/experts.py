"""Mixtures of experts: each token is computed by the experts that a router chooses, and their results are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import tensor
from .few_bits import expert_weights, spread
from .registry import MICROSOFT, Call, operator

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": lambda x: x * torch.sigmoid(x),
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class Layer:
    """A layer of all experts. weights: (experts, outputs, inputs). bias: (experts, outputs)."""

    weights: Any
    bias: Any = None

    def __call__(self, expert: int, x: Tensor) -> Tensor:
        y = x @ tensor(self.weights[expert]).to(x).mT
        return y if self.bias is None else y + tensor(self.bias[expert])


def mixed(call: Call, x: Any, router: Any, layers: Sequence[Layer], block: int = 0) -> Tensor:
    """The sum of the chosen experts, each with its share.

    x: (..., inputs). router: the scores of the experts, (tokens, experts). layers: the first and the second. block: of inputs that
    may be rounded to 8 bits together; 0 for none.
    """
    if call.get("use_sparse_mixer", 0):
        raise call.node.unsupported("chooses its experts by a sparse mixer")
    rows, scores = tensor(x).reshape(-1, x.shape[-1]), tensor(router)
    # Of experts with the same score, ONNX Runtime takes the last ones.
    order = np.argsort(-router[:, ::-1], -1, kind="stable")[:, : call.node.get("k", 1)]
    chosen = torch.from_numpy(router.shape[-1] - 1 - order)
    shares = torch.softmax(scores, -1).gather(-1, chosen)
    if call.get("normalize_routing_weights", 0):
        shares = shares / shares.sum(-1, keepdim=True)
    found = torch.zeros(len(rows), layers[1].weights.shape[1], dtype=rows.dtype)
    for expert in range(scores.shape[-1]):
        tokens, places = (chosen == expert).nonzero(as_tuple=True)
        if len(tokens):
            inner = _activated(call, layers[0](expert, _rounded(call, rows[tokens], block)))
            result = layers[1](expert, _rounded(call, inner, block)) * shares[tokens, places, None]
            found = found.index_add(0, tokens, result)
    return found.reshape(*x.shape[:-1], -1)


def _rounded(call: Call, x: Tensor, block: int) -> Tensor:
    return tensor(spread(call, x.numpy(), block)) if block else x


def _activated(call: Call, x: Tensor) -> Tensor:
    name = call.get("activation_type", "relu")
    name = name.decode() if isinstance(name, bytes) else name
    if name in ACTIVATIONS:
        return ACTIVATIONS[name](x)
    fusion = call.get("swiglu_fusion", 0)
    if name != "swiglu" or fusion not in (1, 2):
        raise call.node.unsupported(f"has the activation {name!r} with swiglu_fusion {fusion}")
    gate, linear = (x[:, ::2], x[:, 1::2]) if fusion == 1 else x.chunk(2, -1)
    limit = call.get("swiglu_limit")
    if limit is not None:
        gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
    return gate * torch.sigmoid(call.get("activation_alpha", 1.0) * gate) * (linear + call.get("activation_beta", 0.0))


@operator("MoE", domain=MICROSOFT, composed=True)
def mixture_of_experts(
    call: Call, x: Any, router: Any, first: Any, first_bias: Any, second: Any, second_bias: Any = None, *third: Any
) -> Any:
    """Experts of two layers each."""
    if any(each is not None for each in third):
        raise call.node.unsupported("has a third layer in its experts")
    return mixed(call, x, router, (Layer(first, first_bias), Layer(second, second_bias)))


@operator("QMoE", domain=MICROSOFT, composed=True)
def quantised_mixture_of_experts(call: Call, *inputs: Any) -> Any:
    """Experts of two layers each, with weights of a few bits."""
    x, router, w1, s1, b1, w2, s2, b2, *more = (*inputs, *[None] * 7)[: max(len(inputs), 15)]
    zeros = more[3:5]
    if any(each is not None for each in (*more[:3], *more[5:])) or call.get("quant_type", "int") not in ("int", b"int"):
        raise call.node.unsupported("has a third layer in its experts, weights for its router, or weights of floats")
    first, second = (
        Layer(expert_weights(call.node, *each), bias)
        for each, bias in (((w1, s1, zeros[0], 1), b1), ((w2, s2, zeros[1], 2), b2))
    )
    return mixed(call, x, router, (first, second), call.node.get("block_size", 0))
