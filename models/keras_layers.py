"""Keras layers that compute the same as torch's layers of the same name, with one layer object for one torch module.

Give each layer the canonical (torch's) name of its module: ``Conv2d(64, 7, 2, 3, name="conv1")``. The layers use Keras alone, so
they run on any of its backends. Images are N,H,W,C. A user's own model files may import them.
"""

from __future__ import annotations

from typing import Any

from keras import layers, ops


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _padded(shape: Any, pad: tuple[int, int]) -> tuple[Any, ...]:
    """A shape N,H,W,C enlarged on every side. pad: rows and columns per side. An unknown size stays unknown."""
    height, width = (size and size + 2 * more for size, more in zip(shape[1:3], pad))
    return (shape[0], height, width, shape[3])


class _Padded:
    """The part of a layer that first pads both sides of an image equally; Keras' "same" may pad one side more.

    pad: rows and columns per side. fill: the value of the padding; None: zero.
    """

    pad: tuple[int, int]
    fill: float | None = None

    def call(self, x: Any) -> Any:
        if any(self.pad):
            x = ops.pad(x, [[0, 0], [self.pad[0]] * 2, [self.pad[1]] * 2, [0, 0]], constant_values=self.fill)
        return super().call(x)  # type: ignore[misc]  # of the layer

    def compute_output_shape(self, shape: Any) -> Any:
        return super().compute_output_shape(_padded(shape, self.pad))  # type: ignore[misc]  # of the layer


class Conv2d(_Padded, layers.Conv2D):
    """torch.nn.Conv2d."""

    def __init__(
        self, filters: int, kernel: Any, stride: Any = 1, padding: Any = 0, bias: bool = True, **more: Any
    ) -> None:
        super().__init__(filters, kernel, stride, use_bias=bias, **more)
        self.pad = _pair(padding)


class DepthwiseConv2d(_Padded, layers.DepthwiseConv2D):
    """torch.nn.Conv2d(channels, channels, groups=channels): one filter per channel."""

    def __init__(self, kernel: Any, stride: int = 1, padding: Any = 0, bias: bool = True, **more: Any) -> None:
        super().__init__(kernel, stride, use_bias=bias, **more)
        self.pad = _pair(padding)


class ConvTranspose2d(layers.Conv2DTranspose):
    """torch.nn.ConvTranspose2d. padding: rows and columns that are removed from every side of the result."""

    def __init__(self, filters: int, kernel: int, stride: int = 1, padding: int = 0, **more: Any) -> None:
        if kernel < stride:
            raise ValueError(
                f"kernel {kernel} is below stride {stride}: the size of the result would differ from torch's"
            )
        super().__init__(filters, kernel, stride, **more)
        self.pad = padding

    def call(self, x: Any) -> Any:
        x, pad = super().call(x), self.pad
        return x[:, pad:-pad, pad:-pad] if pad else x

    def compute_output_shape(self, shape: Any) -> Any:
        return _padded(super().compute_output_shape(shape), (-self.pad, -self.pad))


class BatchNorm2d(layers.BatchNormalization):
    """torch.nn.BatchNorm2d. torch's momentum 0.1 is the weight of the new value, Keras' 0.9 that of the old one."""

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, **more: Any) -> None:
        super().__init__(momentum=1 - momentum, epsilon=eps, **more)


class MaxPool2d(_Padded, layers.MaxPooling2D):
    """torch.nn.MaxPool2d. It pads with minus infinity."""

    fill = float("-inf")

    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0, **more: Any) -> None:
        super().__init__(kernel, stride or kernel, **more)
        self.pad = _pair(padding)


class AdaptiveAvgPool2d(layers.Layer):
    """torch.nn.AdaptiveAvgPool2d, for images whose size is a multiple of the result's size."""

    def __init__(self, size: int, **more: Any) -> None:
        super().__init__(**more)
        self.size = size

    def build(self, shape: Any) -> None:
        if any(side < self.size or side % self.size for side in shape[1:3]):
            raise ValueError(f"{self.name}: {shape[1]}×{shape[2]} is not a multiple of {self.size}×{self.size}")

    def call(self, x: Any) -> Any:
        window = (x.shape[1] // self.size, x.shape[2] // self.size)
        if self.size == 1:
            return ops.mean(x, (1, 2), keepdims=True)
        return x if window == (1, 1) else ops.average_pool(x, window, window)


class Hardsigmoid(layers.Layer):
    """torch.nn.Hardsigmoid. Its slope is 1/6; that of Keras 2 was 1/5."""

    def call(self, x: Any) -> Any:
        return ops.relu6(x + 3) / 6


class Hardswish(layers.Layer):
    """torch.nn.Hardswish."""

    def call(self, x: Any) -> Any:
        return x * ops.relu6(x + 3) / 6


class Flatten(layers.Layer):
    """torch.flatten(x, 1) of an image, in the order C,H,W, so that the next linear layer has torch's order of columns."""

    def call(self, x: Any) -> Any:
        return ops.reshape(ops.transpose(x, (0, 3, 1, 2)), (ops.shape(x)[0], x.shape[1] * x.shape[2] * x.shape[3]))


class GELU(layers.Layer):
    """torch.nn.GELU() with the error function, not with the tanh approximation."""

    def call(self, x: Any) -> Any:
        return ops.gelu(x, approximate=False)


class LSTM(layers.LSTM):
    """One layer of torch.nn.LSTM(batch_first=True), with zeros as initial state. It returns the whole sequence.

    torch's module "lstm" corresponds to one object ``LSTM(hidden, layer, name="lstm")`` for each of its layers. With
    ``bidirectional=True`` in torch, a second object ``LSTM(hidden, layer, name="lstm", backwards=True)`` stands behind each of
    them; it returns its sequence from the last step to the first.
    """

    def __init__(self, hidden: int, layer: int = 0, name: str = "lstm", backwards: bool = False, **more: Any) -> None:
        ending = f"l{layer}_reverse" if backwards else f"l{layer}"
        super().__init__(hidden, return_sequences=True, go_backwards=backwards, name=f"{name}.{ending}", **more)
        self.canonical_name, self.ending = name, ending

    @property
    def canonical_weights(self) -> dict[str, tuple[str, tuple[int, ...] | None]]:
        return {
            "kernel": (f"weight_ih_{self.ending}", (1, 0)),
            "recurrent_kernel": (f"weight_hh_{self.ending}", (1, 0)),
            "bias": (f"bias_{self.ending}", None),
        }

    @property
    def canonical_sums(self) -> dict[str, tuple[str, ...]]:
        return {f"bias_{self.ending}": (f"bias_ih_{self.ending}", f"bias_hh_{self.ending}")}


class Position(layers.Layer):
    """Adds a learned vector to every position."""

    canonical_weights = {"weight": ("weight", None)}

    def build(self, shape: Any) -> None:
        self.weight = self.add_weight(shape=shape[1:], initializer="random_normal", name="weight")

    def call(self, x: Any) -> Any:
        return x + self.weight


def attention(x: Any, heads: int, softmax: Any, name: str) -> Any:
    """Self-attention with separate projections. softmax: the class of the layer that is applied to the scores."""
    length, dim = x.shape[1:]

    def split(x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (-1, length, heads, dim // heads)), (0, 2, 1, 3))

    q = split(layers.Dense(dim, name=f"{name}.q")(x))
    k = split(layers.Dense(dim, name=f"{name}.k")(x))
    v = split(layers.Dense(dim, name=f"{name}.v")(x))
    scores = q @ ops.transpose(k, (0, 1, 3, 2)) / (dim // heads) ** 0.5
    x = softmax(name=f"{name}.softmax")(scores) @ v
    x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, length, dim))
    return layers.Dense(dim, name=f"{name}.proj")(x)


def block(x: Any, heads: int, softmax: Any, eps: float, name: str) -> Any:
    """Attention and two linear layers, each behind a layer norm and beside a residual connection."""
    dim = x.shape[-1]
    out = layers.LayerNormalization(epsilon=eps, name=f"{name}.ln1")(x)
    x = x + attention(out, heads, softmax, f"{name}.attn")
    out = layers.LayerNormalization(epsilon=eps, name=f"{name}.ln2")(x)
    out = layers.Dense(4 * dim, name=f"{name}.fc1")(out)
    out = GELU(name=f"{name}.gelu")(out)
    return x + layers.Dense(dim, name=f"{name}.fc2")(out)
