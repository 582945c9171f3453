"""The policy of memory allocation that every subject is started with (``--allocator``), as environment variables of its process.

glibc serves a large request with pages of its own, and gives them back when the block is freed. The next call then faults on
every page again. Above which size it does so depends on which blocks the process freed before, so equal calls can have no fault in
one process and tens of thousands in another. ``mallopt(3)`` describes the rule and the variables.

* ``keep``: no request gets pages of its own, and free memory is never given back. A warm call then has no page faults.
* ``system``: no variable is set, so the rule is the one of a plain script.

The policy has to be set before the process starts, because the first allocations already count.

A process of which nothing is timed (a reference) has ``with_huge_pages`` instead. It gives free memory back, too, and a fault
brings 2 MiB in place of 4 KiB: float64 convolutions of ResNet-50 at batch 4 take 0.3 to 0.9 of the time without.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

VARIABLES = "MALLOC_"  # prefix of the variables of glibc's allocator
TUNABLES, MALLOC_TUNABLE = "GLIBC_TUNABLES", "glibc.malloc."  # the other way to set them
GIB, MIB = 2**30, 2**20
NEVER = {
    "MALLOC_TRIM_THRESHOLD_": str(16 * GIB),  # free memory at the end of the heap is kept up to this size
    # The heap grows by so much at a time. Pages that are not used yet take no memory. An arena of a thread is a list of heaps of
    # 64 MiB, and with a larger value it never gives back an empty one.
    "MALLOC_TOP_PAD_": str(256 * MIB),
}
# Requests below this size get no pages of their own.
LARGE = {"MALLOC_MMAP_THRESHOLD_": str(4 * GIB)}
# glibc before 2.35 ignores a threshold above 32 MiB, and would use 128 KiB. There the number of such requests is limited to none.
NONE_LARGE = {"MALLOC_MMAP_MAX_": "0"}
ANY_THRESHOLD = (2, 35)
HUGE, HUGE_PAGES = "glibc.malloc.hugetlb", (2, 35)  # the tunable, and the first glibc that has it


def allocator_variables(policy: str, environment: Mapping[str, str], version: tuple[int, ...] | None) -> dict[str, str]:
    """The environment of a process with this policy.

    policy: one of options.ALLOCATORS. environment: the variables to start from; their own settings of glibc's allocator are left
    out. version: of glibc; None where the C library is another one, which the policy does not change.
    """
    if version is None:
        return dict(environment)
    variables = {name: value for name, value in environment.items() if not name.startswith(VARIABLES)}
    tunables = [each for each in variables.pop(TUNABLES, "").split(":") if each and not each.startswith(MALLOC_TUNABLE)]
    if tunables:
        variables[TUNABLES] = ":".join(tunables)
    if policy == "keep":
        variables |= NEVER | (LARGE if version >= ANY_THRESHOLD else NONE_LARGE)
    return variables


def with_huge_pages(environment: Mapping[str, str], version: tuple[int, ...] | None) -> dict[str, str]:
    """The environment of a process whose large blocks are of huge pages, where the kernel has them and the user did not choose.

    environment, version: as in ``allocator_variables``.
    """
    tunables = environment.get(TUNABLES, "")
    if version is None or version < HUGE_PAGES or HUGE in tunables:
        return dict(environment)
    return {**environment, TUNABLES: ":".join(filter(None, [tunables, f"{HUGE}=1"]))}


def glibc_version() -> tuple[int, ...] | None:
    """The version of glibc; None where the C library is another one."""
    name, version = platform.libc_ver()
    if name != "glibc":
        return None
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def without_effect() -> str | None:
    """A sentence when the policy changes nothing on this system; None when it has an effect."""
    if glibc_version() is not None:
        return None
    return (
        "--allocator has no effect here: it sets variables of glibc's allocator, and this system has another C library"
    )
