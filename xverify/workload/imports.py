"""Imports the files of a model folder, each folder as a package of its own.

The folder is never added to sys.path, because its torch.py would hide torch. A file imports another one of its folder with
``from .helper import build``, or with ``from helper import build``, as in a script that stands beside it. The second form is
changed into the first when the file is compiled, so that it finds this folder's file and no other folder's. A name of Python's own
library, and the name of a framework, always mean the installed package.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

MODELS, CODE = "xverify_model_", "xverify_code_"  # beginnings of the names of packages
ADAPTERS = Path(__file__).parents[1] / "frameworks"
# CPython counts the depth of syntax trees once for all threads: two that parse at once can end in a SystemError (gh-106905).
_ONE_AT_A_TIME = threading.Lock()


def parsed(data: bytes, path: str = "<unknown>") -> ast.Module:
    """The syntax tree of Python code, in any thread.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse``.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(data, path)


def load_module(folder: Path, name: str, siblings: bool = True) -> ModuleType:
    """Import ``folder/name.py`` as a module of a private package.

    siblings: whether ``import helper`` finds the folder's helper.py. Without it, only ``from . import helper`` does.
    """
    place = folder.resolve()
    package = (MODELS if siblings else CODE) + hashlib.sha256(os.fsencode(place)).hexdigest()[:12]
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(place)]
        sys.modules[package] = parent
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    qualified, path = f"{package}.{name}", folder / f"{name}.py"
    loader = (_Loader if siblings else SourceFileLoader)(qualified, str(path))
    spec = ModuleSpec(qualified, loader, origin=str(path))
    spec.has_location = True  # so that the module has its file
    module = module_from_spec(spec)
    sys.modules[qualified] = module
    loader.exec_module(module)
    return module


def loaded_module(folder: Path, name: str) -> ModuleType:
    """The module that ``load_module`` imported last for this file, so that its classes are those of the model; else import it."""
    package = MODELS + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    return sys.modules.get(f"{package}.{name}") or load_module(folder, name)


class _Finder(MetaPathFinder):
    """Finds the modules of these packages, and no others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(MODELS):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Compiles a file of a model folder. Nothing is cached, because Python's own import would take the changed code from there."""

    def path_stats(self, path: Any) -> Any:
        raise OSError("no cache")

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        package = self.name.partition(".")[0]
        folder = Path(sys.modules[package].__path__[0])
        return _compiled(bytes(data), os.fsdecode(path), package, folder, tuple(sorted(os.listdir(folder))), _optimize)


@lru_cache(maxsize=64)
def _compiled(data: bytes, path: str, package: str, folder: Path, _names: tuple[str, ...], optimize: int) -> CodeType:
    """The code of a file of a model folder: a search for a cause builds a model thousands of times. _names: of its files."""
    tree = parsed(data, path)
    _name_siblings(tree, package, folder)
    code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=optimize)
    return code


def _name_siblings(tree: ast.Module, package: str, folder: Path) -> None:
    """Let every import of a file of the folder name it in its package. The lines of the code stay."""
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                named = [new for old in statements for new in _named(old, package, folder)]
                setattr(node, block, named)


def _named(statement: Any, package: str, folder: Path) -> Iterator[Any]:
    """The statements that take the place of one; Any: a node of the syntax."""
    if isinstance(statement, ast.ImportFrom) and not statement.level and is_sibling(statement.module or "", folder):
        statement.module = f"{package}.{statement.module}"
        yield statement
    elif isinstance(statement, ast.Import) and any(is_sibling(each.name, folder) for each in statement.names):
        for each in statement.names:
            yield from (ast.copy_location(new, statement) for new in _imported(each, package, folder))
    else:
        yield statement


def _imported(alias: ast.alias, package: str, folder: Path) -> Iterator[ast.stmt]:
    """What ``import NAME`` becomes: ``from package import NAME``, which binds the same name."""
    if not is_sibling(alias.name, folder):
        yield ast.Import([alias])
        return
    top, dotted, _ = alias.name.partition(".")
    if dotted or alias.asname:
        bound = alias.asname or "_xverify_part"
        yield ast.Import([ast.alias(f"{package}.{alias.name}", bound, lineno=1, col_offset=0)])
    if not alias.asname:
        yield ast.ImportFrom(package, [ast.alias(top, None, lineno=1, col_offset=0)], 0)


def is_sibling(name: str, folder: Path) -> bool:
    """Whether an import of this name means a file or package of the folder, as it would in a script that stands there."""
    top = name.partition(".")[0]
    if not top or top in sys.stdlib_module_names or top in _frameworks():
        return False
    return (folder / f"{top}.py").is_file() or any((folder / top).glob("*.py"))


def _frameworks() -> set[str]:
    """The names of all adapters, which are those of model files: torch.py is no sibling that could be meant."""
    folders = [Path(each) for each in os.environ.get("XVERIFY_FRAMEWORKS", "").split(os.pathsep) if each]
    own = {path.parent.name for path in ADAPTERS.glob("*/adapter.py")}
    return {"xverify", *own, *(path.stem for folder in folders for path in folder.glob("[!_]*.py"))}
