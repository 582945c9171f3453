"""The main graph of a TensorFlow Lite file as an ONNX graph of the same meaning, so that it is evaluated in float64 as those are.

The last node of an operator has its name, and makes the values that LiteRT has for its outputs under their names; values between
have no counterpart in LiteRT. The axes of images are turned for ONNX's convolutions and turned back behind them. An operator on
quantised values is one on the real numbers that they stand for, whose result is rounded to steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from xverify.errors import Unsupported
from xverify.formats._graph_writer import GraphWriter, Untranslated
from xverify.formats._tflite_nodes import LEFT_OUT, Operator
from xverify.framework.adapter import Array

if TYPE_CHECKING:
    from xverify.formats.tflite import Detail

DOMAIN = "tflite"
WHOLE = (
    "/whole numbers"  # ends the name of a quantised input or output that the file is given, or returns, as real numbers
)
# Operators that take quantised values beside others without quantising anything.
PLAIN = ("DEQUANTIZE", "GATHER", "EMBEDDING_LOOKUP")


class Writer(GraphWriter):
    """Collects the nodes and constants of an ONNX graph.

    details: number of a tensor -> what LiteRT tells about it after it computed. names: number -> name of its value.
    constants: number -> array, for tensors that the file holds.
    """

    def __init__(self, details: Mapping[int, Detail], names: Mapping[int, str], constants: Mapping[int, Array]) -> None:
        super().__init__()
        self.details, self.names, self.constants = details, names, constants
        self.reals: dict[int, str] = {}  # the real numbers of quantised tensors, within one operator

    # -- what the operator is given -----------------------------------------------------------------------------------

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(int(size) for size in self.details[index]["shape"])

    def is_float(self, index: int) -> bool:
        """Whether a tensor stands for real numbers."""
        return self.quantised(index) or np.dtype(self.details[index]["dtype"]).kind == "f"

    def quantised(self, index: int) -> bool:
        """Whether the whole numbers of a tensor stand for real ones."""
        from xverify.formats.tflite import is_quantised

        return index != LEFT_OUT and is_quantised(self.details[index])

    def steps(self, kind: str, value: str, index: int) -> str:
        """QuantizeLinear or DequantizeLinear with the scale and zero point of a tensor. value: the one to convert."""
        detail = self.details[index]
        parameters = detail["quantization_parameters"]
        scales, zeros = (np.asarray(parameters[name]) for name in ("scales", "zero_points"))
        several = scales.size > 1
        scale, zero = (each if several else each.reshape(-1)[0] for each in (scales, zeros))
        given = self.array(scale, np.float32), self.array(zero, detail["dtype"])
        return self.add(kind, value, *given, axis=int(parameters["quantized_dimension"]) if several else None)

    def real(self, index: int) -> str:
        """The name of the real numbers of a tensor; "" for one that is left out."""
        if not self.quantised(index):
            return self.value(index)
        if index not in self.reals:
            self.reals[index] = self.steps("DequantizeLinear", self.value(index), index)
        return self.reals[index]

    def value(self, index: int) -> str:
        """The name of the value of a tensor; "" for one that is left out."""
        if index == LEFT_OUT:
            return ""
        name = self.names[index]
        if index in self.constants and name not in self.arrays:
            self.array(self.constants[index], None, name)
        return name

    def constant(self, index: int) -> Array:
        """The values of a tensor that the file holds. Raises Untranslated for one that is computed."""
        if index not in self.constants:
            raise Untranslated
        return self.constants[index]

    def whole(self, index: int) -> list[int]:
        """The whole numbers that the file holds in a tensor."""
        return [int(each) for each in self.constant(index).reshape(-1)]

    # -- what is written ----------------------------------------------------------------------------------------------

    def translate(self, operator: Operator, translate: Any, activation: Any) -> None:
        """Add the nodes of an operator.

        translate: a function of this object and the operator, which returns the names of the values of its outputs; None for an
        operator without a translation. activation: the same for what is fused into an operator, with the value in front.
        """
        begin, arrays = len(self.nodes), dict(self.arrays)
        self.place = operator.name
        self.reals.clear()
        known = all(index in self.names for index in operator.inputs if index != LEFT_OUT)
        try:
            if translate is None or not known or self._is_mixed(operator):
                raise Untranslated
            found = translate(self, operator)
            values = [found] if isinstance(found, str) else list(found)
            values = [activation(self, operator, value) for value in values]
            values = [
                self.steps("QuantizeLinear", value, index) if self.quantised(index) else value
                for value, index in zip(values, operator.outputs)
            ]
        except Untranslated:
            del self.nodes[begin:]
            self.arrays = arrays
            given = [self.value(index) if index in self.names else "" for index in operator.inputs]
            outputs = [self.names.get(index, "") for index in operator.outputs]
            self.nodes.append(helper.make_node(operator.kind, given, outputs, name=operator.name, domain=DOMAIN))
            return
        for value, index in zip(values, operator.outputs):
            if index != LEFT_OUT:
                self.named(begin, operator.name, value, self.names[index])

    def _is_mixed(self, operator: Operator) -> bool:
        """Whether weights are quantised and values are not: LiteRT then quantises the values itself, in a way of its own."""
        first = operator.inputs[0] if operator.inputs else LEFT_OUT
        plain = first != LEFT_OUT and self.is_float(first) and not self.quantised(first)
        return plain and operator.kind not in PLAIN and any(map(self.quantised, operator.inputs[1:]))


def translations() -> Mapping[str, Any]:
    """Kind of an operator -> its translation."""
    from xverify.formats import _tflite_moves, _tflite_operators  # noqa: F401  they fill the table
    from xverify.formats._tflite_translation import TABLE

    return TABLE


def written(
    writer: Writer, operators: Sequence[Operator], inputs: Mapping[int, str], outputs: Mapping[int, str]
) -> Any:
    """The model of these operators. Raises Unsupported for a file that takes or returns other things than numbers.

    inputs, outputs: number of a tensor -> the name under which the file is given it, or returns it. It is another one than that of
        its value where quantised values are given, or returned, as real numbers.
    """
    from xverify.formats._tflite_translation import activated

    table = translations()
    for index, name in inputs.items():
        if name != writer.names[index]:
            writer.rename(writer.steps("QuantizeLinear", name, index), writer.names[index]).name = name
    for operator in operators:
        writer.translate(operator, table.get(operator.kind), activated)
    for index, name in outputs.items():
        if name != writer.names[index]:
            writer.rename(writer.steps("DequantizeLinear", writer.value(index), index), name)
    given, returned = (list(_described(writer, each)) for each in (inputs, outputs))
    return writer.model(given, returned, DOMAIN)


def _described(writer: Writer, side: Mapping[int, str]) -> Iterator[Any]:
    for index, name in side.items():
        detail = writer.details[index]
        if detail["dtype"] in (np.bytes_, np.object_, np.str_):
            raise Unsupported("it takes or returns strings")
        dtype = np.dtype(detail["dtype"] if name == writer.names[index] else np.float32)
        yield helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), writer.shape(index))
        if index in writer.constants:  # an output that no operator makes
            writer.value(index)
