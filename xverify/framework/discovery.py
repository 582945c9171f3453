"""The framework adapters, found by file name.

Every ``NAME.py`` in xverify/frameworks/ is the adapter of the framework NAME. Folders in the environment variable
XVERIFY_FRAMEWORKS (separated as in PATH) are searched too, so that an adapter can be tried, or kept, outside of this package.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

from .. import frameworks
from ..errors import UsageError, nearest
from .adapter import Framework


def files() -> dict[str, Path]:
    """Framework name -> its adapter's file."""
    folders = [Path(frameworks.__path__[0])]
    folders += [Path(entry) for entry in os.environ.get("XVERIFY_FRAMEWORKS", "").split(os.pathsep) if entry]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("[!_]*.py"))}


def load(name: str) -> type[Framework]:
    """The adapter class of this framework; imports no framework. Raises UsageError for an unknown name."""
    known = files()
    if name not in known:
        raise UsageError(f"unknown framework {name!r}{nearest(name, known)} Known: {', '.join(known)}")
    return _load(name, known[name])


@cache
def _load(name: str, path: Path) -> type[Framework]:
    qualified = f"{frameworks.__name__}.{name}"
    spec = importlib.util.spec_from_file_location(qualified, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = module
    spec.loader.exec_module(module)
    adapter: type[Framework] = module.Adapter
    return adapter


def load_all() -> dict[str, type[Framework]]:
    """Every adapter, by name."""
    return {name: load(name) for name in files()}


def parse_subject(text: str) -> tuple[type[Framework], str]:
    """``framework[:mode]`` -> (adapter, mode). Raises UsageError with what is known."""
    name, _, mode = text.strip().partition(":")
    adapter = load(name)
    mode = mode or adapter.implicit_mode or next(iter(adapter.modes))
    if mode not in adapter.modes:
        raise UsageError(
            f"unknown mode {mode!r} of {name}{nearest(mode, adapter.modes)} Known: {', '.join(adapter.subjects())}"
        )
    return adapter, mode
