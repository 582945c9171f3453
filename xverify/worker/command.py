"""How a process of xverify is started under an interpreter: its command and its environment variables."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..environments import store as environments
from ..framework.adapter import Framework

WORKER = "xverify.worker"


@dataclass(frozen=True)
class Command:
    """arguments: the interpreter and its arguments. environment: all variables of the process."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


def worker_command(
    adapter: type[Framework],
    folder: Path,
    threads: int,
    device: str,
    python: str = sys.executable,
    patient: bool = False,
) -> Command:
    """The command of a process that imports one framework.

    folder: gets its temporary files, and xverify itself where the interpreter is another one. threads, device: those of the
    framework. python: the interpreter; this one when omitted. patient: its threads sleep while they wait for one another.
    """
    environment = {**os.environ, **adapter.variables(threads, device), "TMPDIR": str(folder)}
    if patient:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    if not same_interpreter(python):
        library = folder / "lib"
        _lend_package(library)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
    return Command((python, "-m", WORKER), environment)


def interpreter(adapter: type[Framework]) -> str:
    """The interpreter that a framework runs under: its environment's, where it has one, or else this one."""
    environment = environments.chosen(adapter)
    return environment.interpreter if environment else sys.executable


def same_interpreter(python: str) -> bool:
    """Whether this is the interpreter that runs now."""
    return os.path.abspath(python) == os.path.abspath(sys.executable)


def _lend_package(library: Path) -> None:
    """Make xverify, and nothing that is installed beside it, importable from ``library`` by another interpreter."""
    from .. import __file__ as package_file
    from .. import models, weights

    target = library / "xverify"
    if target.exists():
        return
    shutil.copytree(
        Path(package_file).parent,
        target,
        ignore=shutil.ignore_patterns("__pycache__", "environments", "models", "weights"),
    )
    for package in (models, weights):
        name = package.__name__.rpartition(".")[2]
        shutil.copytree(next(iter(package.__path__)), target / name, ignore=shutil.ignore_patterns("__pycache__"))
