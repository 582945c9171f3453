"""The conversion table of Keras: for each kind of layer, the canonical weights that its variables make.

An entry maps a variable to ``(canonical suffix, axes)``, or to a list of these where torch has several tensors for it. ``axes`` is
as in layout.py. Where a variable belongs to a layer inside of the layer, its key is a path of attributes: "_query_dense.kernel".

Where torch has no such layer, its weights have the names that follow from its parts: "depthwise.weight" of SeparableConv2D.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .layout import Axes

Place = tuple[str, Axes]
Entry = Place | Sequence[Place]
Entries = Mapping[str, Entry]
Parts = Mapping[str, Sequence[str]]


class Known(NamedTuple):
    """What the table says about a layer.

    weights: variable -> its place or places. sums: canonical suffix -> torch's tensors whose sum Keras stores.
    stacks: canonical suffix -> suffixes of the pieces that torch stores below one another in one tensor.
    ignored: variables that are no weights. inner: the layer inside of a wrapper, whose name may be the canonical one.
    """

    weights: Entries = {}
    sums: Parts = {}
    stacks: Parts = {}
    ignored: Sequence[str] = ()
    inner: Any = None


_KERNEL_AND_BIAS: dict[int, dict[str, Place]] = {
    rank: {"kernel": ("weight", (rank + 1, rank, *range(rank))), "bias": ("bias", None)} for rank in (1, 2, 3)
}
_SCALE_AND_SHIFT: dict[str, Place] = {"gamma": ("weight", None), "beta": ("bias", None)}
# Both frameworks have the gates of an LSTM in the order i, f, g, o.
_CELL: dict[str, Place] = {
    "kernel": ("weight_ih", (1, 0)),
    "recurrent_kernel": ("weight_hh", (1, 0)),
    "bias": ("bias", None),
}


def _separable(spatial: str, pointwise: tuple[int, ...]) -> dict[str, Place]:
    return {
        "depthwise_kernel": ("depthwise.weight", f"{spatial} c m -> (c m) 1 {spatial}"),
        "pointwise_kernel": ("pointwise.weight", pointwise),
        "bias": ("pointwise.bias", None),
    }


def _conv_cell(rank: int) -> dict[str, Place]:
    axes = _KERNEL_AND_BIAS[rank]["kernel"][1]
    return {"kernel": ("weight_ih", axes), "recurrent_kernel": ("weight_hh", axes), "bias": ("bias", None)}


# Keras class -> {variable: (canonical suffix, axes)}. A kernel of a convolution is HWIO in Keras and OIHW in torch; one of a
# transposed convolution is HWOI in Keras and IOHW in torch.
LAYERS: dict[str, dict[str, Place]] = {
    "Dense": {"kernel": ("weight", (1, 0)), "bias": ("bias", None)},
    "Conv1D": _KERNEL_AND_BIAS[1],
    "Conv2D": _KERNEL_AND_BIAS[2],
    "Conv3D": _KERNEL_AND_BIAS[3],
    "Conv1DTranspose": _KERNEL_AND_BIAS[1],
    "Conv2DTranspose": _KERNEL_AND_BIAS[2],
    "Conv3DTranspose": _KERNEL_AND_BIAS[3],
    # Both frameworks have the outputs of one channel beside one another.
    "DepthwiseConv1D": {"kernel": ("weight", "w c m -> (c m) 1 w"), "bias": ("bias", None)},
    "DepthwiseConv2D": {"kernel": ("weight", "h w c m -> (c m) 1 h w"), "bias": ("bias", None)},
    "SeparableConv1D": _separable("w", (2, 1, 0)),
    "SeparableConv2D": _separable("h w", (3, 2, 0, 1)),
    "BatchNormalization": {
        **_SCALE_AND_SHIFT,
        "moving_mean": ("running_mean", None),
        "moving_variance": ("running_var", None),
    },
    "LayerNormalization": _SCALE_AND_SHIFT,
    "GroupNormalization": _SCALE_AND_SHIFT,
    "RMSNormalization": {"scale": ("weight", None)},
    "Normalization": {"mean": ("mean", None), "variance": ("variance", None)},
    "Embedding": {"embeddings": ("weight", None)},
    "ReversibleEmbedding": {"embeddings": ("weight", None), "reverse_embeddings": ("reverse_weight", (1, 0))},
    "Attention": {"scale": ("scale", None), "concat_score_weight": ("concat_score_weight", None)},
    "AdditiveAttention": {"scale": ("scale", None)},
    "SimpleRNNCell": _CELL,
    "LSTMCell": _CELL,
    "ConvLSTM1D": _conv_cell(1),
    "ConvLSTM2D": _conv_cell(2),
    "ConvLSTM3D": _conv_cell(3),
    "STFTSpectrogram": {},
}

# Keras class -> {canonical suffix: torch's tensors whose sum Keras stores}.
SUMS: dict[str, dict[str, tuple[str, ...]]] = {
    "SimpleRNNCell": {"bias": ("bias_ih", "bias_hh")},
    "LSTMCell": {"bias": ("bias_ih", "bias_hh")},
}

# Keras class -> variables that are no weights: what only the training uses, and constants that Keras computes itself.
IGNORED: dict[str, tuple[str, ...]] = {
    "Normalization": ("count",),
    "STFTSpectrogram": ("real_kernel", "imag_kernel"),
    "SpectralNormalization": ("vector_u",),
}

# Keras class -> why its variables have no canonical form.
UNKNOWN: dict[str, str] = {
    "TFSMLayer": "it runs a SavedModel, whose variables have no layers",
    "JaxLayer": "it runs a function of the user, whose parameters have any names and layout",
    "FlaxLayer": "it runs a module of Flax, whose parameters have any names and layout",
    "TorchModuleWrapper": "it runs a module of torch, which belongs into torch.py",
}

# Keras class -> why a layer of it has no counterpart in torch with these arguments.
UNUSUAL: dict[str, str] = {
    "GRUCell": "with reset_after=False, Keras applies the reset gate before the matrix product, and torch after it",
    "EinsumDense": "its kernel has an axis of the input and of the output, which no linear layer of torch has",
}


def known(layer: Any) -> Known | None:
    """What the table says about this layer; None for a kind that it does not have."""
    # A subclass of a Keras layer has the variables of its parent.
    kinds = [kind.__name__ for kind in type(layer).__mro__ if kind.__module__.startswith("keras.")]
    kind = next((kind for kind in kinds if kind in RULES or kind in LAYERS), None)
    if kind is None:
        return None
    if kind in RULES:
        return RULES[kind](layer) if layer.built else Known()  # a layer that was never called has no variables
    return Known(LAYERS[kind], SUMS.get(kind, {}), ignored=IGNORED.get(kind, ()))


def places(entry: Entry) -> Sequence[Place]:
    """The places of a variable. entry: one place, or several."""
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return [entry]
    return entry


def is_named(layer: Any) -> bool:
    """Whether a layer has a name of its own, and not one that Keras made of its class, such as "lstm_1"."""
    own = re.sub(r"_\d+$", "", layer.name).removeprefix("forward_").replace("_", "")
    return own.lower() != type(layer).__name__.lower()


def inner_name(known: Known) -> str:
    """The name of the layer inside of a wrapper. Bidirectional writes "forward_" before it."""
    name: str = known.inner.name
    return name.removeprefix("forward_")


def _moved(known: Known, path: str, ending: str) -> Known:
    """The entry of a layer inside of another one. path: attribute of the outer one. ending: of all canonical suffixes."""
    weights = {
        f"{path}.{key}": [(f"{suffix}{ending}", axes) for suffix, axes in places(entry)]
        for key, entry in known.weights.items()
    }
    sums, stacks = (
        {f"{total}{ending}": [f"{part}{ending}" for part in parts] for total, parts in table.items()}
        for table in (known.sums, known.stacks)
    )
    return Known(weights, sums, stacks)


def _joined(*several: Known) -> Known:
    weights: dict[str, Entry] = {}
    sums: dict[str, Sequence[str]] = {}
    stacks: dict[str, Sequence[str]] = {}
    for each in several:
        weights |= each.weights
        sums |= each.sums
        stacks |= each.stacks
    return Known(weights, sums, stacks)


# -- layers whose entry depends on their arguments ------------------------------------------------------------------------


def _einsum_dense(layer: Any) -> Known | None:
    """torch.nn.Linear: all axes of the output that come from the kernel are merged into one, and so are those of the input.

    None where the kernel has an axis of the input and of the output, as in a linear layer for each position.
    """
    inputs, kernel, output = re.split(",|->", re.sub(r"[.\s]", "", layer.equation))
    made = [axis for axis in output if axis in kernel]
    summed = [axis for axis in inputs if axis in kernel]
    if set(made) & set(summed) or len(made) + len(summed) != len(kernel):
        return None
    weights: dict[str, Entry] = {"kernel": ("weight", f"{' '.join(kernel)} -> ({' '.join(made)}) ({' '.join(summed)})")}
    if layer.bias is not None:
        sizes = [size for size in layer.bias.shape if size != 1]
        kernel_sizes = dict(zip(kernel, layer.kernel.shape))
        if sizes == [size for axis in made if (size := kernel_sizes[axis]) != 1]:
            axes = " ".join("1" if size == 1 else f"b{index}" for index, size in enumerate(layer.bias.shape))
            kept = [axis for axis in axes.split() if axis != "1"]
            weights["bias"] = ("bias", f"{axes} -> ({' '.join(kept)})")
    return Known(weights)


def _prelu(layer: Any) -> Known:
    """One slope for each channel or for all; torch has none for each position, but a parameter C,H,W could be one."""
    *positions, _ = layer.alpha.shape
    axes = [f"p{index}" for index in range(len(positions))]
    if all(size == 1 for size in positions):
        return Known({"alpha": ("weight", f"{'1 ' * len(positions)}c -> c")})
    return Known({"alpha": ("weight", f"{' '.join(axes)} c -> c {' '.join(axes)}")})


def _gru_cell(layer: Any) -> Known | None:
    """Keras has the gates in the order z, r, n, torch in the order r, z, n.

    None for ``reset_after=False``, which multiplies the state by the reset gate before the matrix product, unlike torch.
    """
    if not layer.reset_after:
        return None
    gates = "[z r n] -> [r z n]"
    bias: list[Place] = [(f"bias_{which}", f"[ih hh] [z r n] -> ([{which}] [r z n])") for which in ("ih", "hh")]
    weights: dict[str, Entry] = {
        "kernel": ("weight_ih", f"i {gates} i"),
        "recurrent_kernel": ("weight_hh", f"i {gates} i"),
        "bias": bias,
    }
    return Known(weights)


def _recurrent(layer: Any) -> Known | None:
    """A layer that calls a cell for each step: torch's layer of one level."""
    cell = known(layer.cell)
    return None if cell is None else _moved(cell, "cell", "_l0")


def _any_recurrent(layer: Any) -> Known | None:
    """RNN: a layer of torch with a level for each cell. A cell that has a name of its own is torch's cell of this name."""
    cells = {"cell": layer.cell}
    if type(layer.cell).__name__ == "StackedRNNCells":
        cells = {f"cell.cells.{index}": cell for index, cell in enumerate(layer.cell.cells)}
    if not is_named(layer) or any(is_named(cell) for cell in cells.values()):
        return None
    found = [(path, known(cell)) for path, cell in cells.items()]
    levels = [_moved(each, path, f"_l{index}") for index, (path, each) in enumerate(found) if each is not None]
    return _joined(*levels) if len(levels) == len(cells) else None


def _bidirectional(layer: Any) -> Known | None:
    """torch's layer with ``bidirectional=True``."""
    forward, backward = known(layer.forward_layer), known(layer.backward_layer)
    if forward is None or backward is None:
        return None
    both = _joined(_moved(forward, "forward_layer", ""), _moved(backward, "backward_layer", "_reverse"))
    return both._replace(inner=layer.forward_layer)


def _wrapped(layer: Any) -> Known | None:
    """A wrapper that computes with the weights of the layer inside.

    SpectralNormalization divides the kernel itself in every training step, so that its weights are those of torch's folded layer.
    """
    inner = known(layer.layer)
    if inner is None or hasattr(layer.layer, "canonical_weights"):
        return Known(ignored=IGNORED["SpectralNormalization"])
    return _moved(inner, "layer", "")._replace(ignored=IGNORED["SpectralNormalization"], inner=layer.layer)


def _attention_weights(layer: Any, names: Mapping[str, str]) -> Known | None:
    """The projections of an attention. names: attribute of the layer -> the canonical name of what it does."""
    found: dict[str, Entry] = {}
    for attribute, name in names.items():
        if not hasattr(layer, attribute):
            continue
        entry = known(getattr(layer, attribute))
        if entry is None:
            return None
        for key, each in entry.weights.items():
            ((suffix, axes),) = places(each)
            found[f"{attribute}.{key}"] = (f"{name}.{suffix}", axes)
    return Known(found)


def _multi_head_attention(layer: Any) -> Known | None:
    """torch.nn.MultiheadAttention: one matrix of the three projections where they take the same size, and always one bias."""
    letters = {"_query_dense": "q", "_key_dense": "k", "_value_dense": "v"}
    names = {**letters, "_gate_dense": "gate_proj", "_output_dense": "out_proj"}
    found = _attention_weights(layer, names)
    if found is None:
        return None
    weights: dict[str, Entry] = {}
    for key, entry in found.weights.items():
        ((suffix, axes),) = places(entry)
        letter, _, kind = suffix.partition(".")
        weights[key] = (f"{letter}_proj_{kind}" if letter in letters.values() else suffix, axes)
    stacks = {"in_proj_bias": [f"{letter}_proj_bias" for letter in letters.values()]}
    if len({getattr(layer, attribute).kernel.shape[0] for attribute in letters}) == 1:
        stacks["in_proj_weight"] = [f"{letter}_proj_weight" for letter in letters.values()]
    return Known(weights, stacks=stacks)


def _grouped_query_attention(layer: Any) -> Known | None:
    """torch has no such layer; the names are those that most models have."""
    names = {"_query_dense": "q_proj", "_key_dense": "k_proj", "_value_dense": "v_proj"}
    return _attention_weights(layer, {**names, "_gate_dense": "gate_proj", "_output_dense": "o_proj"})


# Keras class -> the function that makes the entry of a layer of this class; None where the layer has no counterpart.
RULES: dict[str, Callable[[Any], Known | None]] = {
    "EinsumDense": _einsum_dense,
    "PReLU": _prelu,
    "GRUCell": _gru_cell,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "SimpleRNN": _recurrent,
    "RNN": _any_recurrent,
    "Bidirectional": _bidirectional,
    "TimeDistributed": _wrapped,
    "SpectralNormalization": _wrapped,
    "MultiHeadAttention": _multi_head_attention,
    "GroupedQueryAttention": _grouped_query_attention,
}
