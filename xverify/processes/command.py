"""The command and the environment variables with which a worker process is started."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..environments import store as environments
from ..framework.runner import Runner
from ..interpreter import module as run_module
from .allocator import allocator_variables, glibc_version, with_huge_pages

WORKER = "xverify.worker"
# Numbers of threads that the computing libraries of every framework read. The run's own number holds instead: the processes of a
# Dask cluster, for example, have 1 in all of them.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Command:
    """A command and its environment variables.

    arguments: the interpreter and its arguments.
    environment: all environment variables of the process.
    """

    arguments: tuple[str, ...]
    environment: dict[str, str]


def worker_command(
    adapter: type[Runner],
    folder: Path,
    threads: int,
    device: str,
    python: str = sys.executable,
    patient: bool = False,
    module: str = WORKER,
    arguments: Sequence[str] = (),
    allocator: str | None = None,
) -> Command:
    """The command of a process that imports one framework.

    folder: folder for its temporary files and, for another interpreter than this one, a copy of xverify.
    threads, device: threads and device of the framework.
    python: the interpreter; this one when omitted.
    patient: whether its threads sleep while they wait for one another.
    module, arguments: what the process runs; a worker when omitted.
    allocator: the policy of memory allocation (see ``allocator``) of a process that is timed; None: nothing of it is timed.
    """
    version = glibc_version()
    own = (
        with_huge_pages(os.environ, version)
        if allocator is None
        else allocator_variables(allocator, os.environ, version)
    )
    kept = {name: value for name, value in own.items() if name not in THREADS}
    environment = {**kept, **adapter.variables(threads, device), "TMPDIR": str(folder)}
    if patient:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    if not same_interpreter(python):
        library = folder / "lib"
        _lend_package(library)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
    return Command(tuple(run_module(python, module, *arguments)), environment)


def interpreter(adapter: type[Runner]) -> str:
    """The interpreter of a framework: that of its environment if it has one, otherwise this one."""
    environment = environments.chosen(adapter)
    return environment.interpreter if environment else sys.executable


def same_interpreter(python: str) -> bool:
    """Whether ``python`` is the interpreter of this process."""
    return os.path.abspath(python) == os.path.abspath(sys.executable)


def _lend_package(library: Path) -> None:
    """Copy xverify into ``library``, where another interpreter can import it without the packages of this one."""
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
