"""The table of translations from operators of TensorFlow Lite to operators of ONNX, and what several of them share.

A translation is a function of the writer of the graph and of the operator. It returns the names of the values of the outputs, or
raises Untranslated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from xverify.formats._graph_writer import Untranslated
from xverify.formats._tflite_graph import Writer
from xverify.formats._tflite_nodes import Operator

Translation = Callable[[Writer, Operator], "str | Sequence[str]"]
TABLE: dict[str, Translation] = {}
# Number of a fused activation -> its operator, or the limits to which it clips.
ACTIVATIONS: dict[int, str | tuple[float, float]] = {1: "Relu", 2: (-1.0, 1.0), 3: (0.0, 6.0), 4: "Tanh"}


def translation(*kinds: str) -> Callable[[Translation], Translation]:
    """Register the translation of some operators."""

    def register(function: Translation) -> Translation:
        TABLE.update(dict.fromkeys(kinds, function))
        return function

    return register


def activated(w: Writer, op: Operator, value: str) -> str:
    """The value with the activation that is fused into an operator."""
    number = op.option("fusedActivationFunction")
    if number and number not in ACTIVATIONS:
        raise Untranslated
    kind = ACTIVATIONS.get(number)
    return value if kind is None else w.add(kind, value) if isinstance(kind, str) else clipped(w, value, *kind)


def clipped(w: Writer, value: str, low: float, high: float) -> str:
    """The value within limits."""
    return w.add("Clip", value, w.array(low, np.float32), w.array(high, np.float32))


def given(w: Writer, op: Operator, place: int) -> str:
    """The name of an input; "" for one that is left out."""
    return w.real(op.inputs[place]) if place < len(op.inputs) else ""


def narrowed(w: Writer, op: Operator, value: str, place: int = 0) -> str:
    """Whole numbers of ONNX, which are of 64 bits, in the type of an output."""
    to = np.dtype(w.details[op.outputs[place]]["dtype"])
    return value if to == np.int64 else w.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(to))
