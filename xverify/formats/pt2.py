"""Files of ``torch.export.save``: ``.pt2``, a zip archive of a graph in JSON, weights and example inputs.

``torch.export.load`` evaluates texts and opens pickles of such a file. ``describe_risk`` looks at all of them first.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xverify.errors import Failed, Unsupported, UsageError, first_line
from xverify.formats import _torch_precision as torch_precision
from xverify.formats import _zip
from xverify.formats._allowed import allowed
from xverify.formats._pickle import code_in_archive
from xverify.formats._torch_file import TorchFile, named
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import FLOATS, Signature, Tensor, numpy_name
from xverify.results.precision import Precision

# What a node may call: a known operator, or a function of sizes. No part of a name leads to an attribute such as __globals__.
_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(\.(?!__)\w+)?")
_SIZES = re.compile(
    r"_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_|xor|lshift|rshift|"
    r"matmul|is_|is_not|iadd|isub|imul)|math\.[a-z]\w*|torch\.(_sym_|sym_)\w+|torch\._check\w*"
)
# What the structure of inputs and outputs may consist of. Others name modules, which torch imports.
_CONTAINERS = {
    *(None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.namedtuple"),
    *("torch.Size", *(f"torch.fx.immutable_collections.immutable_{kind}" for kind in ("list", "dict"))),
}
# An expression of sizes: torch evaluates its text as Python code. Only these functions may be called in it.
_EXPRESSION = re.compile(r"[\w\s+\-*/%().,<>=!&|~]*")
_QUOTED = re.compile(r"'(\w+|-?\d+\.\d*(e[+-]?\d+)?)'")  # the name of a symbol, or a number
_CALLED = re.compile(r"([\w.]+)\s*\(")
_FUNCTIONS = (
    "Mod PythonMod FloorDiv CleanDiv CeilDiv CeilToInt FloorToInt RoundToInt TruncToInt TruncToFloat IntTrueDiv FloatTrueDiv "
    "ToFloat PowByNatural FloatPow Pow Max Min Abs Where Eq Ne Ge Gt Le Lt And Or Not Identity ModularIndexing Piecewise "
    "Symbol Integer Rational Float Add Mul LShift RShift BitwiseFn_bitwise_and BitwiseFn_bitwise_or OpaqueUnaryFn_sqrt "
    "floor ceiling"
)
_LOOKED_AT = frozenset({"target", "as_operator", "in_spec", "out_spec", "expr_str", "as_symint", "as_symfloat"})
_COMPILED = (".so", ".o", ".dll", ".dylib", ".cubin", ".ptx")


def exported(framework: Adapter, model: Exported, example: tuple[Any, ...]) -> Any:
    """Run the exported graph operator by operator."""
    from torch.utils import _pytree

    def call(*inputs: Any) -> Any:
        arguments, keywords = _pytree.tree_unflatten(list(inputs), model.program.call_spec.in_spec)
        return model.module(*arguments, **keywords)

    return framework.checked(call, model.float64)


@dataclass(frozen=True)
class Exported:
    """A file that was loaded. program: the ExportedProgram. module: the same as a module that can be called."""

    program: Any
    module: Any
    float64: bool


class Adapter(TorchFile):
    name = "pt2"
    title = "torch.export file (.pt2)"
    modes = {"exported": exported}
    implicit_mode = "exported"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        names = _zip.inner_names(path)
        return "archive_format" in names or "serialized_exported_program.json" in names

    @classmethod
    def check(cls, path: Path) -> None:
        names = _zip.inner_names(path)
        if not any(name.startswith("models/") or name == "serialized_exported_program.json" for name in names):
            raise UsageError(
                f"{path.name}: this torch.export file (.pt2) holds no graph, and compiled code cannot be checked"
            )

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        if _zip.doubt(path):
            return _zip.doubt(path)
        try:
            with zipfile.ZipFile(path) as archive:
                for info in archive.infolist():
                    found = _risk(archive, info)
                    if found:
                        return found
        except (*_zip.ERRORS, RecursionError) as error:
            return f"it cannot be looked through: {first_line(error)}"
        return ""

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Exported:
        if not options.get("trust"):
            # Otherwise torch opens as a full pickle what it cannot open as a pickle of tensors.
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        try:
            with path.open("rb") as file:  # torch warns about a name that does not end in .pt2
                program = self.torch.export.load(file)
        finally:
            os.environ.pop("TORCH_FORCE_WEIGHTS_ONLY_LOAD", None)
        module = program.module()
        if float64:
            self._widen(module)
        return Exported(program, module, float64)

    def tensors(self, model: Exported) -> Mapping[str, Any]:
        found = {**model.program.state_dict, **model.program.constants}
        return {name: value for name, value in found.items() if isinstance(value, self.torch.Tensor)}

    def computed_with(self, model: Exported) -> Mapping[str, Any]:
        state: Mapping[str, Any] = model.module.state_dict()
        return state

    def signature(self, model: Exported) -> Signature:
        from torch.utils import _pytree

        program = model.program
        places = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        inputs = tuple(_tensor(name, places[name].meta["val"]) for name in program.graph_signature.user_inputs)
        (end,) = (node for node in program.graph.nodes if node.op == "output")
        produced = {getattr(node, "name", None): node for node in end.args[0]}
        values = [
            produced[name].meta["val"] if name in produced and hasattr(produced[name], "meta") else name
            for name in program.graph_signature.user_outputs
        ]
        results = _pytree.tree_unflatten(values, program.call_spec.out_spec)
        signature = Signature(inputs, tuple(_tensor(name, value) for name, value in named(results)))
        return signature.as_float64() if model.float64 else signature

    def traced(self, model: Exported, inputs: Mapping[str, Any]) -> Traced:
        from xverify.formats import _torch_nodes as torch_nodes  # it imports torch

        return torch_nodes.of_program(self, model, inputs)

    def precision(self, model: Exported) -> Precision:
        return torch_precision.of_program(model.program)

    def random_operators(self, model: Exported) -> list[str]:
        from xverify.formats import _torch_random as torch_random  # it imports torch

        return list(torch_random.of_program(model.module))

    def _widen(self, module: Any) -> None:
        """Make parameters, constants, and the dtypes that operators name, float64."""
        torch = self.torch

        def wide(value: Any) -> Any:
            is_narrow = isinstance(value, torch.dtype) and numpy_name(str(value)) in FLOATS
            return torch.float64 if is_narrow else value

        try:
            module.double()
            for part in module.modules():
                for name, value in list(vars(part).items()):
                    if isinstance(value, torch.Tensor) and value.is_floating_point():
                        setattr(part, name, value.double())
                if not isinstance(part, torch.fx.GraphModule):
                    continue
                for node in part.graph.nodes:
                    node.args = torch.fx.node.map_aggregate(node.args, wide)
                    node.kwargs = torch.fx.node.map_aggregate(node.kwargs, wide)
                part.recompile()
        except Exception as error:
            raise Unsupported(f"it cannot be computed in float64: {first_line(error)}") from None


def _risk(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    """Why opening this member can run code, as a clause."""
    name = info.filename.lower()
    if "/aotinductor/" in name or name.endswith(_COMPILED):
        return f"it holds compiled code, {info.filename}"
    if "custom_obj_" in name or "opaque_obj_" in name:
        return f"it holds a pickled object, {info.filename}"
    if name.endswith((".pt", ".pkl", ".pickle")):
        with archive.open(info) as file:
            found = code_in_archive(file)
        return f"its pickle {info.filename} calls {found}" if found else ""
    return _risk_in_json(archive, info) if name.endswith(".json") else ""


def _risk_in_json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    content = _zip.read_json(archive, info)
    for key, text in _texts(content):
        if key in ("target", "as_operator") and not _is_operator(text):
            return f"its graph calls {text[:80]}, which is no operator of a model"
        if key in ("expr_str", "as_symint", "as_symfloat") and not _is_expression(text):
            return f"its graph holds {text[:80]!r} as an expression of sizes, which PyTorch would evaluate"
        if key in ("in_spec", "out_spec") and text and not _is_structure(json.loads(text)[1]):
            return f"the structure {text[:80]!r} of its inputs or outputs may name modules, which PyTorch would import"
    configured = content.get("config") if isinstance(content, dict) else None
    for entry in configured.values() if isinstance(configured, dict) else ():
        if isinstance(entry, dict) and entry.get("use_pickle"):
            found = _pickled(archive, str(entry.get("path_name")))
            if found:
                return f"its pickle {entry.get('path_name')} calls {found}"
    return ""


def _pickled(archive: zipfile.ZipFile, name: str) -> str:
    for info in archive.infolist():
        if info.filename.endswith("/" + name):
            with archive.open(info) as file:
                found = code_in_archive(file)
            if found:
                return found
    return ""


def _is_operator(text: str) -> bool:
    match = _OPERATOR.fullmatch(text)
    return f"{match[1]}::{match[2]}" in allowed("torch-operators") if match else _SIZES.fullmatch(text) is not None


def _is_structure(node: Any) -> bool:
    """Whether a tree that torch would build consists of plain containers whose keys are plain values."""
    inner = node["children_spec"] if node["type"] is not None else []
    context = node["context"]
    named = node["type"] == "collections.namedtuple"  # its context is a name that torch looks up among those it knows
    plain = json.loads(context) if isinstance(context, str) and not named else context
    return node["type"] in _CONTAINERS and not _has_object(plain) and all(map(_is_structure, inner))


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_object, value)))


def _is_expression(text: str) -> bool:
    text = _QUOTED.sub("0", text)
    return (
        _EXPRESSION.fullmatch(text) is not None
        and not re.search(r"\)\s*\(", text)
        and not re.search(r"[A-Za-z_]\w*\s*\.|\.\s*[A-Za-z_]", text)
        and all(name in _FUNCTIONS.split(" ") for name in _CALLED.findall(text))
    )


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """(key, text) of every text in a JSON value; the key is that of the nearest object."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.items())
        elif isinstance(item, list):
            waiting.extend((key, each) for each in item)
        elif isinstance(item, str) and key in _LOOKED_AT:
            yield key, item


def _tensor(name: str, value: Any) -> Tensor:
    if not hasattr(value, "shape"):
        if isinstance(value, bool | int | float) or type(value).__name__ in ("SymInt", "SymFloat", "SymBool"):
            kind = type(value).__name__.lower().removeprefix("sym")
            return Tensor(name, (), {"int": "int64", "float": "float64"}.get(kind, "bool"))
        raise Failed(f"{name!r} is a {type(value).__name__}, and xverify compares tensors only")
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return Tensor(name, shape, numpy_name(str(value.dtype)))
