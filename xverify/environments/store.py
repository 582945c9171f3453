"""Environments: interpreters of their own for frameworks that cannot live in this one.

``NAME.txt`` here, or beside an adapter in a folder of XVERIFY_FRAMEWORKS, pins what the environment NAME holds, in pip's
form: numpy, the framework, and what its model files and weights import. It serves the adapter called NAME and those that say
``isolated = "NAME"``. Environments stand in the user's cache folder, or in XVERIFY_ENVIRONMENTS.

An environment is there when its stamp is, which is written last: one that was interrupted has none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import host
from ..framework import discovery as frameworks
from ..framework.adapter import Framework

STAMP = "xverify.json"


@dataclass(frozen=True)
class Environment:
    """One that is there. python: its version. pins: the digest of those it was made from. packages: name -> version."""

    name: str
    folder: Path
    python: str
    pins: str
    packages: Mapping[str, str]

    @property
    def interpreter(self) -> str:
        return str(interpreter(self.folder))

    @property
    def current(self) -> bool:
        """Whether its pins are still the same."""
        return self.name not in pins() or digest(pins()[self.name]) == self.pins

    def version(self, adapter: type[Framework]) -> str | None:
        """The version of a framework that stands here whole; None otherwise."""
        held = {_normal(name): version for name, version in self.packages.items()}
        versions = [held.get(_normal(package)) for package in adapter.needs]
        return None if None in versions else versions[0]


def root() -> Path:
    """Where environments stand."""
    own = os.environ.get("XVERIFY_ENVIRONMENTS")
    if own:
        return Path(own).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache.absolute() / "xverify" / "environments"


def interpreter(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pins() -> dict[str, Path]:
    """Environment name -> its pins, for every one that can be made."""
    wanted = {name for adapter in frameworks.load_all().values() for name in _names(adapter)}
    folders = [Path(__file__).parent, *dict.fromkeys(path.parent for path in frameworks.files().values())]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.txt")) if path.stem in wanted}


def digest(path: Path) -> str:
    """``sha256:`` over the lines of pins that are not comments."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def find(name: str) -> Environment | None:
    """The environment of this name; None when there is none, or a part of one."""
    folder = root() / name
    try:
        stamp = json.loads((folder / STAMP).read_text())
        found = Environment(name, folder, stamp["python"], stamp["pins"], stamp["packages"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # The Python that it was made from may be gone.
    return found if interpreter(folder).exists() else None


def find_all() -> list[Environment]:
    names = sorted(path.parent.name for path in root().glob(f"[!.]*/{STAMP}"))
    return [environment for environment in map(find, names) if environment is not None]


def serves(name: str) -> list[str]:
    """The frameworks that an environment of this name is for."""
    return [adapter.name for adapter in frameworks.load_all().values() if name in _names(adapter)]


def chosen(adapter: type[Framework]) -> Environment | None:
    """The environment in which a framework runs; None: in this interpreter, or nowhere."""
    if not adapter.isolated and not host.missing(adapter):
        return None
    found = (find(name) for name in _names(adapter))
    return next((environment for environment in found if environment and environment.version(adapter)), None)


def remedy(adapter: type[Framework]) -> str:
    """What to type to have a framework that is nowhere."""
    known = pins()
    create = next((f"xverify env create {name}" for name in _names(adapter) if name in known), None)
    if create and adapter.isolated:
        return create
    install = f"pip install 'xverify[{adapter.name}]'"
    return f"{install}, or apart from the others: {create}" if create else install


def _names(adapter: type[Framework]) -> list[str]:
    """The environments that can serve an adapter."""
    return [name for name in dict.fromkeys((adapter.name, adapter.isolated)) if name]


def _normal(package: str) -> str:
    """A package's name as the index knows it."""
    return re.sub(r"[-_.]+", "-", package).lower()
