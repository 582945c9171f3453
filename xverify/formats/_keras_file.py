"""What the formats of Keras share: a file that Keras 3 loads on its TensorFlow backend, in safe mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Failed, SubjectError, Unsupported
from xverify.formats._tensorflow import TensorFlowFile, code_in_config
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import Change, Natives, Signature, Tensor, by_name, numpy_name
from xverify.results.precision import LayerPrecision, Precision, from_dtypes, from_layers
from xverify.weights.stored import Stored


def graph(framework: KerasFile, model: Any, example: tuple[Any, ...]) -> Any:
    """Trace the model into a graph."""
    call = framework.tf.function(framework.forward(model))
    return lambda *inputs: framework.named(model, call(*inputs))


def eager(framework: KerasFile, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the model operation by operation."""
    call = framework.forward(model)
    return lambda *inputs: framework.named(model, call(*inputs))


class KerasFile(TensorFlowFile):
    """The base class of the formats of Keras."""

    modes = {"graph": graph, "eager": eager}
    implicit_mode = "graph"

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Any:
        import keras

        if float64:
            raise Unsupported("Keras loads a model in the precision of the file")
        trust = bool(options.get("trust"))
        self.look_inside(path, trust)
        model = keras.saving.load_model(path, compile=False, safe_mode=not trust)
        if not isinstance(model, keras.Model):
            raise Failed(f"it holds a {type(model).__name__}, not a model")
        if not getattr(model, "inputs", None):
            raise Unsupported("the model says nothing about its inputs; save it after it was called or built")
        return model

    def look_inside(self, path: Path, trust: bool) -> None:
        """Raise SubjectError for a file with hidden code, or that reads other files."""
        raise NotImplementedError

    def forward(self, model: Any) -> Any:
        """The model as a function of tensors in the order of ``model.inputs``; it returns a list of tensors."""
        import keras

        structure = getattr(model, "_inputs_struct", None)  # a functional model says how its inputs are nested

        def call(*inputs: Any) -> list[Any]:
            packed = list(inputs) if len(inputs) > 1 else inputs[0]
            if structure is not None:
                packed = keras.tree.pack_sequence_as(structure, list(inputs))
            found: list[Any] = keras.tree.flatten(model(packed, training=False))
            return found

        return call

    def named(self, model: Any, outputs: list[Any]) -> Natives:
        """Outputs by the names of the signature."""
        return dict(zip(_output_names(model), outputs))

    def signature(self, model: Any) -> Signature:
        outputs = zip(_output_names(model), model.outputs)
        return Signature(
            tuple(_tensor(tensor.name, tensor) for tensor in model.inputs),
            tuple(_tensor(name, tensor) for name, tensor in outputs),
        )

    def traced(self, model: Any, inputs: Mapping[str, Any]) -> Traced:
        from xverify.formats._keras_nodes import traced

        return traced(self, model, inputs, _output_names(model))

    def precision(self, model: Any) -> Precision:
        layers = [layer for each in model._flatten_layers(include_self=False) for layer in _precision(each)]
        if layers:
            return from_layers(layers)
        sizes: dict[str, int] = {}
        for variable in model.variables:
            name = numpy_name(str(variable.dtype))
            sizes[name] = sizes.get(name, 0) + math.prod(variable.shape)
        return from_dtypes(sizes, str(model.compute_dtype or ""))

    def with_weights(self, model: Any, change: Change, folder: Path) -> Any:
        return model if self.change_weights({weight.path: weight for weight in model.weights}, change) else None

    def stored(self, model: Any) -> Stored:
        return by_name({weight.path: np.array(weight.numpy()) for weight in model.weights})

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        kind, text = super().cause(error)
        if "Could not locate" in text or "Unknown layer" in text:
            return Unsupported, f"{text.split(' Make sure')[0].split(' Please ensure')[0]}: its code is not in the file"
        return kind, text.split(" Full object config")[0]


def check_hdf5(file: Any, trust: bool) -> None:
    """Raise Failed when an opened HDF5 file takes values from other files, or its configuration holds code.

    Keras follows links to other files, and a configuration may be stored in such a way that only HDF5 can read it.
    """
    import json

    import h5py

    config = file.attrs.get("model_config")
    if config is not None and not trust:
        risk = code_in_config(json.loads(config))
        if risk:
            raise Failed(f"{risk}; if you trust its author, say so with --trust")
    waiting = [file]
    seen: set[int] = set()  # an object may hold itself
    while waiting:
        group = waiting.pop()
        for name in group:
            if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
                raise Failed(f"its entry {name!r} lies in another file, and such a file is never opened")
            item = group[name] if not isinstance(group.get(name, getlink=True), h5py.SoftLink) else None
            if isinstance(item, h5py.Group):
                if h5py.h5o.get_info(item.id).addr not in seen:
                    seen.add(h5py.h5o.get_info(item.id).addr)
                    waiting.append(item)
            elif isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
                raise Failed(f"the values of {name!r} lie in another file, and such a file is never opened")


def _output_names(model: Any) -> list[str]:
    """Unique names of the outputs: the keys of a mapping, or the names of the layers that compute them."""
    structure = getattr(model, "_outputs_struct", None)
    if isinstance(structure, Mapping) and len(structure) == len(model.outputs):
        return [str(key) for key in sorted(structure)]  # the order in which Keras flattens a mapping
    # Keras numbers tensors without a name, and the same file has other numbers when it is loaded again.
    names = list(getattr(model, "output_names", ())) or [_maker(tensor) or tensor.name for tensor in model.outputs]
    return [f"{name}_{names[:i].count(name)}" if name in names[:i] else name for i, name in enumerate(names)]


def _maker(tensor: Any) -> str:
    """The name of the layer that computes a tensor; "" where Keras does not tell it."""
    history = getattr(tensor, "_keras_history", None)
    return "" if history is None else str(history.operation.name)


def _tensor(name: str, tensor: Any) -> Tensor:
    return Tensor(name, tuple(tensor.shape), numpy_name(str(tensor.dtype)))


def _precision(layer: Any) -> list[LayerPrecision]:
    """The precision of a layer that has a kernel; [] for any other layer."""
    kernel = getattr(layer, "_kernel", None)
    kernel = getattr(layer, "kernel", None) if kernel is None else kernel
    if kernel is None or not hasattr(kernel, "dtype"):
        return []
    stored, computed = numpy_name(str(kernel.dtype)), str(layer.compute_dtype or "")
    if stored == "int8":  # Keras quantises the inputs of such a layer when it is called
        return [LayerPrecision(stored, True, "per channel", "int8", "dynamic", computed)]
    return [LayerPrecision(stored, computed=computed)]
