"""What goes wrong in ports: for a layer, the ways in which another framework, or a porter, computes something else.

One list for two uses. An explanation asks which entry turns the reference's layer into what was captured; a mutation plants an
entry in a model and asks whether the verdict notices. Entries compute like the layer's ``forward``, in the layer's dtype.

Sources: torch's, Keras' and TensorFlow's own documentation of defaults and conventions, and the porting faults of the trials that
``rule`` names.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Alternative:
    """kind: the fault's name. says: a clause for the report. forward: takes (layer, its forward, its arguments…).

    rounding: right, but in another precision.
    """

    kind: str
    says: str
    forward: Forward
    rounding: bool = False


def alternatives(layer: nn.Module) -> Iterator[Alternative]:
    """Every entry for this layer, the likelier first."""
    for kinds, entries in TABLE:
        if isinstance(layer, kinds):
            yield from entries(layer)
    yield from _weights(layer)
    yield from _any(layer)


def faults(layer: nn.Module) -> list[Alternative]:
    """The entries that a mutation may plant: all alternatives, and what an explanation knows by its form alone."""
    return [*alternatives(layer), *_planted_only(layer)]


def plant(layer: nn.Module, index: int) -> None:
    """Make the layer compute its fault of this index; deleting its attribute ``forward`` ends that."""
    entry, original = faults(layer)[index], layer.forward
    object.__setattr__(layer, "forward", lambda *args, **kwargs: entry.forward(layer, original, *args, **kwargs))


# -- tools ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _attributes(layer: nn.Module, **values: Any) -> Iterator[None]:
    old = {key: getattr(layer, key) for key in values}
    for key, value in values.items():
        setattr(layer, key, value)
    try:
        yield
    finally:
        for key, value in old.items():
            setattr(layer, key, value)


def _with(**values: Any) -> Forward:
    """The layer with other attributes."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        with _attributes(layer, **values):
            return original(*args, **kwargs)

    return forward


def _weight(name: str, change: Callable[[Tensor], Tensor]) -> Forward:
    """The layer with one weight changed, and put back."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        tensor = getattr(layer, name)
        saved = tensor.detach().clone()
        tensor.data.copy_(change(saved.clone()))
        try:
            return original(*args, **kwargs)
        finally:
            tensor.data.copy_(saved)

    return forward


def _both(*forwards: Forward) -> Forward:
    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        for outer in forwards[:-1]:
            inner = original
            original = _bound(outer, layer, inner)
        return forwards[-1](layer, original, *args, **kwargs)

    return forward


def _bound(outer: Forward, layer: nn.Module, inner: Forward) -> Forward:
    return lambda *args, **kwargs: outer(layer, inner, *args, **kwargs)


def _function(compute: Callable[..., Any]) -> Forward:
    """Something else than the layer's forward, of (layer, *args)."""
    return lambda layer, original, *args, **kwargs: compute(layer, *args, **kwargs)


def _given(change: Callable[[Tensor], Tensor]) -> Forward:
    """The layer on a changed input."""
    return lambda layer, original, x, *args, **kwargs: original(change(x), *args, **kwargs)


def _result(change: Callable[[Tensor], Tensor]) -> Forward:
    """The layer's first result, changed."""

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)

    return forward


# -- kinds of layers --------------------------------------------------------------------------------------------------

EPSILONS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-4, 1e-12, 1e-2, 0.0)


def _epsilon(layer: Any) -> Iterator[Alternative]:
    for eps in EPSILONS:
        if eps != layer.eps:
            yield Alternative("eps", f"behaves as eps={eps:g}; the reference has {layer.eps:g}", _with(eps=eps))


def _batch_norm(layer: Any) -> Iterator[Alternative]:
    yield from _epsilon(layer)
    if layer.running_mean is None:
        return
    shape = (1, -1) + (1,) * 2

    def view(tensor: Tensor, x: Tensor) -> Tensor:
        return tensor.view(shape[: x.dim()])

    def by_variance(layer: Any, x: Tensor) -> Tensor:
        y = (x - view(layer.running_mean, x)) / (view(layer.running_var, x) + layer.eps)
        return y * view(layer.weight, x) + view(layer.bias, x) if layer.affine else y

    yield Alternative(
        "running mean missing", "does not subtract the running mean", _weight("running_mean", torch.zeros_like)
    )
    yield Alternative(
        "running variance missing", "does not divide by the running variance", _weight("running_var", torch.ones_like)
    )
    yield Alternative(
        "variance for deviation", "divides by the variance, not by its square root", _function(by_variance)
    )
    yield Alternative(
        "batch statistics", "normalises by the batch's statistics, as in training",
        _function(lambda layer, x: F.batch_norm(x, None, None, layer.weight, layer.bias, True, 0.0, layer.eps)),
    )  # fmt: skip
    yield Alternative(
        "variance's Bessel correction", "its running variance is n/(n-1) as large, n of 8 to 64", _bessel_running()
    )


def _bessel_running() -> Forward:
    return _weight("running_var", lambda variance: variance * 32 / 31)


def _layer_norm(layer: Any) -> Iterator[Alternative]:
    yield from _epsilon(layer)
    dims = tuple(range(-len(layer.normalized_shape), 0))

    def affine(layer: Any, y: Tensor) -> Tensor:
        y = y if layer.weight is None else y * layer.weight
        return y if layer.bias is None else y + layer.bias

    def unbiased(layer: Any, x: Tensor) -> Tensor:
        return affine(layer, (x - x.mean(dims, keepdim=True)) / (x.var(dims, keepdim=True) + layer.eps).sqrt())

    def outside(layer: Any, x: Tensor) -> Tensor:
        deviation = x.var(dims, unbiased=False, keepdim=True).sqrt()
        return affine(layer, (x - x.mean(dims, keepdim=True)) / (deviation + layer.eps))

    def one_pass(layer: Any, x: Tensor) -> Tensor:
        single = x.float()
        mean = single.mean(dims, keepdim=True)
        variance = single.square().mean(dims, keepdim=True) - mean.square()
        return affine(layer, (x - mean.to(x.dtype)) / (variance.to(x.dtype) + layer.eps).sqrt())

    yield Alternative("unbiased variance", "divides by the variance over n-1 values, not n", _function(unbiased))
    yield Alternative("eps outside the root", "adds eps to the deviation, not to the variance", _function(outside))
    yield Alternative(
        "one-pass variance",
        "computes the variance in one pass, E[x²]-E[x]², which loses digits",
        _function(one_pass),
        True,
    )
    yield Alternative(
        "mean missing", "divides by the root mean square and subtracts no mean (RMSNorm)",
        _function(lambda layer, x: affine(layer, x / (x.square().mean(dims, keepdim=True) + layer.eps).sqrt())),
    )  # fmt: skip


def _conv(layer: Any) -> Iterator[Alternative]:
    spatial = len(layer.kernel_size)
    weight = layer.weight
    if spatial == 2 and layer.kernel_size[0] == layer.kernel_size[1] > 1:
        yield Alternative(
            "kernel transposed",
            "its kernel has height and width exchanged",
            _weight("weight", lambda w: w.transpose(2, 3)),
        )
    if max(layer.kernel_size) > 1:
        dims = tuple(range(2, 2 + spatial))
        yield Alternative(
            "kernel flipped", "its kernel is turned by half a circle", _weight("weight", lambda w: w.flip(dims))
        )
    if weight.shape[0] == weight.shape[1] > 1:
        yield Alternative(
            "channels transposed",
            "its kernel has input and output channels exchanged",
            _weight("weight", lambda w: w.transpose(0, 1)),
        )
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        return
    if weight.shape[1] > 1:
        yield Alternative(
            "input channels reversed",
            "takes its input channels in reverse order, as BGR for RGB",
            _weight("weight", lambda w: w.flip(1)),
        )
    if spatial == 2 and isinstance(layer.padding, tuple) and any(layer.padding):
        for before, what in ((-1, "one less before and one more behind"), (1, "one more before and one less behind")):
            yield Alternative(
                "asymmetric padding",
                f'pads {what} each axis, as "same" does at a stride of 2',
                _function(_shifted(before)),
            )
        for mode, pad in (("reflect", "reflect"), ("replicate", "replicate"), ("circular", "circular")):
            if layer.padding_mode != mode:
                yield Alternative(
                    "padding mode", f"pads by {mode}; the reference by {layer.padding_mode}", _function(_padded(pad))
                )
    for stride in (1, 2):
        if spatial == 2 and layer.stride[0] != stride:
            yield Alternative(
                "stride", f"has stride {stride}; the reference {layer.stride[0]}", _with(stride=(stride, stride))
            )


def _shifted(before: int) -> Callable[..., Tensor]:
    def compute(layer: Any, x: Tensor) -> Tensor:
        height, width = layer.padding
        x = F.pad(x, (width + before, width - before, height + before, height - before))
        return F.conv2d(x, layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)

    return compute


def _padded(mode: str) -> Callable[..., Tensor]:
    def compute(layer: Any, x: Tensor) -> Tensor:
        height, width = layer.padding
        x = F.pad(x, (width, width, height, height), mode=mode)
        return F.conv2d(x, layer.weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)

    return compute


def _linear(layer: Any) -> Iterator[Alternative]:
    if layer.weight.shape[0] == layer.weight.shape[1]:
        yield Alternative("weight transposed", "its weight is transposed", _weight("weight", lambda w: w.T))


def _max_pool(layer: Any) -> Iterator[Alternative]:
    yield Alternative(
        "ceil_mode",
        f"has ceil_mode={not layer.ceil_mode}; the reference {layer.ceil_mode}",
        _with(ceil_mode=not layer.ceil_mode),
    )
    padding = layer.padding if isinstance(layer.padding, tuple) else (layer.padding,) * 2
    if any(padding):
        around = (padding[1], padding[1], padding[0], padding[0])
        yield Alternative(
            "zero padding",
            "pads with zeros, not with minus infinity",
            _both(_given(lambda x: F.pad(x, around)), _with(padding=0)),
        )
    yield Alternative(
        "average for maximum", "takes the average, not the maximum",
        _function(lambda layer, x: F.avg_pool2d(x, layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode)),
    )  # fmt: skip


def _avg_pool(layer: Any) -> Iterator[Alternative]:
    yield Alternative(
        "ceil_mode",
        f"has ceil_mode={not layer.ceil_mode}; the reference {layer.ceil_mode}",
        _with(ceil_mode=not layer.ceil_mode),
    )
    counted = not layer.count_include_pad
    yield Alternative(
        "padding counted",
        f"{'counts' if counted else 'leaves out'} the padding in its averages",
        _with(count_include_pad=counted),
    )


def _adaptive(layer: Any) -> Iterator[Alternative]:
    yield Alternative(
        "maximum for average",
        "takes the maximum, not the average",
        _function(lambda layer, x: F.adaptive_max_pool2d(x, layer.output_size)),
    )
    yield Alternative(
        "sum for average",
        "sums, and does not average",
        _result_of_input(lambda x, y: y * (x.shape[2] * x.shape[3] / (y.shape[2] * y.shape[3]))),
    )


def _result_of_input(change: Callable[[Tensor, Tensor], Tensor]) -> Forward:
    return lambda layer, original, x: change(x, original(x))


def _upsample(layer: Any) -> Iterator[Alternative]:
    def resize(**values: Any) -> Forward:
        def compute(layer: Any, x: Tensor) -> Tensor:
            settings = {
                "size": layer.size,
                "scale_factor": layer.scale_factor,
                "mode": layer.mode,
                "align_corners": layer.align_corners,
            }
            return F.interpolate(x, **{**settings, **values})

        return _function(compute)

    if layer.mode == "bilinear":
        other = not layer.align_corners
        yield Alternative(
            "align_corners",
            f"has align_corners={other}; the reference {bool(layer.align_corners)}",
            resize(align_corners=other),
        )
        yield Alternative(
            "nearest for bilinear",
            "takes the nearest value, not the bilinear mean",
            resize(mode="nearest", align_corners=None),
        )
        yield Alternative("bicubic for bilinear", "interpolates bicubically", resize(mode="bicubic"))
    elif layer.mode == "nearest":
        yield Alternative(
            "bilinear for nearest", "interpolates bilinearly", resize(mode="bilinear", align_corners=False)
        )
        yield Alternative("nearest rounding", "rounds to the nearest value, not down", resize(mode="nearest-exact"))


def _softmax(layer: Any) -> Iterator[Alternative]:
    for dim in [dim for dim in (-2, 1, 0, -1) if dim != layer.dim]:
        yield Alternative(
            "softmax axis",
            f"normalises over axis {dim}; the reference over {layer.dim}",
            _function(lambda layer, x, dim=dim: x.softmax(dim)),
        )
    yield Alternative("softmax missing", "hands on its input", _function(lambda layer, x: x))
    yield Alternative(
        "log-softmax", "takes the logarithm of the softmax", _function(lambda layer, x: x.log_softmax(layer.dim))
    )


# Activations that are mistaken for one another: name -> function.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
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


def _activation(layer: nn.Module) -> Iterator[Alternative]:
    own = type(layer).__name__
    for name, function in ACTIVATIONS.items():
        if name != own and not (own == "GELU" and name.startswith("GELU by the error") and layer.approximate == "none"):
            kind = (
                "activation slope"
                if "slope" in name or "Leaky" in name
                else "GELU form"
                if own == name[:4] == "GELU"
                else "another activation"
            )
            yield Alternative(
                kind,
                f"computes {name}; the reference {own}",
                _function(lambda layer, x, function=function: function(x)),
            )


def _embedding(layer: Any) -> Iterator[Alternative]:
    scale = layer.embedding_dim**0.5
    yield Alternative("index off by one", "looks up the row before", _weight("weight", lambda w: w.roll(1, 0)))
    yield Alternative("index off by one", "looks up the row after", _weight("weight", lambda w: w.roll(-1, 0)))
    yield Alternative(
        "embedding scaled", f"multiplies by the root of the width, {scale:.4g}", _result(lambda y: y * scale)
    )


def _flatten(layer: Any) -> Iterator[Alternative]:
    def channels_last(layer: Any, x: Tensor) -> Tensor:
        return x.movedim(1, -1).flatten(layer.start_dim, layer.end_dim)

    yield Alternative("NHWC flatten", "flattens in the order H,W,C; the reference in C,H,W", _function(channels_last))


def _dropout(layer: Any) -> Iterator[Alternative]:
    def drop(layer: Any, x: Tensor) -> Tensor:
        return F.dropout(x, layer.p, training=True)

    yield Alternative("dropout left on", "drops values at random: it is in training mode", _function(drop))


GATES = {4: ("i", "f", "g", "o"), 3: ("r", "z", "n")}


def _recurrent(layer: nn.Module) -> Iterator[Alternative]:
    """Gates in another order, and their biases. Rows of the weights are the gates, one below the other."""
    count = gates(layer)
    if count is None:
        return
    names = GATES[count]
    parameters = [name for name, _ in layer.named_parameters(recurse=False)]

    def arranged(order: tuple[int, ...]) -> Forward:
        return _both(*(_weight(name, lambda w: torch.cat([w.chunk(count)[i] for i in order])) for name in parameters))

    likely = [(0, 1, 3, 2), (0, 2, 1, 3), (0, 3, 1, 2)] if count == 4 else [(1, 0, 2)]
    orders = likely + [order for order in itertools.permutations(range(count)) if order not in likely]
    for order in orders:
        if order != tuple(range(count)):
            written = ", ".join(names[i] for i in order)
            yield Alternative(
                "gate order",
                f"takes the rows of its gates in the order {written}; the reference in {', '.join(names)}",
                arranged(order),
            )
    biases = [name for name in parameters if "bias" in name]
    for part in ("ih", "hh"):
        found = [name for name in biases if f"bias_{part}" in name]
        if found:
            yield Alternative(
                f"bias_{part} missing",
                f"has no bias_{part}",
                _both(*(_weight(name, torch.zeros_like) for name in found)),
            )
            yield Alternative(
                f"bias_{part} doubled",
                f"adds bias_{part} twice",
                _both(*(_weight(name, lambda b: 2 * b) for name in found)),
            )
    first = [name for name in biases if "bias_ih" in name]
    if count == 4 and first:

        def forget(bias: Tensor) -> Tensor:
            bias.chunk(4)[1].add_(1.0)
            return bias

        yield Alternative(
            "forget bias", "adds 1 to the forget gate's bias", _both(*(_weight(name, forget) for name in first))
        )


def gates(layer: nn.Module) -> int | None:
    """How many gates the layer's weights hold, one below the other; None for other layers."""
    if isinstance(layer, (nn.LSTM, nn.LSTMCell)):
        return 4
    if isinstance(layer, (nn.GRU, nn.GRUCell)):
        return 3
    own = dict(layer.named_parameters(recurse=False))
    hidden = own["weight_hh"].shape[1] if "weight_hh" in own and own["weight_hh"].dim() == 2 else 0
    return 4 if hidden and own["weight_hh"].shape[0] == 4 * hidden else None


TABLE: tuple[tuple[Any, Callable[[Any], Iterator[Alternative]]], ...] = (
    (nn.modules.batchnorm._BatchNorm, _batch_norm),
    (nn.LayerNorm, _layer_norm),
    ((nn.GroupNorm, nn.modules.instancenorm._InstanceNorm), _epsilon),
    (nn.modules.conv._ConvNd, _conv),
    (nn.Linear, _linear),
    (nn.MaxPool2d, _max_pool),
    (nn.AvgPool2d, _avg_pool),
    (nn.AdaptiveAvgPool2d, _adaptive),
    (nn.Upsample, _upsample),
    (nn.Softmax, _softmax),
    (
        (
            nn.ReLU,
            nn.ReLU6,
            nn.LeakyReLU,
            nn.GELU,
            nn.SiLU,
            nn.Hardswish,
            nn.Hardsigmoid,
            nn.Sigmoid,
            nn.Tanh,
            nn.ELU,
            nn.Softplus,
        ),
        _activation,
    ),
    (nn.Embedding, _embedding),
    (nn.Flatten, _flatten),
    ((nn.Dropout, nn.Dropout2d), _dropout),
    (nn.Module, _recurrent),
)


# -- any layer --------------------------------------------------------------------------------------------------------


def _weights(layer: nn.Module) -> Iterator[Alternative]:
    """A weight left out, taken twice, shifted by a row, or transposed, whatever the layer."""
    if gates(layer) is not None:
        return
    for name, weight in layer.named_parameters(recurse=False):
        if weight.dim() == 1:
            scale = name.endswith("weight")
            yield Alternative(
                f"{name} missing", f"has no {name}", _weight(name, torch.ones_like if scale else torch.zeros_like)
            )
            if not scale:
                yield Alternative(f"{name} doubled", f"adds its {name} twice", _weight(name, lambda b: 2 * b))
        elif type(layer).__module__.split(".")[0] != "torch":
            yield Alternative("table shifted", f"its {name} is moved by one row", _weight(name, lambda w: w.roll(1, 0)))
            yield Alternative(
                "table shifted", f"its {name} is moved back by one row", _weight(name, lambda w: w.roll(-1, 0))
            )
            yield Alternative(f"{name} missing", f"does not use its {name}", _weight(name, torch.zeros_like))
    sizes = {name: weight.shape for name, weight in layer.named_parameters(recurse=False) if weight.dim() == 1}
    if {"weight", "bias"} <= set(sizes):

        def exchange(layer: Any, original: Forward, *args: Any, **kwargs: Any) -> Any:
            weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
            return _both(_weight("weight", lambda _: bias), _weight("bias", lambda _: weight))(
                layer, original, *args, **kwargs
            )

        yield Alternative("scale and shift exchanged", "has weight and bias exchanged", exchange)


def _any(layer: nn.Module) -> Iterator[Alternative]:
    weighted = any(True for _ in layer.parameters(recurse=False))
    for dtype, name in ((torch.float16, "float16"), (torch.bfloat16, "bfloat16"), ("tf32", "TF32")):
        if weighted:
            yield Alternative(
                f"{name} weights", f"has its weights rounded to {name}", _rounded(dtype, inputs=False), rounding=True
            )
        if not isinstance(layer, nn.Embedding):  # its inputs are whole numbers
            yield Alternative(
                f"{name} arithmetic",
                f"rounds its weights and inputs to {name}",
                _rounded(dtype, inputs=True),
                rounding=True,
            )
    yield Alternative("layer skipped", "hands on its input unchanged", _function(lambda layer, x, *more: x))


def _planted_only(layer: nn.Module) -> Iterator[Alternative]:
    yield Alternative("scaled", "its result is 1.0001 times the reference's", _result(lambda y: y * (1 + 1e-4)))
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        yield Alternative("momentum", "has momentum 0.9 for 0.1", _with(momentum=0.9))
    for name, weight in layer.named_parameters(recurse=False):
        if weight.dim() > 1:
            yield Alternative("one stale weight", f"one value of its {name} is stale", _weight(name, _stale))
    if (
        type(layer).__module__.split(".")[0] != "torch"
        and len(inspect.signature(layer.forward).parameters) == 2
        and not any(True for _ in layer.parameters())
    ):
        yield Alternative("tied weights untied", "has a matrix of its own for one that is shared", _untied)


def _stale(weight: Tensor) -> Tensor:
    """One value in the middle moved by a deviation of all."""
    flat = weight.flatten()
    flat[flat.numel() // 2] += weight.std()
    return flat.view_as(weight)


def _untied(layer: nn.Module, original: Forward, x: Tensor, weight: Tensor) -> Any:
    return original(
        x, weight + 0.1 * weight.std() * torch.cos(torch.arange(weight.numel(), dtype=weight.dtype)).view_as(weight)
    )


def _rounded(dtype: Any, inputs: bool) -> Forward:
    def change(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        if dtype == "tf32":  # ten bits behind the first
            bits = tensor.float().view(torch.int32)
            return (((bits + 0x1000) // 0x2000) * 0x2000).view(torch.float32).to(tensor.dtype)
        return tensor.to(dtype).to(tensor.dtype)

    def forward(layer: nn.Module, original: Forward, *args: Any, **kwargs: Any) -> Any:
        names = [name for name, _ in layer.named_parameters(recurse=False)]
        if not names and not inputs:
            return original(*args, **kwargs)
        if inputs:
            args = tuple(change(arg) if isinstance(arg, Tensor) else arg for arg in args)
        wrapped = _both(*(_weight(name, change) for name in names), lambda layer, inner, *a, **k: inner(*a, **k))
        return wrapped(layer, original, *args, **kwargs)

    return forward
