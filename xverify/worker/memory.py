"""What the system knows of a process: resident memory and page faults."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

MIB = 1024 * 1024


def rss_mib(pid: int) -> float | None:
    """Resident memory of a process now, MiB; None when it is gone."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / MIB
    except psutil.Error:
        return None


def peak_rss_mib(pid: int) -> float | None:
    """The highest resident memory of a process so far (VmHWM), MiB; None where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else None


def page_faults(pid: int) -> int | None:
    """Pages that the system has found for a process so far without a disk; None where it does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
    except (OSError, ValueError, IndexError):
        return None
