"""Resident memory and page faults of a process, as the system reports them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

MIB = 1024 * 1024
Number = TypeVar("Number", int, float)


def total(read: Callable[[int], Number | None], pids: Sequence[int]) -> Number | None:
    """What ``read`` finds of all these processes together; None where it is not known of one."""
    found = [value for pid in pids if (value := read(pid)) is not None]
    return sum(found) if len(found) == len(pids) else None


def rss_mib(pid: int) -> float | None:
    """The present resident memory of a process, MiB; None when the process has ended."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / MIB
    except psutil.Error:
        return None


def peak_rss_mib(pid: int) -> float | None:
    """The highest resident memory of a process so far (VmHWM), MiB; None where the system does not report it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else None


def page_faults(pid: int) -> int | None:
    """The number of minor page faults of a process so far, those without disk access; None where it is not reported."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
    except (OSError, ValueError, IndexError):
        return None


def end_first(pid: int) -> None:
    """Let the system end this process before any other when memory runs out: a worker is a row, and its parent the whole report."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
