"""Operators that treat every value by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import is_float, tensor
from .registry import MICROSOFT, Call, operator
from .rest import compute

Unary = Callable[[Tensor], Tensor]


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)). torch's own returns x for large x, which is not exact in float64."""
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype))


UNARY: dict[str, Unary] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh, "Atan": torch.atan,
    "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "Log": torch.log, "Neg": torch.neg, "Reciprocal": torch.reciprocal, "Relu": torch.relu,
    "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh,
    "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh, "Softplus": softplus,
}  # fmt: skip

# A function of one tensor and of attributes by name, and the default values of the attributes.
Formula = tuple[Callable[..., Tensor], dict[str, float]]
FORMULAS: dict[str, Formula] = {name: (function, {}) for name, function in UNARY.items()} | {
    "LeakyRelu": (lambda x, alpha: torch.where(x >= 0, x, alpha * x), {"alpha": 0.01}),
    "Elu": (lambda x, alpha: torch.where(x > 0, x, alpha * torch.expm1(x)), {"alpha": 1.0}),
    "Celu": (lambda x, alpha: x.clamp(min=0) + (alpha * torch.expm1(x / alpha)).clamp(max=0), {"alpha": 1.0}),
    "Selu": (
        lambda x, alpha, gamma: gamma * torch.where(x > 0, x, alpha * torch.expm1(x)),
        {"alpha": float(np.float32(1.67326319217681884765625)), "gamma": float(np.float32(1.05070102214813232421875))},
    ),
    "HardSigmoid": (lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1), {"alpha": float(np.float32(0.2)), "beta": 0.5}),
    "ThresholdedRelu": (lambda x, alpha: torch.where(x > alpha, x, 0.0), {"alpha": 1.0}),
    "Swish": (lambda x, alpha: x * torch.sigmoid(alpha * x), {"alpha": 1.0}),
    "Shrink": (
        lambda x, bias, lambd: torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0.0)),
        {"bias": 0.0, "lambd": 0.5},
    ),
    "HardSwish": (lambda x: x * (x / 6 + 0.5).clamp(0, 1), {}),
    "Mish": (lambda x: x * torch.tanh(softplus(x)), {}),
}  # fmt: skip


def _formula_of(function: Callable[..., Tensor], defaults: dict[str, float]) -> Callable[..., Any]:
    def run(call: Call, x: Any) -> Any:
        if not is_float(x):
            return compute(call, x)
        return function(tensor(x), **{name: call.get(name, default) for name, default in defaults.items()})

    return run


for _name, (_formula, _defaults) in FORMULAS.items():
    operator(_name)(_formula_of(_formula, _defaults))


@operator("PRelu")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    """x where it is positive, else x · slope."""
    if not is_float(x):
        return compute(call, x, slope)
    x, slope = tensor(x), tensor(slope)
    return torch.where(x >= 0, x, x * slope)


def _binary(function: Callable[[Tensor, Tensor], Tensor], whole: Callable[..., Any] | None) -> Callable[..., Any]:
    def run(call: Call, a: Any, b: Any) -> Any:
        if is_float(a) and is_float(b):
            return function(tensor(a), tensor(b))
        return compute(call, a, b) if whole is None else whole(a, b)

    return run


BINARY: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[..., Any] | None]] = {
    "Add": (torch.add, np.add), "Sub": (torch.sub, np.subtract), "Mul": (torch.mul, np.multiply), "Div": (torch.div, None),
}  # fmt: skip
for _name, _functions in BINARY.items():
    operator(_name)(_binary(*_functions))


@operator("Pow")
def power(call: Call, x: Any, exponent: Any) -> Any:
    """x to a power. The result has the type of x."""
    if not is_float(x):
        with np.errstate(all="ignore"):
            return np.power(x, exponent).astype(x.dtype)
    if np.size(exponent) == 1 and np.ndim(exponent) <= np.ndim(x):
        return torch.pow(tensor(x), float(np.reshape(exponent, ())))
    return torch.pow(tensor(x), tensor(exponent).to(tensor(x).dtype))


def _several(function: Callable[[Tensor, Tensor], Tensor], whole: Callable[..., Any]) -> Callable[..., Any]:
    def run(call: Call, *inputs: Any) -> Any:
        if all(map(is_float, inputs)):
            return reduce(function, map(tensor, inputs))
        return reduce(whole, inputs)

    return run


operator("Max")(_several(torch.maximum, np.maximum))
operator("Min")(_several(torch.minimum, np.minimum))
operator("Sum")(_several(torch.add, np.add))
operator("Mean")(lambda call, *inputs: reduce(torch.add, map(tensor, inputs)) / len(inputs))
for _domain in ("", MICROSOFT):
    operator("Gelu", domain=_domain)(lambda call, x: F.gelu(tensor(x), approximate=call.get("approximate", "none")))


@operator("Clip")
def clip(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """x within [low, high]; high when low is larger than high."""
    low = call.get("min") if low is None else low
    high = call.get("max") if high is None else high
    if not is_float(x):
        limits = np.iinfo(x.dtype)
        return np.minimum(
            np.maximum(x, limits.min if low is None else low), limits.max if high is None else high
        ).astype(x.dtype)
    low = -math.inf if low is None else float(np.reshape(low, ()))
    high = math.inf if high is None else float(np.reshape(high, ()))
    return tensor(x).clamp(low, high)


@operator("Dropout")
def dropout(call: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Dropout of inference, which passes its input on."""
    if training is not None and bool(np.reshape(training, ())) and (ratio is None or float(np.reshape(ratio, ())) > 0):
        raise call.node.unsupported("is random in training mode, so it has no exact value")
    return (x, np.ones(np.shape(x), bool)) if len(call.node.outputs) > 1 else x
