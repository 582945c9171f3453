"""MLX models (mlx.nn): their arrays in canonical names and layout, by a table with one entry per kind of layer.

The path of a module is the canonical name of its torch module: ``layer1.0.conv1`` is the attribute ``conv1`` of the first item of
the list ``layer1``. The items of an ``nn.Sequential`` are called 0, 1, ... as in torch. An array of a user's own module keeps its
name and its layout, unless the class of the module declares it:

    canonical_weights = {"array": ("canonical suffix", axes or None)}        as an entry of LAYERS
    canonical_sums = {"canonical suffix": ("part", "part")}                  as an entry of SUMS, where torch has several tensors

An array is named by its path below the layer, for example "query_proj.weight". The declaration belongs to the class, because
MLX takes a dictionary that is set on a module for one with parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from xverify.errors import WeightsError

from .canonical import Array, Arrays
from .flax_layout import NamedWeight, Node, Part, join, joined, split

# Array -> (canonical suffix, axes). Arrays of one suffix are concatenated along the first canonical axis, in this order.
Entry = Mapping[str, tuple[Any, ...]]  # Any: the elements have two types
# Canonical suffix -> torch's tensors whose sum MLX stores.
Sums = Mapping[str, tuple[str, ...]]

_SAME: Entry = {"weight": ("weight", None), "bias": ("bias", None)}

# MLX's class -> its entry.
LAYERS: dict[str, Entry] = {
    "Linear": _SAME,
    "Bilinear": {"weight": ("weight", (0, 2, 1)), "bias": ("bias", None)},  # (out, second in, first in)
    "Embedding": {"weight": ("weight", None)},
    "BatchNorm": {**_SAME, "running_mean": ("running_mean", None), "running_var": ("running_var", None)},
    "LayerNorm": _SAME,
    "GroupNorm": _SAME,
    "InstanceNorm": _SAME,
    "RMSNorm": _SAME,
    "PReLU": {"weight": ("weight", None)},
    # The gates of the LSTM stand in torch's order: i, f, g, o.
    "LSTM": {"Wx": ("weight_ih_l0", None), "Wh": ("weight_hh_l0", None), "bias": ("bias_l0", None)},
    "RNN": {"Wxh": ("weight_ih_l0", None), "Whh": ("weight_hh_l0", None), "bias": ("bias_l0", None)},
    "GRU": {"Wx": ("weight_ih_l0", None), "Wh": ("weight_hh_l0", None)},
}

# MLX's class -> {canonical suffix: torch's tensors whose sum MLX stores}.
SUMS: dict[str, Sums] = {kind: {"bias_l0": ("bias_ih_l0", "bias_hh_l0")} for kind in ("LSTM", "RNN")}

# Layers of MLX whose weights are those of no torch module -> why, and what to write instead.
UNKNOWN = {
    "QuantizedLinear": "its weight is quantised: build the model with nn.Linear",
    "QQLinear": "its weight is quantised: build the model with nn.Linear",
    "QuantizedEmbedding": "its weight is quantised: build the model with nn.Embedding",
    "QuantizedAllToShardedLinear": "it holds a part of a weight: build the model with nn.Linear",
    "QuantizedShardedToAllLinear": "it holds a part of a weight: build the model with nn.Linear",
    "AllToShardedLinear": "it holds a part of a weight: build the model with nn.Linear",
    "ShardedToAllLinear": "it holds a part of a weight: build the model with nn.Linear",
}
_GRU = (
    "MLX stores the sum of two of torch's biases for the first two gates and both biases for the third: build it with bias=False, "
    "or write the cell with two nn.Linear"
)

# MLX's class -> attribute -> torch's name of the module there.
NAMES: dict[str, Mapping[str, str]] = {
    "TransformerEncoder": {"ln": "norm"},
    "TransformerDecoder": {"ln": "norm"},
    "TransformerEncoderLayer": {"attention": "self_attn", "ln1": "norm1", "ln2": "norm2"},
    "TransformerDecoderLayer": {
        **{"self_attention": "self_attn", "cross_attention": "multihead_attn"},
        **{f"ln{number}": f"norm{number}" for number in (1, 2, 3)},
    },
}


def _conv(layer: Any) -> Entry:
    """Out, image axes, in -> out, in, image axes; for any number of image axes and groups."""
    count = layer["weight"].ndim - 2
    return {"weight": ("weight", (0, count + 1, *range(1, count + 1))), "bias": ("bias", None)}


def _conv_transpose(layer: Any) -> Entry:
    """Out, image axes, in -> in, out, image axes."""
    count = layer["weight"].ndim - 2
    return {"weight": ("weight", (count + 1, 0, *range(1, count + 1))), "bias": ("bias", None)}


def _attention(layer: Any) -> Entry:
    """Torch packs the three projections into one tensor when their inputs have one size."""
    names = ("query", "key", "value")
    packed = len({layer[f"{name}_proj"]["weight"].shape for name in names}) == 1
    entry: dict[str, tuple[Any, ...]] = {}
    for name in names:
        entry[f"{name}_proj.weight"] = ("in_proj_weight" if packed else f"{name[0]}_proj_weight", None)
        entry[f"{name}_proj.bias"] = ("in_proj_bias", None)
    return {**entry, "out_proj.weight": ("out_proj.weight", None), "out_proj.bias": ("out_proj.bias", None)}


# MLX's class -> function of the layer that makes its entry, where it depends on the layer's settings.
COMPUTED: dict[str, Callable[[Any], Entry]] = {
    **{f"Conv{count}d": _conv for count in (1, 2, 3)},
    **{f"ConvTranspose{count}d": _conv_transpose for count in (1, 2, 3)},
    "MultiHeadAttention": _attention,
}


class Place(NamedTuple):
    """Where a model keeps an array: arrays do not change, so that training puts new ones into their places.

    owner: the module, dictionary or list. key: the attribute, key or index there.
    """

    owner: Any
    key: Any

    @property
    def value(self) -> Any:
        """The present array."""
        return self.owner[self.key]

    def put(self, array: Any) -> None:
        """Replace the array. array: of MLX."""
        self.owner[self.key] = array

    def numpy(self) -> Array:
        """A copy of the present array."""
        return np.array(self.value)


def nodes(model: Any) -> list[Node]:
    """The model, every module in it and every array, in the order of their definition; each once, under its first path."""
    return list(_nodes(Node("", "", model, None), set()))


def _nodes(node: Node, seen: set[int]) -> Iterator[Node]:
    from mlx import nn

    if isinstance(node.value, Place):
        yield node
        return
    if id(node.value) in seen:
        return
    seen.add(id(node.value))
    owner, renamed = node.owner, dict[str, str]()
    if isinstance(node.value, nn.Module):
        yield node
        owner, renamed = node.value, dict(NAMES.get(kind_of(node.value), {}))
    for key, child in _children(node.value):
        silent = isinstance(node.value, nn.Sequential) and key == "layers"  # torch names the items themselves
        name = node.name if silent else joined(node.name, renamed.get(key, key))
        yield from _nodes(Node(joined(node.path, key), name, child, owner), seen)


def _children(value: Any) -> list[tuple[str, Any]]:
    """The modules, containers and places of arrays of a module or a container, by name: those that MLX takes for parameters."""
    from mlx import core

    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        (str(key), Place(value, key) if isinstance(child, core.array) else child)
        for key, child in items
        if isinstance(child, (dict, list, core.array)) and not str(key).startswith("_")
    ]


def reach(value: Any, path: str) -> Any:
    """What stands at this path below a module; None where there is nothing."""
    for key in path.split(".") if path else ():
        value = dict(_children(value)).get(key) if isinstance(value, (dict, list)) else None
    return value


def module_of(model: Any, path: str) -> tuple[Any, str]:
    """The module that holds the array at this path, and its attribute: in a list or dictionary, that of the container."""
    from mlx import nn

    owner, attribute, value = model, "", model
    for key in path.split("."):
        if isinstance(value, nn.Module):
            owner, attribute = value, key
        value = reach(value, key)
    return owner, attribute


def declaration(layer: Any) -> tuple[Entry, Sums]:
    """The entry of a module and its sums: those that its class declares and, where it declares none, those of the tables."""
    if hasattr(layer, "canonical_weights"):
        return layer.canonical_weights, getattr(layer, "canonical_sums", {})
    kind = kind_of(layer)
    return COMPUTED[kind](layer) if kind in COMPUTED else LAYERS.get(kind, {}), SUMS.get(kind, {})


def kind_of(layer: Any) -> str:
    """The name of the class of MLX that a module is, or is derived from; "" when it is of another kind."""
    kinds = (kind.__name__ for kind in type(layer).__mro__ if _is_mlx(kind))
    return next((kind for kind in kinds if kind in {*LAYERS, *COMPUTED, *UNKNOWN, *NAMES}), "")


def _is_mlx(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "mlx"


def named_weights(model: Any) -> list[NamedWeight]:
    """Every weight of the model; the variable of a part is a Place.

    Raises WeightsError for a layer of MLX whose weights are in no table, or when two layers have the same name.
    """
    found: dict[str, list[Part]] = {}
    owners: dict[str, int] = {}  # name of a weight -> its module, by id
    known: set[str] = set()  # the paths of the arrays that modules have declared, which precede them
    for node in nodes(model):
        for name, part in _undeclared(node, known) if isinstance(node.value, Place) else _declared(node):
            if part.path not in known:
                known.add(part.path)
                found.setdefault(name, []).append(part)
                own = part.variable.owner if isinstance(node.value, Place) else node.value
                if owners.setdefault(name, id(own)) != id(own):
                    raise WeightsError(f"two arrays are called {name!r}: give every layer the path of its torch module")
    return [NamedWeight(name, tuple(parts)) for name, parts in found.items()]


def _declared(node: Node) -> list[tuple[str, Part]]:
    """The weights that a module declares, by canonical name; a layer without a bias has fewer than its table."""
    kind = kind_of(node.value)
    why = UNKNOWN.get(kind, _GRU if kind == "GRU" and "b" in node.value else "")
    if why and not hasattr(node.value, "canonical_weights"):
        raise WeightsError(f"{kind} {node.path!r} cannot be given torch's weights: {why}")
    found = []
    for path, (suffix, *rest) in declaration(node.value)[0].items():
        place = reach(node.value, path)
        if place is not None:
            found.append((joined(node.name, suffix), Part(joined(node.path, path), place, *rest)))
    return found


def _undeclared(node: Node, known: set[str]) -> list[tuple[str, Part]]:
    """An array that no module declares, under its own name."""
    if node.path in known:
        return []
    if _is_mlx(type(node.owner)):
        layer, _, attribute = node.path.rpartition(".")
        raise WeightsError(
            f"{type(node.owner).__name__} {layer!r} has the array {attribute!r}, whose canonical form is not known; known "
            f"layers: {', '.join(sorted({*LAYERS, *COMPUTED}))}; in a class derived from it, declare "
            f'canonical_weights = {{"{attribute}": ("weight", None)}}'
        )
    return [(node.name, Part(node.path, node.value))]


def fused_parameters(model: Any) -> dict[str, tuple[str, ...]]:
    """Weights that the model stores as one array where torch has several: canonical name -> names of the tensors whose sum it is.

    For example ``{"lstm.bias_l0": ("lstm.bias_ih_l0", "lstm.bias_hh_l0")}``.
    """
    names = {each.name for each in named_weights(model)}
    return {
        joined(node.name, total): tuple(joined(node.name, part) for part in parts)
        for node in nodes(model)
        if not isinstance(node.value, Place)
        for total, parts in declaration(node.value)[1].items()
        if joined(node.name, total) in names
    }


def layers(model: Any) -> dict[str, list[Any]]:
    """Canonical name of a torch module -> the modules that correspond to it, in the order of their definition.

    Modules whose weights a layer around them declares are parts of that layer, but for those that torch has under the same name.
    """
    found: dict[str, list[Any]] = {}
    parts: set[int] = set()
    for node in nodes(model):
        if isinstance(node.value, Place) or id(node.value) in parts:
            continue
        for path, (suffix, *_) in declaration(node.value)[0].items():
            if path == suffix:  # torch has a module there, too
                continue
            ends = [index for index, character in enumerate(path) if character == "."]
            parts |= {id(reach(node.value, path[:end])) for end in ends}
        if node.path and callable(node.value):
            found.setdefault(node.name, []).append(node.value)
    return found


def from_model(model: Any) -> Arrays:
    """Every weight of the model in canonical names and layout."""
    return {
        each.name: join(each, [part.variable.numpy().astype(np.float32) for part in each.parts])
        for each in named_weights(model)
    }


def to_model(model: Any, arrays: Arrays) -> None:
    """Set every weight. arrays: canonical; names and shapes must have been checked. Every array keeps its dtype."""
    from mlx import core

    for each in named_weights(model):
        shapes = [tuple(part.variable.value.shape) for part in each.parts]
        for part, array in zip(each.parts, split(each, arrays[each.name], shapes)):
            part.variable.put(core.array(array, part.variable.value.dtype))
