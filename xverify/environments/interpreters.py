"""Finds the Python with which an environment is made: this one if the packages have wheels for it, otherwise another one.

A comment in a file of pins names its Python versions: ``# Python 3.10 to 3.12``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import host, reading
from ..interpreter import program

# An interpreter counts only if it starts: pyenv puts commands on the path for versions that may be switched off.
PROBE = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Versions:
    """Python versions, from the first to the last, both included."""

    first: tuple[int, int]
    last: tuple[int, int]

    def __contains__(self, version: tuple[int, int]) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return f"Python {_dotted(self.first)} to {_dotted(self.last)}"

    def newest_first(self) -> list[str]:
        """Every version as text, such as ``3.12``."""
        return [f"{self.last[0]}.{minor}" for minor in range(self.last[1], self.first[1] - 1, -1)]


ANY = Versions((3, 10), (3, 99))


def here() -> tuple[int, int]:
    """The version of this interpreter."""
    return sys.version_info[:2]


def wanted(pins: Path) -> Versions:
    """The Python versions that a file of pins names; ANY when it names none."""
    match = re.search(r"^# Python (\d+)\.(\d+) to (\d+)\.(\d+)\b", reading.given(pins).decode(), re.MULTILINE)
    if match is None:
        return ANY
    first_major, first, last_major, last = map(int, match.groups())
    return Versions((first_major, first), (last_major, last))


def find(versions: Versions) -> str | None:
    """An installed interpreter of one of these versions: this one, or else the newest one; None when there is none."""
    if here() in versions:
        return sys.executable
    for path in _installed(versions):
        version = _version(path)
        if version and version in versions:
            return path
    return None


def uv() -> str | None:
    """The uv on the path, or the one that is installed beside xverify, which can download a Python; None when there is none."""
    return shutil.which("uv") or shutil.which("uv", path=str(_beside()))


def fits(pins: Path) -> bool:
    """Whether a file of pins is for the version of this interpreter."""
    return here() in wanted(pins)


def explain(pins: Path) -> str:
    """Why an environment needs another Python than this one and, when none is found, how to get it. One or two sentences."""
    versions = wanted(pins)
    reason = f"It needs {versions}, and this is Python {_dotted(here())}."
    if uv() or find(versions):
        return reason
    return (
        f"{reason} No other is on the path or in {_pyenv()}. Install one, or type: pip install uv, with which xverify downloads "
        f"Python {versions.newest_first()[0]}."
    )


def _installed(versions: Versions) -> Iterator[str]:
    """Paths of interpreters that may be of these versions, the newest version first."""
    for version in versions.newest_first():
        for name in (f"python{version}", f"python{version}.exe"):
            path = shutil.which(name)
            if path:
                yield path
        yield from (str(path) for path in sorted(_pyenv().glob(f"{version}.*/bin/python"), reverse=True))


def _beside() -> Path:
    """The folder of the commands that are installed beside this interpreter."""
    return Path(sys.executable).parent


def _pyenv() -> Path:
    return host.expanded(os.environ.get("PYENV_ROOT") or "~/.pyenv") / "versions"


def version_of(python: str) -> str:
    """The version of an interpreter as text, such as ``3.12``; empty when it does not start."""
    version = _version(python)
    return _dotted(version) if version else ""


def _version(path: str) -> tuple[int, int] | None:
    """The version of an interpreter; None when it does not start."""
    try:
        done = subprocess.run(
            program(path, PROBE, isolated=True), capture_output=True, text=True, timeout=30, check=True
        )
        major, _, minor = done.stdout.strip().partition(".")
        return int(major), int(minor)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
