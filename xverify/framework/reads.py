"""What a command reads: models, weights, data and interpreters, with the files that are read with them.

The parts of a model file are read from the file, a model folder may have its code in another one, and an index of weights names
its shards. These are looked up only when an output would replace a file that xverify did not write (see ``xverify.outputs``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..outputs import Read
from ..weights import sharded
from ..workload import code
from ..workload.declaration import Option
from ..workload.spec import find_model, zoo
from . import formats, ports

PYTHON = "python"  # the option with interpreters of frameworks
ADAPTERS = ("XVERIFY_FRAMEWORKS", "XVERIFY_FORMATS", "XVERIFY_CONVERTERS")  # environment variables


def of_run(models: Iterable[str | Path], options: Sequence[Option], values: Mapping[str, Any]) -> Iterator[Read]:
    """What a run of these models reads. values: name of an option -> value, of the type of the option."""
    for model in models:
        yield from of_model("MODEL", model)
    yield from of_options(options, values)


def of_subjects(subjects: Iterable[str]) -> Iterator[Read]:
    """The files that subjects name, which may import those beside them."""
    with suppress(UsageError):  # the command tells of a text of no known form
        for port in filter(None, map(ports.parse, subjects)):
            if ports.is_graph(port.path):
                yield of_file("--subjects", port.path)
            else:
                yield Read("--subjects", port.path, partial(_modules, port.path.parent, Path.cwd()))


def of_model(label: str, text: str | Path) -> Iterator[Read]:
    """What is read of a model: a folder, a name of the zoo, a model file, or code such as ``torch=model.py:build``."""
    known = zoo().get(str(text))
    with suppress(UsageError, OSError):  # the command tells of a file that is missing
        found = code.parse(str(text))
        if found is not None:
            yield Read(label, found.file, partial(_modules, found.file.parent, Path.cwd()))
            return
    path = Path(str(text))
    with suppress(OSError):
        yield Read(label, path, partial(_code, path)) if (path / "spec.py").is_file() else of_file(label, path)
    if known is not None:
        yield Read(label, known, partial(_code, text))


def of_file(label: str, path: str | Path) -> Read:
    """A file or folder. That of a model or of weights may have its data in others."""
    return Read(label, Path(path), partial(_parts, Path(path)))


def of_options(options: Sequence[Option], values: Mapping[str, Any]) -> Iterator[Read]:
    """The files and folders that options name, and the adapters in folders that environment variables name."""
    for variable in ADAPTERS:
        folders = [Path(name) for name in os.environ.get(variable, "").split(os.pathsep) if name]
        yield from (Read(variable, file) for file in _modules(*folders))
    for option in options:
        value = values.get(option.name)
        if (
            option.path in ("read", "either", "folder")
            and isinstance(value, (str, Path))
            and value not in option.instead
        ):
            yield of_file(option.flag, value)
        if option.name == PYTHON and isinstance(value, Mapping):
            yield from (Read(option.flag, Path(str(interpreter))) for interpreter in value.values())


def _modules(*folders: Path) -> Iterator[Path]:
    """The Python files in these folders, which may be imported."""
    for folder in folders:
        yield from folder.glob("*.py")


def _code(model: str | Path) -> list[Path]:
    """The folder with the code of a model folder."""
    return [find_model(model).code]


def _parts(path: Path) -> Iterator[Path]:
    """The other files of a model file or of weights."""
    if sharded.is_sharded(path):
        yield from sharded.files(path)
    for form in formats.load_all().values():
        if form.recognises(path):
            yield from form.parts(path)
