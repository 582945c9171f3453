"""The machine that a run uses, and the frameworks that are installed on it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypedDict

from .errors import XverifyError


class Installable(Protocol):
    """An adapter class, as far as this module uses it."""

    @property
    def needs(self) -> Mapping[str, str]:
        """Package to install -> module whose presence shows that it is installed."""
        ...


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Described(TypedDict):
    """The fields of ``results.records.Host``."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    load: tuple[float, ...] | None
    name: str


def describe() -> Described:
    """Processor, cores, memory and system of this machine, for the result file."""
    import psutil  # only this function needs it

    check_proc()
    load = tuple(round(value, 2) for value in os.getloadavg()) if hasattr(os, "getloadavg") else None
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "load": load,
        "name": platform.node(),
    }


def check_proc() -> None:
    """Raise XverifyError where Linux shows no processes and no memory: nothing could be ended or timed."""
    if sys.platform == "linux" and not Path("/proc/self/stat").exists():
        raise XverifyError(
            "/proc is empty, so no process and no memory can be seen: mount it (mount -t proc proc /proc)"
        )


def _cpu() -> str:
    """The name of the processor."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def saturates_int8() -> bool:
    """Whether int8 kernels of this processor add two products in 16 bits: x86 with AVX2, and without any VNNI."""
    flags = _flags()
    return "avx2" in flags and not any("vnni" in flag for flag in flags)


def _flags() -> set[str]:
    """What the processor can do, as Linux names it."""
    try:
        found = re.search(r"^flags\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return set(found[1].split()) if found else set()


def expanded(path: str) -> Path:
    """A path in which ``~`` stands for the home folder, absolute. Where there is none, nothing is found or made at the path.

    A container may run under the number of a user of whom the system knows nothing.
    """
    found = os.path.expanduser(path)
    return Path(os.devnull, path) if found.startswith("~") else Path(found).absolute()


def gpu_process_mib(pid: int) -> float | None:
    """Device memory that a process uses according to the NVIDIA driver, in MiB; None where the driver does not report it."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    for line in lines:
        owner, _, used = line.partition(",")
        if owner.strip() == str(pid) and used.strip().isdigit():
            return float(used)
    return None


class Process(Protocol):
    """A process, as far as this module uses it."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit status when it was reaped; None before."""
        ...


def kill_group(process: Process) -> None:
    """Kill a process that leads a process group, together with all processes of the group.

    A process that was reaped is left alone, because its number may belong to another process by now.
    """
    if process.returncode is not None:
        return
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(process.pid, signal.SIGTERM)  # on Windows, it ends the process at once


def missing(adapter: Installable) -> list[str]:
    """The packages of a framework that are not installed in this interpreter. Nothing is imported."""
    return [package for package, module in adapter.needs.items() if importlib.util.find_spec(module) is None]


def version(adapter: Installable) -> str | None:
    """The version of a framework in this interpreter; None when it is not installed. Nothing is imported."""
    for package, module in adapter.needs.items():
        for name in (package, module):
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return None


def available_memory() -> int:
    """Bytes of memory that programs can still take without swapping."""
    import psutil  # only functions that are rarely called need it

    return int(psutil.virtual_memory().available)
