from keras import Input, Model, layers

from xverify.models.keras_layers import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    DepthwiseConv2d,
    Flatten,
    Hardsigmoid,
    Hardswish,
)

from .blocks import BLOCKS


def squeeze_excitation(x, squeezed, name):
    scale = AdaptiveAvgPool2d(1, name=f"{name}.avgpool")(x)
    scale = Conv2d(squeezed, 1, name=f"{name}.fc1")(scale)
    scale = layers.ReLU(name=f"{name}.activation")(scale)
    scale = Conv2d(x.shape[-1], 1, name=f"{name}.fc2")(scale)
    return Hardsigmoid(name=f"{name}.scale_activation")(scale) * x


def normed(x, outputs, kernel, stride=1, activation=None, name=None):
    """A convolution, a batch norm and an optional activation. Without ``outputs`` the convolution is depthwise."""
    if outputs is None:
        x = DepthwiseConv2d(kernel, stride, kernel // 2, bias=False, name=f"{name}.0")(x)
    else:
        x = Conv2d(outputs, kernel, stride, kernel // 2, bias=False, name=f"{name}.0")(x)
    x = BatchNorm2d(eps=1e-3, momentum=0.01, name=f"{name}.1")(x)
    return activation(name=f"{name}.2")(x) if activation else x


def inverted_residual(x, kernel, expanded, outputs, squeezed, hard_swish, stride, name):
    activation = Hardswish if hard_swish else layers.ReLU
    out, index = x, 0
    if expanded != x.shape[-1]:
        out = normed(out, expanded, 1, activation=activation, name=f"{name}.block.{index}")
        index += 1
    out = normed(out, None, kernel, stride, activation=activation, name=f"{name}.block.{index}")
    index += 1
    if squeezed:
        out = squeeze_excitation(out, squeezed, name=f"{name}.block.{index}")
        index += 1
    out = normed(out, outputs, 1, name=f"{name}.block.{index}")
    return out + x if stride == 1 and outputs == x.shape[-1] else out


def build(classes=1000, size=224):
    inputs = Input((size, size, 3), name="x")
    x = normed(inputs, 16, 3, 2, activation=Hardswish, name="features.0")
    for index, block in enumerate(BLOCKS, start=1):
        x = inverted_residual(x, *block, name=f"features.{index}")
    x = normed(x, 576, 1, activation=Hardswish, name=f"features.{len(BLOCKS) + 1}")
    x = AdaptiveAvgPool2d(1, name="avgpool")(x)
    x = Flatten()(x)
    x = layers.Dense(1024, name="classifier.0")(x)
    x = Hardswish(name="classifier.1")(x)
    x = layers.Dropout(0.2, name="classifier.2")(x)
    x = layers.Dense(classes, name="classifier.3")(x)
    return Model(inputs, x, name="mobilenet-v3-small")
