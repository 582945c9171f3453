"""A model of TensorFlow as one function with named inputs and outputs, and its conversion to TensorFlow Lite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xverify.errors import Failed, SubjectError, Unsupported
from xverify.framework.adapter import Array
from xverify.framework.modelfile import Natives
from xverify.framework.structures import leaves, named_outputs

LONGEST = 400  # characters of an error of the converter that a message quotes


@dataclass(frozen=True)
class Serving:
    """A model as one function.

    module: a tf.Module that holds the function and the variables that it uses.
    function: a concrete function, which takes its inputs by name and returns a mapping of its outputs by name.
    inputs, outputs: the names, in the order of the model.
    """

    module: Any
    function: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def serving(
    tf: Any, model: Any, forward: Callable[..., Any], example: Mapping[str, Any], outputs: Sequence[str]
) -> Serving:
    """Trace a model into one function with fixed shapes.

    tf: the module tensorflow. forward: the model as a function of its inputs.
    example: name -> tensor or array of every input. outputs: the names of the spec; without any, outputs are numbered.
    """
    names: list[str] = []

    def call(*tensors: Any) -> Natives:
        found = named(forward(*tensors), outputs)
        names[:] = found
        return {name: tf.identity(tensor) for name, tensor in found.items()}

    signature = [tf.TensorSpec(tensor.shape, tensor.dtype, name=name) for name, tensor in example.items()]
    function = tf.function(call, input_signature=signature, autograph=False)
    module = tf.Module()
    # Saving keeps only the variables that the module holds. Those of Keras wrap a tf.Variable.
    variables = getattr(model, "variables", ())
    module.held = [variable if isinstance(variable, tf.Variable) else variable.value for variable in variables]
    module.serve = function
    return Serving(module, function.get_concrete_function(), tuple(example), tuple(names))


def named(outputs: Any, names: Sequence[str]) -> Natives:
    """The outputs of a model by name. names: those of the spec; without any, outputs are called ``output_0`` and so on."""
    if names:
        return named_outputs(outputs, names)
    return {f"output_{i}": tensor for i, tensor in enumerate(leaves(outputs))}


def convert(tf: Any, served: Serving, quantize: str | None = None, cases: Iterable[Mapping[str, Array]] = ()) -> bytes:
    """Convert to TensorFlow Lite with TensorFlow's own converter. Returns the content of the file.

    quantize: "float16": weights in float16; "int8": weights and activations in 8 bits where LiteRT has such an operator.
    cases: representative inputs, name -> array, for "int8".
    Raises Unsupported for a model with other operators than TensorFlow Lite has, and Failed when the conversion fails otherwise.
    """
    converter = tf.lite.TFLiteConverter.from_concrete_functions([served.function], served.module)
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if quantize == "int8":
        known = [dict(case) for case in cases]  # the converter asks for them more than once
        converter.representative_dataset = lambda: iter(known)
    try:
        content: bytes = converter.convert()
    except Exception as error:
        raise _explain(str(error)) from error
    return content


def _explain(text: str) -> SubjectError:
    """The error of a conversion that failed. text: what the converter said; it begins with the place in its own source."""
    lacking = dict.fromkeys(re.findall(r"'(tf\.\w+)' op is neither a custom op nor a flex op", text))
    if lacking:
        return Unsupported(f"TensorFlow Lite has no operator for {', '.join(lacking)}")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    cause = next((line for line in lines if "error:" in line), lines[0])
    return Failed(f"TensorFlow cannot convert the model to TensorFlow Lite: {cause[:LONGEST]}")
