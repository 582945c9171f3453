"""What the formats that run on TensorFlow share, and how configurations of Keras are searched for code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xverify.errors import Failed, SubjectError, Unsupported, first_line
from xverify.formats._allowed import allowed
from xverify.framework.adapter import Array
from xverify.framework.modelfile import Change, ModelFile, change_weights
from xverify.frameworks.tensorflow.base import OnTensorFlow

# What a message says about layers whose configuration holds code, or the place of code.
_CODE = {
    "Lambda": "a Lambda layer, which holds Python code",
    "__lambda__": "a Python lambda",
    "TorchModuleWrapper": "a pickled PyTorch module",
    "TFSMLayer": "a layer that opens another SavedModel",
    "JaxLayer": "a JaxLayer, which holds Python code",
    "FlaxLayer": "a FlaxLayer, which holds Python code",
}


class TensorFlowFile(ModelFile, OnTensorFlow):
    """The base class of formats that run on TensorFlow."""

    runtime = "tensorflow"
    extra = "tensorflow"
    needs = {"tensorflow-cpu": "tensorflow"}
    converts = True
    shortens = True

    def narrow(self, array: Array, dtype: str) -> Any:
        return self.tf.cast(self.tf.constant(array), dtype)

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.tf.constant(array)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return self.array(tensor)

    def change_weights(self, variables: Mapping[str, Any], change: Change) -> bool:
        """Give these variables other float32 values; False when there are none."""
        arrays = {name: np.array(variable.numpy()) for name, variable in variables.items()}
        return change_weights(arrays, change, lambda name, array: variables[name].assign(array))

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("Graph execution error", "Detected at node"))]
        match = re.search(r"Op type not registered '(\w+)'", str(error))
        if match:
            return Unsupported, f"operator {match[1]} is not in this TensorFlow"
        return Failed, f"{type(error).__name__}: {lines[0]}" if lines else first_line(error)


def code_in_config(config: Any) -> str:
    """What code a configuration of Keras may hold, or which file it reads, as a clause; "" for none."""
    for item in _objects(config):
        name, inner, module = item.get("class_name"), item.get("config"), item.get("module")
        if isinstance(inner, dict) and isinstance(inner.get("vocabulary"), str):
            return f"its layer {name} reads the file {inner['vocabulary']!r}"
        if not isinstance(name, str):
            continue
        own = name.rpartition(">")[2]
        if own in _CODE:
            return f"it holds {_CODE[own]}"
        if own not in allowed("keras-names") or (own == "function" and inner not in allowed("keras-names")):
            return f"it holds the object {(inner if own == 'function' else own)!r:.80}, which is none of Keras without code"
        if module not in (None, "builtins", "keras") and not str(module).startswith("keras."):
            return f"it holds {own!r} of the module {module!r:.80}, which Keras may import"
    return ""


def _objects(value: Any) -> Iterator[dict[str, Any]]:  # Any: JSON values
    """Every JSON object in a JSON value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
