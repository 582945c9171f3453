"""Keras and TensorFlow models: their variables in canonical names and layout. keras_table.py has the entries of Keras' layers.

The name of a Keras layer is the canonical name of the torch module that it corresponds to ("layer1.0.conv1"). A variable that a
keras.Model itself makes with add_weight is torch's parameter of the same name. A tf.Module that is not a Keras layer uses canonical
names and layout itself: its variable ``fc1.weight`` is the attribute ``weight`` of ``fc1``.

A user's Keras layer declares its variables with attributes of the class or of the instance, which are like entries of the table:

    canonical_weights = {"variable": ("canonical suffix", axes)}             axes: a permutation, None, or a pattern (layout.py)
    canonical_weights = {"variable": [("suffix", axes), ("suffix", axes)]}   where torch has several tensors for the variable
    canonical_sums = {"canonical suffix": ("part", "part")}                  where the variable is the sum of several of torch's
    canonical_stacks = {"canonical suffix": ("part", "part")}                where several variables are rows of one of torch's
    canonical_name = "lstm"                                                  where it differs from the name of the layer
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xverify.errors import WeightsError

from . import keras_table
from .canonical import Array, Arrays
from .keras_table import Known
from .layout import Axes, Layout, Shape, fitting
from .proposals import Undeclared, declaration, join


class Piece(NamedTuple):
    """A variable, or a part of one, that is a canonical weight or some rows of it."""

    variable: Any
    layout: Layout


class NamedVariable(NamedTuple):
    """A weight of a model with its canonical name. pieces: what it consists of, one below the other; most have a single piece."""

    name: str
    pieces: Sequence[Piece]

    def shape(self) -> Shape:
        """Its shape in canonical layout."""
        shapes = [layout.shape(tuple(variable.shape)) for variable, layout in self.pieces]
        return shapes[0] if len(shapes) == 1 else (sum(shape[0] for shape in shapes), *shapes[0][1:])


class Declaration(NamedTuple):
    """What is known about a Keras layer. module: canonical name of the torch module. known: an entry of the table."""

    layer: Any
    module: str
    known: Known


def single(name: str, variable: Any, axes: Axes) -> NamedVariable:
    """A weight that is one variable."""
    return NamedVariable(name, (Piece(variable, Layout(axes)),))


def named_variables(model: Any) -> list[NamedVariable]:
    """Every weight of the model.

    Raises Undeclared for a kind of layer that is not in the table, WeightsError when two variables have the same name.
    """
    import keras

    of_model = _keras_variables if isinstance(model, keras.layers.Layer) else _module_variables
    found = list(of_model(model))
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WeightsError(f"two variables are called {twice[0]!r}: give every layer the name of its torch module")
    _check_whole(found)
    return found


def _check_whole(weights: Sequence[NamedVariable]) -> None:
    """Raise WeightsError for a variable of which only some blocks are declared: the others would stay without values."""
    covered: dict[int, int] = {}
    for _, pieces in weights:
        for variable, layout in pieces:
            covered[id(variable)] = covered.get(id(variable), 0) + math.prod(layout.shape(tuple(variable.shape)))
    for name, pieces in weights:
        for variable, _ in pieces:
            if covered[id(variable)] < math.prod(variable.shape):
                raise WeightsError(
                    f"{name}: canonical_weights declares {covered[id(variable)]} of the {math.prod(variable.shape)} values of "
                    f"the variable {variable.name!r}; declare each of its blocks once"
                )


def _keras_variables(model: Any) -> Iterator[NamedVariable]:
    known: set[int] = set()
    declarations = _declarations(model)
    for (
        declared
    ) in declarations:  # a layer precedes the layers inside it, so an LSTM declares the variables of its cell
        yield from _declared_weights(declared, known)
    for layer, module, entry in declarations:
        for variable in layer._trainable_variables + layer._non_trainable_variables:
            if id(variable) not in known and "seed" not in variable.name and variable.name not in entry.ignored:
                raise _undeclared(layer, module, variable)


def _declared_weights(declared: Declaration, known: set[int]) -> Iterator[NamedVariable]:
    """The weights of one layer. known: the variables of layers before it; those of this layer are added."""
    layer, module, entry = declared
    pieces: dict[str, list[Piece]] = {}
    own: set[int] = set()
    for key, places in entry.weights.items():
        variable = _variable(layer, key)
        if variable is not None and id(variable) not in known:
            own.add(id(variable))
            for suffix, axes in keras_table.places(places):
                pieces[suffix] = [Piece(variable, Layout(axes))]
    known |= own
    for total, parts in entry.stacks.items():
        if all(part in pieces for part in parts):
            pieces[total] = [piece for part in parts for piece in pieces.pop(part)]
    for suffix, several in pieces.items():
        yield NamedVariable(join(module, suffix), several)


def _variable(layer: Any, key: str) -> Any:
    """The variable of a layer with this name; None when there is none. key: may begin with a path of attributes."""
    path, _, name = key.rpartition(".")
    for part in path.split(".") if path else ():
        layer = layer[int(part)] if part.isdigit() else getattr(layer, part, None)
    own = layer._trainable_variables + layer._non_trainable_variables if layer is not None else []
    variables = [*own, *layer.variables] if layer is not None else []
    return next((variable for variable in variables if variable.name == name), None)


def _undeclared(layer: Any, module: str, variable: Any) -> Undeclared:
    """The error about a variable that no entry has."""
    kind = type(layer).__name__
    reason = keras_table.UNKNOWN.get(kind) or keras_table.UNUSUAL.get(kind)
    known = ", ".join(sorted({*keras_table.LAYERS, *keras_table.RULES}))
    shape = tuple(variable.shape)
    return Undeclared(
        f"{kind} {layer.name!r} has the variable {variable.name!r} of shape {shape}, whose canonical form is not known"
        + (f": {reason}" if reason else f"; known layers: {known}"),
        module,
        variable.name,
        shape,
    )


def _module_variables(model: Any) -> Iterator[NamedVariable]:
    import tensorflow as tf

    for path, variable in model._flatten(predicate=lambda value: isinstance(value, tf.Variable), with_path=True):
        yield single(".".join(str(part) for part in path), variable, None)


def _declarations(model: Any) -> list[Declaration]:
    """The declarations of all layers of a model, a layer before those inside it."""
    return [_declaration(layer, layer is model) for layer in model._flatten_layers(include_self=True)]


def _declaration(layer: Any, whole: bool = False) -> Declaration:
    """The declaration of a layer: its own attributes and, where it has none, the entry of the table. whole: it is the model."""
    import keras

    table = keras_table.known(layer) or Known()
    module, inner = layer.name, table.inner
    if isinstance(layer, keras.Model):
        own = [variable.name for variable in layer._trainable_variables + layer._non_trainable_variables]
        table = Known({name: (name, None) for name in own if "seed" not in name})
        module = "" if whole else layer.name
    if inner is not None and (keras_table.is_named(inner) or not keras_table.is_named(layer)):
        module = keras_table.inner_name(table)
    if hasattr(layer, "canonical_weights"):
        table = table._replace(weights=layer.canonical_weights)
    sums, stacks = getattr(layer, "canonical_sums", table.sums), getattr(layer, "canonical_stacks", table.stacks)
    table = table._replace(sums=sums, stacks=stacks)
    return Declaration(layer, getattr(layer, "canonical_name", module), table)


def fused_parameters(model: Any) -> dict[str, tuple[str, ...]]:
    """Weights that the model stores as one tensor where torch has several: canonical name -> names of the tensors whose sum it is.

    For example ``{"lstm.bias_l0": ("lstm.bias_ih_l0", "lstm.bias_hh_l0")}``; ``normal_form`` computes the sum.
    """
    import keras

    if not isinstance(model, keras.layers.Layer):
        return {}
    names = {each.name for each in named_variables(model)}
    return {
        join(module, total): tuple(join(module, part) for part in parts)
        for _, module, known in _declarations(model)
        for total, parts in known.sums.items()
        if join(module, total) in names
    }


def layers(model: Any) -> dict[str, list[Any]]:
    """Canonical name of a torch module -> the Keras layers that correspond to it.

    Models inside the model are not layers, and neither are the parts of a layer that the table knows as a whole.
    """
    import keras

    found: dict[str, list[Any]] = {}
    if not isinstance(model, keras.layers.Layer):
        return found
    inside: set[int] = set()
    for layer, module, known in _declarations(model)[1:]:
        if any("." in key for key in known.weights):
            inside |= {id(part) for part in layer._flatten_layers(include_self=False)}
        if id(layer) not in inside and module and not isinstance(layer, (keras.Model, keras.layers.InputLayer)):
            found.setdefault(module, []).append(layer)
    return found


def advice(model: Any, name: str, wanted: Shape) -> str:
    """What to declare so that a weight gets this shape, as a clause; "" when no order of axes gives it. name: canonical."""
    weight = next((each for each in named_variables(model) if each.name == name), None)
    if weight is None or len(weight.pieces) > 1:
        return ""
    variable = weight.pieces[0].variable
    layouts = fitting(tuple(variable.shape), wanted)
    own = variable.name.removesuffix(":0")
    return declaration(own, name.rpartition(".")[2], layouts) if layouts else ""


# -- arrays -----------------------------------------------------------------------------------------------------------


def from_model(model: Any) -> Arrays:
    """Every weight of the built model in canonical names and layout."""
    return {each.name: canonical(each, _numpy) for each in named_variables(model)}


def _numpy(variable: Any) -> Array:
    return np.array(variable.numpy())


def to_model(model: Any, arrays: Mapping[str, Array]) -> None:
    """Assign every weight. arrays: canonical; names and shapes must have been checked."""
    assign(named_variables(model), arrays)
    for layer in model._flatten_layers() if hasattr(model, "_flatten_layers") else ():
        if hasattr(layer, "adapt_mean"):  # Normalization computes with copies of its variables
            layer.finalize_state()


def assign(weights: Iterable[NamedVariable], arrays: Mapping[str, Array]) -> None:
    """Assign these weights. arrays: canonical."""
    for variable, array in native(weights, arrays):
        variable.assign(array)


def variables(weights: Iterable[NamedVariable]) -> list[Any]:
    """The variables of these weights, each once."""
    return list({id(variable): variable for each in weights for variable, _ in each.pieces}.values())


def canonical(weight: NamedVariable, read: Callable[[Any], Array]) -> Array:
    """A weight in canonical layout. read: function that returns the array that belongs to a variable, in the variable's layout."""
    pieces = [layout.to_canonical(read(variable)) for variable, layout in weight.pieces]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def native(weights: Iterable[NamedVariable], arrays: Mapping[str, Array]) -> list[tuple[Any, Array]]:
    """Every variable of these weights, with its array in the variable's layout. arrays: canonical name -> array."""
    found: dict[int, tuple[Any, Array]] = {}
    for name, pieces in weights:
        array, start = np.asarray(arrays[name]), 0
        for variable, layout in pieces:
            shape = tuple(variable.shape)
            _, target = found.setdefault(id(variable), (variable, np.zeros(shape, array.dtype)))
            rows = array
            if len(pieces) > 1:
                count = layout.shape(shape)[0]
                rows, start = array[start : start + count], start + count
            layout.write(target, rows)
    return list(found.values())
