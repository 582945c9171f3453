"""A control group of Linux that bounds the memory of a worker and of all processes that it starts, taken together.

The worker's parent makes the group, and the worker enters it before it imports a framework. The kernel counts memory that is used,
not memory that is only reserved, and kills the processes of the group when they need more than the limit. The kernel also counts
these kills, so that the reason of an end is known and need not be guessed.

Version 2 of control groups allows processes only in groups without subgroups. The group is therefore made beside this process's own
group there, and below it with version 1. Source: the Linux kernel's documentation, admin-guide/cgroup-v1/memory and
admin-guide/cgroup-v2.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "XVERIFY_CGROUP"  # environment variable with the folder of the group that a worker enters
PREFIX = "xverify-"
ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Version:
    """The names of one version's files.

    limit: the files that take the limit, bytes. swap: the file that bounds memory and swap together (version 1) or swap alone
    (version 2), and what is written there; it may be absent. kills: the file that counts processes that were killed at the limit.
    """

    limit: str
    swap: str
    kills: str


ONE = Version("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control")
TWO = Version("memory.max", "memory.swap.max", "memory.events")


@dataclass(frozen=True)
class Group:
    """A group for one worker."""

    folder: Path
    version: Version

    def kills(self) -> int:
        """The number of processes that the kernel killed because the group had reached its limit."""
        with contextlib.suppress(OSError, ValueError):
            for line in (self.folder / self.version.kills).read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
        return 0

    def remove(self) -> None:
        """Remove the group, whose processes were killed. One that a process does not leave within a second stays."""
        deadline = time.monotonic() + 1
        while self.folder.exists():
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)


def create(limit: int) -> Group | None:
    """A new, empty group with this limit, bytes; None where this process may not make one."""
    place = _place()
    if place is None:
        return None
    parent, version = place
    _remove_left(parent)
    folder = parent / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError:
        return None
    group = Group(folder, version)
    try:
        (folder / version.limit).write_text(str(limit))
        swap = folder / version.swap
        if swap.exists():
            swap.write_text("0" if version is TWO else str(limit))
    except OSError:
        group.remove()
        return None
    return group


def enter() -> bool:
    """Move this process into the group that the environment variable names. Returns whether it is there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return False
    try:
        (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return True


def _place() -> tuple[Path, Version] | None:
    """The folder in which a group for a worker can be made, and its version; None without control groups of memory."""
    try:
        lines = OWN.read_text().splitlines()
    except OSError:
        return None
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1)}
    for controllers, path in own.items():
        if "memory" in controllers.split(","):
            return _below(ROOT / "memory", path), ONE
    if "" in own:
        parent = _below(ROOT, own[""]).parent
        with contextlib.suppress(OSError):
            if "memory" in (parent / "cgroup.subtree_control").read_text().split():
                return parent, TWO
    return None


def _below(root: Path, path: str) -> Path:
    """The folder of a group. In a container that sees only its own part of the tree, that is the root."""
    folder = root / path.strip("/")
    return folder if folder.is_dir() else root


def _remove_left(parent: Path) -> None:
    """Remove the empty groups of processes that were killed before they could do it."""
    for folder in parent.glob(f"{PREFIX}*-*"):
        number = folder.name.removeprefix(PREFIX).split("-")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
