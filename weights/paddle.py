"""PaddlePaddle models: their weights in canonical names and layout, by a table with one entry per kind of layer.

The name of a sublayer is the canonical name of the torch module that it corresponds to, as in Jittor. What differs is in the
tables: a Linear layer stores its weight as (in, out), a batch norm calls its running statistics ``_mean`` and ``_variance``, an
instance norm calls its weight ``scale``, a recurrent layer keeps the weights of each step in a cell, and an attention layer keeps
three projections that torch packs into one tensor. The gates of LSTM and GRU stand in torch's order.

A layer of the user's own keeps its parameters as they are, or declares them, in an attribute of the class or of the instance:

    canonical_weights = {"attribute": ("canonical suffix", axes or None)}     as an entry of LAYERS

A ``MultiHeadAttention`` with ``canonical_weights = {}`` is not packed: the reference then has modules q_proj, k_proj and v_proj.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays, Variables

# Order of axes with canonical = stored.transpose(axes); None: the layouts are the same.
Axes = tuple[int, ...] | None
Entry = Mapping[str, tuple[str, Axes]]

_SAME: Entry = {"weight": ("weight", None), "bias": ("bias", None)}
_CELL: Entry = {name: (name, None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}

# Paddle's class -> {attribute: (canonical suffix, axes)}. A class that is derived from one of these has the entry of its parent.
LAYERS: dict[str, Entry] = {
    "Linear": {"weight": ("weight", (1, 0)), "bias": ("bias", None)},
    "Bilinear": _SAME,
    "Embedding": _SAME,
    "_ConvNd": _SAME,  # OIHW, and IOHW where it is transposed, as in torch
    "DeformConv2D": _SAME,
    "_BatchNormBase": {**_SAME, "_mean": ("running_mean", None), "_variance": ("running_var", None)},
    "BatchNorm": {**_SAME, "_mean": ("running_mean", None), "_variance": ("running_var", None)},
    "_InstanceNormBase": {"scale": ("weight", None), "bias": ("bias", None)},
    "LayerNorm": _SAME,
    "GroupNorm": _SAME,
    "RMSNorm": _SAME,
    "PReLU": {"_weight": ("weight", None)},
    "SimpleRNNCell": _CELL,
    "LSTMCell": _CELL,
    "GRUCell": _CELL,
}
# Classes that are no layer of a known kind: the parameters that a user gives them stay as they are.
PLAIN = ("Layer", "Sequential", "LayerList", "LayerDict", "ParameterList", "ParameterDict")
# Layers that are handled apart, with all that they contain.
RECURRENT, ATTENTION = "RNNBase", "MultiHeadAttention"
# The sublayers of a recurrent layer of one direction, and of two -> what torch appends to the names of their weights.
CELLS = ({"cell": ""}, {"cell_fw": "", "cell_bw": "_reverse"})
PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class NamedWeight(NamedTuple):
    """A weight of a model in canonical terms.

    name: canonical name.
    parts: the tensors of the model that are this weight, one after the other along the first axis; most have one.
    axes: of every part; see Axes.
    shape: the canonical shape, where it is another one than that of the parts; None where it is the same.
    """

    name: str
    parts: tuple[Any, ...]  # Any: paddle.Tensor has no type here
    axes: Axes = None
    shape: tuple[int, ...] | None = None


def named_weights(model: Any) -> list[NamedWeight]:
    """Every weight and running statistic of the model. A tied one occurs once, under the first of its names.

    Raises WeightsError for a kind of Paddle's layers that is not in the tables.
    """
    found, known = [], set[int]()
    for weight in _all_weights(model):
        if not all(id(part) in known for part in weight.parts):
            found.append(weight)
        known.update(map(id, weight.parts))
    return found


def _all_weights(model: Any) -> Iterator[NamedWeight]:
    inside: tuple[str, ...] = ()  # names of layers that have been handled with the layer around them
    for name, layer in model.named_sublayers(include_self=True):
        if f"{name}.".startswith(inside):
            continue
        prefix, kind = f"{name}." if name else "", _kind(layer)
        if kind == RECURRENT:
            yield from _recurrent(prefix, layer)
            inside = (*inside, prefix)
        elif kind == ATTENTION and not hasattr(layer, "canonical_weights"):
            yield from _attention(prefix, layer)
            inside = (*inside, *(f"{prefix}{each}." for each in PROJECTIONS))
        else:
            yield from _plain(prefix, layer, kind)


def _plain(prefix: str, layer: Any, kind: str) -> Iterator[NamedWeight]:
    """The weights that the layer itself holds."""
    entry = getattr(layer, "canonical_weights", LAYERS.get(kind, {}))
    for attribute, tensor in _own_tensors(layer).items():
        if attribute in entry:
            suffix, axes = entry[attribute]
        elif kind in PLAIN:
            suffix, axes = attribute, None
        else:
            raise WeightsError(
                f"{type(layer).__name__} {prefix[:-1]!r} has the parameter {attribute!r}, whose canonical form is not known; "
                f"known layers: {', '.join(sorted({name.strip('_') for name in LAYERS} | {ATTENTION, 'LSTM', 'GRU'}))}; "
                f'declare it with canonical_weights = {{"{attribute}": ("weight", None)}} in a class derived from it'
            )
        yield NamedWeight(prefix + suffix, (tensor,), axes, _shape(layer, kind, attribute))


def _shape(layer: Any, kind: str, attribute: str) -> tuple[int, ...] | None:
    """The canonical shape of a weight that Paddle stores in another one; None for all others."""
    if kind == "LayerNorm":  # Paddle stores one axis, however many are normalised
        return tuple(int(size) for size in layer._normalized_shape)
    if kind == "Bilinear" and attribute == "bias":  # (1, out)
        return (math.prod(layer.bias.shape),)
    return None


def _recurrent(prefix: str, layer: Any) -> Iterator[NamedWeight]:
    """The weights of the cells of SimpleRNN, LSTM and GRU, in torch's order."""
    for index, step in enumerate(layer):
        for cell, reverse in CELLS[hasattr(step, "cell_fw")].items():
            for attribute, tensor in _own_tensors(getattr(step, cell)).items():
                if attribute.startswith("bias") and _is_absent(tensor):
                    continue
                yield NamedWeight(f"{prefix}{attribute}_l{index}{reverse}", (tensor,))


def _is_absent(bias: Any) -> bool:
    """Whether this bias stands for none: a cell without a bias holds zeros that are not trained."""
    return bool(bias.stop_gradient) and not np.any(bias.numpy())


def _attention(prefix: str, layer: Any) -> Iterator[NamedWeight]:
    """The projections of an attention layer, packed as torch packs them: only equal sizes make one tensor of the three."""
    projections = [getattr(layer, name) for name in PROJECTIONS]
    weights = [each.weight for each in projections]
    if layer.kdim == layer.vdim == layer.embed_dim:
        yield NamedWeight(f"{prefix}in_proj_weight", tuple(weights), (1, 0))
    else:
        for name, weight in zip(PROJECTIONS, weights):
            yield NamedWeight(f"{prefix}{name}_weight", (weight,), (1, 0))
    biases = [each.bias for each in projections]
    if all(bias is not None for bias in biases):
        yield NamedWeight(f"{prefix}in_proj_bias", tuple(biases))


def _kind(layer: Any) -> str:
    """The class of Paddle's that a layer is of, or is derived from: the first one that a table knows, or else the nearest one."""
    own = [kind.__name__ for kind in type(layer).__mro__ if kind.__module__.split(".")[0] == "paddle"]
    known = (name for name in own if name in LAYERS or name in (RECURRENT, ATTENTION))
    return next(known, own[0] if own else PLAIN[0])


def _own_tensors(layer: Any) -> Variables:
    """Attribute -> tensor, for the floating-point parameters and buffers of a layer without its sublayers."""
    state = layer.state_dict(include_sublayers=False)
    return {name: tensor for name, tensor in state.items() if "float" in str(tensor.dtype)}


def layers(model: Any) -> dict[str, list[Any]]:
    """Name -> layer. The cells in a recurrent layer are no layers by themselves: they compute within a kernel of the whole."""
    found, recurrent = {}, list[str]()
    for name, layer in model.named_sublayers():
        if any(name.startswith(outer) for outer in recurrent):
            continue
        found[name] = [layer]
        if _kind(layer) == RECURRENT:
            recurrent.append(f"{name}.")
    return found


def to_canonical(weight: NamedWeight, parts: Sequence[Array]) -> Array:
    """The arrays of a weight's parts, as one array in canonical layout. They may also be gradients or optimizer state."""
    turned = [array if weight.axes is None else array.transpose(weight.axes) for array in parts]
    whole = turned[0] if len(turned) == 1 else np.concatenate(turned)
    return np.array(whole if weight.shape is None else whole.reshape(weight.shape), order="C")


def from_canonical(weight: NamedWeight, array: Array) -> list[Array]:
    """The array of each part of a weight, in Paddle's layout."""
    axes = None if weight.axes is None else np.argsort(weight.axes)
    stored = [tuple(part.shape) for part in weight.parts]
    if len(stored) == 1:
        turned = array if axes is None else array.transpose(axes)
        return [np.array(turned.reshape(stored[0]), order="C")]
    rows = [shape[0] if weight.axes is None else shape[weight.axes[0]] for shape in stored]
    ends = np.cumsum([0, *rows])
    pieces = [array[begin:end] for begin, end in pairwise(ends)]
    return [np.array(piece if axes is None else piece.transpose(axes), order="C") for piece in pieces]


def from_model(model: Any) -> Arrays:
    """Every weight of the model in canonical names and layout."""
    return {each.name: to_canonical(each, [part.numpy() for part in each.parts]) for each in named_weights(model)}


def to_model(model: Any, arrays: Arrays) -> None:
    """Set every weight. arrays: canonical; names and shapes must have been checked."""
    for weight in named_weights(model):
        for part, array in zip(weight.parts, from_canonical(weight, arrays[weight.name])):
            part.set_value(array.astype(str(part.dtype).rpartition(".")[2], copy=False))
