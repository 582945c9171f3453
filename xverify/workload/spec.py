"""The spec of a model, and the folder that contains it.

Folders of the zoo and a user's own folders are read in the same way:

    my_port/
      spec.py         SPEC = ModelSpec(inputs={...}, outputs={...})
      torch.py        def build(**options): ...
      jittor.py       def build(**options): ...
      names.toml      optional, canonical name -> this framework's name; layers with folded weights
      weights.safetensors   optional, trained weights
"""

from __future__ import annotations

import ast
import hashlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from .. import reading, usercode
from ..errors import SpecError, UsageError, first_line, nearest
from . import fields
from .arguments import Arguments
from .code import BUILD, Code
from .digests import file_digest
from .imports import load_module, parsed
from .losses import Loss
from .objective import terms_of
from .recipe import NO_RECIPE, Recipe
from .sizes import names_in
from .tensor_spec import BATCH, TensorSpec

__all__ = ["BATCH", "ModelFolder", "ModelSpec", "TensorSpec", "find_model", "load_folder", "load_module", "zoo"]

# Entries of a table of names.toml that name no layer: layers whose weight a port has computed, weights that it stores otherwise,
# and weights for which it has no place.
FOLDED, STORED, ABSENT = "folded", "stored", "absent"


@dataclass(frozen=True)
class ModelSpec(Arguments):
    """The inputs, outputs and settings of a model.

    inputs, outputs: name -> TensorSpec, in the order in which the model takes and returns them.
    task: the purpose of the model, e.g. "classification". For "language-model" the labels are the next tokens.
    batch: the batch size when the user names none; None: no tensor has a batch axis, and an item is the whole input.
    sizes: name of an axis of the inputs -> its size when the user names none.
    item: what one element of a batch is called, e.g. "image" or "sequence".
    options: keyword arguments for the ``build`` function of every framework's model file.
    description: one line for the list of models.
    code: the relative path of another folder that contains the model files, for a variant of a model.
    control_flow: why the model cannot be traced, when its control flow depends on its input; '' when it can be traced.
    training: what training sets around the formula of the optimizer, such as parameter groups and clipping.
    targets: name -> TensorSpec of what training compares the outputs with; without any, the labels are classes.
    draw_buffers: whether probe weights also replace the buffers that ``build`` computes, such as a filter.
    loss: the name of a loss, a Loss, or several of them; without any, the cross-entropy of the only output.
    cache: of a decoder whose file gives a tensor of its cache no name that says so: input of the file -> the output that is this
        input at the next call.
    declared: "inputs", "outputs" and "targets" -> the tensors as they were written, with the names of their axes.
    Raises SpecError for values that contradict each other.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    task: str = ""
    batch: int | None = 8
    item: str = "item"
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    code: str = ""
    control_flow: str = ""
    training: Recipe = NO_RECIPE
    targets: Mapping[str, TensorSpec] = field(default_factory=dict)
    loss: str | Loss | Sequence[str | Loss] = ()
    draw_buffers: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    cache: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, Mapping[str, TensorSpec]] = field(init=False, repr=False, compare=False)

    def at(self, sizes: Mapping[str, int]) -> ModelSpec:
        """The spec with these sizes of some named axes. Raises SpecError for a size that an axis cannot have."""
        written = self.declared
        return replace(
            self,
            inputs=written["inputs"],
            outputs=written["outputs"],
            targets=written["targets"],
            sizes={**self.sizes, **sizes},
        )

    @property
    def no_export(self) -> str:
        """Why the model has no ONNX export; '' when it may have one."""
        return f"no ONNX export: {self.control_flow}, which a trace cannot hold" if self.control_flow else ""

    def __post_init__(self) -> None:
        fields.tensors("inputs", self.inputs, TensorSpec)
        fields.tensors("outputs", self.outputs, TensorSpec)
        if self.batch is not None:
            fields.batch(self.batch)
        fields.options(self.options)
        fields.pairs("cache", self.cache)
        for name in ("task", "item", "description", "code", "control_flow"):
            fields.text(name, getattr(self, name))
        if self.targets:
            fields.tensors("targets", self.targets, TensorSpec)
        for name in self.targets:
            if name in self.inputs:
                raise SpecError(f"targets[{name!r}] has the name of an input: give it another name")
        self._set_sizes()
        if not isinstance(self.draw_buffers, bool):
            raise SpecError(f"draw_buffers is {self.draw_buffers!r}: write True or False")
        if not isinstance(self.training, Recipe):
            raise SpecError(f"training is a {type(self.training).__name__}: write Recipe(...)")
        for what, tensors in (("inputs", self.inputs), ("targets", self.targets)):
            for name, tensor in tensors.items():
                fields.drawn(f"{what}[{name!r}]", tensor.dtype, tensor.low, tensor.high)
        self._check_batch_axes()
        terms_of(self)

    @property
    def items(self) -> int:
        """The items of a call when the user names no batch size."""
        return 1 if self.batch is None else self.batch

    def _check_batch_axes(self) -> None:
        """Raise SpecError where no input has a batch axis, or where a tensor has one that the model has not."""
        kinds = {"inputs": self.inputs, "outputs": self.outputs, "targets": self.targets}
        places = [f"{what}[{name!r}]" for what, all in kinds.items() for name in all if BATCH in all[name].shape]
        if self.batch is None and places:
            raise SpecError(
                f"batch is None, which says that an item is the whole input, and {places[0]} has the batch axis {BATCH!r}: "
                "write a number for either"
            )
        if self.batch is not None and not any(BATCH in tensor.shape for tensor in self.inputs.values()):
            raise SpecError(
                f"no input has a batch axis: write {BATCH!r} for it, e.g. TensorSpec(({BATCH!r}, 3, 224, 224)); or write "
                "batch=None when an item is the whole input, such as a graph"
            )

    def _set_sizes(self) -> None:
        """Put the sizes of named axes in the place of their names."""
        written = {what: getattr(self, what) for what in ("inputs", "outputs", "targets")}
        object.__setattr__(self, "declared", written)
        taken = {size for each in self.inputs.values() for size in each.shape if isinstance(size, str)} - {BATCH}
        fields.sizes(self.sizes, BATCH, set().union(*map(names_in, taken)))
        for what, tensors in written.items():
            sized = {
                name: replace(each, shape=fields.sized(f"{what}[{name!r}]", each.shape, self.sizes, BATCH))
                for name, each in tensors.items()
            }
            object.__setattr__(self, what, sized)


@dataclass(frozen=True)
class ModelFolder:
    """A model folder on disk.

    name: the name of the folder. path: its absolute path. spec: the SPEC of its spec.py.
    ports: name of a subject -> its model file, which stands elsewhere. Such a file has its name in the place of a framework's.
    """

    name: str
    path: Path
    spec: ModelSpec
    ports: Mapping[str, Code] = field(default_factory=dict)

    @property
    def code(self) -> Path:
        """The folder that contains the model files: this folder, or the one that ``spec.code`` names."""
        return (self.path / self.spec.code).resolve()

    def place(self, framework: str) -> Path:
        """Where the model file of this framework is, or would be. framework: also the name of a variant, or of a port."""
        return self.ports[framework].file if framework in self.ports else self.code / f"{framework}.py"

    def function(self, framework: str) -> str:
        """What gives the model in this file."""
        return self.ports[framework].name if framework in self.ports else BUILD

    def file(self, framework: str) -> Path | None:
        """The model file for this framework; None when there is none."""
        return reading.present(self.place(framework))

    def takes(self, framework: str, option: str) -> bool:
        """Whether ``build`` of this framework's model file has this parameter.

        The file is parsed and not imported. True when the file does not define ``build`` itself.
        """
        try:
            statements = parsed(reading.content(self.place(framework))).body
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return True
        for statement in statements:
            if isinstance(statement, ast.FunctionDef) and statement.name == self.function(framework):
                parameters = statement.args
                named = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
                return parameters.kwarg is not None or option in {parameter.arg for parameter in named}
        return True

    @property
    def weights(self) -> Path | None:
        """The file of trained weights; None when there is none."""
        return reading.present(self.path / "weights.safetensors")

    def names(self, framework: str) -> dict[str, str]:
        """The table of names.toml for this framework: canonical name of a layer or parameter -> the framework's name.

        Raises SpecError when the file cannot be read.
        """
        table = {key: value for key, value in self._table(framework).items() if not _is_special(key, value)}
        return fields.names(self._names_file, framework, table)

    def folded(self, framework: str) -> tuple[str, ...]:
        """The layers, or modules that hold layers, of which this framework's file has the computed weight (see reference.folding).

        Raises SpecError when names.toml cannot be read.
        """
        return self._listed(framework, FOLDED)

    def absent(self, framework: str) -> tuple[str, ...]:
        """The weights of the reference, or layers, for which this framework's file has no place. Raises SpecError as above."""
        return self._listed(framework, ABSENT)

    def all_absent(self) -> set[str]:
        """The same of all frameworks."""
        return {name for framework in self._tables() for name in self.absent(framework)}

    def _listed(self, framework: str, key: str) -> tuple[str, ...]:
        listed = self._table(framework).get(key, [])
        if isinstance(listed, str) and key == ABSENT:  # a layer of this name
            return ()
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise SpecError(
                f'{self._names_file}: [{framework}] {key} takes a list of layers, such as ["conv1"]; it is {listed!r}'
            )
        return tuple(listed)

    def stored(self, framework: str) -> dict[str, Any]:
        """The table of the weights that this framework's file stores otherwise (see weights.arrangement).

        Raises SpecError when names.toml cannot be read, or for a line that makes no sense.
        """
        table = self._table(framework).get(STORED, {})
        if isinstance(table, str):  # a layer of this name
            return {}
        if not isinstance(table, Mapping):
            raise SpecError(
                f"{self._names_file}: [{framework}] {STORED} is a table, [{framework}.{STORED}]; it is {table!r}"
            )
        return fields.stored(self._names_file, framework, table)

    def check_names(self) -> None:
        """Raise SpecError when names.toml cannot be used, for whichever framework."""
        for framework in self._tables():
            self.names(framework)
            self.folded(framework)
            self.absent(framework)
            self.stored(framework)

    def folds(self) -> bool:
        """Whether some framework's file has the computed weight of some layer."""
        return any(FOLDED in table for table in self._tables().values())

    @property
    def _names_file(self) -> Path:
        return self.code / "names.toml"

    def _table(self, framework: str) -> Mapping[str, object]:
        """The table of names.toml for this framework. framework: also the name of a variant, or of a port."""
        port = self.ports.get(framework)
        return self._tables().get((port.table if port else "") or framework, {})

    def _tables(self) -> Mapping[str, Mapping[str, object]]:
        """The tables of names.toml by framework; {} without the file."""
        path = self._names_file
        if reading.present(path) is None:
            return {}
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        try:
            tables = tomllib.loads(reading.given(path).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise SpecError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            raise SpecError(f"{path}: {first_line(error)}") from None
        return fields.tables(path, tables)

    def digest(self) -> str:
        """``sha256:`` and the hash of the folder's source files and of its weights, for the result file."""
        sha = hashlib.sha256()
        folders = dict.fromkeys((self.path, self.code))
        sources = (sorted(folder.glob(f"*.{suffix}")) for folder in folders for suffix in ("py", "toml"))
        try:
            for path in filter(Path.is_file, (*chain.from_iterable(sources), *filter(None, [self.weights]))):
                sha.update(f"{path.name}\0{file_digest(path)}\0".encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise SpecError(f"{error.filename}: {error.strerror}") from None
        return f"sha256:{sha.hexdigest()}"


def zoo() -> dict[str, Path]:
    """The models that are installed with xverify: name -> folder."""
    from .. import models

    root = Path(next(iter(models.__path__)))
    return {path.parent.name: path.parent for path in sorted(root.glob("*/spec.py"))}


def find_model(model: str | Path) -> ModelFolder:
    """The model folder for the name of a zoo model, or for a path.

    Raises UsageError for an unknown name, and SpecError for a folder whose spec cannot be used.
    """
    known = zoo()
    if str(model) in known:
        return load_folder(known[str(model)])
    path = Path(model)
    try:
        if path.is_dir():
            return load_folder(path)
    except OSError as error:
        raise UsageError(f"{model}: {error.strerror}") from None
    if path.is_file():
        raise UsageError(f"{model}: {_meant(path)}")
    if str(model).startswith(".") or "/" in str(model) or len(path.parts) > 1 or path.suffix:
        raise UsageError(f"{model}: no such folder; name a folder that holds spec.py, or one of: {', '.join(known)}")
    raise UsageError(
        f"unknown model {str(model)!r}{nearest(str(model), known)} Known: {', '.join(known)}; or name a folder"
    )


def _meant(file: Path) -> str:
    """What was meant by a file in the place of a model folder."""
    if (file.parent / "spec.py").is_file():
        return f"the file of a model folder; name the folder: {file.parent if file.parent.name else './'}"
    if file.suffix == ".py":
        return (
            "a Python file, and no model folder; write FILE.py:FUNCTION for `xverify convert`, or for --against of a check, "
            "or put a spec.py beside it"
        )
    return f"a file, and no model folder; `xverify check {shlex.quote(str(file))}` checks the file of a model"


def load_folder(path: Path) -> ModelFolder:
    """Read a model folder. Raises SpecError, with file and line, when its spec cannot be used."""
    file = path / "spec.py"
    if reading.present(file) is None:
        raise SpecError(f"{path} has no spec.py: write SPEC = ModelSpec(inputs=..., outputs=...) there")
    try:
        with usercode.guarded():
            module = load_module(path, "spec")
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from None
    except usercode.Stopped as error:
        raise SpecError(f"{file}{_line_in(error, file)}: {error}") from None
    except Exception as error:
        raise SpecError(f"{file}{_line_in(error, file)}: {first_line(error)}") from None
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, ModelSpec):
        raise SpecError(f"{file} defines no SPEC = ModelSpec(...): found {type(spec).__name__}")
    folder = ModelFolder(name=path.resolve().name, path=path.resolve(), spec=spec)
    if not folder.code.is_dir():
        raise SpecError(f"{file}: code={spec.code!r} is no folder beside it ({folder.code})")
    folder.check_names()
    return folder


def _is_special(key: str, value: object) -> bool:
    """Whether an entry of a table of names.toml names no layer."""
    return key == FOLDED or (key in (STORED, ABSENT) and not isinstance(value, str))


def _line_in(error: BaseException, file: Path) -> str:
    """``:LINE``, the line of this file at which the error was raised; '' when it was raised elsewhere."""
    trace = error.__traceback__
    line = getattr(error, "lineno", None)
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
