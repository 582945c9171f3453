"""Flax models (flax.nnx): their variables in canonical names and layout, by a table with one entry per kind of layer.

The path of a module is the canonical name of its torch module: ``layer1.0.conv1`` is the attribute ``conv1`` of the first item of
the list ``layer1``. The items of an ``nnx.Sequential`` are called 0, 1, ... as in torch. A variable of a user's own module keeps
its name and its layout, unless the module declares it, with attributes of the class or of the instance:

    canonical_weights = {"variable": ("canonical suffix", axes or None)}     as an entry of LAYERS
    canonical_sums = {"canonical suffix": ("part", "part")}                  as an entry of SUMS, where torch has several tensors
    canonical_name = "lstm"                                                  where it differs from the path of the module

A variable is named by its path below the layer, for example "cell.dense_h.kernel".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import Arrays
from .flax_layout import NamedWeight, Node, Part, join, joined, split

# Variable -> (canonical suffix, axes[, whether the axes of the image are reversed]). Variables of one suffix are concatenated along
# the first canonical axis, in this order.
Entry = Mapping[str, tuple[Any, ...]]  # Any: the elements have three types
# Canonical suffix -> torch's tensors whose sum Flax stores.
Sums = Mapping[str, tuple[str, ...]]

BIAS = ("bias", None)
MATRIX = (1, 0)  # (in, out) -> (out, in)
NORM = {"scale": ("weight", None), "bias": BIAS}

# Flax class -> its entry.
LAYERS: dict[str, Entry] = {
    "Linear": {"kernel": ("weight", MATRIX), "bias": BIAS},
    "Embed": {"embedding": ("weight", None)},
    "BatchNorm": {**NORM, "mean": ("running_mean", None), "var": ("running_var", None)},
    "LayerNorm": NORM,
    "GroupNorm": NORM,
    "InstanceNorm": NORM,
    "RMSNorm": {"scale": ("weight", None)},
    "PReLU": {"negative_slope": ("weight", ((),))},  # a number -> one slope
    # The gates of the cells have torch's order: i, f, g, o.
    "OptimizedLSTMCell": {
        "dense_i.kernel": ("weight_ih", MATRIX),
        "dense_h.kernel": ("weight_hh", MATRIX),
        "dense_h.bias": BIAS,
    },
    "LSTMCell": {
        **{f"{gate}.kernel": ("weight_ih", MATRIX) for gate in ("ii", "if_", "ig", "io")},
        **{f"{gate}.kernel": ("weight_hh", MATRIX) for gate in ("hi", "hf", "hg", "ho")},
        **{f"{gate}.bias": BIAS for gate in ("hi", "hf", "hg", "ho")},
    },
    "SimpleCell": {
        "dense_i.kernel": ("weight_ih", MATRIX),
        "dense_h.kernel": ("weight_hh", MATRIX),
        "dense_i.bias": BIAS,
    },
}

# Flax class -> {canonical suffix: torch's tensors whose sum Flax stores}.
SUMS: dict[str, Sums] = {
    kind: {"bias": ("bias_ih", "bias_hh")} for kind in ("OptimizedLSTMCell", "LSTMCell", "SimpleCell")
}

# Layers of Flax whose weights are those of no torch module -> why, and what to write instead.
UNKNOWN = {
    "GRUCell": "torch multiplies a bias of its own by the reset gate, and Flax has none there: write the cell with two nnx.Linear",
    "Einsum": "its equation decides what its axes mean: use a subclass that declares canonical_weights",
    "LoRA": "it adapts another layer: merge it into the layer's kernel first",
    "LoRALinear": "it adapts a layer: merge it into the layer's kernel first",
    "SpectralNorm": "torch's parametrization keeps other vectors: fold it into the layer's kernel first",
    "WeightNorm": "torch's parametrization keeps the direction beside the scale: fold it into the layer's kernel first",
}


def _conv(layer: Any) -> Entry:
    """Image axes, in, out -> out, in, image axes; for any number of image axes and groups."""
    count = len(layer.kernel_size)
    return {"kernel": ("weight", (count + 1, count, *range(count))), "bias": BIAS}


def _conv_transpose(layer: Any) -> Entry:
    """Image axes, in, out -> in, out, image axes reversed; with transpose_kernel, out stands before in, and none is reversed."""
    count, turned = len(layer.kernel_size), bool(layer.transpose_kernel)
    channels = (count + 1, count) if turned else (count, count + 1)
    return {"kernel": ("weight", (*channels, *range(count)), not turned), "bias": BIAS}


def _linear_general(layer: Any) -> Entry:
    """All input axes, all output axes -> (out, in)."""
    if layer.batch_axis:
        return {}
    inputs, outputs = len(layer.in_features), len(layer.out_features)
    axes = (tuple(range(inputs, inputs + outputs)), tuple(range(inputs)))
    return {"kernel": ("weight", axes), "bias": ("bias", (tuple(range(outputs)),))}


def _attention(layer: Any) -> Entry:
    """(in, heads, size) -> (heads * size, in), and the reverse for the output. Torch packs the three when "in" is one."""
    packed = layer.query.in_features == layer.key.in_features
    entry: dict[str, tuple[Any, ...]] = {}
    for name in ("query", "key", "value"):
        entry[f"{name}.kernel"] = ("in_proj_weight" if packed else f"{name[0]}_proj_weight", ((1, 2), 0))
        entry[f"{name}.bias"] = ("in_proj_bias", ((0, 1),))
    return {**entry, "out.kernel": ("out_proj.weight", (2, (0, 1))), "out.bias": ("out_proj.bias", None)}


# Flax class -> function of the layer that makes its entry, where it depends on the layer's settings.
COMPUTED: dict[str, Callable[[Any], Entry]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "LinearGeneral": _linear_general,
    "MultiHeadAttention": _attention,
}
# Flax class -> the attributes with its cells or layers -> what torch appends to the names of their weights.
RECURRENT = {"RNN": {"cell": "_l0"}, "Bidirectional": {"forward_rnn": "", "backward_rnn": "_reverse"}}


def nodes(model: Any) -> list[Node]:
    """The model, every module in it and every variable, in the order of their definition; each once, under its first path."""
    return list(_nodes(Node("", "", model, None), set()))


def _nodes(node: Node, seen: set[int]) -> Iterator[Node]:
    from flax import nnx

    value, owner = node.value, node.owner
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (nnx.Module, nnx.Variable)):
        yield node
    if isinstance(value, nnx.Variable):
        return
    if isinstance(value, nnx.Module) and not isinstance(value, (nnx.List, nnx.Dict, nnx.Sequential)):
        owner = value
    for key, child in _children(value):
        silent = isinstance(value, nnx.Sequential) and key == "layers"  # torch names the items themselves
        path, name = joined(node.path, key), node.name if silent else joined(node.name, key)
        yield from _nodes(Node(path, name, child, owner), seen)


def _children(value: Any) -> list[tuple[str, Any]]:
    """The attributes of a module, or the items of a container, by name."""
    from flax import nnx

    if isinstance(value, (list, tuple, nnx.List)):
        return [(str(index), item) for index, item in enumerate(value)]
    if isinstance(value, (Mapping, nnx.Pytree)):
        items = value.items() if isinstance(value, Mapping) else vars(value).items()
        return [(str(key), item) for key, item in items if not str(key).startswith("_pytree__")]
    return []


def reach(value: Any, path: str) -> Any:
    """What stands at this path below a module; None where there is nothing."""
    for key in path.split(".") if path else ():
        value = dict(_children(value)).get(key)
    return value


def declaration(layer: Any) -> tuple[Entry, Sums]:
    """The entry of a module and its sums: its own attributes and, where it has none, those of the tables."""
    if hasattr(layer, "canonical_weights"):
        return layer.canonical_weights, getattr(layer, "canonical_sums", {})
    kind = kind_of(layer)
    if kind in RECURRENT:
        entry: dict[str, tuple[Any, ...]] = {}
        sums: dict[str, tuple[str, ...]] = {}
        for attribute, ending in RECURRENT[kind].items():
            inner, inner_sums = declaration(getattr(layer, attribute))
            entry |= {f"{attribute}.{path}": (suffix + ending, *rest) for path, (suffix, *rest) in inner.items()}
            sums |= {total + ending: tuple(part + ending for part in parts) for total, parts in inner_sums.items()}
        return entry, sums
    return COMPUTED[kind](layer) if kind in COMPUTED else LAYERS.get(kind, {}), SUMS.get(kind, {})


def kind_of(layer: Any) -> str:
    """The name of the class of Flax that a module is, or is derived from; "" when it is of another kind."""
    kinds = (kind.__name__ for kind in type(layer).__mro__ if _is_flax(kind))
    return next((kind for kind in kinds if kind in {*LAYERS, *COMPUTED, *RECURRENT, *UNKNOWN}), "")


def _is_flax(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "flax"


def module_name(node: Node) -> str:
    """The canonical name of a module."""
    name: str = getattr(node.value, "canonical_name", node.name)
    return name


def named_weights(model: Any) -> list[NamedWeight]:
    """Every weight of the model.

    Raises WeightsError for a layer of Flax whose weights are in no table, or when two layers have the same name.
    """
    from flax import nnx

    everything = nodes(model)
    found: dict[str, list[Part]] = {}
    owners: dict[str, int] = {}  # name of a weight -> its module, by id
    known: set[int] = set()
    for (
        node
    ) in everything:  # a layer precedes the layers inside it, so a recurrent layer declares the variables of its cell
        if isinstance(node.value, nnx.Variable):
            parts = [] if id(node.value) in known else _undeclared(node)
        else:
            parts = _declared(node, known)
        for name, part in parts:
            if id(part.variable) not in known:
                known.add(id(part.variable))
                found.setdefault(name, []).append(part)
                if owners.setdefault(name, id(node.value)) != id(node.value):
                    raise WeightsError(
                        f"two variables are called {name!r}: give every layer the path of its torch module"
                    )
    return [NamedWeight(name, tuple(parts)) for name, parts in found.items()]


def _declared(node: Node, known: set[int]) -> list[tuple[str, Part]]:
    """The weights that a module declares, by canonical name; a layer without a bias has fewer than its table.

    known: ids of the variables that modules around it have declared.
    """
    kind, own = kind_of(node.value), [each.value for each in nodes(node.value)[1:]]
    if (
        kind in UNKNOWN
        and not hasattr(node.value, "canonical_weights")
        and not known.issuperset(map(id, _variables(own)))
    ):
        raise WeightsError(f"{kind} {node.path!r} cannot be given torch's weights: {UNKNOWN[kind]}")
    found = []
    for path, (suffix, *rest) in declaration(node.value)[0].items():
        variable = reach(node.value, path)
        if variable is not None:
            found.append((joined(module_name(node), suffix), Part(joined(node.path, path), variable, *rest)))
    return found


def _variables(values: list[Any]) -> list[Any]:
    from flax import nnx

    return [value for value in values if isinstance(value, nnx.Variable)]


def _undeclared(node: Node) -> list[tuple[str, Part]]:
    """A variable that no module declares, under its own name; empty when it is no weight."""
    from flax import nnx

    # The state of random numbers, a cache, or something that a pass has left.
    if isinstance(node.value, (nnx.RngState, nnx.Cache, nnx.Intermediate, nnx.Perturbation)):
        return []
    if _is_flax(type(node.owner)):
        layer, _, attribute = node.path.rpartition(".")
        raise WeightsError(
            f"{type(node.owner).__name__} {layer!r} has the variable {attribute!r}, whose canonical form is not known; known "
            f"layers: {', '.join(sorted({*LAYERS, *COMPUTED, *RECURRENT}))}; in a subclass of your own, declare "
            f'canonical_weights = {{"{attribute}": ("weight", None)}}'
        )
    return [(node.name, Part(node.path, node.value))]


def fused_parameters(model: Any) -> dict[str, tuple[str, ...]]:
    """Weights that the model stores as one tensor where torch has several: canonical name -> names of the tensors whose sum it is.

    For example ``{"lstm.bias_l0": ("lstm.bias_ih_l0", "lstm.bias_hh_l0")}``; ``normal_form`` computes the sum.
    """
    names = {each.name for each in named_weights(model)}
    return {
        joined(module_name(node), total): tuple(joined(module_name(node), part) for part in parts)
        for node in nodes(model)
        for total, parts in declaration(node.value)[1].items()
        if joined(module_name(node), total) in names
    }


def layers(model: Any) -> dict[str, list[Any]]:
    """Canonical name of a torch module -> the modules that correspond to it, in the order of their definition.

    Modules whose weights a layer around them declares are parts of that layer. Lists of modules cannot be called, and are none.
    """
    from flax import nnx

    found: dict[str, list[Any]] = {}
    parts: set[int] = set()
    for node in nodes(model):
        if isinstance(node.value, nnx.Variable) or id(node.value) in parts:
            continue
        for path in declaration(node.value)[0]:
            ends = [index for index, character in enumerate(path) if character == "."]
            parts |= {id(reach(node.value, path[:end])) for end in ends}
        if node.path and callable(node.value):
            found.setdefault(module_name(node), []).append(node.value)
    return found


def from_model(model: Any) -> Arrays:
    """Every weight of the model in canonical names and layout."""
    return {
        each.name: join(each, [np.array(part.variable[...], np.float32) for part in each.parts])
        for each in named_weights(model)
    }


def to_model(model: Any, arrays: Arrays) -> None:
    """Set every weight. arrays: canonical; names and shapes must have been checked. Every variable keeps its dtype."""
    for each in named_weights(model):
        shapes = [part.variable[...].shape for part in each.parts]
        for part, array in zip(each.parts, split(each, arrays[each.name], shapes)):
            assign(part.variable, array)


def assign(variable: Any, array: Any) -> None:
    """Set a variable to an array, in the dtype of the variable. array: of numpy or JAX."""
    import jax.numpy as jnp

    variable.set_value(jnp.asarray(array, variable[...].dtype))
