"""TorchScript files, which ``torch.jit.save`` writes. They say neither shapes nor, mostly, dtypes of their inputs."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xverify.errors import Failed, Unsupported, first_line
from xverify.formats import _torch_precision as torch_precision
from xverify.formats import _torchscript_code as torchscript_code
from xverify.formats import _zip
from xverify.formats._torch_file import TorchFile, named
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import Signature, Tensor, numpy_name, refusal
from xverify.results.precision import Precision

_NARROW, _DOUBLE = (5, 6, 15), 7  # numbers in a graph of float16, float32, bfloat16, and of float64
_SCALARS = {"int": "int64", "float": "float64", "bool": "bool"}


def script(framework: Adapter, model: Script, example: tuple[Any, ...]) -> Any:
    """Run the file as it is."""
    scalars = [kind in _SCALARS for kind in model.kinds]

    def call(*inputs: Any) -> Any:
        return model.module(*(value.item() if scalar else value for value, scalar in zip(inputs, scalars)))

    return framework.checked(call, model.float64)


@dataclass(frozen=True)
class Script:
    """A file that was loaded. inputs: name -> type in TorchScript, for inputs without a default value."""

    module: Any
    inputs: Mapping[str, str]
    float64: bool

    @property
    def kinds(self) -> list[str]:
        return list(self.inputs.values())


class Adapter(TorchFile):
    name = "torchscript"
    title = "TorchScript file"
    modes = {"script": script}
    implicit_mode = "script"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return {"data.pkl", "constants.pkl"} <= _zip.inner_names(path)

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        if _zip.doubt(path):
            return _zip.doubt(path)
        codes, pickles = [], []
        try:
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    name = info.filename.lower()
                    if "code/" in name and not name.endswith(".debug_pkl"):
                        codes.append(_zip.read(archive, info).decode())
                    elif name.endswith(".pkl"):
                        pickles.append(_zip.read(archive, info))
        except _zip.TooLarge as error:
            return f"its code cannot be looked through: {error}"
        except _zip.ERRORS:
            return ""  # the framework says what is wrong
        return torchscript_code.risk(codes, pickles)

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Script:
        module = self.torch.jit.load(str(path), map_location=self.device).eval()
        unknown = "" if options.get("trust") else torchscript_code.unknown_operator(module)
        if unknown:
            raise Failed(refusal(path, f"it has the operator {unknown}, which may reach outside of the model"))
        inputs = {}
        for argument in module.forward.schema.arguments[1:]:
            kind = str(argument.type)
            if kind != "Tensor" and kind not in _SCALARS:
                if argument.has_default_value():
                    continue
                raise Unsupported(f"input {argument.name!r} is a {kind}, and xverify gives tensors and numbers only")
            if kind == "Tensor" or not argument.has_default_value():
                inputs[argument.name] = kind
        return Script(self._double(module) if float64 else module, inputs, float64)

    def tensors(self, model: Script) -> Mapping[str, Any]:
        return super().tensors(model.module)

    def signature(self, model: Script) -> Signature:
        floating = next((t.dtype for t in model.module.parameters() if t.is_floating_point()), self.torch.float32)
        graph = model.module.inlined_graph
        values = {value.debugName().partition(".")[0]: value for value in graph.inputs()}
        inputs = []
        for name, kind in model.inputs.items():
            if kind in _SCALARS:
                inputs.append(Tensor(name, (), _SCALARS[kind]))
            else:
                dtype = "int64" if _indexes(values.get(name)) else numpy_name(str(floating))
                inputs.append(Tensor(name, None, "float64" if model.float64 and dtype != "int64" else dtype))
        dtype = "float64" if model.float64 else numpy_name(str(floating))
        returned = _structure(model.module.forward.schema.returns[0].type)
        outputs = tuple(Tensor(name, None, dtype) for name, _ in named(returned)) if returned is not None else ()
        return Signature(tuple(inputs), outputs)

    def traced(self, model: Script, inputs: Mapping[str, Any]) -> Traced:
        from xverify.formats import _torch_nodes as torch_nodes  # it imports torch

        return torch_nodes.of_script(self, model, inputs)

    def precision(self, model: Script) -> Precision:
        return torch_precision.of_script(model.module)

    def random_operators(self, model: Script) -> list[str]:
        from xverify.formats import _torch_random as torch_random  # it imports torch

        return list(torch_random.of_graph(model.module.inlined_graph))

    def _double(self, module: Any) -> Any:
        """The same module in float64: parameters, constants of the graph, and dtypes that its operators name."""
        try:
            module = module.double()
            # The graph of a loaded module can be changed until its first call.
            self.torch._C._jit_pass_inline(module.graph)
            self._widen(module.graph, module.graph)
        except Exception as error:
            raise Unsupported(f"it cannot be computed in float64: {first_line(error)}") from None
        return module

    def _widen(self, block: Any, graph: Any) -> None:
        """Make the constants, and the dtypes that operators name, of a block of a graph float64."""
        for node in list(block.nodes()):
            for inner in node.blocks():
                self._widen(inner, graph)
            if node.kind() == "prim::Constant":
                if node.hasAttribute("value") and node.kindOf("value") == "t" and node.t("value").is_floating_point():
                    node.t_("value", node.t("value").double())
                    node.output().inferTypeFrom(node.t("value"))
            elif "no schema" not in node.schema():
                for place, argument in enumerate(self.torch._C.parse_schema(node.schema()).arguments):
                    if argument.name == "dtype" and _constant(node.inputsAt(place)) in _NARROW:
                        with graph.insert_point_guard(node):
                            wide = graph.insertConstant(_DOUBLE)
                        node.replaceInput(place, wide)


def _constant(value: Any) -> int | None:
    """The value of an integer constant of a graph; None for any other value."""
    node = value.node()
    known = node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "i"
    return node.i("value") if known else None


def _indexes(value: Any) -> bool:
    """Whether an input of the graph is used as the numbers of rows of an embedding, or some of it as a whole number of Python."""
    return value is not None and any(
        (use.user.kind() == "aten::embedding" and use.offset == 1)
        or use.user.kind() in ("aten::Int", "aten::IntImplicit")
        or (use.user.kind() == "aten::select" and use.offset == 0 and _indexes(use.user.output()))
        for use in value.uses()
    )


def _structure(kind: Any) -> Any:
    """A nested value whose names are those of a result of this type; None when only a call shows them."""
    if kind.kind() == "TupleType":
        parts = [_structure(element) for element in kind.elements()]
        if None in parts:
            return None
        match = re.match(r"NamedTuple\((.*)\)$", kind.str())
        return dict(zip(re.findall(r"(\w+) : ", match[1]), parts)) if match else tuple(parts)
    return 0 if kind.kind() in ("TensorType", "IntType", "FloatType", "BoolType") else None
