"""A model that is given as code, without a spec: ``torch=path.py:build``."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import reading
from ..errors import Failed, UsageError, nearest
from .imports import load_module

BUILD = "build"  # what is called when no name is given
WRITE = "write FRAMEWORK=FILE.py:NAME, e.g. torch=model.py:build"


@dataclass(frozen=True)
class Code:
    """A function, class or object of a Python file that gives a model of one framework.

    file: its absolute path. name: of the function, class or object. table: its table of names.toml; "" for that of its subject.
    """

    framework: str
    file: Path
    name: str
    table: str = ""

    def __str__(self) -> str:
        return f"{self.framework}={self.file.name}:{self.name}"

    def write(self, folder: Path, module: str) -> None:
        """Write ``module.py`` into a folder, with a ``build`` that gives this model, as the model file of a model folder does."""
        lines = (
            "from xverify.workload.code import make",
            "",
            "",
            "def build():",
            f"    return make({str(self.file)!r}, {self.name!r}, {str(Path.cwd())!r})",
        )
        (folder / f"{module}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def parse(text: str) -> Code | None:
    """The code that ``torch=path.py:build`` names; None for a text of another form. Raises UsageError for a file that is missing.

    Without a framework, ``path.py:build`` is in torch. A path that exists is a path.
    """
    if re.fullmatch(r"[^=]+\.py:\w+", text) and not Path(text).exists():
        text = f"torch={text}"
    framework, equals, rest = text.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+", framework) or Path(text).exists():
        return None
    file, colon, name = rest.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = rest, BUILD
    path = Path(os.path.expanduser(file)).absolute()
    if path.suffix != ".py":
        raise UsageError(f"{text}: {file or 'nothing'} is no Python file; {WRITE}")
    wrong = reading.problem(path)
    if wrong:
        raise UsageError(f"{text}: {f'there is no file {file}' if wrong == reading.ABSENT else f'{file}: {wrong}'}")
    return Code(framework, path, name)


def make(file: str, name: str, project: str) -> Any:  # a model of any framework
    """The model that a function or class of a file makes, or that an object of the file is. Raises Failed.

    project: a folder from which the file may import, as it may from its own. Both come last in the search path, where no file
        in them hides a framework.
    """
    path = Path(file)
    import_from(path.parent, project)
    return model_of(load_module(path.parent, path.stem, siblings=False), path.name, name, {})


def import_from(folder: Path, project: str) -> None:
    """Let code import from its folder and from another one, where this is named. project: "" for a file of a model folder."""
    sys.path += [place for place in (str(folder), project) if project and place not in sys.path]


def model_of(module: ModuleType, title: str, name: str, options: Mapping[str, Any]) -> Any:  # a model of any framework
    """The model that a function or class of a module makes with these arguments, or that an object of it is. Raises Failed.

    title: what messages call its file.
    """
    if not hasattr(module, name):
        raise Failed(f"{title} has no {name!r}{nearest(name, [each for each in vars(module) if each[0] != '_'])}")
    made = getattr(module, name)
    if not (inspect.isclass(made) or inspect.isroutine(made) or isinstance(made, functools.partial)):
        return made
    wanted = [each.name for each in _parameters(made) if each.default is each.empty and each.kind not in VARIADIC]
    needed = [each for each in wanted if each not in options]
    if needed:
        raise Failed(
            f"{title}: {name} needs the argument {', '.join(needed)}; write a function without arguments that calls it, "
            "and name that one"
        )
    return made(**options)


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
