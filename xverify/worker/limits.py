"""The limit of a worker's memory (``--memory``), which the worker sets for itself before it imports a framework.

It is a limit of the data segment (RLIMIT_DATA): memory that the process allocated, whether it uses it or not, in each process that
the worker starts as well. A file that is mapped into memory does not count. Where the system has no such limit, it is one of the
address space (RLIMIT_AS).
"""

from __future__ import annotations

import os
import re

VARIABLE = "XVERIFY_MEMORY"  # environment variable with the bytes
GB = 10**9
# What programs say when they cannot allocate memory.
WANT_OF_MEMORY = re.compile(
    r"out of memory|memoryerror|bad_alloc|alloc|(cannot|failed to) map|not enough memory", re.IGNORECASE
)


def apply() -> None:
    """Set the limit that the environment variable names, for this process and those that it starts."""
    wanted = os.environ.get(VARIABLE, "")
    if not wanted.isdigit():
        return
    import resource  # absent on Windows, where --memory is refused

    kind = getattr(resource, "RLIMIT_DATA", resource.RLIMIT_AS)
    _, most = resource.getrlimit(kind)
    limit = int(wanted) if most == resource.RLIM_INFINITY else min(int(wanted), most)
    resource.setrlimit(kind, (limit, limit))


def variables(memory: float | None) -> dict[str, str]:
    """The environment variables of a worker. memory: the limit, GB; None: no limit."""
    return {} if memory is None else {VARIABLE: str(int(memory * GB))}


def hint(memory: float | None, reason: str, crashed: bool = False) -> str:
    """The end of a sentence about a failure that the limit may have caused; "" for any other.

    reason: what is said about it. crashed: whether the process ended, which want of memory can cause without a word.
    """
    if memory is None or not (crashed or WANT_OF_MEMORY.search(reason)):
        return ""
    return f" (--memory {memory:g} limits each worker to {memory:g} GB)"
