"""Finds environments, which are separate virtual environments for frameworks that cannot be installed beside the others.

``NAME.txt`` here, or beside an adapter in a folder of XVERIFY_FRAMEWORKS, pins the packages of the environment NAME in pip's
format: numpy, the framework, and the packages that its model files and weights import. A folder ``NAME`` beside it may hold a lock
file of npm, whose packages are installed, too. The environment is for the adapter called
NAME and for every adapter with ``isolated = "NAME"``. Environments are in the user's cache folder, or in XVERIFY_ENVIRONMENTS.

An environment exists when its stamp does. The stamp is written last, so an interrupted creation leaves none.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from .. import host, installed, reading
from ..framework import discovery as frameworks
from ..framework.runner import Runner
from . import interpreters, npm

STAMP = "xverify.json"


@dataclass(frozen=True)
class Environment:
    """An environment that exists.

    name: the name of its pins.
    folder: the folder of the environment.
    python: the version of its interpreter.
    pins: the digest of the pins from which it was made.
    packages: name -> version of every package that is installed there.
    """

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
        """Whether its pins have not changed since it was made."""
        return self.name not in pins() or digest(pins()[self.name]) == self.pins

    def version(self, adapter: type[Runner]) -> str | None:
        """The version of a framework; None unless every package that it needs is installed here."""
        installed = {_normal(name): version for name, version in self.packages.items()}
        versions = [installed.get(_normal(package)) for package in adapter.needs]
        return None if None in versions else versions[0]


def root() -> Path:
    """The folder that holds all environments."""
    own = os.environ.get("XVERIFY_ENVIRONMENTS")
    if own:
        return host.expanded(own)
    return host.expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "xverify" / "environments"


def interpreter(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pins() -> dict[str, Path]:
    """Environment name -> the file of its pins, for every environment that can be made."""
    wanted = {name for adapter in frameworks.load_all().values() for name in _names(adapter)}
    folders = [Path(__file__).parent, *dict.fromkeys(path.parent for path in frameworks.files().values())]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.txt")) if path.stem in wanted}


def pins_of(adapter: type[Runner]) -> Path | None:
    """The file of the pins for an adapter; None where there is none."""
    known = pins()
    return next((known[name] for name in _names(adapter) if name in known), None)


def digest(path: Path) -> str:
    """``sha256:`` and the hash of all lines of pins that are no comments, and of the lock file of npm, where there is one."""
    folder = npm.folder_of(path)
    files = [path, *([folder / npm.LOCK] if folder else [])]
    lines = [line.strip() for file in files for line in reading.given(file).decode("utf-8").splitlines()]
    text = "\n".join(line for line in lines if line and not line.startswith("#"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def find(name: str) -> Environment | None:
    """The environment of this name; None when it does not exist, or when its stamp is damaged."""
    folder = root() / name
    try:
        stamp = json.loads(reading.content(folder / STAMP))
        found = Environment(name, folder, stamp["python"], stamp["pins"], dict(stamp["packages"]))
        if not all(isinstance(each, str) for each in (found.python, found.pins, *chain(*found.packages.items()))):
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    # The Python with which it was made may have been removed.
    return found if interpreter(folder).exists() else None


def find_all() -> list[Environment]:
    """Every environment that exists, by name."""
    names = sorted(path.parent.name for path in root().glob(f"[!.]*/{STAMP}"))
    return [environment for environment in map(find, names) if environment is not None]


def serves(name: str) -> list[str]:
    """The frameworks that an environment of this name is for."""
    own = name.partition("==")[0]  # an environment of one version is for the framework of the package
    return [adapter.name for adapter in frameworks.load_all().values() if own in _names(adapter)]


def chosen(adapter: type[Runner]) -> Environment | None:
    """The environment in which a framework runs; None when it runs in this interpreter, or cannot run."""
    if not adapter.isolated and not host.missing(adapter):
        return None
    found = (find(name) for name in _names(adapter))
    return next((environment for environment in found if environment and environment.version(adapter)), None)


def remedy(adapter: type[Runner]) -> str:
    """The command that installs a missing framework."""
    file = pins_of(adapter)
    if file is None:
        return _install(adapter)
    command = f"xverify env create {file.stem}"
    if not interpreters.fits(file):
        return f"{command}. {interpreters.explain(file)}"
    if adapter.isolated:
        return command
    return f"{_install(adapter)}, or in an environment of its own: {command}"


def _install(adapter: type[Runner]) -> str:
    """The command that installs a framework beside xverify: as an extra, or the packages of an adapter of the user's own."""
    if installed.PACKAGE in Path(inspect.getfile(adapter)).resolve().parents:
        return installed.extra(adapter.extra or adapter.name)
    return f"pip install {' '.join(map(shlex.quote, adapter.needs))}"


def needed(name: str) -> bool:
    """Whether frameworks are missing that only the environment of this name can provide to this Python."""
    missing = [framework for framework in serves(name) if host.missing(frameworks.load(framework))]
    return bool(missing) and not interpreters.fits(pins()[name])


def _names(adapter: type[Runner]) -> list[str]:
    """The names of the environments that a framework can run in."""
    return [name for name in dict.fromkeys((adapter.name, adapter.extra, adapter.isolated)) if name]


def _normal(package: str) -> str:
    """The normal form of a package's name, as the package index compares names."""
    return re.sub(r"[-_.]+", "-", package).lower()
