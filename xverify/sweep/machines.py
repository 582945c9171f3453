"""The machines of a cluster: what is installed on each, and whether all of them can take part in one sweep."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import host
from ..environments import store as environments
from ..errors import UsageError
from ..framework import discovery
from ..version import __version__

RESOURCE = "machine"  # of Dask: each worker announces one, and each cell takes it
HOW = "dask worker SCHEDULER --nworkers 1 --nthreads 1 --resources machine=1"


@dataclass(frozen=True)
class Machine:
    """What a worker says of itself.

    name: of the machine. versions: name -> version of xverify, Python, numpy and every framework that can run there.
    subjects: framework -> the subjects that it offers.
    """

    name: str
    cpu: str
    cores: int
    memory_gib: float
    system: str
    versions: Mapping[str, str]
    subjects: Mapping[str, Sequence[str]]


def describe() -> Machine:
    """This machine."""
    from importlib import metadata

    machine = host.describe()
    found: dict[str, str] = {}
    subjects: dict[str, Sequence[str]] = {}
    for name, adapter in discovery.computing().items():
        environment = environments.chosen(adapter)
        if host.missing(adapter) and environment is None:
            continue
        found[name] = str(environment.version(adapter) if environment else host.version(adapter))
        subjects[name] = tuple(adapter.subjects())
    own = {"xverify": __version__, "python": platform.python_version(), "numpy": metadata.version("numpy")}
    return Machine(
        platform.node(),
        machine["cpu"],
        machine["cores"],
        machine["memory_gib"],
        machine["system"],
        own | found,
        subjects,
    )


def check(machines: Mapping[str, Machine], resources: Mapping[str, Mapping[str, float]]) -> None:
    """Raise UsageError when there is no worker, when one does not announce its machine, or when versions differ.

    machines: address of a worker -> what it says. resources: address -> what it announces to Dask.
    """
    if not machines:
        raise UsageError(f"the cluster has no workers: start one on each machine with {HOW}")
    without = [address for address in machines if not resources.get(address, {}).get(RESOURCE)]
    if without:
        raise UsageError(
            f"{without[0]} does not announce its machine, so that a cell is not alone there: start it with {HOW}"
        )
    first, *others = machines
    for other in others:
        mine, theirs = machines[first].versions, machines[other].versions
        for name in dict.fromkeys([*mine, *theirs]):
            if mine.get(name) != theirs.get(name):
                raise UsageError(
                    f"the workers have different versions: {name} is {mine.get(name, 'absent')} on {_where(first, machines)} and "
                    f"{theirs.get(name, 'absent')} on {_where(other, machines)}; install the same on both (xverify doctor "
                    "--cluster SCHEDULER lists all)"
                )
    if machines[first].versions["xverify"] != __version__:
        raise UsageError(
            f"the workers have xverify {machines[first].versions['xverify']}, and this is xverify {__version__}: install the same"
        )


def _where(address: str, machines: Mapping[str, Machine]) -> str:
    return f"{machines[address].name} ({address})"


def sees(folder: str, name: str) -> bool:
    """Whether this machine sees a file that another one has just made in a shared folder."""
    try:
        os.listdir(folder)  # makes a network file system look again
    except OSError:
        return False
    return Path(folder, name).is_file()
