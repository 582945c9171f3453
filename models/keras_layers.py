"""Keras layers that compute what torch's layers of the same name compute, one layer object for one torch module.

Give each the canonical (torch) name of the module it stands for: ``Conv2d(64, 7, 2, 3, name="conv1")``. They are plain Keras,
so they run on any of its backends, and images are N,H,W,C. A user's own folder may import them from here.
"""

from __future__ import annotations

from typing import Any

from keras import layers, ops


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


class Conv2d(layers.Conv2D):
    """torch.nn.Conv2d: padding on both sides alike, where Keras' "same" pads one side more at a stride of two."""

    def __init__(
        self, filters: int, kernel: Any, stride: Any = 1, padding: Any = 0, bias: bool = True, **more: Any
    ) -> None:
        super().__init__(filters, kernel, stride, use_bias=bias, **more)
        self.pad = _pair(padding)

    def call(self, x: Any) -> Any:
        if any(self.pad):
            x = ops.pad(x, [[0, 0], [self.pad[0]] * 2, [self.pad[1]] * 2, [0, 0]])
        return super().call(x)

    def compute_output_spec(self, x: Any, *args: Any, **more: Any) -> Any:
        return layers.Layer.compute_output_spec(self, x)


class BatchNorm2d(layers.BatchNormalization):
    """torch.nn.BatchNorm2d's constants: torch's momentum 0.1 weighs the new value, Keras' 0.9 the old one."""

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, **more: Any) -> None:
        super().__init__(momentum=1 - momentum, epsilon=eps, **more)


class MaxPool2d(layers.MaxPooling2D):
    """torch.nn.MaxPool2d: pads with minus infinity."""

    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0, **more: Any) -> None:
        super().__init__(kernel, stride or kernel, **more)
        self.pad = padding

    def call(self, x: Any) -> Any:
        if self.pad:
            x = ops.pad(x, [[0, 0], [self.pad] * 2, [self.pad] * 2, [0, 0]], constant_values=float("-inf"))
        return super().call(x)

    def compute_output_spec(self, x: Any) -> Any:
        return layers.Layer.compute_output_spec(self, x)


class Flatten(layers.Layer):
    """torch.flatten(x, 1) of an image: in the order C,H,W, so that the next linear layer's weight keeps its columns."""

    def call(self, x: Any) -> Any:
        return ops.reshape(ops.transpose(x, (0, 3, 1, 2)), (ops.shape(x)[0], x.shape[1] * x.shape[2] * x.shape[3]))
