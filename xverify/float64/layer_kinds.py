"""Properties of torch's classes of layers that a replay needs."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from .parametrized import inner_modules, own_class

BATCH_NORMS = nn.modules.batchnorm._BatchNorm
# Layers that copy values without arithmetic: their outputs carry no rounding of their own.
COPIES = (
    nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten,
    nn.Identity, nn.Dropout, nn.Dropout2d, nn.Embedding, nn.ZeroPad2d, nn.ConstantPad2d, nn.ReflectionPad2d,
    nn.PixelShuffle, nn.UpsamplingNearest2d,
)  # fmt: skip
# Layers whose channels are axis 1 in torch, and the last axis in frameworks that keep images as N,H,W,C.
SPATIAL = (
    nn.modules.conv._ConvNd, BATCH_NORMS, nn.modules.instancenorm._InstanceNorm, nn.GroupNorm,
    nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._AdaptiveAvgPoolNd, nn.Upsample,
    nn.PixelShuffle, nn.Dropout2d,
)  # fmt: skip
# Activations: layers that compute every value from the input alone, without weights.
ACTIVATION_LAYERS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardtanh, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.ELU,
    nn.SELU, nn.CELU, nn.Softplus, nn.Softsign, nn.Mish, nn.LogSigmoid, nn.Softmax, nn.LogSoftmax,
)  # fmt: skip
SOFTMAXES = (nn.Softmax, nn.LogSoftmax)
APPROXIMATED = (nn.Sigmoid, nn.SiLU, nn.GELU)  # see ``_torch_operations.APPROXIMATED``
# Layers that treat all items of a batch (axis 0) alike and independently, except for a batch norm in training.
# Smooth activations are left out: their error differs so much from value to value that every item is measured, at little cost.
ITEMWISE = (*SPATIAL, nn.Linear, nn.LayerNorm)
COUNTED: Any = WeakIdKeyDictionary()  # layer of a user's class -> the terms of its longest sum, as its code ran
PARTIAL_SUMS = 16  # of the values of a channel; vector instructions keep at least two registers of eight numbers


def leaves(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a model: the modules that contain no other modules, by name. A module with two names gets the first.

    Modules that only compute the weight of a layer, such as a weight norm, are parts of it.
    """
    inner = inner_modules(model)
    return {
        name: module
        for name, module in model.named_modules()
        if name and module not in inner and not any(child for child in module.children() if child not in inner)
    }


def channel_axis(layer: nn.Module | None, dim: int) -> int:
    """The axis of the channels. A fault in one feature affects one position of this axis."""
    return min(1, dim - 1) if isinstance(layer, SPATIAL) else dim - 1


def is_training_norm(layer: nn.Module) -> bool:
    """Whether the layer is a batch norm in training mode, which computes the statistics of the batch."""
    return isinstance(layer, BATCH_NORMS) and layer.training


def passive_layers(
    layers: Mapping[str, nn.Module], returned: Mapping[str, bool], compared: Container[str]
) -> tuple[str, ...]:
    """The names of layers that return their input as it is: Identity, an empty Sequential, dropout in inference mode, and others.

    returned: layer -> whether it was seen to return its very input in every call. compared: layers that do not count.
    """
    found = (name for name, layer in layers.items() if passes_through(layer) or returned.get(name))
    return tuple(name for name in found if name not in compared)


def passes_through(layer: nn.Module) -> bool:
    """Whether the layer is known to return its input as it is."""
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return not layer.training or layer.p == 0
    return isinstance(layer, nn.Identity) or (isinstance(layer, nn.Sequential) and not len(layer))


def is_torch_layer(layer: nn.Module) -> bool:
    """Whether the layer's class is one of torch's, so that its own code is known."""
    return own_class(layer).__module__.startswith("torch.nn.")


def may_overwrite(layer: nn.Module) -> bool:
    """Whether the layer may overwrite its input."""
    return bool(getattr(layer, "inplace", False)) or not is_torch_layer(layer)


def summed_terms(layer: nn.Module, inputs: Sequence[Tensor]) -> int:
    """The number of terms that one value of the layer's output sums up, for these inputs.

    Of a layer of a user's class it is that of the operations that ran, and the largest possible one before they have.
    """
    if layer in COUNTED:
        return int(COUNTED[layer])
    if isinstance(layer, nn.modules.conv._ConvNd):
        return int(layer.in_channels // layer.groups * math.prod(layer.kernel_size))
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        return int(layer.input_size) + int(layer.hidden_size)
    if isinstance(layer, nn.LayerNorm):
        return math.prod(layer.normalized_shape)
    if isinstance(layer, nn.AvgPool2d):
        size = layer.kernel_size
        return size * size if isinstance(size, int) else math.prod(size)
    if isinstance(layer, nn.modules.pooling._AdaptiveAvgPoolNd):
        size = layer.output_size
        sides = size if isinstance(size, tuple) else (size,) * (inputs[0].dim() - 2)
        return math.prod(-(-whole // (part or whole)) for whole, part in zip(inputs[0].shape[2:], sides))
    if isinstance(layer, nn.Softmax):
        return int(inputs[0].shape[-1 if layer.dim is None else layer.dim])
    if isinstance(layer, nn.Embedding):
        return 1
    if not is_torch_layer(layer) and inputs and inputs[0].dim():
        return int(max(inputs[0].shape[-1], *(math.prod(p.shape[1:]) for p in layer.parameters() if p.dim() > 1), 1))
    return max((math.prod(weight.shape[1:]) for weight in layer.parameters() if weight.dim() > 1), default=1)


def judged_terms(layer: nn.Module, inputs: Sequence[Tensor]) -> int:
    """The number of terms by which the output of a single layer is judged.

    The mean and the variance of a batch norm in training are sums over the batch, and their rounding is in every value of a
    channel. Frameworks add up at least PARTIAL_SUMS of them side by side.
    """
    if is_training_norm(layer):
        return max(1, inputs[0].numel() // inputs[0].shape[1] // PARTIAL_SUMS)
    return summed_terms(layer, inputs)


def summed_gradient_terms(layer: nn.Module, inputs: Sequence[Tensor], upstream: Tensor) -> int:
    """The number of terms that one value of the gradient of the layer's input sums up.

    upstream: the gradient of the layer's output.
    """
    if isinstance(layer, nn.modules.conv._ConvNd):
        return int(layer.out_channels // layer.groups * math.prod(layer.kernel_size))
    if isinstance(layer, nn.Linear):
        return int(layer.out_features)
    if isinstance(layer, BATCH_NORMS):
        return upstream.numel() // upstream.shape[1]
    return summed_terms(layer, inputs)
