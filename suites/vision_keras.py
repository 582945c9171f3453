"""Writes an architecture of torchvision as a Keras file with the same weights, images with the channels last.

python suites/vision_keras.py NAME FILE.keras
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from vision_export import BATCH, build

from xverify.frameworks.torch.torchvision import declare_torchvision_ops

NEAR = 1e-4  # the outputs of the file are as near to those of torch as this share of their size


class Layers:
    """Makes the Keras layer of each module of torch. All take and return images with the channels last."""

    def __init__(self) -> None:
        import keras

        self.keras = keras
        self.weights: list[tuple[Any, list[Any]]] = []  # the layers and their weights, set when the model is complete

    def _weighed(self, layer: Any, *weights: Any) -> Any:
        self.weights.append((layer, [each.detach().numpy() for each in weights if each is not None]))
        return layer

    def conv(self, module: nn.Conv2d, x: Any) -> Any:
        layers, (down, right) = self.keras.layers, module.padding
        if down or right:
            x = layers.ZeroPadding2D((down, right))(x)
        settings = {"strides": module.stride, "dilation_rate": module.dilation, "use_bias": module.bias is not None}
        if module.groups == module.in_channels == module.out_channels and module.groups > 1:
            made = layers.DepthwiseConv2D(module.kernel_size, **settings)
            return self._weighed(made, module.weight.permute(2, 3, 0, 1), module.bias)(x)
        made = layers.Conv2D(module.out_channels, module.kernel_size, groups=module.groups, **settings)
        return self._weighed(made, module.weight.permute(2, 3, 1, 0), module.bias)(x)

    def norm(self, module: nn.BatchNorm2d, x: Any) -> Any:
        made = self.keras.layers.BatchNormalization(epsilon=module.eps)
        return self._weighed(made, module.weight, module.bias, module.running_mean, module.running_var)(x)

    def linear(self, module: nn.Linear, x: Any) -> Any:
        return self._weighed(self.keras.layers.Dense(module.out_features), module.weight.T, module.bias)(x)

    def pool(self, module: nn.MaxPool2d | nn.AvgPool2d, x: Any) -> Any:
        """A pooling. Zeros take the place of the padding of a maximum, because all of them stand behind a ReLU here."""
        layers, largest = self.keras.layers, isinstance(module, nn.MaxPool2d)
        padding, size = int(module.padding), int(module.kernel_size)
        if padding:
            assert largest
            x = layers.ZeroPadding2D(padding)(x)
        return (layers.MaxPooling2D if largest else layers.AveragePooling2D)(size, int(module.stride))(x)

    def mean(self, x: Any, *_: Any, **__: Any) -> Any:
        return self.keras.layers.GlobalAveragePooling2D(keepdims=True)(x)

    def flat(self, x: Any, *_: Any, **__: Any) -> Any:
        return self.keras.layers.Flatten()(x)

    def activation(self, name: str) -> Callable[[Any, Any], Any]:
        return lambda _, x: self.keras.layers.Activation(name)(x)

    def modules(self) -> Mapping[type[nn.Module], Callable[[Any, Any], Any]]:
        names = {
            nn.ReLU: "relu", nn.ReLU6: "relu6", nn.Hardswish: "hard_swish", nn.Hardsigmoid: "hard_sigmoid",
            nn.SiLU: "silu", nn.Sigmoid: "sigmoid",
        }  # fmt: skip
        return {
            **{kind: self.activation(name) for kind, name in names.items()},
            nn.Conv2d: self.conv,
            nn.BatchNorm2d: self.norm,
            nn.Linear: self.linear,
            nn.MaxPool2d: self.pool,
            nn.AvgPool2d: self.pool,
            nn.AdaptiveAvgPool2d: lambda _, x: self.mean(x),
        }

    def functions(self) -> Mapping[Any, Callable[..., Any]]:
        from torchvision.models.shufflenetv2 import channel_shuffle
        from torchvision.ops.stochastic_depth import stochastic_depth

        layers = self.keras.layers
        return {
            operator.add: lambda a, b: layers.Add()([a, b]),
            operator.mul: lambda a, b: layers.Multiply()([a, b]),
            operator.getitem: operator.getitem,
            torch.cat: lambda parts, *_, **__: layers.Concatenate()(list(parts)) if len(parts) > 1 else parts[0],
            torch.flatten: self.flat,
            "flatten": self.flat,
            nn.functional.relu: lambda x, **_: layers.Activation("relu")(x),
            nn.functional.adaptive_avg_pool2d: self.mean,
            channel_shuffle: self.shuffle,
            stochastic_depth: lambda x, *_, **__: x,
            "chunk": lambda x, count, **_: self.keras.ops.split(x, count, axis=-1),
            "mean": lambda x, *_: self.flat(self.mean(x)),
        }

    def shuffle(self, x: Any, groups: int) -> Any:
        layers, (_, down, right, count) = self.keras.layers, x.shape
        x = layers.Reshape((down, right, groups, count // groups))(x)
        return layers.Reshape((down, right, count))(layers.Permute((1, 2, 4, 3))(x))


def translated(model: nn.Module, size: int) -> Any:
    """The Keras model of a module of torch that takes images of this size."""
    from torchvision.models.shufflenetv2 import channel_shuffle

    tracer = fx.Tracer(autowrap_functions=(channel_shuffle,))
    graph, layers = tracer.trace(model), Layers()
    modules, functions = layers.modules(), layers.functions()
    values: dict[Any, Any] = {}
    for node in graph.nodes:
        given = fx.node.map_arg(node.args, values.__getitem__)
        more = fx.node.map_arg(node.kwargs, values.__getitem__)
        if node.op == "placeholder":
            values[node] = layers.keras.Input((size, size, 3), batch_size=BATCH, name="x")
        elif node.op == "output":
            made = layers.keras.Model(next(iter(values.values())), given[0])
        elif node.op == "call_module":
            module = model.get_submodule(node.target)
            values[node] = modules.get(type(module), _copied)(module, *given)
        else:
            values[node] = functions[node.target](*given, **more)
    for layer, weights in layers.weights:
        layer.set_weights(weights)
    return made


def _copied(module: nn.Module, x: Any) -> Any:
    """Dropout and its like, which do nothing in evaluation mode."""
    assert type(module).__name__ in ("Dropout", "Identity", "StochasticDepth"), type(module)
    return x


def main(name: str, file: Path) -> None:
    """Write the file. Its outputs are compared with torch's first."""
    declare_torchvision_ops(torch)
    model, x = build(name)
    made = translated(model, x.shape[-1])
    with torch.no_grad():
        right = model(x).numpy()
    found = np.asarray(made(x.permute(0, 2, 3, 1).numpy(), training=False))
    away = float(np.abs(found - right).max() / np.abs(right).max())
    if away > NEAR:
        raise SystemExit(f"{name}: the Keras model is {away:.2g} away from that of torch")
    made.save(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
