"""Activations by name, with the variants that frameworks have."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Callable[[Tensor], Tensor]

# Activations that are mistaken for one another: name -> function.
ACTIVATIONS: dict[str, Activation] = {
    "ReLU": F.relu,
    "ReLU6": F.relu6,
    "LeakyReLU(0.01)": lambda x: F.leaky_relu(x, 0.01),
    "LeakyReLU(0.2)": lambda x: F.leaky_relu(x, 0.2),
    "LeakyReLU(0.3)": lambda x: F.leaky_relu(x, 0.3),
    "GELU by the error function": F.gelu,
    "GELU by the tanh approximation": lambda x: F.gelu(x, approximate="tanh"),
    "GELU by x·σ(1.702x)": lambda x: x * torch.sigmoid(1.702 * x),
    "SiLU": F.silu,
    "Hardswish": F.hardswish,
    "Hardswish with slope 1/5": lambda x: x * (0.2 * x + 0.5).clamp(0, 1),
    "Hardsigmoid": F.hardsigmoid,
    "Hardsigmoid with slope 1/5": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "ELU": F.elu,
    "SELU": F.selu,
    "Softplus": F.softplus,
    "Mish": F.mish,
}
