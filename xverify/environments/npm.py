"""Packages of npm in an environment: those of the lock file in the folder ``NAME`` beside the pins ``NAME.txt``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .. import reading
from ..errors import XverifyError

MANIFEST, LOCK = "package.json", "package-lock.json"
MODULES = "node_modules"
SECONDS = 60  # that Node.js may take to tell its version


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


def program(name: str, folder: Path) -> str:
    """The path of npm. Raises XverifyError where there is no npm, no Node.js, or an older one than the manifest names.

    name: of the environment, for the message. folder: that of the manifest.
    """
    least = int(re.sub(r"\D", "", _manifest(folder)["engines"]["node"]))
    advice = f"Install Node.js {least} or newer with npm, and type the command again"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing = " and ".join(each for each, path in (("node", node), ("npm", npm)) if path is None)
        raise XverifyError(f"the environment {name} cannot be made: {missing} not found on the path. {advice}")
    says = _version(node)
    match = re.fullmatch(r"v(\d+)\.\d+\.\d+\S*", says)
    if match is None or int(match[1]) < least:
        raise XverifyError(
            f"the environment {name} cannot be made: {node} is Node.js {says or 'of no version'}. {advice}"
        )
    return npm


def _version(node: str) -> str:
    """What a Node.js says of its version, such as ``v20.20.2``; "" when it does not start."""
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def prepare(folder: Path, environment: Path) -> None:
    """Copy the manifest and the lock file into an environment, where npm installs the packages."""
    for name in (MANIFEST, LOCK):
        shutil.copyfile(folder / name, environment / name)


def command(npm: str, environment: Path) -> list[str]:
    """The command that installs exactly what the lock file holds. Scripts of packages are not run."""
    return [npm, "ci", "--prefix", str(environment), "--ignore-scripts", "--no-audit", "--no-fund"]
