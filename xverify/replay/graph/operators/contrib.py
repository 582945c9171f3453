"""Operators that ONNX Runtime writes into optimised files."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..values import tensor
from .convolution import conv
from .elementwise import FORMULAS
from .matrix import gemm
from .registry import MICROSOFT, Call, operator


def _sum(x: Any, bias: Any = None) -> torch.Tensor:
    return tensor(x) if bias is None else tensor(x) + tensor(bias)


operator("BiasGelu", domain=MICROSOFT)(lambda call, x, bias: F.gelu(_sum(x, bias)))
operator("FastGelu", domain=MICROSOFT)(lambda call, *inputs: F.gelu(_sum(*inputs), approximate="tanh"))
operator("QuickGelu", domain=MICROSOFT)(
    lambda call, x: tensor(x) * torch.sigmoid(call.get("alpha", 1.7020000219345093) * tensor(x))
)


def _activated(call: Call, y: torch.Tensor, name: str | None, parameters: list[float]) -> torch.Tensor:
    """The activation that is fused into a node, by name."""
    if not name:
        return y
    if name == "Clip":
        return y.clamp(*parameters)
    if name not in FORMULAS:
        raise call.node.unsupported(f"has the unknown activation {name!r}")
    formula, defaults = FORMULAS[name]
    return formula(y, **{**defaults, **dict(zip(defaults, parameters))})


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(call: Call, x: Any, w: Any, b: Any = None, z: Any = None) -> Any:
    """A convolution, a sum and an activation."""
    y = conv(call, x, w, b)
    y = y if z is None else y + tensor(z)
    return _activated(call, y, call.get("activation"), list(call.get("activation_params") or []))


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(call: Call, a: Any, b: Any, c: Any = None) -> Any:
    """A product of matrices, a sum and an activation."""
    name = call.get("activation")
    given = [call.get(key) for key in ("activation_alpha", "activation_beta", "activation_gamma")]
    return _activated(call, gemm(call, a, b, c), name, [value for value in given if value is not None])
