"""A subject whose model file stands anywhere: ``NAME=[FRAMEWORK:]PATH.py[:FUNCTION][@MODE]``, ``NAME=PATH.onnx[@MODE]`` or
``NAME=PATH.gguf``.

A file of code is parsed, and never imported in this process. Its framework is that of the libraries which the function uses; that
of another file is told by its suffix. An ONNX file takes the place of the reference's export, and keeps its own weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import reading
from ..errors import UsageError, nearest
from ..workload.code import BUILD
from ..workload.imported import WRONG, Names, module_file, parsed_file, reached

if TYPE_CHECKING:
    from .adapter import Framework
    from .modelfile import ModelFile

WRITE = (
    "write NAME=[FRAMEWORK:]FILE.py[:FUNCTION][@MODE], e.g. port=fast/model.py:build@compile, or NAME=FILE.onnx[@MODE], or "
    "NAME=FILE.gguf"
)
FORM = re.compile(r"([\w.-]*)=(?:(\w[\w-]+):)?(.+?\.(?:py|onnx|gguf|safetensors))(?::(\w+))?(?:@([\w-]+))?")
CODE = ".py"
GRAPH, RUNTIME = ".onnx", "onnxruntime"  # the suffix of graphs, and what runs one where the subject does not say
ANYWHERE = "numpy"  # code of every framework may import it


@dataclass(frozen=True)
class Port:
    """A file that a subject names.

    name: how its subjects are called. framework, mode: "" where the subject does not say. path: as it is written.
    function: the function, class or object of the file that gives the model.
    """

    name: str
    framework: str
    path: Path
    function: str
    mode: str

    def __str__(self) -> str:
        start = f"{self.framework}:" * bool(self.framework)
        function = f":{self.function}" * (self.path.suffix == CODE or self.function != BUILD)
        return f"{self.name}={start}{self.path}{function}" + f"@{self.mode}" * bool(self.mode)


def is_graph(path: Path | None) -> bool:
    """Whether a subject's file is an ONNX graph, which holds its own weights. path: None for a file of the model folder."""
    return path is not None and path.suffix == GRAPH


def _format() -> type[ModelFile]:
    from . import formats  # it finds formats by the code that finds frameworks, which reads subjects

    return formats.load("onnx")


def tensors_of(file: Path) -> tuple[list[str], list[str]]:
    """The names of the inputs and of the outputs of a subject that is a graph. Raises UsageError for a truncated file."""
    names: tuple[list[str], list[str]] = _format().tensors(file)  # type: ignore[attr-defined]
    return names


def files_of(file: Path) -> list[Path]:
    """The file of a subject, and those that it imports, or that hold its external data."""
    if is_graph(file):
        return [file, *_format().parts(file)]
    return [file, *sorted(reached(file, Path.cwd()) - {file.resolve()})]


def parse(text: str) -> Port | None:
    """The file that a subject names; None for one that names a framework. Raises UsageError for a text of no known form."""
    text = text.strip()
    if "=" not in text:
        return None
    found = FORM.fullmatch(text)
    if found is None:
        raise UsageError(f"--subjects {text}: {WRITE}")
    name, framework, path, function, mode = found.groups("")
    if not name or name[0] in ".-":
        raise UsageError(f"--subjects {text}: the name before '=' is {name!r}: begin it with a letter; {WRITE}")
    return Port(name, framework, Path(os.path.expanduser(path)), function or BUILD, mode)


def beside(text: str, folder: Path) -> str:
    """The same subject with the file below this folder, where it is there. A text of another form stays."""
    try:
        port = parse(text)
    except UsageError:  # it is told where the subject is used
        return text
    if port is None or not (folder / port.path).is_file():
        return text
    return str(replace(port, path=folder / port.path))


def check(port: Port) -> None:
    """Raise UsageError unless there is such a file, which defines or imports the function, or is no code."""
    if port.path.suffix != CODE:
        _check_file(port)
        if port.function != BUILD:
            raise UsageError(
                f"--subjects {port}: {port.path.name} is no code, and has no {port.function!r}: leave it out"
            )
        if is_graph(port.path):
            _format().check(port.path)
        return
    names = _names(port)
    if names.known is not None and port.function not in names.known:
        own = [each for each in names.known if not each.startswith("_")]
        raise UsageError(f"--subjects {port}: {port.path} has no {port.function!r}{nearest(port.function, own)}")


def framework_of(port: Port, adapters: Mapping[str, type[Framework]]) -> str:
    """The framework of a port that does not name it: that of the libraries which its function uses, or else its file.

    Raises UsageError where there is none, or more than one.
    """
    check(port)
    if is_graph(port.path):
        return RUNTIME
    if port.path.suffix != CODE:
        return next(name for name, adapter in adapters.items() if adapter.suffix == port.path.suffix)
    own = {
        name: adapter
        for name, adapter in adapters.items()
        if adapter.suffix == CODE and not adapter.runs_export and adapter.reads() == name
    }
    found: list[str] = []
    for start in (port.function, None):
        used = set(_libraries(port.path, start, set()))
        found = [name for name, adapter in own.items() if used & set(adapter.libraries or adapter.needs.values())]
        found = [name for name in found if not any(_gives_way(own[name], own[each]) for each in found)]
        found = [name for name in found if name != ANYWHERE] or found
        if found:
            break
    if len(found) == 1:
        return found[0]
    says = f"uses {' and '.join(found)}" if found else "imports no framework that xverify knows"
    example = replace(port, framework=(found or ["torch"])[0])
    raise UsageError(f"--subjects {port}: {port.path} {says}; name the framework of the port, e.g. {example}")


def _gives_way(adapter: type[Framework], other: type[Framework]) -> bool:
    """Whether code that imports the libraries of both is of the other: that is built on this one, or this is derived from it."""
    derived = adapter is not other and issubclass(adapter, other) and adapter.libraries == other.libraries
    return derived or set(adapter.needs.values()) < set(other.needs.values())


def _check_file(port: Port) -> None:
    wrong = reading.problem(port.path)
    if wrong:
        raise UsageError(f"--subjects {port}: {wrong}: {port.path}")


def _names(port: Port) -> Names:
    _check_file(port)
    try:
        return Names.of(parsed_file(port.path))
    except WRONG as error:
        line = getattr(error, "lineno", None)
        says = getattr(error, "msg", None) or str(error)
        raise UsageError(f"{port.path}{f':{line}' if line else ''}: {type(error).__name__}: {says}") from None


def _libraries(path: Path, start: str | None, seen: set[tuple[Path, str | None]]) -> Iterator[str]:
    """The packages that a name of a file uses, also in the files beside it. start: None for all that the file imports."""
    if (path, start) in seen:
        return
    seen.add((path, start))
    try:
        names = Names.of(parsed_file(path))
    except WRONG:
        return
    for used in names.used_by(start):
        file = module_file(path, used)
        if file is not None:
            yield from _libraries(file[0], file[1] if start is not None else None, seen)
        elif not used.level:
            yield used.module.partition(".")[0]
