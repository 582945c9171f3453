"""The spec of a model, and the folder that holds it.

A folder of the zoo and a user's own folder anywhere on disk are read by the same code:

    my_port/
      spec.py         SPEC = ModelSpec(inputs={...}, outputs={...})
      torch.py        def build(**options): ...
      jittor.py       def build(**options): ...
      names.toml      optional, canonical name -> this framework's name
      weights.safetensors   optional, trained weights
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import SpecError, UsageError, nearest

BATCH = "N"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model, in canonical (torch) layout.

    shape: sizes, with ``"N"`` standing for the batch, e.g. ``("N", 3, 224, 224)``.
    dtype: numpy name, e.g. ``"float32"``, ``"int64"``.
    low, high: the range inputs are drawn from: uniform [low, high). Floats without a range are standard normal.
        Integer inputs need both (class or token numbers).
    layout: names the axes, e.g. ``"NCHW"``. A framework whose native layout differs (TensorFlow: NHWC) is then fed, and
        read, in its own. Without it, arrays are passed as they are.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None
    layout: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        for size in self.shape:
            if size != BATCH and not (isinstance(size, int) and size > 0):
                raise SpecError(f"shape {self.shape}: every size is a positive integer or {BATCH!r}, not {size!r}")
        if (self.low is None) != (self.high is None):
            raise SpecError(f"shape {self.shape}: give both low and high, or neither")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise SpecError(f"shape {self.shape}: low {self.low} is not below high {self.high}")
        if self.layout is not None and len(self.layout) != len(self.shape):
            raise SpecError(
                f"layout {self.layout!r} names {len(self.layout)} axes, shape {self.shape} has {len(self.shape)}"
            )

    def sized(self, batch: int) -> tuple[int, ...]:
        """The shape at this batch size."""
        return tuple(batch if size == BATCH else int(size) for size in self.shape)


@dataclass(frozen=True)
class ModelSpec:
    """What a model takes and gives.

    inputs, outputs: name -> TensorSpec, in the order in which the model takes and returns them.
    task: what the model is for ("classification", "language-model", ...), for the report.
    batch: the batch size when the user names none. item: what one element of a batch is called ("image", "sequence").
    options: keyword arguments for every framework's ``build``.
    code: a folder beside this one that holds the framework files, when variants of a model share them.
    control_flow: why the model cannot be traced, when its control flow depends on its input; '' when it can.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    task: str = ""
    batch: int = 8
    item: str = "item"
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    code: str = ""
    control_flow: str = ""

    @property
    def no_export(self) -> str:
        """Why the model has no ONNX export; '' when it may have one."""
        return f"no ONNX export: {self.control_flow}, which a trace cannot hold" if self.control_flow else ""

    def __post_init__(self) -> None:
        for what, tensors in (("inputs", self.inputs), ("outputs", self.outputs)):
            if not tensors:
                raise SpecError(f"ModelSpec({what}=...) is empty: name at least one tensor")
            for name, tensor in tensors.items():
                if not isinstance(tensor, TensorSpec):
                    raise SpecError(f"{what}[{name!r}] is a {type(tensor).__name__}: write TensorSpec(shape, ...)")
        for name, tensor in self.inputs.items():
            if not tensor.dtype.startswith("float") and tensor.low is None:
                raise SpecError(f"inputs[{name!r}] is {tensor.dtype}: give low and high, the range of its values")
        if not any(BATCH in tensor.shape for tensor in self.inputs.values()):
            raise SpecError(
                f"no input has a batch axis: write {BATCH!r} for it, e.g. TensorSpec(({BATCH!r}, 3, 224, 224))"
            )


@dataclass(frozen=True)
class ModelFolder:
    """A model folder on disk: its spec and which framework files it has."""

    name: str
    path: Path
    spec: ModelSpec

    @property
    def code(self) -> Path:
        """Where the framework files are: here, or in the folder that ``spec.code`` names."""
        return (self.path / self.spec.code).resolve()

    def file(self, framework: str) -> Path | None:
        """The model's file for this framework, or None."""
        path = self.code / f"{framework}.py"
        return path if path.is_file() else None

    def takes(self, framework: str, option: str) -> bool:
        """Whether this framework's ``build`` has such a parameter, read without importing it; True where that cannot be told."""
        try:
            statements = ast.parse((self.code / f"{framework}.py").read_text()).body
        except (OSError, SyntaxError, ValueError):
            return True
        for statement in statements:
            if isinstance(statement, ast.FunctionDef) and statement.name == "build":
                found = statement.args
                names = {argument.arg for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs)}
                return option in names or found.kwarg is not None
        return True

    @property
    def weights(self) -> Path | None:
        path = self.path / "weights.safetensors"
        return path if path.is_file() else None

    def names(self, framework: str) -> dict[str, str]:
        """names.toml's table for this framework: canonical layer or parameter name -> the framework's name."""
        path = self.code / "names.toml"
        if not path.is_file():
            return {}
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        try:
            table = tomllib.loads(path.read_text()).get(framework, {})
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"{path}: {error}") from None
        if not all(isinstance(value, str) for value in table.values()):
            raise SpecError(f'{path}: [{framework}] takes lines of the form "canonical.name" = "its.name"')
        return table

    def digest(self) -> str:
        """SHA-256 over the folder's source files, for the receipt."""
        sha = hashlib.sha256()
        folders = dict.fromkeys((self.path, self.code))
        for path in (
            path for folder in folders for suffix in ("py", "toml") for path in sorted(folder.glob(f"*.{suffix}"))
        ):
            sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return f"sha256:{sha.hexdigest()}"


def load_module(folder: Path, name: str) -> ModuleType:
    """Import ``folder/name.py`` without putting the folder on sys.path, where its torch.py would hide torch.

    Siblings are reached as ``from .common import ...``.
    """
    package = "xverify_model_" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(folder.resolve())]
        sys.modules[package] = parent
    qualified = f"{package}.{name}"
    spec = importlib.util.spec_from_file_location(qualified, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = module
    spec.loader.exec_module(module)
    return module


def zoo() -> dict[str, Path]:
    """The models that come with xverify: name -> folder."""
    from .. import models

    root = Path(next(iter(models.__path__)))
    return {path.parent.name: path.parent for path in sorted(root.glob("*/spec.py"))}


def find_model(model: str | Path) -> ModelFolder:
    """The folder of a zoo model's name, or of a path.

    Raises UsageError for an unknown name, SpecError for a folder whose spec cannot be used.
    """
    known = zoo()
    if str(model) in known:
        return load_folder(known[str(model)])
    path = Path(model)
    if path.is_dir():
        return load_folder(path)
    if str(model).startswith(".") or "/" in str(model) or len(path.parts) > 1:
        raise UsageError(f"{model}: no such folder; name a folder that holds spec.py, or one of: {', '.join(known)}")
    raise UsageError(
        f"unknown model {str(model)!r}{nearest(str(model), known)} Known: {', '.join(known)}; or name a folder"
    )


def load_folder(path: Path) -> ModelFolder:
    """Read a model folder; raises SpecError with the place of the fault."""
    file = path / "spec.py"
    if not file.is_file():
        raise SpecError(f"{path} has no spec.py: write SPEC = ModelSpec(inputs=..., outputs=...) there")
    try:
        module = load_module(path, "spec")
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from None
    except Exception as error:
        raise SpecError(f"{file}{_line_in(error, file)}: {type(error).__name__}: {error}") from None
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, ModelSpec):
        raise SpecError(f"{file} defines no SPEC = ModelSpec(...): found {type(spec).__name__}")
    folder = ModelFolder(name=path.resolve().name, path=path.resolve(), spec=spec)
    if not folder.code.is_dir():
        raise SpecError(f"{file}: code={spec.code!r} is no folder beside it ({folder.code})")
    return folder


def _line_in(error: BaseException, file: Path) -> str:
    trace = error.__traceback__
    line = getattr(error, "lineno", None)
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
