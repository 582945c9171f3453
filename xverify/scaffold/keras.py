"""A first port to Keras, written from the operations of a reference in torch.

Each layer computes what torch's of the same kind computes, and has its name. A setting that no layer of Keras has ends the port.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..framework.outline import Outlined, Step
from ..workload.spec import BATCH, TensorSpec

WIDTH = 100  # characters of a line of a text in a port
IMAGE = 4  # axes of a batch of images, which Keras has as N,H,W,C
Settings = Mapping[str, Any]
Given = Sequence[int]  # number of axes of each result that a step takes


def _is(settings: Settings, **wanted: Any) -> bool:
    """Whether these settings have these values. A pair of equal numbers is the number."""
    return all(_one(settings.get(name)) == value for name, value in wanted.items())


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(set(value)) == 1 else value


def _shown(value: Any) -> str:
    value = _one(value)
    return repr(tuple(value) if isinstance(value, list) else value)


def _linear(s: Settings, given: Given) -> str | None:
    return f"layers.Dense({s['out_features']}{_without_bias(s, 'use_bias')}, NAME)" if given[0] != IMAGE else None


def _without_bias(s: Settings, name: str) -> str:
    return "" if s["bias"] else f", {name}=False"


def _conv(s: Settings, given: Given) -> str | None:
    if not _is(s, dilation=1, padding_mode="zeros") or isinstance(s["padding"], str):
        return None
    rest = f"{_shown(s['kernel_size'])}, {_shown(s['stride'])}, {_shown(s['padding'])}{_without_bias(s, 'bias')}, NAME)"
    if s["groups"] == 1:
        return f"like_torch.Conv2d({s['out_channels']}, {rest}"
    single = s["groups"] == s["in_channels"] == s["out_channels"] and isinstance(_one(s["stride"]), int)
    return f"like_torch.DepthwiseConv2d({rest}" if single else None


def _batch_norm(s: Settings, given: Given) -> str | None:
    if not _is(s, affine=True, track_running_stats=True) or s["momentum"] is None or given[0] not in (2, IMAGE):
        return None
    return f"like_torch.BatchNorm2d({s['eps']!r}, {s['momentum']!r}, NAME)"


def _layer_norm(s: Settings, given: Given) -> str | None:
    known = len(s["normalized_shape"]) == 1 and given[0] < IMAGE and s["elementwise_affine"] and s.get("bias", True)
    return f"layers.LayerNormalization(epsilon={s['eps']!r}, NAME)" if known else None


def _group_norm(s: Settings, given: Given) -> str | None:
    known = s["affine"] and given[0] == IMAGE
    return f"layers.GroupNormalization({s['num_groups']}, epsilon={s['eps']!r}, NAME)" if known else None


def _embedding(s: Settings, given: Given) -> str | None:
    known = _is(s, padding_idx=None, max_norm=None) and given[0] < IMAGE - 1  # its result would be taken for images
    return f"layers.Embedding({s['num_embeddings']}, {s['embedding_dim']}, NAME)" if known else None


def _max_pool(s: Settings, given: Given) -> str | None:
    single = all(isinstance(_one(s[name]), int) for name in ("kernel_size", "stride"))
    if not single or not _is(s, dilation=1, ceil_mode=False, return_indices=False):
        return None
    return f"like_torch.MaxPool2d({_shown(s['kernel_size'])}, {_shown(s['stride'])}, {_shown(s['padding'])}, NAME)"


def _avg_pool(s: Settings, given: Given) -> str | None:
    known = _is(s, padding=0, ceil_mode=False, divisor_override=None)
    return f"layers.AveragePooling2D({_shown(s['kernel_size'])}, {_shown(s['stride'])}, NAME)" if known else None


def _adaptive_pool(s: Settings, given: Given) -> str | None:
    size = _one(s["output_size"])
    return f"like_torch.AdaptiveAvgPool2d({size}, NAME)" if isinstance(size, int) else None


def _flatten(s: Settings, given: Given) -> str | None:
    arguments = [*s.get("args", ()), None, None]
    start, end = s.get("start_dim", arguments[0]), s.get("end_dim", arguments[1])
    if start != 1 or end not in (-1, None):
        return None
    return "like_torch.Flatten(NAME)" if given[0] == IMAGE else "layers.Flatten(NAME)"


def _gelu(s: Settings, given: Given) -> str | None:
    return (
        "like_torch.GELU(NAME)"
        if s.get("approximate", "none") == "none"
        else _activation("ops.gelu", "approximate=True")(s, given)
    )


def _activation(function: str, arguments: str = "") -> Callable[[Settings, Given], str | None]:
    """A layer that applies a function of Keras to each value."""
    more = f", {arguments}" if arguments else ""
    return lambda s, given: f"layers.Lambda(lambda x: {function}(x{more}), NAME)"


def _softmax(s: Settings, given: Given) -> str | None:
    axis = s.get("dim", s.get("args", [None])[0])
    return (
        "layers.Softmax(NAME)" if axis in (-1, given[0] - 1) and given[0] < IMAGE and s.get("dtype") is None else None
    )


# Class of torch.nn, or function -> what makes the layer of Keras; None where its settings have no counterpart.
LAYERS: Mapping[str, Callable[[Settings, Given], str | None]] = {
    "Linear": _linear,
    "Conv2d": _conv,
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _layer_norm,
    "GroupNorm": _group_norm,
    "Embedding": _embedding,
    "MaxPool2d": _max_pool,
    "AvgPool2d": _avg_pool,
    "AdaptiveAvgPool2d": _adaptive_pool,
    "Flatten": _flatten,
    "flatten": _flatten,
    "GELU": _gelu,
    "gelu": _gelu,
    "ReLU": lambda s, given: "layers.ReLU(NAME)",
    "ReLU6": lambda s, given: "layers.ReLU(6.0, NAME)",
    "LeakyReLU": lambda s, given: f"layers.LeakyReLU({s['negative_slope']!r}, NAME)",
    "ELU": lambda s, given: f"layers.ELU({s['alpha']!r}, NAME)",
    "SiLU": lambda s, given: 'layers.Activation("silu", NAME)',
    "Sigmoid": lambda s, given: 'layers.Activation("sigmoid", NAME)',
    "Tanh": lambda s, given: 'layers.Activation("tanh", NAME)',
    "Softplus": lambda s, given: 'layers.Activation("softplus", NAME)' if _is(s, beta=1.0, threshold=20.0) else None,
    "Hardswish": lambda s, given: "like_torch.Hardswish(NAME)",
    "Hardsigmoid": lambda s, given: "like_torch.Hardsigmoid(NAME)",
    "Softmax": _softmax,
    "softmax": _softmax,
    "Dropout": lambda s, given: f"layers.Dropout({s['p']!r}, NAME)",
    "relu": lambda s, given: "layers.ReLU(NAME)",
    "relu_": lambda s, given: "layers.ReLU(NAME)",
    "silu": lambda s, given: 'layers.Activation("silu", NAME)',
    "sigmoid": lambda s, given: 'layers.Activation("sigmoid", NAME)',
    "tanh": lambda s, given: 'layers.Activation("tanh", NAME)',
}
SAME = ("Identity", "contiguous")  # they return what they are given
BETWEEN = {"add": "+", "iadd": "+", "add_": "+", "sub": "-", "mul": "*", "imul": "*"}  # of two results of equal shape


class Port:
    """The lines of ``build``. missing: the first step that has no counterpart here; None where all have one."""

    def __init__(self, outlined: Outlined, inputs: Mapping[str, TensorSpec]) -> None:
        self.outlined, self.inputs = outlined, inputs
        self.names = {-1 - index: name for index, name in enumerate(inputs)}
        self.calls = Counter(step.name for step in outlined.steps if step.name)
        self.made: set[str] = set()
        self.missing: int | None = None
        self.lines = [
            f'{name} = Input({each.shape_of_item!r}, name="{name}"{each.dtype_given})'
            for name, each in ((name, _Native(tensor)) for name, tensor in inputs.items())
        ]
        for index, step in enumerate(outlined.steps):
            line = self._line(index, step)
            if line is None:
                self.missing = index
                break
            self.lines.append(line)

    def _line(self, index: int, step: Step) -> str | None:
        given = [self._rank(each) for each in step.inputs]
        taken = [self.names[each] for each in step.inputs]
        own = self.names[index] = f"h{index}"
        if step.kind in SAME and len(taken) == 1:
            return f"{own} = {taken[0]}"
        if step.kind in BETWEEN and len(taken) == 2 and not step.settings and self._alike(step):
            return f"{own} = {taken[0]} {BETWEEN[step.kind]} {taken[1]}"
        if step.kind not in LAYERS or len(taken) != 1:
            return None
        layer = LAYERS[step.kind](step.settings, given)
        if layer is None:
            return None
        layer = layer.replace("NAME", f'name="{step.name or f"{step.kind}_{index}"}"')
        if self.calls[step.name] < 2:
            return f"{own} = {layer}({taken[0]})"
        variable = f"layer_{step.name.replace('.', '_')}"
        first = step.name not in self.made
        self.made.add(step.name)
        return (f"{variable} = {layer}\n    " if first else "") + f"{own} = {variable}({taken[0]})"

    def _rank(self, index: int) -> int:
        tensors = list(self.inputs.values())
        return len(tensors[-1 - index].shape if index < 0 else self.outlined.steps[index].shape)

    def _alike(self, step: Step) -> bool:
        """Whether both results that a step takes have its shape, so that nothing is repeated along another axis."""
        return all(each >= 0 and self.outlined.steps[each].shape == step.shape for each in step.inputs)


class _Native:
    """An input as Keras has it."""

    def __init__(self, tensor: TensorSpec) -> None:
        shape = tuple(None if isinstance(size, str) else size for size in tensor.shape[1:])
        self.shape_of_item = (*shape[1:], shape[0]) if tensor.layout == "NCHW" else shape
        self.dtype_given = "" if tensor.dtype == "float32" else f', dtype="{tensor.dtype}"'


def source(outlined: Outlined, inputs: Mapping[str, TensorSpec], reference: str) -> tuple[str, str]:
    """(the text of the port, what is missing in it; "" where nothing is). reference: what the port is of."""
    if outlined.problem or not all(each.shape[:1] == (BATCH,) for each in inputs.values()):
        why = outlined.problem or f"an input does not begin with the batch, {BATCH!r}"
        return unwritten(outlined, reference, f"the code of the reference cannot be traced ({why})")
    port = Port(outlined, inputs)
    body, missing = port.lines, ""
    if port.missing is None:
        returned = ", ".join(port.names[each] for each in outlined.outputs)
        body = [
            *body,
            f"return Model([{', '.join(inputs)}], {f'[{returned}]' if len(outlined.outputs) > 1 else returned})",
        ]
    else:
        rest = outlined.steps[port.missing :]
        missing = f"xverify init writes no {rest[0].says} with these settings"
        body = [*body, *(f"# {each}" for each in listed(rest)), *_raised(_says(missing, rest))]
    head = [f'"""A port of {reference} to Keras."""', "", "from keras import Input, Model, layers, ops", ""]
    if port.missing is not None:
        head[2] = "from keras import Input, layers, ops"
    text = "\n".join(body)
    if "ops." not in text:
        head[2] = head[2].removesuffix(", ops")
    if "like_torch." in text:
        head.insert(3, "from xverify.models import keras_layers as like_torch")
        head.insert(3, "")
    return "\n".join([*head, "", "def build():", *(f"    {line}" for line in body), ""]), missing


def unwritten(outlined: Outlined, reference: str, why: str) -> tuple[str, str]:
    """The text of a port that is all to be written, and what is missing. why: no port is written."""
    lines = [f"# {each}" for each in listed(outlined.steps)]
    body = ["# The layers of the reference, in the order of their calls:", *lines]
    body += _raised(_says(why, outlined.steps))
    head = [f'"""A port of {reference}."""', "", "", "def build():"]
    return "\n".join([*head, *(f"    {line}" for line in body), ""]), why


def _raised(text: str) -> list[str]:
    """The lines of a statement that raises the error of a port that is not complete."""
    return [
        "raise NotImplementedError(",
        *(f"    {json.dumps(each, ensure_ascii=False)}" for each in wrapped(text)),
        ")",
    ]


def wrapped(text: str) -> list[str]:
    """A text in lines that together are the text."""
    lines = textwrap.wrap(text, WIDTH, break_on_hyphens=False)
    return [*(f"{line} " for line in lines[:-1]), *lines[-1:]]


def _says(missing: str, rest: Sequence[Step]) -> str:
    names = [each.says for each in rest]
    few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{missing}; still to be written: {few or 'the model'}"


def listed(steps: Sequence[Step]) -> Iterator[str]:
    """A line on each step, with its settings."""
    for step in steps:
        settings = ", ".join(f"{name}={_shown(value)}" for name, value in step.settings.items())
        yield f"{step.name}: {step.kind}({settings})" if step.name else f"{step.kind}({settings})"
