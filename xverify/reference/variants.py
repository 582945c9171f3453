"""Further implementations of a framework: files ``FRAMEWORK-NAME.py`` of a model folder, and files elsewhere that subjects name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError, nearest
from ..framework import discovery, ports
from ..framework.adapter import Framework
from ..workload.code import BUILD, Code
from ..workload.imported import WRONG, Names, parsed_file, reached
from ..workload.spec import ModelFolder


def of_folder(folder: ModelFolder) -> list[type[Framework]]:
    """The variants that a folder has files of. Raises UsageError for a file whose name is a mistake."""
    found: dict[str, Path] = {}
    for path in sorted(folder.code.glob("*-*.py")):
        if discovery.framework_of(path.stem):
            other = found.setdefault(path.stem.casefold(), path)
            if other != path:
                raise UsageError(f"{folder.code}: {other.name} and {path.name} claim one name: rename one of them")
        elif path.stem not in discovery.files():
            _check_name(path)
    adapters = [discovery.named(path.stem) for path in found.values()]
    for adapter in adapters:
        check(adapter)
    return adapters


def check(adapter: type[Framework]) -> None:
    """Raise UsageError for a variant of a framework that builds no model from code, and for a graph of one that runs none."""
    if ports.is_graph(adapter.path):
        if not adapter.runs_export:
            raise UsageError(f"{adapter.file_name()}: {adapter.name} builds models from code, and runs no ONNX files")
    elif adapter.variant and adapter.runs_export:
        raise UsageError(f"{adapter.file_name()}: {adapter.name} runs exported models, and builds none from code")


def _check_name(path: Path) -> None:
    """Raise UsageError for a file that builds a model, and whose name is nearly that of a framework's variant."""
    known = discovery.files()
    framework, _, rest = path.stem.partition("-")
    meant = nearest(framework, known)
    try:
        builds = BUILD in Names.of(parsed_file(path)).definitions
    except WRONG:
        return
    if builds and meant != ".":
        meant = meant.rstrip("?'") + f"-{rest}.py'?"
        raise UsageError(f"{path}: {framework!r} is no framework{meant} Known: {', '.join(known)}")


def elsewhere(subjects: Sequence[str]) -> dict[str, Code]:
    """The files outside of the folder that these subjects name, by name. Raises UsageError."""
    found: dict[str, Code] = {}
    for port in filter(None, map(ports.parse, subjects)):
        framework = port.name if port.name in discovery.files() else discovery.framework_of(port.name)
        if framework:
            other = replace(port, name="port", framework=port.framework or framework)
            raise UsageError(
                f"--subjects {port}: {port.name} is the name of a framework or of a file of the folder; give the port another "
                f"name, e.g. {other}"
            )
        ports.check(port)
        adapter, _ = discovery.parse_subject(str(port))
        check(adapter)
        code = Code(adapter.name, port.path.absolute(), port.function)
        if found.setdefault(port.name, code) != code:
            raise UsageError(f"--subjects {port}: another file has the name {port.name}; give each a name of its own")
    return found


def text(adapter: type[Framework], mode: str, folder: ModelFolder) -> str:
    """How a subject is written, so that ``parse_subject`` reads it again. folder: with the files elsewhere."""
    if adapter.path is None:
        return adapter.label(mode)
    function = folder.function(adapter.variant)
    return str(ports.Port(adapter.variant, adapter.name, adapter.path, function, mode))


def shared_code(folder: ModelFolder, adapters: Iterable[type[Framework]], reference: str) -> Iterator[str]:
    """A sentence about each variant that imports the reference, or the same files as the reference."""
    path = folder.place(reference)
    theirs = reached(path, None)
    for adapter in dict.fromkeys(adapters):
        if not adapter.variant or adapter.variant == reference or adapter.name != discovery.named(reference).name:
            continue
        mine = reached(folder.place(adapter.variant), Path.cwd() if adapter.path else None)
        if path.resolve() in mine:
            yield f"{adapter.file_name()} uses {path.name}: what it takes from there is compared with itself"
        elif mine & theirs:
            names = ", ".join(sorted(each.name for each in mine & theirs))
            yield f"{adapter.file_name()} and {path.name} both use {names}: what they take from there is compared with itself"
