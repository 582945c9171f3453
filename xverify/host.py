"""The machine, for the receipt, and what is installed on it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from .framework.adapter import Framework


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Processor, cores, memory and system, as JSON values."""
    import psutil  # only this function needs it

    load = [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "load": load,
    }


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def gpu_process_mib(pid: int) -> float | None:
    """What the NVIDIA driver says that a process holds of the device, MiB; None where it does not tell."""
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


def missing(adapter: type[Framework]) -> list[str]:
    """The distributions that this interpreter lacks for a framework; imports nothing."""
    return [package for package, module in adapter.needs.items() if importlib.util.find_spec(module) is None]


def version(adapter: type[Framework]) -> str | None:
    """The installed version of a framework in this interpreter, without importing it."""
    for package, module in adapter.needs.items():
        for name in (package, module):
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return None
