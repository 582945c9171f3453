"""What a Python file defines and imports, told from its syntax. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import reading
from .imports import is_sibling, parsed

MOST_FILES = 1000  # of which the imports are followed
WRONG = (OSError, SyntaxError, ValueError, RecursionError, MemoryError)  # of a file that cannot be parsed


@dataclass(frozen=True)
class Used:
    """One import: ``from ..module import name`` has level 2; ``import module`` has no name."""

    module: str
    level: int = 0
    name: str = ""


@dataclass(frozen=True)
class Names:
    """The names of a file. imports: name -> what it stands for. definitions: name -> the statements that define it."""

    tree: ast.Module
    imports: dict[str, Used]
    definitions: dict[str, list[ast.stmt]]

    @classmethod
    def of(cls, tree: ast.Module) -> Names:
        """The names of the file with this syntax tree."""
        names = cls(tree, {}, {})
        for statement in _top_level(tree.body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                names.imports.update(_imported(statement))
            else:
                for name in _defined(statement):
                    names.definitions.setdefault(name, []).append(statement)
        return names

    @property
    def known(self) -> set[str] | None:
        """All names; None where the file may have others that its syntax does not show."""
        hidden = any(name.endswith("*") for name in self.imports) or "__getattr__" in self.definitions
        return None if hidden else {*self.imports, *self.definitions}

    def used_by(self, start: str | None) -> Iterator[Used]:
        """The imports that a name of the file uses, also by way of other names; None: all imports of the file."""
        if start is None:
            yield from (used for node in ast.walk(self.tree) for _, used in _imported(node))
            return
        seen, left = set[str](), [start, *(name for name in self.imports if name.endswith("*"))]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.imports:
                yield self.imports[name]
            for node in (node for statement in self.definitions.get(name, []) for node in ast.walk(statement)):
                yield from (used for _, used in _imported(node))
                if isinstance(node, ast.Name):
                    left.append(node.id)


def _top_level(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a file, also those in its conditions, loops and contexts."""
    for statement in statements:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for block in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from _top_level(handler.body)


def _imported(node: ast.AST) -> Iterator[tuple[str, Used]]:
    """The names that a statement imports. A star has a name that no other import has."""
    if isinstance(node, ast.Import):
        for each in node.names:
            yield each.asname or each.name.partition(".")[0], Used(each.name)
    elif isinstance(node, ast.ImportFrom):
        for each in node.names:
            name = each.asname or (f"{node.level}{node.module}*" if each.name == "*" else each.name)
            yield name, Used(node.module or "", node.level, each.name)


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement defines."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With)):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def parsed_file(path: Path) -> ast.Module:
    """The syntax tree of a file. Raises those of WRONG."""
    return parsed(reading.content(path), str(path))


def module_file(path: Path, used: Used, project: Path | None = None) -> tuple[Path, str | None] | None:
    """The file that an import of another file means, and the name that is used there; None for a package elsewhere.

    path: the file with the import. project: another folder in which files are imported. The name is None for a whole file.
    """
    if used.level:
        bases = [path.parents[used.level - 1]] if used.level <= len(path.parents) else []
    else:
        bases = [each for each in (path.parent, project) if each is not None and is_sibling(used.module, each)]
    for base in bases:
        place = base.joinpath(*used.module.split(".")) if used.module else base
        whole = None if used.name in ("", "*") else used.name
        for file, name in (
            *([(place / f"{used.name}.py", None)] if whole else []),
            *([(place.with_suffix(".py"), whole)] if used.module else []),
            (place / "__init__.py", whole),
        ):
            if file.is_file():
                return file, name
    return None


def reached(path: Path, project: Path | None = None) -> set[Path]:
    """The files that a file imports, also by way of others, without those of installed packages. Arguments: see ``module_file``."""
    found, left = set[Path](), [path] if path.suffix == ".py" else []  # a model file that is no code imports nothing
    while left and len(found) < MOST_FILES:
        file = left.pop()
        try:
            used = list(Names.of(parsed_file(file)).used_by(None))
        except WRONG:
            continue
        for each in used:
            target = module_file(file, each, project)
            if target is not None and target[0].resolve() not in found:
                found.add(target[0].resolve())
                left.append(target[0])
    return found
