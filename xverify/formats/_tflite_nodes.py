"""The operators of a TensorFlow Lite file, with the values that LiteRT's own kernels compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats.tflite import Adapter, Detail, LiteModel

KERNELS = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"  # a delegate has no values inside
LEFT_OUT = -1  # the number of an optional input that is not given


@dataclass(frozen=True)
class Operator:
    """An operator of the file.

    name: unique among all operators. kind: as in "CONV_2D". inputs, outputs: numbers of tensors. options: the schema's object.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any

    def option(self, name: str, default: Any = 0) -> Any:
        """A setting of the operator; the default where it has none."""
        return getattr(self.options, name, default)


@dataclass(frozen=True)
class Run:
    """An interpreter that has computed one case. details: number of a tensor -> what LiteRT tells about it."""

    model: LiteModel
    interpreter: Any
    details: Mapping[int, Detail]

    @classmethod
    def of(cls, framework: Adapter, model: LiteModel, inputs: Mapping[str, Any]) -> Run:
        """Compute one case without a delegate. Raises Unsupported for a file with several signatures."""
        if model.others:
            raise Unsupported("LiteRT shows the nodes of a file with one signature only")
        interpreter = framework.interpreter(model.path, KERNELS, experimental_preserve_all_tensors=True)
        places = {name: int(detail["index"]) for name, detail in model.inputs.items()}
        for name, place in places.items():
            interpreter.resize_tensor_input(place, np.shape(inputs[name]), strict=True)
        interpreter.allocate_tensors()
        for name, place in places.items():
            interpreter.set_tensor(place, model.given(name, inputs[name]))
        interpreter.invoke()
        return cls(model, interpreter, {int(each["index"]): each for each in interpreter.get_tensor_details()})

    @cached_property
    def names(self) -> dict[int, str]:
        """Number of a tensor -> its unique name: that of the signature for what the file is given and returns."""
        sides = {**self.model.inputs, **self.model.outputs}
        signature = {name: int(detail["index"]) for name, detail in sides.items()}
        found: dict[int, str] = {}
        taken = set(signature)
        for index, each in self.details.items():
            name = str(each["name"])
            name = f"{name}#{index}" if name in taken or not name else name
            found[index] = name
            taken.add(name)
        return {**found, **{index: name for name, index in signature.items()}}

    @cached_property
    def value_names(self) -> dict[int, str]:
        """The same, with other names for quantised inputs and outputs that the file is given, or returns, as real numbers."""
        from xverify.formats._tflite_graph import WHOLE
        from xverify.formats.tflite import is_quantised

        sides = (*self.model.inputs.values(), *self.model.outputs.values())
        real = {int(each["index"]) for each in sides if self.model.real and is_quantised(each)}
        return {index: name + WHOLE if index in real else name for index, name in self.names.items()}

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The operators of the main graph in the order of computation."""
        from ai_edge_litert import schema_py_generated as schema

        main = schema.ModelT.InitFromPackedBuf(self.model.path.read_bytes(), 0).subgraphs[0].operators
        found: list[Operator] = []
        taken: set[str] = set()
        for own, each in zip(main, self.interpreter._get_ops_details()):
            if each["op_name"] == "DELEGATE":
                break
            inputs, outputs = (tuple(int(index) for index in each[side]) for side in ("inputs", "outputs"))
            made = next((index for index in outputs if index != LEFT_OUT), LEFT_OUT)
            name = str(self.details[made]["name"]).partition(";")[0] if made != LEFT_OUT else str(each["op_name"])
            name = f"{name}#{len(found)}" if name in taken else name
            taken.add(name)
            found.append(Operator(name, str(each["op_name"]), inputs, outputs, own.builtinOptions))
        return tuple(found)

    def array(self, index: int) -> Array | None:
        """What a tensor holds; None for one that was not computed, or holds no array."""
        try:
            return np.array(self.interpreter.get_tensor(index))
        except ValueError:
            return None

    def value(self, index: int) -> Array | None:
        """The same, with the real numbers that quantised values stand for."""
        from xverify.formats.tflite import dequantised, is_quantised

        array, detail = self.array(index), self.details[index]
        whole = array is not None and is_quantised(detail)
        return dequantised(array, detail["quantization_parameters"]) if whole and array is not None else array


def traced(framework: Adapter, model: LiteModel, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case, and return the nodes of the main graph with all values."""
    from xverify.formats.tflite import is_quantised

    run = Run.of(framework, model, inputs)
    names, nodes = run.names, []
    for each in run.operators:
        given = tuple(names.get(index, "") for index in each.inputs)
        outputs = tuple(names[index] for index in each.outputs if index in names)
        nodes.append(FileNode(each.name, each.kind, given, outputs, settings(_settings(each))))
    used = {index for each in run.operators for index in (*each.inputs, *each.outputs) if index in names}
    values = {names[index]: run.value(index) for index in used}
    known = {name: value for name, value in values.items() if value is not None}
    quantised = any(is_quantised(run.details[index]) for index in used)
    return Traced(FileGraph(tuple(nodes), tuple(model.inputs), tuple(model.outputs), quantised), known)


def _settings(operator: Operator) -> Iterator[tuple[str, Any]]:
    """The attributes of an operator, with words for numbers that stand for them."""
    from ai_edge_litert import schema_py_generated as schema

    enums = {"padding": schema.Padding, "fusedActivationFunction": schema.ActivationFunctionType}
    for name, value in vars(operator.options).items() if operator.options is not None else ():
        words = {number: word for word, number in vars(enums[name]).items()} if name in enums else {}
        yield name, words.get(value, value) if words else value


def write_onnx(framework: Adapter, model: LiteModel, inputs: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Write the main graph as an ONNX file of the same meaning: name of an operator -> its kind."""
    from xverify.formats._graph_writer import save
    from xverify.formats._tflite_graph import Writer, written

    run = Run.of(framework, model, inputs)
    given, returned = (
        {int(detail["index"]): name for name, detail in side.items()} for side in (model.inputs, model.outputs)
    )
    made = {index for each in run.operators for index in each.outputs if index != LEFT_OUT}
    used = {index for each in run.operators for index in each.inputs if index in run.details}
    held = {index: run.array(index) for index in (*used, *returned) if index not in made and index not in given}
    constants = {index: array for index, array in held.items() if array is not None and array.dtype.kind in "fiub"}
    names = {index: run.value_names[index] for index in (*made, *given, *constants)}
    save(written(Writer(run.details, names, constants), run.operators, given, returned), path)
    return {each.name: each.kind for each in run.operators}


def node_values(framework: Adapter, model: LiteModel, inputs: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Compute one case, and write what every operator returns: name of a value -> file name in the folder."""
    run = Run.of(framework, model, inputs)
    files: dict[str, str] = {}
    for index in (index for each in run.operators for index in each.outputs if index != LEFT_OUT):
        array = run.array(index)
        if array is not None and array.dtype.kind in "fiub":
            name = run.value_names[index]
            files[name] = f"{len(files)}.npy"
            np.save(folder / files[name], array, allow_pickle=False)
    return files
