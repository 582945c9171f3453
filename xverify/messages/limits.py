"""The limit of a worker's memory (``--memory``), which the worker sets for itself before it imports a framework.

Where a control group can be made, it is a limit of the memory that the worker and all processes that it starts use together (see
``cgroup``). Elsewhere it is a limit of the data segment (RLIMIT_DATA): memory that the process allocated, whether it uses it or
not, and each process that the worker starts has a limit of its own. A file that is mapped into memory does not count then. Where
the system has no such limit, it is one of the address space (RLIMIT_AS).
"""

from __future__ import annotations

import os
import re

from . import cgroup

VARIABLE = "XVERIFY_MEMORY"  # environment variable with the bytes
GB = 10**9
# What programs say when they cannot allocate memory.
WANT_OF_MEMORY = re.compile(
    r"out of memory|memoryerror|bad_alloc|alloc|(cannot|failed to) map|not enough memory", re.IGNORECASE
)


def apply() -> None:
    """Set the limit that the environment variables name, for this process and those that it starts."""
    if cgroup.enter():
        return
    wanted = os.environ.get(VARIABLE, "")
    if not wanted.isdigit():
        return
    import resource  # absent on Windows, where --memory is refused

    kind = getattr(resource, "RLIMIT_DATA", resource.RLIMIT_AS)
    _, most = resource.getrlimit(kind)
    limit = int(wanted) if most == resource.RLIM_INFINITY else min(int(wanted), most)
    resource.setrlimit(kind, (limit, limit))


def variables(memory: float | None, group: cgroup.Group | None = None) -> dict[str, str]:
    """The environment variables of a worker. memory: the limit, GB; None: no limit. group: the control group with this limit."""
    own = {} if memory is None else {VARIABLE: str(int(memory * GB))}
    return own if group is None else {**own, cgroup.VARIABLE: str(group.folder)}


def group(memory: float | None) -> cgroup.Group | None:
    """A new control group with the limit, GB; None where there is no limit, or where no group can be made."""
    return None if memory is None else cgroup.create(int(memory * GB))


def hint(memory: float | None, reason: str, crashed: bool = False, kills: int = 0) -> str:
    """The end of a sentence about a failure that the limit may have caused; "" for any other.

    reason: what is said about it. crashed: whether the process ended, which want of memory can cause without a word.
    kills: the number of processes that the kernel killed because they needed more than the limit.
    """
    if memory is not None and kills:
        return f" (it needed more than the {memory:g} GB of --memory {memory:g})"
    if memory is None or not (crashed or WANT_OF_MEMORY.search(reason)):
        return ""
    return f" (--memory {memory:g} limits each worker to {memory:g} GB)"
