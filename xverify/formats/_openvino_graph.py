"""A quantised graph of OpenVINO as an ONNX graph of the same meaning, so that it is evaluated in float64 as those are.

FakeQuantize becomes QuantizeLinear and DequantizeLinear. Its whole numbers, which OpenVINO does not show, are told by its results.
Whole numbers that a file stores, with a scale, become DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from xverify.errors import Unsupported
from xverify.formats._graph_writer import GraphWriter, Untranslated, save
from xverify.formats._openvino_nodes import FREE, Names, shown_values
from xverify.framework.adapter import Array

if TYPE_CHECKING:
    from xverify.formats._openvino import OnOpenVINO

DOMAIN = "openvino"
STEPS = "/whole numbers"  # ends the name of the whole numbers of a FakeQuantize
# OpenVINO's names of the dtypes that a graph in ONNX has here.
DTYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "boolean": np.bool_, "i64": np.int64, "i32": np.int32,
    "i16": np.int16, "i8": np.int8, "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8,
}  # fmt: skip
NEAR = 0.01  # steps; a zero point is as near to a whole number, and a result as near to a step
MOST = 256  # levels of 8 bits


def dtype_of(port: Any) -> Any:
    """numpy's dtype of a value. Raises Untranslated for one that numpy lacks."""
    found = DTYPES.get(str(port.get_element_type().get_type_name()))
    if found is None:
        raise Untranslated
    return np.dtype(found)


def held(port: Any) -> Array:
    """The values of a constant. Raises Untranslated for a value that is computed."""
    node = port.get_node()
    if node.get_type_name() != "Constant":
        raise Untranslated
    dtype_of(port)
    return np.array(node.data)


@dataclass(frozen=True)
class Grid:
    """The steps of a FakeQuantize: a result is (number - zero) x scale, for the numbers from 0 to most.

    scale, zero: arrays of one shape, which goes with the values. low, high: the ends of the range.
    """

    scale: Array
    zero: Array
    low: Array
    high: Array
    most: int

    @classmethod
    def of(cls, node: Any) -> Grid:
        """Raises Untranslated for ranges without a zero among the steps, and for results in other ranges than the values."""
        low, high, *results = (held(node.input_value(place)).astype(np.float64) for place in range(1, 5))
        most = int(node.get_attributes()["levels"]) - 1
        scale = (high - low) / most
        if not 0 < most < MOST or not np.all(scale > 0) or not np.array_equal((low, high), results):
            raise Untranslated
        zero = np.round(-low / scale)
        if np.any(np.abs(zero + low / scale) > NEAR) or zero.min() < 0 or zero.max() > most:
            raise Untranslated
        return cls(scale, zero.astype(np.uint8), low, high, most)

    def numbers(self, results: Array) -> Array | None:
        """The whole numbers of results; None for results that are not those of steps."""
        wide = results.astype(np.float64) / self.scale + self.zero
        found = np.round(wide)
        return found.astype(np.uint8) if np.all(np.abs(wide - found) <= NEAR) and found.min() >= 0 else None


class Writer(GraphWriter):
    """Translates the nodes of a graph of OpenVINO. names: of its values."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self.names = names

    def value(self, port: Any) -> str:
        """The name of a value."""
        name = self.names.of(port)
        if port.get_node().get_type_name() == "Constant" and name not in self.arrays:
            self.array(held(port), None, name)
        return name

    def given(self, node: Any, place: int) -> str:
        """The name of an input of a node."""
        return self.value(node.input_value(place))

    def shape(self, port: Any) -> tuple[int, ...]:
        """The shape of a value. Raises Untranslated for one that depends on values."""
        if port.get_partial_shape().is_dynamic:
            raise Untranslated
        return tuple(int(size) for size in port.get_shape())

    def steps(self, kind: str, value: str, scale: Array, zero: Array, rank: int) -> str:
        """QuantizeLinear or DequantizeLinear. scale, zero: of one shape, with more than one value along one axis at most."""
        axes = [axis + rank - scale.ndim for axis, size in enumerate(scale.shape) if size > 1]
        if len(axes) > 1:
            raise Untranslated
        shape = (-1,) if axes else ()
        given = (
            self.array(scale.reshape(shape), np.float32),
            self.array(zero.reshape(shape), zero.dtype),
        )
        return self.add(kind, value, *given, axis=axes[0] if axes else None)

    def translate(self, node: Any, translation: Callable[[Writer, Any], str | list[str]] | None) -> None:
        """Add the nodes of an operator. translation: returns the names of the values of its outputs."""
        begin, arrays = len(self.nodes), dict(self.arrays)
        self.place = name = node.get_friendly_name()
        outputs = [self.names.of(port) for port in node.outputs()]
        try:
            if translation is None:
                raise Untranslated
            found = translation(self, node)
        except Untranslated:
            del self.nodes[begin:]
            self.arrays = arrays
            given = [self.names.of(port) for port in node.input_values()]
            for port in node.input_values():
                with suppress(Untranslated):  # the constants, which an operator with a translation adds itself
                    self.array(held(port), None, self.names.of(port))
            self.nodes.append(helper.make_node(node.get_type_name(), given, outputs, name=name, domain=DOMAIN))
            return
        for value, output in zip([found] if isinstance(found, str) else found, outputs):
            self.named(begin, name, value, output)
        for each in self.nodes[
            begin:
        ]:  # what LiteRT's counterpart has not: the whole numbers have the name of the operator
            if each.op_type == "QuantizeLinear" and each.output[0] == name + STEPS:
                self.nodes[-1].name, each.name = f"{name}/real numbers", name

    def needed(self, outputs: list[str]) -> None:
        """Remove the nodes on which no output depends."""
        wanted, kept = set(outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                wanted |= set(node.input)
                kept.append(node)
        self.nodes = kept[::-1]


def write_onnx(framework: OnOpenVINO, model: Any, inputs: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Write the graph as an ONNX file of the same meaning: name of an operator -> its kind. See ``ModelFile.write_onnx``."""
    from xverify.formats._openvino_operators import TABLE

    names, fixed = Names.of_model(model), _fixed(framework, model, inputs)
    if not framework.precision(model).quantised:
        raise Unsupported("nothing in it is quantised")
    writer = Writer(names)
    operators = [node for node in fixed.get_ordered_ops() if node.get_type_name() not in FREE]
    for node in operators:
        writer.translate(node, TABLE.get(node.get_type_name()))
    results = [names.result(port) for port in model.outputs]
    writer.needed(results)
    try:
        sides = [_described(names.result(port), port) for side in (fixed.inputs, fixed.outputs) for port in side]
    except Untranslated:
        raise Unsupported("it takes or returns values of a type that numpy lacks") from None
    save(writer.model(sides[: len(fixed.inputs)], sides[len(fixed.inputs) :], DOMAIN), path)
    written = {node.name for node in writer.nodes}
    return {name: node.get_type_name() for node in operators for name in [node.get_friendly_name()] if name in written}


def _fixed(framework: OnOpenVINO, model: Any, inputs: Mapping[str, Any]) -> Any:
    """A copy of the model that takes these inputs alone, so that all shapes are known."""
    copy = model.clone()
    if copy.is_dynamic():
        names = Names.of_model(model)
        copy.reshape({port: list(np.shape(inputs[names.result(port)])) for port in copy.inputs})
    return copy


def _described(name: str, port: Any) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(dtype_of(port))
    return helper.make_tensor_value_info(name, kind, [int(size) for size in port.get_shape()])


def node_values(framework: OnOpenVINO, model: Any, inputs: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Compute one case, and write what every operator returns: name of a value -> file name in the folder.

    Of a FakeQuantize its whole numbers are there, too, where its results are steps. These are then judged by the numbers alone:
    their rounding is that of a sum with the end of the range, and may be large beside a small result.
    """
    names, grids = Names.of_model(model), dict[str, tuple[str, Grid]]()
    for node in model.get_ordered_ops():
        if node.get_type_name() == "FakeQuantize":
            with suppress(Untranslated):
                grids[names.of(node.output(0))] = node.get_friendly_name(), Grid.of(node)
    files: dict[str, str] = {}
    for name, value in shown_values(framework, model, inputs):
        shown: dict[str, Array | None] = {name: value}
        if name in grids:
            own, grid = grids[name]
            shown[own + STEPS] = grid.numbers(value)
        for each, array in shown.items():
            if array is not None and array.dtype.kind in "fiub":
                files[each] = f"{len(files)}.npy"
                np.save(folder / files[each], array, allow_pickle=False)
    return files
