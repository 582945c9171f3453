"""Finds framework adapters by file name.

Each folder of xverify/frameworks/ with a file adapter.py is a framework; keras_jax is the framework keras-jax. The folders in the
environment variable XVERIFY_FRAMEWORKS (separated as in PATH) are searched as well, so an adapter may also be kept outside of this
package: a file ``NAME.py`` there is the adapter of the framework NAME, and replaces one of the same name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .. import frameworks, reading, usercode
from ..errors import UsageError, first_line, nearest
from . import ports
from .adapter import Framework

# What every adapter says of itself -> an example.
NEEDED = {"name": '"mine"', "needs": '{"package": "module"}', "modes": '{"eager": function}'}


def files() -> dict[str, Path]:
    """Framework name -> the file of its adapter."""
    return _own(frameworks.__path__[0]) | modules("XVERIFY_FRAMEWORKS")


@cache
def _own(folder: str) -> dict[str, Path]:
    """The adapters of this package, which stay the same as long as the process runs. folder: where they are."""
    return {path.parent.name.replace("_", "-"): path for path in sorted(Path(folder).glob("*/adapter.py"))}


def modules(variable: str, *folders: str) -> dict[str, Path]:
    """The public Python files of some folders by their names.

    variable: an environment variable that names more folders. A file there replaces one of the same name.
    """
    more = [entry for entry in os.environ.get(variable, "").split(os.pathsep) if entry]
    return {path.stem: path for folder in (*folders, *more) for path in sorted(Path(folder).glob("[!_]*.py"))}


def load(name: str) -> type[Framework]:
    """The adapter class of a framework. The framework itself is not imported. Raises UsageError for an unknown name."""
    known = files()
    if name not in known:
        raise UsageError(f"unknown framework {name!r}{nearest(name, known)} Known: {', '.join(known)}")
    # An adapter that replaces one of xverify's own has its name as a module, too: the other files of that framework import it.
    adapter = load_file(frameworks.__name__, f"{name.replace('-', '_')}.adapter", known[name])
    lacks = [f"{each} = {example}" for each, example in NEEDED.items() if not hasattr(adapter, each)]
    if lacks:
        raise UsageError(f"{known[name]}: class Adapter lacks {', '.join(lacks)}; see docs/adding-a-framework.md")
    return adapter


@cache
def load_file(package: str, name: str, path: Path) -> type[Framework]:
    """The class ``Adapter`` of a file. package, name: the module as which it is loaded."""
    qualified = f"{package}.{name}"
    wrong = reading.problem(path)
    if wrong:
        raise UsageError(f"{path}: {wrong}; an adapter is a Python file")
    spec = importlib.util.spec_from_file_location(qualified, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = module
    try:
        with usercode.guarded():
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[qualified]
        says = str(error) if isinstance(error, usercode.Stopped) else first_line(error)
        raise UsageError(f"{path}: the adapter cannot be imported: {says}") from None
    adapter: type[Framework] | None = getattr(module, "Adapter", None)
    if not isinstance(adapter, type):
        raise UsageError(
            f"{path}: the file of an adapter defines a class Adapter(Framework); see docs/adding-a-framework.md"
        )
    return adapter


_variants: dict[tuple[type[Framework], str, Path | None], type[Framework]] = {}  # see ``variant``


def variant(adapter: type[Framework], name: str, path: Path | None = None) -> type[Framework]:
    """The adapter of a framework for another model file than the framework's own, the same class in every call.

    name: of its subjects, and of its table in names.toml. path: the file; None for ``NAME.py`` of the model folder.
    """
    own: dict[str, Any] = {"file": name, "variant": name, "path": path, "__doc__": adapter.__doc__}
    if path is not None:  # such a file is called by its name alone in the mode that it has by default
        own["implicit_mode"] = default_mode(adapter)
    key = adapter, name, path
    if key not in _variants:
        _variants[key] = type(adapter.__name__, (adapter,), own)
    return _variants[key]


def framework_of(name: str) -> str:
    """The framework of which this is a variant: ``torch`` for ``torch-fused``; "" for a name of another form."""
    known = [each for each in files() if name.startswith(f"{each}-") and len(name) > len(each) + 1]
    return "" if name in files() else max(known, key=len, default="")


def named(name: str) -> type[Framework]:
    """The adapter of a framework, or of a variant of one. Raises UsageError for an unknown name."""
    framework = framework_of(name)
    if framework:
        return variant(load(framework), name)
    if name not in files() and "-" in name:
        meant = [f"{each}{name[at:]}" for each in files() for at, sign in enumerate(name) if sign == "-"]
        raise UsageError(f"unknown framework {name!r}{nearest(name, [*files(), *meant])} Known: {', '.join(files())}")
    return load(name)


def default_mode(adapter: type[Framework]) -> str:
    """The mode of a subject that names none."""
    return adapter.implicit_mode or next(iter(adapter.modes))


def load_all() -> dict[str, type[Framework]]:
    """Framework name -> adapter class, for every adapter."""
    return {name: load(name) for name in files()}


def computing() -> dict[str, type[Framework]]:
    """The same without what computes nothing here: a capture holds what another machine has computed, and needs no package."""
    return {name: adapter for name, adapter in load_all().items() if adapter.suffix == ports.CODE or adapter.needs}


def parse_subject(text: str) -> tuple[type[Framework], str]:
    """Split a subject into its adapter class and its mode.

    text: ``framework``, ``framework:mode``, the same of a variant, or a file elsewhere (see ``ports``).
    Raises UsageError, with the known names, for an unknown framework or mode.
    """
    port = ports.parse(text)
    if port is not None:
        framework = port.framework or ports.framework_of(port, load_all())
        adapter, name, mode = variant(load(framework), port.name, port.path), port.name, port.mode
        if adapter.suffix != port.path.suffix and not ports.is_graph(port.path):  # a graph has a check of its own
            raise UsageError(
                f"--subjects {port}: a file of {framework} ends with {adapter.suffix}, not {port.path.suffix}"
            )
    else:
        name, _, mode = text.strip().partition(":")
        adapter = named(name)
    mode = mode or default_mode(adapter)
    if mode not in adapter.modes:
        modes = ", ".join(adapter.subjects() if port is None else adapter.modes)
        raise UsageError(f"unknown mode {mode!r} of {name}{nearest(mode, adapter.modes)} Known: {modes}")
    return adapter, mode
